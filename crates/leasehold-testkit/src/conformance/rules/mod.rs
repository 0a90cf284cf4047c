//! The protocol's rules at the seam: what every store answers to one request, whoever asks.
//!
//! Times are read off the answers and never off a clock of ours, so that a slow machine changes nothing.

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
        /// A step looks at no more than 64 waiters, and says that there are more.
        P1Bounded,
        /// Answers carry what is left, and repeating a request lengthens nothing.
        P2WhatIsLeft,
        /// A repeated acquire is the same grant; a repeated release is released; a released id is gone.
        P3Repeats,
        /// Only this id with this token is renewed and released.
        P3OnlyThis,
        /// A request that comes late does nothing.
        P4Late,
        /// A release makes the next waiter the holder, and tells it alone.
        P5HandsOver,
        /// Whose inbox is detached is passed over.
        P6Detached,
        /// Who comes back with a ticket comes back to its place.
        P6Place,
        /// An inbox that was attached anew is not detached by the end of the old link.
        P6AttachedAnew,
        /// A pushed grant lasts for a claim, and is whole when it was renewed.
        P7Claim,
        /// A fixed lease is claimed once, from its grant on.
        P7Fixed,
        /// A session that let a claim lapse costs no second one.
        P7Lapse,
        /// Every answer says whether others wait.
        P9Level,
        /// The holder of a range is told when somebody begins to wait, and when to wait in strict order.
        P9Wanted,
        /// A revocation names the token, tells its holder, and leaves it its grace.
        P10Revoke,
        /// A revocation notifies the next waiters of two sessions when the lease ends; a waiter that leaves, those behind
        /// it.
        P10Notifies,
        /// A leave takes an entry out, and hands a grant on.
        P16Leave,
        /// Tokens are reserved, grow, and the next one is above all that were used.
        P19Reserved,
        /// A range that nobody reports back is burnt.
        P19Burnt,
        /// A range grows for its holder alone.
        P19ForItsHolder,
        /// A lease that was given back cools down: a repeat lengthens nothing, and nothing of the attempt ends it.
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
