//! `quorum begin`: initializes a quorum, so that its nodes vote at once, whatever they may have forgotten.
//!
//! An operator promises that nobody holds a lock. That promise is easily broken:
//!
//! 1. A holds a lock by the votes of three nodes.
//! 2. Two of them restart, forget the lock, and are in quarantine. Every call fails.
//! 3. An operator in a hurry initializes the quorum again.
//! 4. The two nodes grant the lock to B.
//!
//! So this inspects all nodes first, and refuses if one node knows a holder or a waiter.
//!
//! ```text
//!   all nodes    connect, read the run ID and the marker    nothing is written
//!   all nodes    SCAN, and inspect each record              the first holder or waiter ends it
//!                wait until all clocks have passed the largest token that any node has voted for
//!   all nodes    write the marker                           refused if the node has forgotten since
//! ```
//!
//! The wait protects tokens: a node that has forgotten a token ahead of its clock votes for a smaller one.
//!
//! A grant between the inspection and the marker is harmless: nodes keep their records when they are initialized, so the
//! nodes that granted the lock know it. Only a loss of records is harmful. A restart breaks the connection. A node that is
//! emptied loses its marker, which is compared ([`leasehold_spec::node::has_lost`]). A lock that no node remembers cannot
//! be found.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_spec::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantState, Inspection, Name, Token};
use tokio::sync::Notify;

use super::connector::{OPEN_WITHIN_US, no_reply_in_time};
use super::fan::Fan;
use super::member::Member;
use super::node::{Begin, Candidate};
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::store::Fault;
use crate::world::Pending;

/// The longest time to inspect all nodes. They are inspected at the same time.
const INSPECT_WITHIN_US: u64 = 60_000_000;
/// How long the inspection goes on after the first holder or waiter, to list others as well.
const LIST_WITHIN_US: u64 = 1_000_000;
/// The number of records that a node is asked for at once.
const AT_ONCE: usize = 64;
/// The most names that are remembered. With so many the answer is certain.
const MOST: usize = 1_000;
/// How far behind a node's clock a client may propose a token: it knows that clock from replies that were in flight.
const BEHIND_US: u64 = CLOCK_ERROR_MS * 1000;
/// How far a token can be ahead of the clocks: a node does not vote for a token further ahead.
const AHEAD_US: u64 = TOKEN_WINDOW_MS * 1000;
/// The most names in the error.
const LISTED: usize = 10;

pub(super) async fn begin(shared: &Arc<Shared>, begin: Begin) -> Result<(), Error> {
    let charter = shared.charter;
    let prepare = |(node, member): (usize, &Member)| (node, in_time(shared, node, member.node.prepare(charter)));
    let mut preparing = Fan::of(shared.members.iter().enumerate().map(prepare));
    let mut candidates = Vec::new();
    while let Some((node, candidate)) = preparing.next().await {
        candidates.push((node, candidate?));
    }
    if begin == Begin::Asked && !is_on(Mutant::QBeginsUnasked) {
        inspect_all(shared, &candidates).await?;
    }
    let write =
        |(node, candidate): &(usize, Arc<dyn Candidate>)| (*node, in_time(shared, *node, candidate.begin(begin)));
    let (mut writing, mut result) = (Fan::of(candidates.iter().map(write)), Ok(()));
    while let Some((_, written)) = writing.next().await {
        result = result.and(written);
    }
    result
}

/// Limits the time that a node has for an answer.
fn in_time<T: 'static>(shared: &Shared, node: usize, answer: Pending<Result<T, Error>>) -> Pending<Result<T, Error>> {
    let (world, at) = (Arc::clone(&shared.world), shared.members[node].node.at().to_owned());
    Box::pin(async move {
        tokio::select! {
            biased;
            answer = answer => answer,
            () = world.sleep(Duration::from_micros(OPEN_WITHIN_US)) => {
                let error = no_reply_in_time();
                Err(Error::new(error.kind(), format!("{at}: {error}")))
            }
        }
    })
}

/// Inspects all nodes, and refuses if there is a holder or a waiter.
async fn inspect_all(shared: &Arc<Shared>, nodes: &[(usize, Arc<dyn Candidate>)]) -> Result<(), Error> {
    let census = Arc::new(Census::default());
    let inspecting = |(node, candidate): &(usize, Arc<dyn Candidate>)| -> (usize, Pending<Result<(), Error>>) {
        let (shared, census, candidate) = (Arc::clone(shared), Arc::clone(&census), Arc::clone(candidate));
        let node = *node;
        (node, Box::pin(async move { inspect(&shared, node, &*candidate, &census).await }))
    };
    let mut inspecting = Fan::of(nodes.iter().map(inspecting));
    let (mut trouble, mut is_known) = (None, false);
    let mut until_us = shared.now_us() + INSPECT_WITHIN_US;
    loop {
        let left = Duration::from_micros(until_us.saturating_sub(shared.now_us()));
        tokio::select! {
            biased;
            inspected = inspecting.next() => match inspected {
                Some((_, Ok(()))) => continue,
                Some((_, Err(error))) => trouble = trouble.or(Some(error)),
                None => break,
            },
            () = census.found.notified() => {}
            () = shared.world.sleep(left) => break,
        }
        if !std::mem::replace(&mut is_known, true) {
            until_us = until_us.min(shared.now_us() + LIST_WITHIN_US);
        }
    }
    let unfinished: Vec<&str> = inspecting.nodes().map(|node| shared.members[node].node.at()).collect();
    match (census.describe(&shared.members, unfinished.is_empty() && trouble.is_none()), trouble) {
        (None, None) if unfinished.is_empty() => pass_tokens(shared, &census).await,
        (Some(names), _) => Err(Error::new(
            ErrorKind::InUse,
            format!(
                "the quorum is in use, and no node was initialized: {names}; wait until there are no holders and \
                 waiters, or {FORCE}"
            ),
        )),
        (None, Some(error)) => Err(Error::new(error.kind(), format!("{error}; no node was initialized: {UNKNOWN}"))),
        (None, None) => {
            let within = INSPECT_WITHIN_US / 1_000_000;
            let (nodes, what) = (unfinished.join(", "), "too many keys to read");
            let message = format!("{nodes}: {what} within {within} s; no node was initialized: {UNKNOWN}");
            Err(Error::new(ErrorKind::Unreachable, message))
        }
    }
}

/// Waits until every clock has passed every known token: from then on clients propose larger tokens.
async fn pass_tokens(shared: &Shared, census: &Census) -> Result<(), Error> {
    let Some((node, left_us)) = census.behind(shared.now_us()) else { return Ok(()) };
    if left_us > AHEAD_US + BEHIND_US {
        let (at, behind_s) = (shared.members[node].node.at(), (left_us - BEHIND_US) / 1_000_000);
        let message = format!(
            "the clock of {at} is {behind_s} s behind the largest token of the quorum, and no node was initialized: \
             correct that clock, or {FORCE_TOKENS}"
        );
        return Err(Error::new(ErrorKind::Store, message));
    }
    shared.world.sleep(Duration::from_micros(left_us)).await;
    Ok(())
}

const FORCE_TOKENS: &str = "use `leasehold quorum begin --force` if no resource checks these tokens";
const FORCE: &str = "use `leasehold quorum begin --force` if you know that no lock is held";
const UNKNOWN: &str = "there may be holders or waiters; use `leasehold quorum begin --force` if you know that no lock \
                       is held";

/// Inspects one node. Each exchange has its own bound, so the error names a node that stands still.
async fn inspect(shared: &Shared, node: usize, candidate: &dyn Candidate, census: &Census) -> Result<(), Error> {
    let mut from = 0;
    loop {
        let (names, next) = in_time(shared, node, sound(candidate.names(from))).await?;
        for names in names.chunks(AT_ONCE) {
            let asking = names.iter().map(|name| candidate.inspect(name)).enumerate();
            let mut asked = Fan::of(asking.collect::<Vec<_>>());
            let answers: Pending<Result<Vec<_>, Error>> = Box::pin(async move {
                let mut answers = Vec::new();
                while let Some((at, seen)) = asked.next().await {
                    answers.push((at, seen.map_err(Fault::error)?));
                }
                Ok(answers)
            });
            for (at, (seen, highest)) in in_time(shared, node, answers).await? {
                census.note(node, &names[at], seen, highest);
            }
        }
        if next == 0 || census.is_full() {
            let node_us = in_time(shared, node, sound(candidate.time())).await?;
            census.note_clock(node, Clock { node_us, heard_us: shared.now_us() });
            return Ok(());
        }
        from = next;
    }
}

fn sound<T: 'static>(answer: Pending<Result<T, Fault>>) -> Pending<Result<T, Error>> {
    Box::pin(async { answer.await.map_err(Fault::error) })
}

/// The holders and waiters that the nodes know.
#[derive(Default)]
struct Census {
    known: Mutex<Known>,
    /// Notified at each holder or waiter.
    found: Notify,
}

#[derive(Default)]
struct Known {
    /// Holders and waiters, by name and node.
    names: BTreeMap<Name, BTreeMap<usize, Inspection>>,
    /// The largest token of all nodes.
    highest: Token,
    clocks: BTreeMap<usize, Clock>,
}

/// The time on a node's clock, and our time at which the reply arrived.
#[derive(Clone, Copy)]
struct Clock {
    node_us: u64,
    heard_us: u64,
}

impl Clock {
    /// Returns the least time that the clock shows at this time of ours.
    const fn at(self, now_us: u64) -> u64 {
        (self.node_us + now_us).saturating_sub(self.heard_us)
    }
}

impl Census {
    fn note(&self, node: usize, name: &Name, seen: Inspection, highest: Token) {
        let mut known = self.known();
        known.highest = known.highest.max(highest);
        if seen.holder().is_none() && seen.waiters == 0 {
            return; // The record has neither.
        }
        if known.names.len() < MOST || known.names.contains_key(name) {
            known.names.entry(name.clone()).or_default().insert(node, seen);
        }
        drop(known);
        self.found.notify_one();
    }

    fn note_clock(&self, node: usize, clock: Clock) {
        self.known().clocks.insert(node, clock);
    }

    /// Returns the node whose clock passes all tokens last, and the time until then. `None` if all clocks have passed.
    fn behind(&self, now_us: u64) -> Option<(usize, u64)> {
        let known = self.known();
        let past_us = known.highest.get() + BEHIND_US;
        let left = known.clocks.iter().map(|(node, clock)| (*node, past_us.saturating_sub(clock.at(now_us))));
        left.max_by_key(|(_, left_us)| *left_us).filter(|(_, left_us)| *left_us > 0)
    }

    fn is_full(&self) -> bool {
        self.known().names.len() >= MOST
    }

    /// Lists the names with holders and waiters. `None` if there are none.
    fn describe(&self, members: &[Member], is_whole: bool) -> Option<String> {
        let names = &self.known().names;
        let each = names.iter().take(LISTED).map(|(name, nodes)| one(name, nodes, members));
        let mut list = each.collect::<Vec<_>>().join("; ");
        let more = names.len().saturating_sub(LISTED);
        let least = if is_whole && names.len() < MOST { "" } else { "at least " };
        if more > 0 {
            // Writing to a `String` never fails.
            let _written = write!(list, "; and {least}{more} more");
        }
        (!list.is_empty()).then_some(list)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes one name: its holder or its waiters, and the nodes that know them.
fn one(name: &Name, nodes: &BTreeMap<usize, Inspection>, members: &[Member]) -> String {
    let mut says: Vec<(String, Vec<&str>)> = Vec::new();
    for (node, seen) in nodes {
        let what = match (seen.holder(), seen.waiters) {
            (Some(holder), _) if holder.state == GrantState::CoolingDown => {
                format!("was released by {} and is kept for its minimum hold", plain(&holder.label))
            }
            (Some(holder), _) => format!("is held by {}", plain(&holder.label)),
            (None, 1) => "has 1 waiter".to_owned(),
            (None, waiters) => format!("has {waiters} waiters"),
        };
        let at = members[*node].node.at();
        match says.iter_mut().find(|(said, _)| *said == what) {
            Some((_, nodes)) => nodes.push(at),
            None => says.push((what, vec![at])),
        }
    }
    let says: Vec<String> = says.iter().map(|(what, nodes)| format!("{what} ({})", nodes.join(", "))).collect();
    format!("{:?} {}", name.as_str(), says.join(" and "))
}

/// Escapes the control characters of a label, which a terminal would obey. A user can write any label into a node.
fn plain(label: &str) -> String {
    label.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
