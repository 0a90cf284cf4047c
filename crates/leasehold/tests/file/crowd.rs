//! Many processes, one name.

use crate::Store;
use crate::child::Child;

const PROCESSES: usize = 64;
const TURNS: usize = 30;

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
