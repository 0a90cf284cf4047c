//! One client of one store.
//!
//! A lock library that runs on its caller's runtime alone loses leases whenever that runtime is busy, and leaks grants
//! whenever a future is dropped. So a session has two lanes and one owner:
//!
//! - callers send their own acquire and release, on a link that their runtime drives: the short way (P17);
//! - everything that must happen without them (renewals, looks, what is given back, deadlines, reconnects) is sent by one
//!   thread of the session's own, on a link of its own that also carries the inbox;
//! - every attempt lives in [`State`] from before its first request until the last word about it, whoever is left to hear
//!   that word.
//!
//! The thread keeps no list of things to do: it asks the state what is due ([`State::errands`]). Callers change the state
//! and wake the thread only when something falls due before its next look.

mod alarms;
mod attempt;
mod batches;
mod bounds;
mod callers;
mod calls;
mod ending;
mod errand;
mod expiry;
mod grants;
mod heard;
mod hold;
mod lane;
mod lines;
mod links;
mod pace;
mod passes;
mod patience;
mod returns;
mod run;
mod state;
mod terms;
mod thread;
mod tries;
mod watch;
mod window;
mod words;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use leasehold_spec::{Answer, Inspection, Name, Op, Outcome, SessionId};
use tokio::sync::{Notify, oneshot};

pub(crate) use self::attempt::GivenBack;
use self::bounds::ANSWER_MAX_US;
pub(crate) use self::bounds::GIVEN_BACK_WITHIN_US;
pub(crate) use self::hold::{Hold, Seat};
use self::lane::Lane;
pub(crate) use self::lane::Lanes;
pub(crate) use self::state::HandOver;
use self::state::{Stage, State, Wake};
pub(crate) use self::terms::{Entry, KnownLine, Renewal, Terms, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::inspection::NodeView;
use crate::store::{Fault, Link, Store};
use crate::sync::Mutex;
use crate::world::{Pending, World};

/// What becomes of a session whose first try to connect fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// There is no session: the caller of `connect` decides whether to try again.
    Connected,
    /// If the store is away, the session goes on and tries again, as after every connection that breaks.
    Lazy,
}

pub(crate) struct Session {
    pub(crate) world: Arc<dyn World>,
    store: Arc<dyn Store>,
    process: u32,
    /// That as it was known then: see [`World::process_as_known`].
    known_process: u32,
    state: Mutex<State>,
    wake: Notify,
    /// Notified when the client is closed.
    closing: Notify,
}

impl Session {
    /// Connects, and returns the first error: a wrong URL, password or address is reported at once. When this returns, the
    /// lanes are open and the inbox is proved; of a lazy session only the first try has ended.
    pub(crate) async fn connect(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        lanes: Lanes,
        hand_over: HandOver,
        start: Start,
    ) -> Result<Arc<Self>> {
        let mut random = [0; 16];
        world.random(&mut random);
        let id = SessionId(u128::from_ne_bytes(random));
        let session = Arc::new(Self {
            process: world.process(),
            known_process: world.process_as_known(),
            state: Mutex::new(State::new(Arc::clone(&world), Arc::clone(&store), id, Lane::of(lanes), hand_over)),
            wake: Notify::new(),
            closing: Notify::new(),
            world,
            store,
        });
        let opening = Opening(&session);
        let (ready, is_ready) = oneshot::channel();
        let run = thread::run(Arc::clone(&session), id, start, ready);
        session.world.spawn_session(Box::pin(run)).map_err(no_thread)?;
        let lane = session.begin_lane();
        is_ready.await.map_err(|_| Error::closed())??;
        if session.with(|state| state.home().is_some()) {
            session.await_lane(lane).await;
        }
        std::mem::forget(opening);
        Ok(session)
    }

    /// Makes the lease of a hold as long as this, where it is renewed and was shorter: by a renewal, as soon as can be.
    pub(crate) fn lengthen(&self, hold: &Hold, lease_ms: u64) {
        self.with(|state| state.lengthen(hold, lease_ms));
    }

    /// One request outside any attempt.
    pub(crate) async fn ask_once(self: &Arc<Self>, name: &Name, op: Op) -> Result<Outcome> {
        let guess = self.with(|state| state.guess(name));
        let (answer, link, sent_us) = self.exchange(|link| link.apply(name, &op, guess)).await?;
        self.note(name, &answer, &*link, sent_us);
        Ok(answer.outcome)
    }

    /// What an answer outside any attempt says of the name.
    fn note(&self, name: &Name, answer: &Answer, link: &dyn Link, sent_us: u64) {
        self.with(|state| {
            if link.run_id() == state.run {
                state.note(name, answer, sent_us, state.world.now_us());
            }
        });
    }

    /// Every name that has a record.
    pub(crate) async fn names(self: &Arc<Self>) -> Result<BTreeSet<Name>> {
        let mut names = BTreeSet::new();
        let mut from = 0;
        loop {
            let ((page, next), ..) = self.exchange(|link| link.names(from)).await?;
            names.extend(page);
            if next == 0 {
                return Ok(names);
            }
            from = next;
        }
    }

    /// One exchange that nothing of this session depends on: its answer, by which link it came, and when it was asked.
    async fn exchange<T>(
        self: &Arc<Self>,
        ask: impl FnOnce(&dyn Link) -> Pending<Result<T, Fault>>,
    ) -> Result<(T, Arc<dyn Link>, u64)> {
        self.check_surely_usable()?;
        // The session's link: nobody is in a hurry here, and nothing that blocks a runtime is in its way.
        let link = self.with(|state| match state.stage {
            Stage::Open => state.home().cloned().ok_or_else(|| state.away()),
            Stage::Closing | Stage::Closed => Err(Error::closed()),
        })?;
        let sent_us = self.world.now_us();
        match self.within(ANSWER_MAX_US, ask(&*link)).await {
            Some(Ok(answer)) => Ok((answer, link, sent_us)),
            Some(Err(Fault::Gone(error) | Fault::Undecided(error))) => Err(error.may_act()),
            Some(Err(Fault::Damaged(error))) => {
                self.with(|state| state.doubt(&link));
                Err(error.may_act())
            }
            Some(Err(Fault::Refused(error) | Fault::NoMemory(error))) => Err(error),
            None => {
                self.with(|state| state.doubt(&link));
                Err(self.store.silence().unwrap_or_else(silent).may_act())
            }
        }
    }

    /// Who holds, and how many wait; and what each node of the store says by itself, where it has nodes.
    pub(crate) async fn inspect(self: &Arc<Self>, name: &Name) -> Result<(Inspection, Vec<NodeView>)> {
        let guess = self.with(|state| state.guess(name));
        let ((answer, nodes), link, sent_us) = self.exchange(|link| link.inspect(name, guess)).await?;
        self.note(name, &answer, &*link, sent_us);
        match answer.outcome {
            Outcome::Inspected(inspection) => Ok((inspection, nodes)),
            _ => Err(Error::new(ErrorKind::Store, "unexpected reply of the store to inspect")),
        }
    }

    /// See [`Store::life`].
    pub(crate) fn life(&self) -> Option<std::os::fd::OwnedFd> {
        self.store.life().filter(|_| self.is_surely_ours())
    }

    /// Begins the end: callers hear it, and what is held goes back in the background.
    pub(crate) fn begin_close(&self) {
        if !self.is_surely_ours() {
            return; // What is held is the parent's, and the lock may be as one of its threads left it.
        }
        self.with(|state| state.begin_close(state.world.now_us()));
        self.closing.notify_waiters();
    }

    /// Ends the session when its thread has ended.
    fn end(&self) {
        self.with(State::end_all);
        self.closing.notify_waiters();
    }

    /// Polls `future` until the client is closed.
    pub(crate) async fn while_open<F: Future>(&self, future: F) -> Option<F::Output> {
        if !self.is_surely_ours() {
            return Some(future.await); // As in `within`: everything is refused in a forked child.
        }
        let mut closing = pin!(self.closing.notified());
        // From here on it is notified.
        closing.as_mut().enable();
        if self.with(|state| state.stage != Stage::Open) {
            return None;
        }
        tokio::select! {
            biased;
            output = future => Some(output),
            () = closing => None,
        }
    }

    /// Waits until everything is given back, within bounds; answers what was not.
    pub(crate) async fn closed(self: &Arc<Self>) -> Vec<Name> {
        if !self.is_surely_ours() {
            return Vec::new(); // Nobody would tell.
        }
        let (tell, is_closed) = oneshot::channel();
        self.with(|state| match state.stage {
            Stage::Closed => drop(tell),
            _ => state.close_waiters.push(tell),
        });
        let _closed_or_too_late = self.within(GIVEN_BACK_WITHIN_US, is_closed).await;
        self.with(|state| state.unreturned())
    }

    /// Polls `future` for at most `within_us`. The session's thread keeps the time, so that this needs no runtime.
    pub(crate) async fn within<F: Future>(&self, within_us: u64, future: F) -> Option<F::Output> {
        if !self.is_surely_ours() {
            return Some(future.await); // Nobody keeps the time there, and nothing waits: everything is refused.
        }
        let (timer, fired) = oneshot::channel();
        self.with(|state| state.set_timer(state.world.now_us().saturating_add(within_us), timer));
        tokio::select! {
            biased;
            output = future => Some(output),
            _ = fired => None,
        }
    }

    /// Not in a forked child: that has this memory, and neither the thread nor the connections.
    ///
    /// As far as is known. That is enough for what stays in this memory, since a child's is its own; whoever sends, closes
    /// or watches the time asks [`Session::is_surely_ours`].
    pub(crate) fn is_ours(&self) -> bool {
        self.known_process == self.world.process_as_known()
    }

    pub(crate) fn is_surely_ours(&self) -> bool {
        self.is_ours() && self.process == self.world.process()
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(forked()) }
    }

    fn check_surely_usable(&self) -> Result<()> {
        if self.is_surely_ours() { Ok(()) } else { Err(forked()) }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_surely_usable()?;
        match self.with(|state| state.stage) {
            Stage::Open => Ok(()),
            Stage::Closing | Stage::Closed => Err(Error::closed()),
        }
    }

    /// Checks that the store can keep others out for the minimum hold: no longer than a lease can last.
    pub(crate) fn check_min_hold(&self, terms: &Terms) -> Result<()> {
        let checked = self.check_lease(terms.min_hold_us.div_ceil(1000));
        checked.map_err(|error| Error::invalid(format!("min_hold needs a lease of its length: {error}")))
    }

    /// Checks that the store has leases of this length.
    pub(crate) fn check_lease(&self, lease_ms: u64) -> Result<()> {
        self.with(|state| state.check_lease(lease_ms))
    }

    /// Changes the state, and then, without the lock: closes the links that were given up, wakes the thread if something is
    /// due before its next turn, and wakes callers.
    fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        #[cfg(debug_assertions)]
        state.assert_lines();
        let wake = std::mem::replace(&mut state.wake, Wake::No);
        let mut words = state.words.take();
        drop(state);
        words.close_links();
        if wake == Wake::Now {
            self.wake.notify_one();
        }
        words.say(|hold| self.drop_hold(hold));
        result
    }
}

/// A session that nobody has a handle of yet. Its connecting can be dropped: then there is nobody to close it later.
struct Opening<'a>(&'a Session);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

pub(crate) fn silent() -> Error {
    let message = "the store does not reply: is it running, and is the network up? The client keeps trying";
    Error::new(ErrorKind::Unreachable, message)
}

/// The same before there is a client.
fn unanswered() -> Error {
    Error::new(ErrorKind::Unreachable, "the store does not reply: is it running, and is the network up?")
}

fn forked() -> Error {
    let message = "this client belongs to the parent process of a fork: connect again in this process";
    Error::new(ErrorKind::Unsupported, message)
}

pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::no_thread("the thread of the client", error)
}
