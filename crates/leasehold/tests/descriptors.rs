//! Programs with few descriptors: a client connects and locks, or the error says which limit to raise. Nothing panics.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::fd::AsRawFd;
use std::process::Command;

use leasehold::{Error, Leasehold, Released, blocking};
use leasehold_testkit::RedisServer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The input of the child: the store, how many descriptors it has left, and the API that it uses.
const TASK: &str = "LEASEHOLD_DESCRIPTORS_TASK";
/// Begins each line of the child's results. The test harness prints lines of its own.
const MARK: &str = "@@ ";
/// More descriptors than any store needs.
const ENOUGH: u64 = 40;

/// Runs this test binary again in a process of its own, because tokio sets up some descriptors once for a process.
fn child(url: &str, left: u64, face: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "the_child", "--nocapture"])
        .env(TASK, format!("{face} {left} {url}"))
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = out.lines().find_map(|line| line.split_once(MARK)).map(|(_, said)| said.to_owned());
    match said {
        Some(said) if output.status.success() && !err.contains("panicked") => said,
        _ => format!("{:?}: {out}{err}", output.status),
    }
}

#[test]
#[ignore = "a process of the other tests"]
fn the_child() {
    let task = std::env::var(TASK).unwrap();
    let [face, left, url] = task.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    // Set up before the limit: in a program with a runtime only the client is tested.
    let runtime =
        (face == "async").then(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    limit_descriptors(left.parse().unwrap());
    let done = match runtime {
        Some(runtime) => runtime.block_on(lock(url)),
        None => lock_blocking(url),
    };
    match done {
        Ok(released) => println!("{MARK}{released:?}"),
        Err(error) => println!("{MARK}{error}"),
    }
}

/// Leaves this number of descriptors to the process.
fn limit_descriptors(left: u64) {
    // The lowest free number.
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let limit = Rlimit { current: Some(u64::try_from(next).unwrap() + left), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
}

async fn lock(url: &str) -> Result<Released, Error> {
    Leasehold::connect(url).await?.mutex("job").lock().await?.release().await
}

fn lock_blocking(url: &str) -> Result<Released, Error> {
    blocking::Leasehold::connect(url)?.mutex("job").lock()?.release()
}

#[track_caller]
fn locks_or_says_why(url: &str) {
    for face in ["async", "blocking"] {
        let mut wrong = Vec::new();
        for left in 0..=ENOUGH {
            let said = child(url, left, face);
            let is_done = said == "Released";
            if !is_done && (left == ENOUGH || !said.contains("ulimit -n")) {
                wrong.push(format!("with {left} left: {said}"));
            }
        }
        assert!(wrong.is_empty(), "{face} {url}\n{}", wrong.join("\n"));
    }
}

#[test]
fn in_memory() {
    locks_or_says_why("memory:");
}

#[cfg(all(feature = "file", target_os = "linux"))]
#[test]
fn on_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    locks_or_says_why(&format!("file:{}", dir.path().join("locks").display()));
}

#[test]
fn on_a_redis() {
    let server = RedisServer::start();
    locks_or_says_why(&server.url());
    locks_or_says_why(&server.url().replace("127.0.0.1", "localhost"));
}
