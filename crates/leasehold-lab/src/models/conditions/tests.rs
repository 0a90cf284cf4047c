//! All searches of condition variables, and their figures in docs/evidence.md.

use super::Conditions;
use crate::models::family::tests::{check_cases, check_scenes};

#[test]
fn no_counter_example_with_every_rule_on() {
    check_scenes::<Conditions>();
}

#[test]
fn a_counter_example_with_each_rule_off() {
    check_cases::<Conditions>(&["P41", "P42", "P43"]);
}
