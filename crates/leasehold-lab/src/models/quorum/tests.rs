//! The searches that are quick enough for every change.

use leasehold_testkit::part::Part;

use super::report::{Search, all};

const EVIDENCE: &str = include_str!("../../../../../docs/evidence.md");

/// Searches with more states than these take too long without optimization.
const SMALL: &[&str] =
    &["proposed", "above", "counters", "written back", "while held", "restarted", "one permit", "two permits"];

fn evidence_says(row: &str) {
    assert!(EVIDENCE.lines().any(|line| line.starts_with(row)), "docs/evidence.md does not say: {row}");
}

fn is_as_it_should_be(search: &Search) {
    let Search { name, about, harm, find } = search;
    let found = find();
    let schedule = found.harm.as_ref();
    let acts: Vec<String> = schedule.map(|schedule| schedule.acts.clone()).unwrap_or_default();
    assert_eq!(schedule.map(|schedule| schedule.harm), *harm, "{name}: {}", acts.join("\n"));
    match harm {
        Some(_) => evidence_says(&format!("| {name} | {about} | {} |", acts.len())),
        None => {
            assert_eq!(found.missed, Vec::<&str>::new(), "{name} never reached it");
            evidence_says(&format!("| {name} | {about} | - | {} |", found.states));
        }
    }
}

#[test]
fn a_scheme_is_sound_or_breaks_as_documented() {
    let all = all();
    let small = all.iter().filter(|search| SMALL.contains(&search.name));
    Part::chosen().of(small).for_each(is_as_it_should_be);
}

#[test]
fn every_search_is_documented() {
    for Search { name, about, .. } in all() {
        evidence_says(&format!("| {name} | {about} | "));
    }
}
