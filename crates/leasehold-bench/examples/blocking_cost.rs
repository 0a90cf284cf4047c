//! The cost of blocking: `cargo run --release -p leasehold-bench --example blocking_cost`.
//!
//! Measures pairs of lock and release per second, with a separate name for each thread or task: from threads that block,
//! and from tasks of one runtime on one thread, in turns; the best of several rounds. Then it measures re-entry.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Owner, Released, blocking};
use leasehold_testkit::RedisServer;
use tokio::task::JoinSet;

const ROUNDS: usize = 5;
const WINDOW: Duration = Duration::from_secs(1);

fn main() {
    let server = RedisServer::start();
    println!("{:<9} {:>7} {:>16} {:>16} {:>7} {:>16}", "pairs/s", "at once", "tasks", "threads", "ratio", "re-entry");
    for (store, url) in [("memory:", "memory:".to_owned()), ("redis://", server.url())] {
        for at_once in [1, 4, 16] {
            let (mut tasks, mut threads, mut again) = (0.0_f64, 0.0_f64, 0.0_f64);
            for _ in 0..ROUNDS {
                tasks = tasks.max(by_tasks(&url, at_once));
                threads = threads.max(by_threads(&url, at_once, None));
                again = again.max(by_threads(&url, at_once, Some(&Owner::new())));
            }
            let ratio = threads / tasks;
            println!("{store:<9} {at_once:>7} {tasks:>16.0} {threads:>16.0} {ratio:>7.2} {again:>16.0}");
        }
    }
}

fn by_tasks(url: &str, at_once: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Leasehold::connect(url).await.expect("connected");
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for number in 0..at_once {
            let mutex = client.mutex(format!("task {number}"));
            tasks.spawn(async move {
                let mut pairs = 0_u64;
                while begun.elapsed() < WINDOW {
                    let guard = mutex.lock().await.expect("granted");
                    assert_eq!(guard.release().await.expect("an answer"), Released::Released);
                    pairs += 1;
                }
                pairs
            });
        }
        let pairs: u64 = tasks.join_all().await.into_iter().sum();
        pairs as f64 / begun.elapsed().as_secs_f64()
    })
}

/// If an owner is given, it holds already, and each pair is a re-entry.
fn by_threads(url: &str, at_once: usize, owner: Option<&Owner>) -> f64 {
    let client = blocking::Leasehold::connect(url).expect("connected");
    let (pairs, begun) = (AtomicU64::new(0), Instant::now());
    thread::scope(|scope| {
        for number in 0..at_once {
            let mutex = client.mutex(format!("thread {number}"));
            let pairs = &pairs;
            scope.spawn(move || {
                let mutex = owner.map_or(mutex.clone(), |owner| mutex.owner(owner));
                let _outer = owner.map(|_| mutex.lock().expect("granted"));
                while begun.elapsed() < WINDOW {
                    let guard = mutex.lock().expect("granted");
                    assert_eq!(guard.release().expect("an answer"), Released::Released);
                    pairs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    pairs.into_inner() as f64 / begun.elapsed().as_secs_f64()
}
