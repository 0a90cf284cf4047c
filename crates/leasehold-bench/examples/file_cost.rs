//! The cost of the store `file:`: pairs of acquire and release, and a whole program that takes a lock once.
//!
//!     cargo run --release -p leasehold-bench --example file_cost [DIRECTORY]
//!
//! The directory is created, and not removed. (The costs on a disk and in memory, /dev/shm, differ.)

use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::Leasehold;

const PAIRS: u32 = 20_000;
const PROGRAMS: usize = 200;
const ONCE: &str = "LEASEHOLD_FILE_COST_ONCE";

#[tokio::main(flavor = "current_thread")]
async fn main() -> leasehold::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/tmp/leasehold-file-cost".into());
    let url = format!("file:{directory}");
    if std::env::var_os(ONCE).is_some() {
        let began = Instant::now();
        let client = Leasehold::connect(&url).await?;
        let connected = began.elapsed();
        let guard = client.mutex("once").lock().await?;
        let locked = began.elapsed();
        let _ = guard.release().await?;
        let released = began.elapsed();
        client.close().await;
        let micros = |duration: Duration| duration.as_micros();
        let all = (micros(connected), micros(locked), micros(released), micros(began.elapsed()));
        println!("{} {} {} {}", all.0, all.1, all.2, all.3);
        return Ok(());
    }
    let client = Leasehold::connect(&url).await?;
    let mutex = client.mutex("pairs");
    let began = Instant::now();
    for _ in 0..PAIRS {
        let _ = mutex.lock().await?.release().await?;
    }
    println!("{:.0} pairs/s, one client, nobody else", f64::from(PAIRS) / began.elapsed().as_secs_f64());
    client.close().await;
    let us = std::env::current_exe().expect("this program");
    let steps = ["connect", "lock", "release", "close", "whole process"];
    let mut times: [Vec<u128>; 5] = Default::default();
    for _ in 0..PROGRAMS {
        let began = Instant::now();
        let output = Command::new(&us).arg(&directory).env(ONCE, "1").output().expect("it runs");
        times[4].push(began.elapsed().as_micros());
        let text = String::from_utf8_lossy(&output.stdout);
        for (times, word) in times.iter_mut().zip(text.split_whitespace()) {
            times.push(word.parse().expect("a number"));
        }
    }
    println!("{PROGRAMS} programs that lock once, one after the other, in us since connecting began:");
    for (step, times) in steps.iter().zip(&mut times) {
        times.sort_unstable();
        println!("  {step:<14} p50 {:>6}  p99 {:>6}", times[PROGRAMS / 2], times[PROGRAMS * 99 / 100]);
    }
    let began = Instant::now();
    for _ in 0..PROGRAMS {
        let status = Command::new("flock").arg(format!("{directory}/../flock-cost")).arg("true").status();
        assert!(status.expect("flock is there").success());
    }
    println!("flock(1) with true: {} us each", began.elapsed().as_micros() / PROGRAMS as u128);
    Ok(())
}
