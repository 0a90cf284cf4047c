//! What a client knows of one of its nodes, over all connections: its clock, how far away it is, what it said last, and
//! what it is still to be told.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_spec::limits::{NOT_AFTER_MAX_US, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Abstention, Request, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::sync::Notify;

use super::node::Node;
use crate::clock::{Sample, ServerClock};

/// How many votes a node that was away may be told to give back: as many as a session remembers of its releases.
const OWED: usize = 1024;

pub(super) struct Member {
    pub(super) node: Arc<dyn Node>,
    known: Mutex<Known>,
    /// Rings when something was added to what the node is to be told.
    owes: Notify,
}

#[derive(Default)]
struct Known {
    clock: ServerClock,
    run: String,
    rtt_us: u64,
    standing: Standing,
    /// Whether it was in use before this: it has voted, or was another run, or its marker says so. Of any other nothing is
    /// known: it is new, or was emptied before we met it.
    was_used: bool,
    owed: VecDeque<Owed>,
}

/// What was last heard of a node.
#[derive(Clone, Debug, Default)]
pub(super) enum Standing {
    /// Nothing yet.
    #[default]
    Unheard,
    /// It answers, and votes.
    Votes,
    /// It answers, and has no vote, as it said at that moment.
    Abstains(Abstention, u64),
    /// It answers, and its clock is too far from most others' for it to vote.
    Far,
    /// It is connected, and does not answer.
    Silent,
    /// It cannot be reached, or refuses us.
    Away(String),
}

/// A vote that is to be given back at a node that could not be told.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) name: Name,
    pub(super) id: GrantId,
    /// Up to the vote for this token: the attempt may have been asked for anew since.
    pub(super) upto: Token,
    /// By then it has ended there by itself.
    pub(super) until_us: u64,
    /// Until when the vote is to cool down, by this client's clock; 0: not at all (P23).
    pub(super) cools_until_us: u64,
}

impl Owed {
    /// What to ask of the node now. A cool-down that is over by now is none.
    pub(super) fn request(&self, wait: Option<Wait>, now_us: u64) -> Request {
        let (id, upto, left_us) = (self.id, self.upto, self.cools_until_us.saturating_sub(now_us));
        match left_us {
            0 => Request::GiveBack { id, upto, wait },
            _ => Request::CoolDown { id, upto, for_ms: left_us.div_ceil(1000) },
        }
    }
}

impl Member {
    pub(super) fn new(node: Arc<dyn Node>) -> Self {
        Self { node, known: Mutex::default(), owes: Notify::new() }
    }

    /// A link leads to this run of the node. Times of two runs are never compared.
    pub(super) fn meet(&self, run: &str) {
        let mut known = self.known();
        if known.run != run {
            known.was_used |= !known.run.is_empty();
            (known.clock, known.run) = (ServerClock::default(), run.to_owned());
        }
    }

    pub(super) fn run(&self) -> String {
        self.known().run.clone()
    }

    /// Takes what an answer says of the node's clock. Answers by how much that was set forward, if it was: leases end as
    /// much earlier there.
    pub(super) fn sample(&self, run: &str, sample: Sample) -> Option<u64> {
        let mut known = self.known();
        if known.run != run {
            return None;
        }
        let trip_us = sample.heard_us.saturating_sub(sample.sent_us).min(NOT_AFTER_MAX_US);
        known.rtt_us = if known.rtt_us == 0 { trip_us } else { (7 * known.rtt_us + trip_us) / 8 };
        known.clock.observe(sample)
    }

    /// By how much the node's clock is known to have been set forward since this answer was made.
    pub(super) fn set_forward_since(&self, run: &str, sample: &Sample) -> u64 {
        let known = self.known();
        if known.run == run { known.clock.set_forward_since(sample) } else { 0 }
    }

    pub(super) fn rtt_us(&self) -> u64 {
        self.known().rtt_us
    }

    /// What the node's clock shows at a moment of ours; `None` if nothing was heard of it lately.
    pub(super) fn time_at(&self, local_us: u64, now_us: u64) -> Option<u64> {
        self.known().clock.server_at(local_us, now_us)
    }

    /// The earliest moment of ours at which its clock can have shown this.
    pub(super) fn local_of(&self, node_us: u64, now_us: u64) -> Option<u64> {
        self.known().clock.local_of(node_us, now_us)
    }

    pub(super) fn stand(&self, standing: Standing) {
        let mut known = self.known();
        known.was_used |= matches!(standing, Standing::Votes);
        known.standing = standing;
    }

    /// Its marker says that it was in use before.
    pub(super) fn note_used(&self) {
        self.known().was_used = true;
    }

    /// Whether it is known to have been in use before: then it is not new.
    pub(super) fn was_used(&self) -> bool {
        self.known().was_used
    }

    /// What was heard of it last, in words, for errors and reports.
    pub(super) fn told(&self, now_us: u64) -> String {
        let known = self.known();
        Told { standing: &known.standing, was_used: known.was_used, now_us }.to_string()
    }

    pub(super) fn standing(&self) -> Standing {
        self.known().standing.clone()
    }

    pub(super) fn owe(&self, mut owed: Owed, now_us: u64) {
        let mut known = self.known();
        known.owed.retain(|old| {
            let is_same = old.id == owed.id;
            if is_same {
                owed.upto = owed.upto.max(old.upto);
            }
            !is_same && old.until_us > now_us
        });
        if known.owed.len() >= OWED {
            known.owed.pop_front();
        }
        known.owed.push_back(owed);
        drop(known);
        self.owes.notify_one();
    }

    /// Waits until the node is owed something more.
    pub(super) async fn owes_more(&self) {
        self.owes.notified().await;
    }

    /// Whether there is anything that it is to be told.
    pub(super) fn is_owed(&self) -> bool {
        !self.known().owed.is_empty()
    }

    /// What it is to be told now that it is back.
    pub(super) fn take_owed(&self, now_us: u64) -> Vec<Owed> {
        self.known().owed.drain(..).filter(|owed| owed.until_us > now_us).collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    /// Of a node that answers: whether it votes, with its clock at `node_us` at a moment of ours.
    pub(super) fn of(rests_until_us: u64, node_us: u64, now_us: u64) -> Self {
        match rests_until_us.saturating_sub(node_us) {
            0 => Self::Votes,
            left_us => Self::Abstains(Abstention::Resting { left_us }, now_us),
        }
    }

    /// For how long it rests still, if it does.
    pub(super) fn rests_us(&self, now_us: u64) -> Option<u64> {
        let Self::Abstains(Abstention::Resting { left_us }, said_us) = self else { return None };
        Some(left_us.saturating_sub(now_us.saturating_sub(*said_us))).filter(|left_us| *left_us > 0)
    }
}

struct Told<'a> {
    standing: &'a Standing,
    was_used: bool,
    now_us: u64,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standing {
            Standing::Unheard => f.write_str("is being connected"),
            Standing::Votes => f.write_str("votes"),
            Standing::Abstains(Abstention::Resting { left_us }, said_us) => {
                let left_us = left_us.saturating_sub(self.now_us.saturating_sub(*said_us));
                let left_s = left_us.div_ceil(1_000_000);
                let why = if self.was_used { "was restarted or emptied" } else { "is new, or was emptied" };
                write!(f, "is in quarantine for {left_s} s more: it {why}, so it may have lost leases")
            }
            Standing::Abstains(Abstention::Unmarked, _) => f.write_str("was emptied, and is being initialized"),
            Standing::Far => {
                write!(
                    f,
                    "has a clock that differs by more than {} s from most others: correct it",
                    TOKEN_WINDOW_MS / 1000
                )
            }
            Standing::Silent => f.write_str("does not reply"),
            Standing::Away(why) => f.write_str(why),
        }
    }
}
