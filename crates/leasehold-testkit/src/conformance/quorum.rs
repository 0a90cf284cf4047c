//! Cells that have no meaning on a quorum, because its locks work differently there.
//!
//! A node does not grant to a waiter: it calls the waiter's client, which then asks all nodes. So there is no claim, no
//! hand-over in one step, and no order on which all nodes are sure to agree. Tests of their own compare the behavior of
//! nodes with `leasehold_spec::node` (`leasehold-spec/tests/node`, `leasehold/tests/votes`, `leasehold/tests/quorum`).

use super::leases::Aspect;
use super::{Cell, Law, Rule};

/// Returns why this cell has no meaning on a quorum, if it has none.
pub(super) fn not_of_a_quorum(cell: Cell) -> Option<&'static str> {
    match cell {
        Cell::Lease(_, Aspect::Pushed) => Some("a waiter is called, and asks for a whole lease: there is no claim"),
        Cell::Law(Law::HandOverLeavesNoGap) => {
            Some("a waiter is called: between two holders nobody holds for a moment")
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
        Rule::P2WhatIsLeft | Rule::P10Revoke => {
            Some("several clocks, and the client's own time: no two sums are equal")
        }
        Rule::P3Repeats | Rule::P16Leave | Rule::P23CoolDown => {
            Some("a repeated request of an ID proposes a new token, and is granted")
        }
        Rule::P10Notifies | Rule::P23Notifies => Some("each node notifies the waiters that are next in its own queue"),
        Rule::P6Place | Rule::P6AttachedAnew => Some("a waiter is called, and the store pushes no grant"),
        Rule::P7Claim | Rule::P7Fixed | Rule::P7Lapse => Some("there is no claim"),
        Rule::P9Level | Rule::P9Wanted => Some("each node reports the wish of its own first waiter"),
        Rule::P19Reserved | Rule::P19ForItsHolder => Some("a range does not grow: a new one is granted"),
        Rule::QueueBound => Some("each node has the limit, and a waiter is in the queue of all"),
    }
}
