//! The cost of the store `file:`: pairs of acquire and release, a whole program that takes a lock once, turns of two
//! clients that wait for each other, and the count-downs of a large latch.
//!
//!     cargo run --release -p leasehold-bench --example file_cost [DIRECTORY]
//!
//! The directory is created, and not removed. (The costs on a disk and in memory, /dev/shm, differ.)

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Latch, Leasehold};

const PAIRS: u32 = 20_000;
const PROGRAMS: usize = 200;
const TURNS: u32 = 2_000;
const COUNTS: u32 = 100_000;
/// The count-downs that are timed one by one, at each of three sizes of the latch.
const SAMPLE: u32 = 1_000;
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
    conditions(&url).await?;
    latch(&url).await
}

/// Two clients take turns: each waits until the other one has notified it.
async fn conditions(url: &str) -> leasehold::Result<()> {
    let (ping, pong) = (Leasehold::connect(url).await?, Leasehold::connect(url).await?);
    let turn = Arc::new(AtomicU32::new(0));
    let play = |client: Leasehold, own: u32| {
        let turn = Arc::clone(&turn);
        async move {
            let (mutex, condvars) = (client.mutex("turns"), ["even", "odd"].map(|name| client.condvar(name)));
            for _ in 0..TURNS {
                let is_others = |_| std::future::ready(turn.load(Ordering::Relaxed) % 2 != own);
                let guard = condvars[own as usize].wait_while(mutex.lock().await?, is_others).await?;
                turn.fetch_add(1, Ordering::Relaxed);
                condvars[1 - own as usize].notify_one().await?;
                let _ = guard.release().await?;
            }
            Ok::<_, leasehold::Error>(())
        }
    };
    let began = Instant::now();
    tokio::try_join!(play(ping, 0), play(pong, 1))?;
    let each = began.elapsed() / (2 * TURNS);
    println!("{} us for each turn of two clients that wait for each other", each.as_micros());
    Ok(())
}

/// A latch counts 100,000 count-downs. The last ones should cost what the first ones did.
async fn latch(url: &str) -> leasehold::Result<()> {
    let client = Leasehold::connect(url).await?;
    let latch = client.latch("large");
    let _gone = latch.delete().await;
    latch.create(COUNTS).await?;
    for begin in [0, COUNTS / 10, COUNTS - SAMPLE] {
        let known = COUNTS - latch.remaining().await?;
        let counting = (known..begin).collect::<Vec<_>>();
        for some in counting.chunks(256) {
            let all: Vec<_> = some.iter().map(|_| tokio::spawn(count(latch.clone()))).collect();
            for one in all {
                one.await.expect("no panic")?;
            }
        }
        let mut times = Vec::new();
        for _ in 0..SAMPLE {
            let began = Instant::now();
            latch.count_down().await?;
            times.push(began.elapsed().as_micros());
        }
        times.sort_unstable();
        println!("count-down after {begin:>6} others: p50 {:>4} us, p99 {:>4} us", times[500], times[990]);
    }
    let began = Instant::now();
    latch.wait().await?;
    latch.delete().await?;
    println!("{} us to wait for the open latch, and to delete it", began.elapsed().as_micros());
    client.close().await;
    Ok(())
}

async fn count(latch: Latch) -> leasehold::Result<()> {
    latch.count_down().await
}
