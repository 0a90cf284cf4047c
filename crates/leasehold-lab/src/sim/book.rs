//! The records of a run: the history for the checker, the injected faults and the promises that they break, the events
//! that occurred, and, on request, a trace of all steps.
//!
//! All times are true time, which no process sees. So the history does not need the care that a history of several
//! machines needs: a claim is exactly as long as it was.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use leasehold_spec::{Contention, Delivery, GrantId};
use leasehold_testkit::history::{Ended, Event, Fenced, History, Promise, Share};

use super::exec::{Pid, lock};
use super::jumps::{Jumps, Trip};

/// The records of a run. If the seed fails, they say what is wrong beside the seed.
#[derive(Default)]
pub(super) struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    lines: Option<Vec<String>>,
    events: Vec<Event>,
    excuses: Vec<Excuse>,
    counts: BTreeMap<Cow<'static, str>, u64>,
    wrong: Vec<String>,
    overwritten: Vec<Overwritten>,
    /// When the attempt of a grant was first known to be in the queue.
    queued_us: BTreeMap<(String, u64), u64>,
    /// When the server made a grant, and which attempt got it.
    given: BTreeMap<(String, u64), (u64, GrantId)>,
    /// The last token whose guard entered.
    entered: BTreeMap<String, u64>,
    /// Holds whose sections have panicked, and their processes.
    panicked: BTreeMap<(String, u64), Pid>,
    /// How many holds of a grant had entered when another client had waited for long.
    passes: BTreeMap<(String, u64), u64>,
    /// When a revocation ended a grant of the server before its lease, with everything to which it was handed on.
    revoked_us: BTreeMap<(String, u64), u64>,
    /// When the store ended a grant although it had reported that more was left: its clock was set forward.
    early_us: BTreeMap<(String, u64), Vec<(u64, u64)>>,
    /// When a hold ended before its lease.
    cut_us: BTreeMap<(String, u64), u64>,
    /// The forward jumps of the server's clock, and the clients that know them.
    jumps: Jumps,
    /// Since when a client knows that another client waits for its grant in strict order, if no later message has said
    /// otherwise.
    strict_us: BTreeMap<(Pid, u64), u64>,
    /// When the last cool-down is over.
    cools_until_us: u64,
}

impl Pages {
    fn grant_of(&self, name: &str, token: u64) -> Option<u64> {
        let of = |token| (name.to_owned(), token);
        self.given.range(of(0)..=of(token)).next_back().map(|((_, token), _)| *token)
    }
}

/// A promise that does not hold for some time.
#[derive(Clone, Debug)]
pub(super) struct Excuse {
    /// `None`: it concerns every name.
    pub(super) name: Option<String>,
    pub(super) breaks: Promise,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    pub(super) why: &'static str,
}

/// A write of `read + 1` over another value than the one that was read: the updates in between are lost.
#[derive(Clone, Debug)]
pub(super) struct Overwritten {
    pub(super) name: String,
    pub(super) client: String,
    pub(super) read_us: u64,
    pub(super) written_us: u64,
}

impl Book {
    pub(super) fn with_trace() -> Self {
        Self(Mutex::new(Pages { lines: Some(Vec::new()), ..Pages::default() }))
    }

    /// Adds a line to the trace.
    pub(super) fn trace(&self, at_us: u64, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut lock(&self.0).lines {
            lines.push(format!("{:>12.6} {}", at_us as f64 / 1e6, words()));
        }
    }

    pub(super) fn event(&self, event: Event) {
        lock(&self.0).events.push(event);
    }

    /// Counts an event.
    pub(super) fn count(&self, what: impl Into<Cow<'static, str>>) {
        *lock(&self.0).counts.entry(what.into()).or_default() += 1;
    }

    /// Records a broken promise of which the checker knows nothing.
    pub(super) fn wrong(&self, at_us: u64, what: &str) {
        self.trace(at_us, || format!("WRONG: {what}"));
        lock(&self.0).wrong.push(format!("{:.6}: {what}", at_us as f64 / 1e6));
    }

    pub(super) fn excuse(&self, excuse: Excuse) {
        lock(&self.0).excuses.push(excuse);
    }

    /// Returns whether a fault may have taken a lease of this name away at the store at some time between these. A late
    /// write has taken nothing.
    pub(super) fn is_excused(&self, name: &str, from_us: u64, to_us: u64) -> bool {
        let is_named = |e: &Excuse| e.name.as_ref().is_none_or(|known| known == name);
        let concerns = |e: &Excuse| e.breaks != Promise::UnfencedWrites && is_named(e);
        let pages = lock(&self.0);
        pages.excuses.iter().any(|e| concerns(e) && e.from_us <= to_us && from_us <= e.to_us)
    }

    pub(super) fn overwritten(&self, what: Overwritten) {
        lock(&self.0).overwritten.push(what);
    }

    /// Records that the attempt of this token has waited since this time.
    pub(super) fn waited(&self, name: &str, token: u64, since_us: u64) {
        lock(&self.0).queued_us.insert((name.to_owned(), token), since_us);
    }

    /// Records that the server has made this grant. After a failover it may be another grant with the token of an earlier
    /// one.
    pub(super) fn given(&self, name: &str, token: u64, id: GrantId, at_us: u64) {
        let pages = &mut *lock(&self.0);
        let of = |token| (name.to_owned(), token);
        if pages.given.get(&of(token)).is_some_and(|(_, known)| *known == id) {
            return;
        }
        pages.given.insert(of(token), (at_us, id));
        let next = pages.given.range(of(token + 1)..=of(u64::MAX)).next().map_or(u64::MAX, |((_, next), _)| *next);
        pages.panicked.retain(|(of, held), _| of != name || !(token..next).contains(held));
    }

    pub(super) fn given_us(&self, name: &str, token: u64) -> Option<u64> {
        lock(&self.0).given.get(&(name.to_owned(), token)).map(|(at_us, _)| *at_us)
    }

    /// Returns the token of the server's grant to which this token belongs.
    pub(super) fn grant_of(&self, name: &str, token: u64) -> Option<u64> {
        lock(&self.0).grant_of(name, token)
    }

    /// Returns whether no server has made a later grant than the one of this token.
    pub(super) fn is_last_given(&self, name: &str, token: u64) -> bool {
        let behind = (name.to_owned(), token + 1)..=(name.to_owned(), u64::MAX);
        lock(&self.0).given.range(behind).next().is_none()
    }

    /// Returns whether this token belongs to the first grant that a server has made since this time.
    pub(super) fn is_first_since(&self, name: &str, token: u64, since_us: u64) -> bool {
        let pages = lock(&self.0);
        let given = pages.given.range((name.to_owned(), 0)..=(name.to_owned(), u64::MAX));
        let first = given.filter(|(_, (at_us, _))| *at_us >= since_us).map(|((_, token), _)| *token).min();
        first == Some(token)
    }

    /// Returns whether no guard of this name has entered since the guard of this token.
    pub(super) fn is_last_entered(&self, name: &str, token: u64) -> bool {
        lock(&self.0).entered.get(name) == Some(&token)
    }

    /// Records that a section has panicked under this token.
    pub(super) fn panicked(&self, pid: Pid, name: &str, token: u64) {
        lock(&self.0).panicked.insert((name.to_owned(), token), pid);
    }

    /// Returns whether a section of this process has panicked before under the same grant of the server.
    pub(super) fn is_behind_a_panic(&self, pid: Pid, name: &str, token: u64) -> bool {
        let pages = lock(&self.0);
        let of = |token| (name.to_owned(), token);
        let Some((grant, _)) = pages.given.range(of(0)..=of(token)).next_back() else { return false };
        pages.panicked.range(grant.clone()..of(token)).any(|(_, panicked)| *panicked == pid)
    }

    /// Records a message that says who waits.
    pub(super) fn record_contention(&self, pid: Pid, message: &Delivery, at_us: u64) {
        let (mut pages, of) = (lock(&self.0), (pid, message.token.get()));
        if message.contention == Contention::Strict {
            pages.strict_us.entry(of).or_insert(at_us);
        } else {
            pages.strict_us.remove(&of);
        }
    }

    /// Records an answer that says who waits. The answer shows the server's clock, too.
    pub(super) fn record_answer(&self, pid: Pid, trip: Trip) {
        let mut pages = lock(&self.0);
        pages.strict_us.clear();
        pages.jumps.record_answer(pid, trip);
    }

    /// Records that the server's clock was set forward.
    pub(super) fn jumps(&self, at_us: u64, by_us: u64) {
        lock(&self.0).jumps.set_forward(at_us, by_us);
    }

    /// Returns whether the server made the grant of this token after its clock had jumped forward, and no answer has
    /// shown the jump to this client. If a message of the grant is delayed, the client then takes it for younger than
    /// it is.
    pub(super) fn is_placed_by_an_old_clock(&self, pid: Pid, name: &str, token: u64) -> bool {
        let pages = lock(&self.0);
        let grant = pages.grant_of(name, token).map(|grant| (name.to_owned(), grant));
        let Some((given_us, _)) = grant.and_then(|grant| pages.given.get(&grant)) else { return false };
        pages.jumps.is_unknown(pid, *given_us)
    }

    /// Returns since when this client certainly knows that another client waits for its grant in strict order.
    pub(super) fn strict_us(&self, pid: Pid, grant: u64) -> Option<u64> {
        lock(&self.0).strict_us.get(&(pid, grant)).copied()
    }

    /// Counts one more pass of a grant for which others wait. Returns the number of passes.
    pub(super) fn passed(&self, name: &str, token: u64) -> u64 {
        let mut pages = lock(&self.0);
        let passes = pages.passes.entry((name.to_owned(), token)).or_default();
        *passes += 1;
        *passes
    }

    /// Records that the work of this token was dropped: from this time on, its writes in flight are not covered by the
    /// lease that the sender saw.
    pub(super) fn cut_short(&self, name: &str, token: u64, at_us: u64) {
        let mut pages = lock(&self.0);
        let cut_us = pages.cut_us.entry((name.to_owned(), token)).or_insert(at_us);
        *cut_us = at_us.min(*cut_us);
    }

    /// Records the same for everything under the server's grant of this token: the grant was revoked.
    pub(super) fn revoked(&self, name: &str, token: u64, at_us: u64) {
        let mut pages = lock(&self.0);
        let revoked_us = pages.revoked_us.entry((name.to_owned(), token)).or_insert(at_us);
        *revoked_us = at_us.min(*revoked_us);
    }

    pub(super) fn cut_us(&self, name: &str, token: u64) -> Option<u64> {
        let pages = lock(&self.0);
        let of = |token| (name.to_owned(), token);
        let grant = pages.grant_of(name, token);
        let revoked_us = grant.and_then(|grant| pages.revoked_us.get(&of(grant)));
        pages.cut_us.get(&of(token)).into_iter().chain(revoked_us).min().copied()
    }

    /// Records that the store has ended the grant of this token at `from_us`, after it had reported that the grant
    /// lasts until `to_us`.
    pub(super) fn ended_early(&self, name: &str, token: u64, (from_us, to_us): (u64, u64)) {
        lock(&self.0).early_us.entry((name.to_owned(), token)).or_default().push((from_us, to_us));
    }

    /// Records that the store has renewed this grant: a recorded early end did not happen.
    pub(super) fn renewed(&self, name: &str, token: u64, at_us: u64) {
        if let Some(early_us) = lock(&self.0).early_us.get_mut(&(name.to_owned(), token)) {
            early_us.retain(|(from_us, _)| *from_us <= at_us);
        }
    }

    /// Returns why the client did not know that the store had ended the grant when it handed this token on inside
    /// itself.
    pub(super) fn handed_on_unaware(&self, name: &str, token: u64, at_us: u64) -> Option<&'static str> {
        let pages = lock(&self.0);
        let grant = (name.to_owned(), pages.grant_of(name, token).filter(|grant| *grant < token)?);
        if pages.revoked_us.get(&grant).is_some_and(|revoked_us| *revoked_us <= at_us) {
            return Some("a client that does not know the revocation hands the lease on inside itself");
        }
        let is_early = |(from_us, to_us): &(u64, u64)| (*from_us..=*to_us).contains(&at_us);
        let is_ended = pages.early_us.get(&grant).is_some_and(|early_us| early_us.iter().any(is_early));
        is_ended.then_some("a client that does not know that a clock has ended its lease hands it on inside itself")
    }

    fn queued_us(&self, name: &str, token: u64) -> Option<u64> {
        lock(&self.0).queued_us.get(&(name.to_owned(), token)).copied()
    }

    pub(super) fn take_lines(&self) -> Vec<String> {
        lock(&self.0).lines.take().unwrap_or_default()
    }

    /// Notes that a name cools down until then.
    pub(super) fn cools(&self, until_us: u64) {
        let mut pages = lock(&self.0);
        pages.cools_until_us = pages.cools_until_us.max(until_us);
    }

    /// Returns when the last cool-down is over, or was.
    pub(super) fn cools_until_us(&self) -> u64 {
        lock(&self.0).cools_until_us
    }

    pub(super) fn counts(&self) -> BTreeMap<Cow<'static, str>, u64> {
        lock(&self.0).counts.clone()
    }

    pub(super) fn wrongs(&self) -> Vec<String> {
        lock(&self.0).wrong.clone()
    }

    /// Returns the lost updates: those that a fault excuses, and those that no fault excuses.
    pub(super) fn lost_updates(&self) -> (Vec<&'static str>, Vec<Overwritten>) {
        let pages = lock(&self.0);
        let (mut excused, mut not) = (Vec::new(), Vec::new());
        for lost in &pages.overwritten {
            let fits = |e: &&Excuse| {
                matches!(e.breaks, Promise::Exclusion | Promise::UnfencedWrites)
                    && e.name.as_ref().is_none_or(|name| *name == lost.name)
                    && e.from_us <= lost.written_us
                    && lost.read_us <= e.to_us
            };
            match pages.excuses.iter().find(fits) {
                Some(excuse) => excused.push(excuse.why),
                None => not.push(lost.clone()),
            }
        }
        (excused, not)
    }

    /// Returns the history, with each excuse applied to each name that it concerns.
    pub(super) fn history(&self, names: &[String]) -> History {
        let pages = lock(&self.0);
        let mut events = pages.events.clone();
        for excuse in &pages.excuses {
            let Excuse { name, breaks, from_us, to_us, why } = excuse;
            for name in names.iter().filter(|known| name.as_ref().is_none_or(|name| name == *known)) {
                let (name, why) = (name.clone(), (*why).to_owned());
                events.push(Event::Fault { name, breaks: *breaks, from_us: *from_us, to_us: *to_us, why });
            }
        }
        History { events }
    }
}

/// A client's grant, as the history knows it.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) name: String,
    pub(super) client: String,
    pub(super) token: u64,
    pub(super) share: Share,
}

impl Grant {
    pub(super) fn granted(&self, book: &Book, asked_us: u64, granted_us: u64) {
        let Self { name, client, token, share } = self.clone();
        let queued_us = book.queued_us(&name, token);
        lock(&book.0).entered.insert(name.clone(), token);
        // The token serves as the number of the attempt.
        let attempt = token;
        book.event(Event::Granted { name, client, attempt, token, share, asked_us, queued_us, granted_us });
    }

    pub(super) fn claimed(&self, book: &Book, at_us: u64) {
        let Self { name, client, token, .. } = self.clone();
        book.event(Event::Claimed { name, client, token, at_us });
    }

    pub(super) fn ended(&self, book: &Book, at_us: u64, how: Ended) {
        let Self { name, client, token, .. } = self.clone();
        book.event(Event::Ended { name, client, token, at_us, how });
    }

    pub(super) fn fenced(&self, book: &Book, at_us: u64, answer: Fenced) {
        let Self { name, client, token, .. } = self.clone();
        book.event(Event::Fenced { name, client, token, at_us, answer });
    }

    /// Records a read of the unfenced register. In true time it takes no time.
    pub(super) fn read(&self, book: &Book, at_us: u64, number: u64) {
        let Self { name, client, token, .. } = self.clone();
        book.event(Event::Read { name, client, token, read_us: at_us, at_us, number });
    }
}
