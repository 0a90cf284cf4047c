//! What a quorum's locks do in their own way, so that a cell that is about the way has no meaning there.
//!
//! A node grants nothing to who waits: it calls them, and they ask all nodes. So there is no claim, no hand-over in one
//! step, and no order that all nodes are sure to agree on. What nodes do instead is held to `leasehold_spec::node` by tests
//! of its own (`leasehold-spec/tests/node`, `leasehold/tests/votes`, `leasehold/tests/quorum`).

use super::leases::Aspect;
use super::{Cell, Law, Rule};

/// Why this cell has no meaning on a quorum, if it has none.
pub(super) fn not_of_a_quorum(cell: Cell) -> Option<&'static str> {
    match cell {
        Cell::Lease(_, Aspect::Pushed) => Some("who waits is called, and asks for a whole lease: there is no claim"),
        Cell::Law(Law::HandOverLeavesNoGap) => {
            Some("who waits is called: between holders there is nobody for a moment")
        }
        Cell::Rule(rule) => of_one_store(rule),
        Cell::Face(..) | Cell::Lease(..) | Cell::Input(_) | Cell::Law(_) | Cell::Time(..) => None,
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
const fn of_one_store(rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::P3OnlyThis | Rule::P4Late | Rule::P19Burnt => None,
        Rule::P1QueueFirst | Rule::P1Bounded | Rule::P5HandsOver | Rule::P6Detached => {
            Some("a node calls, and does not grant")
        }
        Rule::P2WhatIsLeft | Rule::P10Revoke => Some("several clocks, and a time of our own: no two sums are the same"),
        Rule::P3Repeats | Rule::P16Leave | Rule::P23CoolDown => {
            Some("an id that is asked for again proposes a new token, and is granted")
        }
        Rule::P10Notifies | Rule::P23Notifies => Some("each node notifies the waiters that are next in its own queue"),
        Rule::P6Place | Rule::P6AttachedAnew => Some("who waits is called, and no grant is pushed by the store"),
        Rule::P7Claim | Rule::P7Fixed | Rule::P7Lapse => Some("there is no claim"),
        Rule::P9Level | Rule::P9Wanted => Some("nodes say what the first waiter wants, and each of them says so"),
        Rule::P19Reserved | Rule::P19ForItsHolder => Some("a range does not grow: it is granted anew"),
        Rule::QueueBound => Some("the bound is of each node, and a waiter is on all of them"),
    }
}
