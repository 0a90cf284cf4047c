//! The protocol's rules at the store's interface: the answer of every store to one request of any session.
//!
//! Times are read from the answers and never from a clock of the test, so that a slow machine changes nothing.

mod claims;
mod cooling;
mod queue;
mod ranges;
mod raw;
mod records;

use super::Verdict;
use super::stage::Stage;

pub(super) use raw::Raw;

dimension! {
    /// A rule. Its number is that of docs/PROTOCOL.md.
    Rule {
        /// A free lease goes to the queue, never to a newcomer.
        P1QueueFirst,
        /// A step examines no more than 64 waiters, and reports that there are more.
        P1Bounded,
        /// Answers carry the remaining time, and repeating a request lengthens nothing.
        P2WhatIsLeft,
        /// A repeated acquire is the same grant; a repeated release is confirmed again; a released ID is gone.
        P3Repeats,
        /// Only this ID with this token can be renewed and released.
        P3OnlyThis,
        /// A request that comes late does nothing.
        P4Late,
        /// A release makes the next waiter the holder, and notifies only that one.
        P5HandsOver,
        /// A session whose inbox is detached is passed over.
        P6Detached,
        /// A waiter that comes back with a ticket gets its old place.
        P6Place,
        /// The end of the old link does not detach an inbox that was attached anew.
        P6AttachedAnew,
        /// A pushed grant lasts for a claim, and is whole once it was renewed.
        P7Claim,
        /// A fixed lease is claimed once, from its grant on.
        P7Fixed,
        /// A session that let a claim lapse costs no second one.
        P7Lapse,
        /// Every answer reports whether others wait.
        P9Level,
        /// The holder of a range is notified when somebody begins to wait, and when a waiter in strict order does.
        P9Wanted,
        /// A revocation names the token, notifies its holder, and leaves it its grace.
        P10Revoke,
        /// A revocation notifies the next waiters of two sessions when the lease ends. When a waiter leaves, the waiters
        /// behind it are notified.
        P10Notifies,
        /// A leave removes an entry, and hands a grant over.
        P16Leave,
        /// Tokens are reserved, ranges grow, and the next token is above all that were used.
        P19Reserved,
        /// Tokens of a range that nobody reports back are not used again.
        P19Burnt,
        /// A range grows only for its holder.
        P19ForItsHolder,
        /// A released lease cools down: a repeat lengthens nothing, and no request of the attempt ends it.
        P23CoolDown,
        /// The waiters of two sessions are notified when a cool-down ends.
        P23Notifies,
        /// One waiter too many is refused.
        QueueBound,
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
pub(super) async fn run(rule: Rule, stage: &Stage) -> Verdict {
    match rule {
        Rule::P1QueueFirst => queue::queue_first(stage).await,
        Rule::P1Bounded => queue::bounded(stage).await,
        Rule::P2WhatIsLeft => records::what_is_left(stage).await,
        Rule::P3Repeats => records::repeats(stage).await,
        Rule::P3OnlyThis => records::only_this(stage).await,
        Rule::P4Late => records::late(stage).await,
        Rule::P5HandsOver => queue::hands_over(stage).await,
        Rule::P6Detached => queue::detached(stage).await,
        Rule::P6Place => queue::place_kept(stage).await,
        Rule::P6AttachedAnew => queue::attached_anew(stage).await,
        Rule::P7Claim => claims::claim(stage).await,
        Rule::P7Fixed => claims::fixed(stage).await,
        Rule::P7Lapse => claims::lapse(stage).await,
        Rule::P9Level => queue::level(stage).await,
        Rule::P9Wanted => ranges::wanted(stage).await,
        Rule::P10Revoke => claims::revoke(stage).await,
        Rule::P10Notifies => claims::notifies(stage).await,
        Rule::P16Leave => queue::leave(stage).await,
        Rule::P19Reserved => ranges::reserved(stage).await,
        Rule::P19Burnt => ranges::burnt(stage).await,
        Rule::P19ForItsHolder => ranges::for_its_holder(stage).await,
        Rule::P23CoolDown => cooling::cool_down(stage).await,
        Rule::P23Notifies => cooling::notifies(stage).await,
        Rule::QueueBound => queue::bound(stage).await,
    }
    Verdict::Passed
}
