//! Many processes, one name.

use std::collections::HashMap;
use std::time::Duration;

use tempfile::TempDir;

use crate::Store;
use crate::child::Child;

const PROCESSES: usize = 64;
const TURNS: usize = 30;
/// It takes seconds on an idle machine.
const MINUTES: Duration = Duration::from_secs(300);

const COUNTERS: usize = 6;
const KILLED: usize = 5;
const COUNTS: u64 = 150;

/// Each process increments a number in a file. No increment is lost, although some processes are killed at any point.
#[test]
fn p27_no_increment_under_the_lock_is_lost() {
    let store = Store::new();
    let file = TempDir::new().unwrap();
    let file = file.path().join("number");
    std::fs::write(&file, "0").unwrap();
    let order = format!("count x {} {COUNTS}", file.display());
    let start = || {
        let mut child = Child::start(&store.url());
        child.send(&order);
        child
    };
    let mut counters: Vec<_> = (0..COUNTERS).map(|_| start()).collect();
    let mut counted = 0;
    for _ in 0..KILLED {
        let mut killed = start();
        for _ in 0..20 {
            killed.reads("counted");
        }
        killed.kill();
        counted += 20 + killed.rest();
    }
    for child in &mut counters {
        while child.reads("counted") != "all" {
            counted += 1;
        }
    }
    let number: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    println!("{counted} told of, {number} counted");
    // A killed process may have counted without printing it.
    assert!((counted..=counted + KILLED as u64).contains(&number), "{counted} told of, {number} counted");
}

/// First come, first served: with 64 waiters, a turn is 63 other turns away, and never many times as many. The test
/// compares tokens, and not times, because a busy machine changes only the times.
#[test]
fn p27_nobody_starves_among_64_processes() {
    let store = Store::new();
    let mut crowd: Vec<_> = (0..PROCESSES).map(|_| Child::start(&store.url())).collect();
    crowd.iter_mut().for_each(|child| child.send(&format!("turns x {TURNS}")));
    let mut turns: Vec<(u64, usize)> = Vec::new();
    for (who, child) in crowd.iter().enumerate() {
        let tokens = child.reads_within(MINUTES, "turns");
        turns.extend(tokens.split(' ').map(|token| (token.parse::<u64>().unwrap(), who)));
    }
    assert_eq!(turns.len(), PROCESSES * TURNS);
    turns.sort_unstable();
    let mut last = HashMap::new();
    let since = turns.iter().enumerate().filter_map(|(at, (_, who))| Some(at - last.insert(*who, at)?));
    let longest = since.max().unwrap();
    println!("{PROCESSES} processes, {TURNS} turns each: somebody waited for {longest} turns");
    assert!(longest <= 5 * PROCESSES, "somebody waited for {longest} turns of {PROCESSES} processes");
}
