//! The machine: the protocol of a session, without I/O.
//!
//! Events come in: a call of a caller, a reply, a message, a connection that came or went, a moment. Effects go out:
//! requests to send, and results for callers, which are delivered when the lock of the machine is free. The machine never
//! waits, never sends, and never reads a clock: each event has its moment as an argument.
//!
//! Each operation is one file, which reads from the request over the reply to the retry. It borrows the two parts that
//! everything else is in: the [`Ledger`] (the attempts and what is found by them) and the [`Server`] (what is known of the
//! store and of the connections to it). Only this file has the whole machine.
//!
//! ```text
//!   due  waiting  guards           what to do now · callers that wait and give up · guards that end
//!    │  ╱       ╱
//!   acquire renew reserve recheck  the operations
//!     ╲      │      ╱
//!         grant                    how a lease is entered, shortened and lost
//!        ╱     ╲
//!   hand_over  precede             hand-over inside the process · what is sent before an acquire
//!        ╲     ╱
//!        release                   how an attempt is returned to the store
//!           │
//!        replies                   what every reply says, and requests without one
//!        ╱     ╲
//!   server     ledger              the parts, and below them what they consist of
//! ```

mod acquire;
mod attempt;
mod connections;
mod due;
mod effects;
mod grant;
mod guards;
mod hand_over;
mod ids;
mod lane;
mod ledger;
mod names;
mod order;
mod precede;
mod recheck;
mod release;
mod renew;
mod replies;
mod reserve;
mod returning;
mod server;
mod turn;
mod waiting;

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Name, SessionId};
use tokio::sync::oneshot;

pub(crate) use self::acquire::Outgoing;
use self::attempt::{Phase, Requester, Shortened};
use self::connections::Connections;
pub(crate) use self::connections::{Reply, for_now, silent};
pub(crate) use self::due::DueRequest;
use self::effects::Effects;
pub(crate) use self::effects::Verdict;
pub(crate) use self::guards::{Panicking, ReleaseStep, Sending};
pub(crate) use self::lane::{Lanes, Upkeep};
use self::ledger::Ledger;
pub(crate) use self::ledger::{HandOver, Stage};
pub(crate) use self::order::InFlight;
pub(crate) use self::precede::Predecessor;
pub(crate) use self::renew::Batch;
pub(crate) use self::reserve::Reserving;
use self::server::Server;
use self::turn::Turn;
pub(crate) use self::waiting::{Dropped, Joined};
use super::agenda::window::Kind;
use super::hold::Hold;
use super::local::queue::{Waiter, WaiterId};
use super::terms::{Terms, Wait};
use crate::clock::Sample;
use crate::error::{Error, Result};
use crate::lost::LostReason;
use crate::store::{Link, Message, Progress, Store};
use crate::world::{RuntimeId, World};

pub(crate) struct Machine {
    pub(super) ledger: Ledger,
    pub(super) server: Server,
    /// Callers of `close`, which wait until everything is returned.
    close_waiters: Vec<oneshot::Sender<()>>,
}

impl Machine {
    pub(crate) fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        session: SessionId,
        lanes: Lanes,
        hand_over: HandOver,
    ) -> Self {
        Self {
            ledger: Ledger::new(world, session, hand_over),
            server: Server::new(Connections::new(store, lanes)),
            close_waiters: Vec::new(),
        }
    }

    fn turn(&mut self, now_us: u64) -> Turn<'_> {
        Turn { ledger: &mut self.ledger, server: &mut self.server, now_us }
    }

    /// Ends a change. Returns what it does outside the machine.
    pub(crate) fn end_change(&mut self, now_us: u64) -> (Effects, super::agenda::Thread) {
        due::attend(&mut self.turn(now_us));
        #[cfg(debug_assertions)]
        self.ledger.assert_attended();
        (self.ledger.effects.take(), self.ledger.agenda.take_wake())
    }

    // The calls of callers.

    /// Joins the local queue for a name: see [`waiting::join`].
    pub(crate) fn join(
        &mut self,
        of: (&Name, &Arc<Terms>),
        by: (Wait, oneshot::Sender<Verdict>),
        runtime: Option<RuntimeId>,
        now_us: u64,
    ) -> Joined {
        waiting::join(&mut self.turn(now_us), of, by, runtime)
    }

    /// Begins an attempt for one caller. Returns its counter, and the request for the caller to send, if it can.
    pub(crate) fn begin(
        &mut self,
        of: (&Name, &Arc<Terms>),
        (wait, caller): (Wait, oneshot::Sender<Verdict>),
        runtime: Option<RuntimeId>,
        now_us: u64,
    ) -> Result<(u64, Option<Outgoing>, Upkeep)> {
        self.check_open()?;
        let turn = &mut self.turn(now_us);
        let (route, upkeep) = turn.server.links.route(&mut turn.ledger.effects, runtime, now_us);
        let link = match wait {
            Wait::No => route.lane.clone().or_else(|| turn.server.links.home().cloned()),
            _ => turn.server.links.way_in(route.lane.clone()),
        };
        let requester = (Requester::Caller(caller), wait);
        let (counter, first) = acquire::begin(turn, of, requester, (link, &route));
        if first.is_none() && wait == Wait::No {
            let error = turn.server.links.away();
            release::fail(turn, counter, error);
        }
        Ok((counter, first, upkeep))
    }

    /// Accepts the reply to an acquire.
    pub(crate) fn accept_acquire(&mut self, of: (&Name, GrantId), request: &InFlight, reply: Reply, now_us: u64) {
        acquire::accept_reply(&mut self.turn(now_us), of, request, reply);
    }

    /// Removes a waiter from its queue: see [`waiting::leave`].
    pub(crate) fn leave(&mut self, waiter: WaiterId, now_us: u64) -> Option<Waiter<Verdict>> {
        waiting::leave(&mut self.turn(now_us), waiter)
    }

    /// The future of a caller was dropped before its request had a reply: see [`waiting::drop_request`].
    pub(crate) fn drop_request(&mut self, counter: u64, dropped: Dropped, now_us: u64) {
        waiting::drop_request(&mut self.turn(now_us), counter, dropped);
    }

    /// Releases the lease of a guard: see [`guards::release`].
    pub(crate) fn release(&mut self, hold: &Hold, runtime: Option<RuntimeId>, now_us: u64) -> ReleaseStep {
        guards::release(&mut self.turn(now_us), hold, runtime)
    }

    /// Drops a guard: see [`guards::drop_guard`].
    pub(crate) fn drop_guard(&mut self, hold: &Hold, panicking: Panicking, now_us: u64) {
        guards::drop_guard(&mut self.turn(now_us), hold, panicking);
    }

    /// Accepts the reply to a release.
    pub(crate) fn accept_return(&mut self, counter: u64, request: &InFlight, reply: Reply, now_us: u64) {
        release::accept_reply(&mut self.turn(now_us), counter, request, reply);
    }

    pub(crate) fn lengthen(&mut self, hold: &Hold, lease_ms: u64, now_us: u64) {
        renew::lengthen(&mut self.turn(now_us), hold, lease_ms);
    }

    /// Fires at `at_us`; at once after the end of the session, when nobody keeps the time.
    pub(crate) fn set_timer(&mut self, at_us: u64, timer: oneshot::Sender<()>) {
        match self.ledger.stage {
            Stage::Closed => self.ledger.effects.signal(timer),
            Stage::Open | Stage::Closing => self.ledger.agenda.set_timer(at_us, timer),
        }
    }

    /// Notes the reply to a request outside any attempt.
    pub(crate) fn note(&mut self, name: &Name, answer: &Answer, link: &dyn Link, sent_us: u64, now_us: u64) {
        if self.server.links.is_of_this_run(link) {
            replies::note(&mut self.turn(now_us), name, answer, sent_us);
        }
    }

    /// Returns the session's own connection, for a request outside any attempt.
    pub(crate) fn home(&self) -> Result<Arc<dyn Link>> {
        self.check_open()?;
        self.server.links.home().cloned().ok_or_else(|| self.server.links.away())
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.ledger.stage == Stage::Open { Ok(()) } else { Err(Error::closed()) }
    }

    // The end.

    /// Begins the end: there is no new work, callers get an error, and held leases are released (P18).
    pub(crate) fn begin_close(&mut self, now_us: u64) {
        let turn = &mut self.turn(now_us);
        let ledger = &mut *turn.ledger;
        if ledger.stage != Stage::Open {
            return;
        }
        ledger.stage = Stage::Closing;
        if !ledger.is_drained() {
            hit(Mark::ClosedInUse);
        }
        ledger.tell_queues(&Error::closed());
        for counter in ledger.counters() {
            let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { continue };
            attempt.tell(&mut turn.ledger.effects, Verdict::Failed(Error::closed()));
            if let Phase::Held(holding) = &attempt.phase {
                turn.ledger.effects.lost(&holding.hold, LostReason::Closed);
            }
            release::give_back(turn, counter);
        }
        turn.ledger.agenda.wake();
    }

    /// The thread has ended: nobody renews or sends any more. Guards may live on for long, and need no connection.
    pub(crate) fn end(&mut self) {
        let Self { ledger, server, close_waiters } = self;
        ledger.stage = Stage::Closed;
        ledger.tell_queues(&Error::closed());
        for (counter, attempt) in &mut ledger.attempts {
            attempt.tell(&mut ledger.effects, Verdict::Failed(Error::closed()));
            match &mut attempt.phase {
                Phase::Held(holding) => ledger.effects.lost(&holding.hold, LostReason::Closed),
                Phase::Returning(returning) => {
                    ledger.effects.released(*counter, returning.caller.take(), || Err(Error::closed()));
                }
                _ => {}
            }
        }
        server.links.lane.close(&mut ledger.effects);
        let waiting = std::mem::take(close_waiters).into_iter().chain(ledger.agenda.take_fired(u64::MAX));
        waiting.for_each(|waiter| ledger.effects.signal(waiter));
    }

    /// Signals when everything is returned.
    pub(crate) fn await_close(&mut self, waiter: oneshot::Sender<()>) {
        if self.ledger.stage != Stage::Closed {
            self.close_waiters.push(waiter);
        }
    }

    /// Returns whether the thread may end: the client is closed, and everything is returned.
    pub(crate) fn is_over(&self) -> bool {
        self.ledger.stage != Stage::Open && self.ledger.is_drained()
    }

    // The thread.

    /// Returns the requests to send now.
    pub(crate) fn due_requests(&mut self, now_us: u64) -> Vec<DueRequest> {
        due::due_requests(&mut self.turn(now_us))
    }

    pub(crate) fn accept_renewals(&mut self, batch: &Batch, replies: Vec<Reply>, now_us: u64) {
        renew::accept_replies(&mut self.turn(now_us), batch, replies);
    }

    pub(crate) fn accept_reserve(&mut self, of: &Reserving, reply: Reply, now_us: u64) {
        reserve::accept_reply(&mut self.turn(now_us), of, reply);
    }

    pub(crate) fn accept_settle(&mut self, name: &Name, request: &InFlight, reply: Reply, now_us: u64) {
        self.ledger.agenda.end_requests(Kind::Settle, 1);
        recheck::accept_reply(&mut self.turn(now_us), name, request, reply);
    }

    /// Accepts a message of the inbox.
    pub(crate) fn accept_message(&mut self, message: Message, now_us: u64) {
        let turn = &mut self.turn(now_us);
        match message {
            Message::Delivery(name, delivery) => grant::accept_message(turn, &name, &delivery),
            Message::Shortened { id, token, until_us, since_us } => {
                grant::shorten(turn, id, Shortened { token, until_us, since_us });
            }
            Message::Look(name) => turn.ledger.recheck_in(&name, now_us, 0),
            Message::Ending { name, at_us } => turn.ledger.recheck_in(&name, now_us, at_us.saturating_sub(now_us)),
            Message::LookAtAll => self.wake_all(now_us),
            Message::Detached => turn.ledger.agenda.wake(),
        }
    }

    /// Makes every attempt re-check, renew or repeat its request at once.
    fn wake_all(&mut self, now_us: u64) {
        let reach = self.server.links.reach();
        for counter in self.ledger.counters() {
            self.ledger.set_next(counter, now_us);
            self.ledger.arm(counter, reach);
        }
    }

    /// A new connection leads to this run of the store.
    pub(crate) fn meet(&mut self, run_id: &str) {
        self.server.meet(&mut self.ledger, run_id);
    }

    /// The inbox is proved on a new connection: every attempt asks again (P11, P13).
    pub(crate) fn attached(&mut self, link: Arc<dyn Link>, now_us: u64) {
        if self.server.links.take_new_run() {
            release::repeat_releases(&mut self.turn(now_us));
        }
        self.server.links.set_home(Some(link));
        if !is_on(Mutant::P15NoResync) {
            self.wake_all(now_us);
        }
    }

    /// Notes the reply to a ping.
    pub(crate) fn note_ping(&mut self, link: &dyn Link, sample: Sample) {
        if self.server.links.is_of_this_run(link) {
            self.server.contact.replied(sample.heard_us);
            self.server.note_sample(&mut self.ledger, sample);
        }
    }

    /// A ping has ended. If it failed, the thread replaces the connection.
    pub(crate) fn end_proof(&mut self, link: &Arc<dyn Link>, is_proved: bool) {
        self.server.links.end_proof(link);
        if !is_proved {
            self.ledger.agenda.wake();
        }
    }

    /// Wants the lane for a caller on this runtime: the answer says what to do for it.
    pub(crate) fn want_lane(&mut self, runtime: Option<RuntimeId>, now_us: u64) -> Upkeep {
        self.server.links.route(&mut self.ledger.effects, runtime, now_us).1
    }

    /// Takes in the lane that a task has opened, or why it could not.
    pub(crate) fn lane_opened(&mut self, runtime: RuntimeId, opened: Result<Arc<dyn Link>>, now_us: u64) {
        let links = &mut self.server.links;
        match opened {
            Ok(link) if self.ledger.stage == Stage::Closed => link.close(), // Nobody would ever close it.
            Ok(link) => links.lane.opened(runtime, Ok(link), now_us),
            Err(error) => {
                if !links.lane.is_open() {
                    links.trouble = Some(for_now(error));
                }
                links.lane.opened(runtime, Err(()), now_us);
            }
        }
    }

    /// Gives the lane up if its runtime does not drive it. Returns what was found.
    pub(crate) fn check_lane(&mut self, now_us: u64) -> Progress {
        let progress = self.server.links.lane.progress();
        if progress == Progress::Stalled && !is_on(Mutant::P17LaneStandsStill) {
            replies::give_lane_up(&mut self.turn(now_us));
        }
        progress
    }

    /// Returns when the thread has to run at the latest.
    pub(crate) fn next_due_us(&mut self) -> u64 {
        due::next_due_us(&mut self.turn(0))
    }

    /// The thread sleeps until then, unless it is woken.
    pub(crate) fn sleep_until(&mut self, until_us: u64) {
        self.server.contact.sleeps(until_us);
        if !is_on(Mutant::P17LostWake) {
            self.ledger.agenda.plan(until_us);
        }
    }

    /// The thread runs again: while it works, it sees every change at the end of its turn.
    pub(crate) fn woke(&mut self, now_us: u64) {
        self.server.contact.woke(now_us);
        self.ledger.agenda.plan(0);
        for timer in self.ledger.agenda.take_fired(now_us) {
            self.ledger.effects.signal(timer);
        }
    }
}
