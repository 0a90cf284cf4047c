//! All searches of multi-locks, and their figures in docs/evidence.md.

use super::MultiLocks;
use crate::models::family::tests::{check_cases, check_scenes};

#[test]
fn no_counter_example_with_every_rule_on() {
    check_scenes::<MultiLocks>();
}

#[test]
fn a_counter_example_with_each_rule_off() {
    check_cases::<MultiLocks>(&["P45", "P46", "P47"]);
}
