//! All searches of multi-locks, and their figures in docs/evidence.md.

use super::report::{search, whole};
use super::scenes;

const EVIDENCE: &str = include_str!("../../../../../docs/evidence.md");

fn evidence_says(row: &str) {
    assert!(EVIDENCE.lines().any(|line| line.starts_with(row)), "docs/evidence.md does not say: {row}");
}

#[test]
fn no_counter_example_with_every_rule_on() {
    for scene in scenes::ALL {
        let (found, lines) = search(whole(scene));
        assert_eq!(found.harm.map(|schedule| schedule.harm), None, "{}\n{}", scene.name, lines.join("\n"));
        assert_eq!(found.missed, Vec::<&str>::new(), "{} never reached it", scene.name);
        evidence_says(&format!("| {} | {} | {} |", scene.name, scene.about, found.states));
    }
}

#[test]
fn a_counter_example_with_each_rule_off() {
    for case in scenes::CASES {
        let (found, lines) = search(case.play());
        let schedule = found.harm.unwrap_or_else(|| panic!("{} {}: nothing found", case.rule, case.flaw));
        assert_eq!(schedule.harm, case.harm.name());
        assert!(lines.len() >= schedule.acts.len());
        evidence_says(&format!("| {} | {} | {} | {} |", case.rule, case.flaw, case.scene.name, schedule.acts.len()));
    }
}

#[test]
fn every_modeled_rule_has_a_flaw() {
    for rule in ["P45", "P46", "P47"] {
        assert!(scenes::CASES.iter().any(|case| case.rule == rule), "{rule}");
    }
}
