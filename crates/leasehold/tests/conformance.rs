//! Every store passes the conformance suite, and every cell of the suite is run.

use std::collections::BTreeSet;

use leasehold_testkit::conformance::{Backend, Cell, HandOver, Verdict, run};
use leasehold_testkit::part::Part;

/// The cells of read-write locks and semaphores that have a meaning. A quorum has no such names.
const POOLS: usize = 642;
/// The cells of condition variables and latches. A quorum has no such names.
const CONDITIONS: usize = 12;
/// The cells of barriers, likewise.
const BARRIERS: usize = 6;

fn conforms(backend: Backend, unsupported: usize) {
    conforms_with(backend, HandOver::Local, unsupported);
}

fn conforms_with(backend: Backend, hand_over: HandOver, unsupported: usize) {
    // Runs one cell alone: LEASEHOLD_CELL=Mutex/Tasks/Lock/New
    let only = std::env::var("LEASEHOLD_CELL").ok();
    let (part, all) = (Part::chosen(), Cell::all());
    let chosen: BTreeSet<Cell> = match &only {
        Some(only) => all.into_iter().filter(|cell| cell.to_string() == *only).collect(),
        None => part.of(all).collect(),
    };
    assert!(!chosen.is_empty(), "LEASEHOLD_CELL={only:?} is no cell");
    let report = run(backend, hand_over, |cell| chosen.contains(cell));
    println!("{report}");
    for (cell, verdict) in &report.verdicts {
        match verdict {
            Verdict::Passed => {}
            Verdict::NotApplicable(why) | Verdict::Unsupported(why) => println!("  {cell}: {why}"),
            Verdict::Failed(why) => println!("  {cell}: FAILED: {why}"),
        }
    }
    assert_eq!(report.failures(), Vec::<String>::new());
    assert_eq!(report.verdicts.len(), chosen.len(), "cells that were run, and cells that were chosen");
    if only.is_none() && part.is_whole() {
        assert_eq!(report.verdicts.len(), Cell::count(), "cells that were run, and cells that there are");
        assert_eq!(report.count(|verdict| matches!(verdict, Verdict::Unsupported(_))), unsupported);
    }
}

#[test]
fn the_embedded_store_conforms() {
    // Unsupported: prefixes, because the URL names an embedded store.
    conforms(Backend::Memory, 1);
}

#[test]
fn a_directory_conforms() {
    // Unsupported: prefixes, because the URL names a directory.
    conforms(Backend::File, 1);
}

#[test]
fn one_redis_conforms() {
    conforms(Backend::Redis, 0);
}

/// The guarantees do not depend on where a client hands on.
#[test]
fn the_embedded_store_conforms_without_hand_over_inside() {
    conforms_with(Backend::Memory, HandOver::Remote, 1);
}

#[test]
fn a_directory_conforms_without_hand_over_inside() {
    conforms_with(Backend::File, HandOver::Remote, 1);
}

#[test]
fn one_redis_conforms_without_hand_over_inside() {
    conforms_with(Backend::Redis, HandOver::Remote, 0);
}

#[test]
fn one_redis_by_tls_conforms() {
    conforms(Backend::RedisTls, 0);
}

#[test]
fn three_nodes_conform() {
    conforms(Backend::Quorum, POOLS + CONDITIONS + BARRIERS);
}

/// A cell without a meaning has none with any store: no store can use it as an excuse.
#[test]
fn every_cell_is_counted_once() {
    let mut cells = Cell::all();
    cells.sort_unstable();
    cells.dedup();
    assert_eq!(cells.len(), Cell::count());
    // Each store has its test above.
    for backend in Backend::ALL {
        match backend {
            Backend::Memory | Backend::File | Backend::Redis | Backend::RedisTls | Backend::Quorum => {}
        }
    }
}
