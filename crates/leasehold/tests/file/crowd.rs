//! Many processes, one name.

use tempfile::TempDir;

use crate::Store;
use crate::child::Child;

const PROCESSES: usize = 64;
const TURNS: usize = 30;

const COUNTERS: usize = 6;
const KILLED: usize = 5;
const COUNTS: u64 = 150;

/// What each adds to a number that it reads and writes is there in the end, although some are killed anywhere.
#[test]
fn p27_nothing_that_was_counted_under_the_lock_is_lost() {
    let store = Store::new();
    let file = TempDir::new().unwrap();
    let file = file.path().join("number");
    std::fs::write(&file, "0").unwrap();
    let order = format!("count x {} {COUNTS}", file.display());
    let start = || {
        let mut child = Child::start(&store.url());
        child.tell(&order);
        child
    };
    let mut counters: Vec<_> = (0..COUNTERS).map(|_| start()).collect();
    let mut counted = 0;
    for _ in 0..KILLED {
        let mut killed = start();
        for _ in 0..20 {
            killed.hears("counted");
        }
        killed.kill();
        counted += 20 + killed.rest();
    }
    for child in &mut counters {
        while child.hears("counted") != "all" {
            counted += 1;
        }
    }
    let number: u64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    println!("{counted} told of, {number} counted");
    // One that was killed may have counted, and not told of it.
    assert!((counted..=counted + KILLED as u64).contains(&number), "{counted} told of, {number} counted");
}

/// First come, first served: with 64 in line a turn is 64 hand-overs away, and never many times as far.
#[test]
fn p27_nobody_starves_among_64_processes() {
    let store = Store::new();
    let mut crowd: Vec<_> = (0..PROCESSES).map(|_| Child::start(&store.url())).collect();
    crowd.iter_mut().for_each(|child| child.tell(&format!("turns x {TURNS}")));
    let mut told = Vec::new();
    for child in &crowd {
        let said = child.hears("turns");
        let (longest, all) = said.split_once(' ').unwrap();
        told.push((longest.parse::<u64>().unwrap(), all.parse::<u64>().unwrap()));
    }
    let mean = told.iter().map(|(_, all)| all).sum::<u64>() / (PROCESSES * TURNS) as u64;
    let longest = told.iter().map(|(longest, _)| *longest).max().unwrap();
    println!("{PROCESSES} processes, {TURNS} turns each: mean wait {mean} us, longest {longest} us");
    assert!(longest <= 5 * mean, "the longest wait was {longest} us, and the mean one {mean} us");
}
