//! The beginning of a quorum: its nodes vote at once, whatever they may have forgotten.
//!
//! An operator promises that nobody holds. That promise is easily broken. A holds by the votes of three nodes. Two of them
//! restart, forget, and rest. Every call fails, and an operator in a hurry begins the quorum anew. B is granted by the two.
//! So all nodes are asked first, and one that knows a holder or a waiter is enough for a refusal.
//!
//! ```text
//!   all nodes    connect, ask for the run and the marker    nothing is written
//!   all nodes    SCAN, and look at each record              the first holder or waiter ends it
//!                wait until all clocks have passed the largest token that any node has voted for
//!   all nodes    write the marker                           while the node remembers what it was asked
//! ```
//!
//! The wait is for tokens: a node that has forgotten one that was ahead of its clock votes for a smaller one. Mostly it is
//! over before it begins.
//!
//! What is granted between the question and the marker is no harm: nodes keep their records when they begin, so those that
//! granted it know of it. Only what takes records away is. A restart breaks the connection, and a node that is emptied
//! loses its marker, which is compared ([`leasehold_spec::node::has_lost`]). What no node remembers nobody can ask for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_spec::limits::{CLOCK_ERROR_MS, TOKEN_WINDOW_MS};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantState, Inspection, Name, Token};
use tokio::sync::Notify;

use super::fan::Fan;
use super::member::Member;
use super::node::{Begin, Candidate};
use super::{QuorumStore, Shared};
use crate::error::{Error, ErrorKind};
use crate::store::Fault;
use crate::world::Pending;

/// How long it may take to look through all nodes. They are looked through at once.
const LOOK_WITHIN_US: u64 = 60_000_000;
/// How long others are looked for once the answer is known, to be named as well.
const LIST_WITHIN_US: u64 = 1_000_000;
/// Records that a node is asked for at once.
const AT_ONCE: usize = 64;
/// Names that are remembered. With so many the answer is known.
const MOST: usize = 1_000;
/// How far behind a node's clock a client may propose: it knows that clock by answers which were under way.
const BEHIND_US: u64 = CLOCK_ERROR_MS * 1000;
/// How far a token can be ahead of the clocks: further no node votes for it.
const AHEAD_US: u64 = TOKEN_WINDOW_MS * 1000;
/// Names that are listed.
const LISTED: usize = 10;

impl QuorumStore {
    /// Has all nodes vote at once: nobody holds a lease of this quorum. None is told before all are there: those that were
    /// would grant leases, and whoever begins it again, with a better URL, would have them forgotten.
    pub async fn begin(&self, begin: Begin) -> Result<(), Error> {
        let shared = &self.shared;
        let charter = shared.charter;
        let prepare = |(node, member): (usize, &Member)| (node, shared.in_time(node, member.node.prepare(charter)));
        let mut preparing = Fan::of(shared.members.iter().enumerate().map(prepare));
        let mut here = Vec::new();
        while let Some((node, candidate)) = preparing.next().await {
            here.push((node, candidate?));
        }
        if begin == Begin::Asked && !is_on(Mutant::QBeginsUnasked) {
            ask(shared, &here).await?;
        }
        let tell =
            |(node, candidate): &(usize, Arc<dyn Candidate>)| (*node, shared.in_time(*node, candidate.begin(begin)));
        let (mut told, mut all) = (Fan::of(here.iter().map(tell)), Ok(()));
        while let Some((_, one)) = told.next().await {
            all = all.and(one);
        }
        all
    }
}

/// Asks all nodes whether anybody holds or waits.
async fn ask(shared: &Arc<Shared>, nodes: &[(usize, Arc<dyn Candidate>)]) -> Result<(), Error> {
    let census = Arc::new(Census::default());
    let looking = |(node, candidate): &(usize, Arc<dyn Candidate>)| -> (usize, Pending<Result<(), Error>>) {
        let (shared, census, candidate) = (Arc::clone(shared), Arc::clone(&census), Arc::clone(candidate));
        let node = *node;
        (node, Box::pin(async move { look(&shared, node, &*candidate, &census).await }))
    };
    let mut looks = Fan::of(nodes.iter().map(looking));
    let (mut trouble, mut is_known) = (None, false);
    let mut until_us = shared.world.now_us() + LOOK_WITHIN_US;
    loop {
        let left = Duration::from_micros(until_us.saturating_sub(shared.world.now_us()));
        tokio::select! {
            biased;
            looked = looks.next() => match looked {
                Some((_, Ok(()))) => continue,
                Some((_, Err(error))) => trouble = trouble.or(Some(error)),
                None => break,
            },
            () = census.found.notified() => {}
            () = shared.world.sleep(left) => break,
        }
        if !std::mem::replace(&mut is_known, true) {
            until_us = until_us.min(shared.world.now_us() + LIST_WITHIN_US);
        }
    }
    let unlooked: Vec<&str> = looks.nodes().map(|node| shared.members[node].node.at()).collect();
    match (census.told(&shared.members, unlooked.is_empty() && trouble.is_none()), trouble) {
        (None, None) if unlooked.is_empty() => pass_tokens(shared, &census).await,
        (Some(names), _) => Err(Error::new(
            ErrorKind::InUse,
            format!(
                "the quorum is in use, and no node was initialized: {names}; wait until there are no holders and \
                 waiters, or {FORCE}"
            ),
        )),
        (None, Some(error)) => Err(Error::new(error.kind(), format!("{error}; no node was initialized: {UNKNOWN}"))),
        (None, None) => {
            let within = LOOK_WITHIN_US / 1_000_000;
            let (nodes, what) = (unlooked.join(", "), "too many keys to read");
            let message = format!("{nodes}: {what} within {within} s; no node was initialized: {UNKNOWN}");
            Err(Error::new(ErrorKind::Unreachable, message))
        }
    }
}

/// Waits until every clock has passed every token that is remembered: from then on clients propose larger ones.
async fn pass_tokens(shared: &Shared, census: &Census) -> Result<(), Error> {
    let Some((node, left_us)) = census.behind(shared.world.now_us()) else { return Ok(()) };
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

/// Looks through one node. Each exchange has a bound of its own: a node that stands still is told as such.
async fn look(shared: &Shared, node: usize, candidate: &dyn Candidate, census: &Census) -> Result<(), Error> {
    let mut from = 0;
    loop {
        let (names, next) = shared.in_time(node, sound(candidate.names(from))).await?;
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
            for (at, (seen, highest)) in shared.in_time(node, answers).await? {
                census.note(node, &names[at], seen, highest);
            }
        }
        if next == 0 || census.is_full() {
            let node_us = shared.in_time(node, sound(candidate.time())).await?;
            census.note_clock(node, Clock { node_us, heard_us: shared.world.now_us() });
            return Ok(());
        }
        from = next;
    }
}

fn sound<T: 'static>(answer: Pending<Result<T, Fault>>) -> Pending<Result<T, Error>> {
    Box::pin(async { answer.await.map_err(Fault::error) })
}

/// What the nodes know.
#[derive(Default)]
struct Census {
    known: Mutex<Known>,
    /// Told at the first holder or waiter.
    found: Notify,
}

#[derive(Default)]
struct Known {
    /// Who holds and who waits, by name and node.
    names: BTreeMap<Name, BTreeMap<usize, Inspection>>,
    /// The largest token of all.
    highest: Token,
    clocks: BTreeMap<usize, Clock>,
}

/// What a node's clock showed, no later than it was heard.
#[derive(Clone, Copy)]
struct Clock {
    node_us: u64,
    heard_us: u64,
}

impl Clock {
    /// The least that it shows at this moment of ours.
    const fn at(self, now_us: u64) -> u64 {
        (self.node_us + now_us).saturating_sub(self.heard_us)
    }
}

impl Census {
    fn note(&self, node: usize, name: &Name, seen: Inspection, highest: Token) {
        let mut known = self.known();
        known.highest = known.highest.max(highest);
        if seen.holder.is_none() && seen.waiters == 0 {
            return; // It is remembered, and nobody has it.
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

    /// The node whose clock is the last to pass every token, and in how long; `None` if all have.
    fn behind(&self, now_us: u64) -> Option<(usize, u64)> {
        let known = self.known();
        let past_us = known.highest.get() + BEHIND_US;
        let left = known.clocks.iter().map(|(node, clock)| (*node, past_us.saturating_sub(clock.at(now_us))));
        left.max_by_key(|(_, left_us)| *left_us).filter(|(_, left_us)| *left_us > 0)
    }

    fn is_full(&self) -> bool {
        self.known().names.len() >= MOST
    }

    /// In words; `None` if there is nobody.
    fn told(&self, members: &[Member], is_whole: bool) -> Option<String> {
        let names = &self.known().names;
        let each = names.iter().take(LISTED).map(|(name, nodes)| one(name, nodes, members));
        let mut told = each.collect::<Vec<_>>().join("; ");
        let more = names.len().saturating_sub(LISTED);
        let least = if is_whole && names.len() < MOST { "" } else { "at least " };
        if more > 0 {
            // A `String` takes everything.
            let _written = write!(told, "; and {least}{more} more");
        }
        (!told.is_empty()).then_some(told)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One name, with who holds it or how many wait, and which nodes say so.
fn one(name: &Name, nodes: &BTreeMap<usize, Inspection>, members: &[Member]) -> String {
    let mut says: Vec<(String, Vec<&str>)> = Vec::new();
    for (node, seen) in nodes {
        let what = match (&seen.holder, seen.waiters) {
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

/// A label, without what a terminal would obey: whoever writes to a node by hand can write anything there.
fn plain(label: &str) -> String {
    label.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
