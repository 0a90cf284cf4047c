//! One of the independent nodes of a quorum: its votes, and the times at which it has no vote.
//!
//! A node is not a lock. It gives its vote for a name to one grant at a time, and a grant that has the votes of a
//! majority is a lease. [`vote`] differs from [`step`](crate::step) in two ways:
//!
//! - A node makes no grant for a waiter, since the vote of one node is worth nothing without the votes of others. It
//!   *calls* the next waiter, and the client of that waiter asks all nodes.
//! - The token comes with the request. The node votes for a token only if it is above every token for which the node
//!   has voted before. Any two majorities share a node. So no token is granted twice, and a client that is granted the
//!   lease after another client gets a larger token. A node that made its own tokens could promise neither (see
//!   `leasehold-lab models`).
//!
//! If a node forgets its records, it breaks two promises: that tokens grow, and that only one client holds. So a node
//! that may have forgotten something abstains until nothing that it may have forgotten matters: see [`Marker`].
//!
//! | File | Contents |
//! |---|---|
//! | `request.rs` | requests to a node, its answers, and its messages |
//! | `record.rs` | the record that a node keeps of a name |
//! | `vote.rs` | one request, carried out |
//! | `waiters.rs` | the queue: who is called, and who is notified |
//! | `marker.rs` | amnesia: how it is detected, and how long a node abstains |

mod marker;
mod record;
mod request;
mod vote;
mod waiters;

pub use marker::{Abstention, Charter, Marker, Unlike, begin, enter, has_lost, rest_ms};
pub use record::{Called, Granted, Record};
pub use request::{Ask, Bell, Renewal, Request, Rings, Said, Vote, Wait};
pub use vote::vote;
