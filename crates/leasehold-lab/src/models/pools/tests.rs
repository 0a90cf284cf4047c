//! All searches of pools, and their figures in docs/evidence.md.

use super::Pools;
use crate::models::family::tests::{check_cases, check_scenes};

#[test]
fn no_counter_example_with_every_rule_on() {
    check_scenes::<Pools>();
}

#[test]
fn a_counter_example_with_each_rule_off() {
    check_cases::<Pools>(&["P13", "P31", "P32", "P33", "P37", "P38", "P39", "P40"]);
}
