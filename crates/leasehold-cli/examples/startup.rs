//! Measures the time to start a command under a lock, with `leasehold run` and with util-linux's `flock`. They run in
//! turns, so that both see the same load. It prints the median and the 95th percentile, and asserts nothing.
//!
//! ```sh
//! scripts/startup            # builds for release, and runs this example
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use leasehold_testkit::RedisServer;

const ROUNDS: u32 = 500;
/// After these rounds, caches are warm.
const WARM: u32 = 20;

struct Way {
    what: &'static str,
    command: Command,
    took: Vec<Duration>,
}

fn main() {
    let program = program();
    assert!(program.exists(), "{} is not built: run scripts/startup", program.display());
    let (server, dir) = (RedisServer::start(), tempfile::tempdir().expect("a temporary directory"));
    let file = dir.path().join("lock");
    let store = format!("file:{}", dir.path().join("store").display());
    let mut ways = [
        way("true", Path::new("true"), &[]),
        way("flock FILE true", Path::new("flock"), &[file.to_str().expect("our own path"), "true"]),
        way("leasehold run, file", &program, &["run", "--store", &store, "job", "--", "true"]),
        way("leasehold run, redis on loopback", &program, &["run", "--store", &server.url(), "job", "--", "true"]),
    ];
    let progress = ProgressBar::new(u64::from(ROUNDS));
    for round in 0..WARM + ROUNDS {
        for way in &mut ways {
            let begun = Instant::now();
            let status = way.command.status().unwrap_or_else(|error| panic!("{}: {error}", way.what));
            let took = begun.elapsed();
            assert!(status.success(), "{}: {status}", way.what);
            if round >= WARM {
                way.took.push(took);
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    println!("{ROUNDS} rounds, in turns; ms");
    println!("{:<34} {:>8} {:>8}", "", "median", "p95");
    for way in &mut ways {
        way.took.sort_unstable();
        let at = |part: usize| way.took[way.took.len() * part / 100].as_secs_f64() * 1e3;
        println!("{:<34} {:>8.2} {:>8.2}", way.what, at(50), at(95));
    }
}

fn way(what: &'static str, program: &Path, arguments: &[&str]) -> Way {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    Way { what, command, took: Vec::new() }
}

/// The command, built beside this example.
fn program() -> PathBuf {
    let example = std::env::current_exe().expect("a path of our own");
    let folder = example.ancestors().nth(2).expect("target/release/examples/startup");
    folder.join("leasehold")
}
