//! The connections of a session that come and go, and what this means for the requests on them.
//!
//! Another connection may lead to another *run* of the store: one that restarted, or a replica that took over. The clock of
//! that run has nothing to do with the clock of the run before. It may have forgotten grants, and may remember leases that
//! were released. The old primary may live on, cut off, and go on replying.

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_spec::Answer;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempt::Attempt;
use super::effects::Effects;
use super::holding::Reach;
use super::inbox_place::{InboxPlace, Move};
use super::lane::{Lane, Lanes, Upkeep};
use super::order::{InFlight, same};
use crate::error::{Error, ErrorKind};
use crate::session::agenda::Agenda;
use crate::session::expiry::Contact;
use crate::session::inbox_keeper::InboxKeeper;
use crate::session::terms::{Renewal, Terms};
use crate::store::{Fault, Link, Progress, Store, StoreProfile};
use crate::world::RuntimeId;

/// The result of a request.
pub(crate) type Reply = Result<Answer, Fault>;

/// How many ended connections are remembered with their reason: two at a time, and earlier ones, whose requests may still
/// fail.
const ENDS: usize = 4;
/// How often the lane is checked.
const CHECK_US: u64 = 250_000;
/// The second check, if requests are in flight. Both together take less than the half second for which `try_lock_for`
/// awaits a reply. A lane that has the inbox is checked this often: both checks together take less than a third of the
/// shortest claim, at which a waiter that was granted the lock renews it.
const CHECK_AGAIN_US: u64 = 100_000;

pub(crate) struct Connections {
    store: Arc<dyn Store>,
    profile: StoreProfile,
    run_id: String,
    /// Whether the current run differs from the one before, so that releases are to be repeated.
    is_new_run: bool,
    /// The session's own connection. The inbox is proved on it first.
    home: Option<Arc<dyn Link>>,
    pub(crate) lane: Lane,
    pub(crate) inbox: InboxPlace,
    /// When the lane was checked last, and its progress then.
    checked: (u64, Progress),
    /// Connections that left a request unanswered.
    doubted: Vec<Arc<dyn Link>>,
    /// Connections with a ping in flight, and how many other replies have come meanwhile.
    proving: Vec<(Arc<dyn Link>, u64)>,
    /// Connections that ended lately, and why.
    ends: VecDeque<(Arc<dyn Link>, Error)>,
    /// Why the store could not be reached last.
    pub(crate) trouble: Option<Error>,
}

/// How a caller can send its own requests.
#[derive(Clone, Default)]
pub(crate) struct Route {
    /// The lane, if the caller's runtime drives it.
    pub(crate) lane: Option<Arc<dyn Link>>,
    pub(crate) runtime: Option<RuntimeId>,
}

impl Connections {
    pub(crate) fn new(store: Arc<dyn Store>, lanes: Lanes) -> Self {
        Self {
            profile: store.profile(),
            store,
            run_id: String::new(),
            is_new_run: false,
            home: None,
            lane: Lane::new(lanes),
            inbox: InboxPlace::new(),
            checked: (0, Progress::Moving),
            doubted: Vec::new(),
            proving: Vec::new(),
            ends: VecDeque::new(),
            trouble: None,
        }
    }

    pub(crate) fn profile(&self) -> &StoreProfile {
        &self.profile
    }

    /// Notes the run that a new connection leads to. Returns whether it is another one than before.
    pub(crate) fn meet(&mut self, run_id: &str) -> bool {
        if self.run_id == run_id {
            return false;
        }
        self.is_new_run = !self.run_id.is_empty();
        if self.is_new_run {
            hit(Mark::MetAnotherRun);
        }
        run_id.clone_into(&mut self.run_id);
        true
    }

    /// Returns, once for each new run, that releases are to be repeated.
    pub(crate) fn take_new_run(&mut self) -> bool {
        std::mem::take(&mut self.is_new_run)
    }

    pub(crate) fn is_of_this_run(&self, link: &dyn Link) -> bool {
        self.is_this_run(link.run_id())
    }

    pub(crate) fn is_this_run(&self, run_id: &str) -> bool {
        self.run_id == run_id
    }

    /// Notes that a message has brought a grant. Returns whether the inbox should move to the lane.
    pub(crate) fn note_pushed(&mut self, now_us: u64) -> bool {
        if self.inbox.is_at_lane() {
            self.lane.note_use(now_us);
        }
        self.inbox.note_grant(now_us) && self.profile.moves_inbox && self.lane.is_open()
    }

    /// Begins the move of the inbox that is due, and returns it.
    pub(crate) fn begin_due_move(&mut self, now_us: u64) -> Option<Move> {
        self.home()?;
        let may_have_it = |lane: &&Arc<dyn Link>| !lane.is_closed() && self.is_of_this_run(&***lane);
        let lane = self.lane.open().filter(|_| self.profile.moves_inbox).filter(may_have_it).cloned();
        self.inbox.begin_due_move(lane, now_us)
    }

    /// Notes a check of the lane.
    pub(crate) fn note_check(&mut self, progress: Progress, now_us: u64) {
        self.checked = (now_us, progress);
    }

    /// Returns when the lane has to be checked again.
    pub(crate) fn next_check_us(&self) -> u64 {
        let (checked_us, progress) = self.checked;
        let is_soon = self.inbox.is_at_lane() || progress != Progress::Moving;
        checked_us + if is_soon { CHECK_AGAIN_US } else { CHECK_US }
    }

    /// Keeps the inbox with the thread for a caller on this runtime, if the caller does not read the lane, or if a re-check
    /// would not make up for a message that is lost there.
    pub(crate) fn keep_inbox(
        &self,
        agenda: &mut Agenda,
        terms: &Terms,
        runtime: Option<RuntimeId>,
    ) -> Option<InboxKeeper> {
        let is_made_up_for = terms.renewal == Renewal::Always && !terms.is_arrival();
        if is_made_up_for && self.lane.is_driven_by(runtime) {
            return None;
        }
        if !self.inbox.is_at_home() {
            agenda.wake();
        }
        Some(self.inbox.keep())
    }

    pub(crate) fn set_home(&mut self, link: Option<Arc<dyn Link>>) {
        if link.is_some() {
            self.trouble = None;
        }
        self.home = link;
    }

    /// Returns the session's own connection. Nothing is sent on it after its end, even before the thread has seen the end:
    /// a request that was never sent is surely not carried out.
    pub(crate) fn home(&self) -> Option<&Arc<dyn Link>> {
        self.home.as_ref().filter(|link| !link.is_closed())
    }

    pub(crate) fn reach(&self) -> Reach {
        match self.home() {
            None => Reach::Offline,
            Some(_) if self.inbox.is_detached() => Reach::WithoutInbox,
            Some(_) => Reach::Online,
        }
    }

    /// Returns the connection on which a caller may send an acquire that can queue: none before the inbox is proved (P11).
    pub(crate) fn way_in(&self, link: Option<Arc<dyn Link>>) -> Option<Arc<dyn Link>> {
        let is_proved = self.reach() == Reach::Online || is_on(Mutant::P11NoProof);
        link.or_else(|| self.home().cloned()).filter(|_| is_proved)
    }

    /// Returns why the store does not reply, as far as it knows.
    pub(crate) fn silence(&self) -> Error {
        self.store.silence().unwrap_or_else(silent)
    }

    /// Returns why the store cannot be asked now, for a request that was not sent. An error about other requests on a
    /// broken connection says nothing about this one.
    pub(crate) fn away(&self) -> Error {
        self.trouble.as_ref().map_or_else(|| self.silence(), Error::share).was_not_sent()
    }

    /// Returns the same for an attempt without a reply, of which some requests may have been sent.
    pub(crate) fn away_for(&self, attempt: &Attempt) -> Error {
        let may_have_acted = !attempt.order.is_settled() || attempt.may_have_arrived();
        if may_have_acted { self.away().may_act() } else { self.away() }
    }

    /// Decides what a reply is worth that came by this connection.
    ///
    /// A reply of another run is worth nothing: after a failover the old primary may live on, cut off, and grant, renew and
    /// release to the clients that are still connected to it. Its clock must not be compared with the clock of this run.
    ///
    /// A store that is not the one to ask (a replica, or one that loads) never replies with an answer. Its connection is
    /// closed, and the next one starts with a handshake. Its refusal concerns every caller that waits for a reply,
    /// unlike the refusal of one name.
    pub(crate) fn judge(
        &mut self,
        agenda: &mut Agenda,
        contact: &Contact,
        request: &InFlight,
        reply: Reply,
        now_us: u64,
    ) -> Reply {
        if reply.is_ok()
            && let Some((_, replies)) = self.proving.iter_mut().find(|(known, _)| same(known, &request.link))
        {
            *replies += 1;
        }
        let reply = match reply {
            Ok(_) if !self.is_of_this_run(&*request.link) => {
                hit(Mark::AnswerOfAnotherRun);
                Err(Fault::Gone(silent()))
            }
            reply => reply,
        };
        match reply {
            Err(Fault::Refused(_) | Fault::NoMemory(_)) => {
                contact.replied(now_us);
                reply
            }
            // The record seems to be damaged. A ping shows whether the connection can still be used.
            Err(Fault::Damaged(error)) => {
                contact.replied(now_us);
                self.doubt(agenda, &request.link);
                Err(Fault::Damaged(error))
            }
            Err(Fault::Gone(error)) => Err(Fault::Gone(self.give_up(&request.link, error))),
            reply => reply,
        }
    }

    /// Closes a connection, and returns the error for the requests on it. Its end has one reason, the first that was found.
    /// For later requests the connection reports only that it broke.
    fn give_up(&mut self, link: &Arc<dyn Link>, error: Error) -> Error {
        link.close();
        let Some((_, reason)) = self.ends.iter().find(|(known, _)| same(known, link)) else {
            hit(Mark::LinkGivenUp);
            self.trouble = Some(error.share());
            if self.ends.len() >= ENDS {
                self.ends.pop_front();
            }
            self.ends.push_back((Arc::clone(link), error.share()));
            return error;
        };
        self.trouble = Some(reason.share());
        if reason.to_string() == error.to_string() {
            return error;
        }
        let message =
            format!("the connection was given up with this request on it, for what another had heard: {reason}");
        Error::new(reason.kind(), message).may_act()
    }

    /// Doubts a connection that left a request unanswered: it answers a ping in time, or is replaced.
    pub(crate) fn doubt(&mut self, agenda: &mut Agenda, link: &Arc<dyn Link>) {
        let known = self.proving.iter().map(|(known, _)| known).chain(&self.doubted);
        if !known.into_iter().any(|known| same(known, link)) {
            hit(Mark::LinkDoubted);
            self.doubted.push(Arc::clone(link));
            agenda.wake();
        }
    }

    pub(crate) fn take_doubted(&mut self) -> Vec<Arc<dyn Link>> {
        std::mem::take(&mut self.doubted)
    }

    /// Notes a ping on this connection. Returns whether it is the only one.
    pub(crate) fn begin_proof(&mut self, link: &Arc<dyn Link>) -> bool {
        let is_new = !self.proving.iter().any(|(known, _)| same(known, link));
        if is_new {
            self.proving.push((Arc::clone(link), 0));
        }
        is_new
    }

    /// Returns how many replies have come on this connection since its ping was sent.
    pub(crate) fn replies_meanwhile(&self, link: &Arc<dyn Link>) -> u64 {
        self.proving.iter().find(|(known, _)| same(known, link)).map_or(0, |(_, replies)| *replies)
    }

    pub(crate) fn end_proof(&mut self, link: &Arc<dyn Link>) {
        self.proving.retain(|(known, _)| !same(known, link));
    }

    /// Returns how a caller on this runtime sends its requests, and what it has to do for the lane.
    pub(crate) fn route(&mut self, effects: &mut Effects, runtime: Option<RuntimeId>, now_us: u64) -> (Route, Upkeep) {
        let (lane, upkeep) = self.lane.link(&self.run_id, effects, runtime, now_us);
        (Route { lane, runtime }, upkeep)
    }

    /// Returns whether a caller on this runtime may wait for a request on this connection: it is up, leads to the same run
    /// as the inbox, and is not the lane of another runtime, which may stand still while the caller is polled.
    pub(crate) fn may_use(&self, link: &Arc<dyn Link>, runtime: Option<RuntimeId>) -> bool {
        self.lane.may_drive(link, runtime) && !link.is_closed() && self.is_of_this_run(&**link)
    }

    /// Returns whether this request may be unsent on the lane, and the session's connection can send it instead.
    pub(crate) fn may_be_unsent(&self, request: &InFlight) -> bool {
        self.lane.may_be_unsent(request) && self.home().is_some()
    }
}

/// Returns the error of a client whose store does not reply.
pub(crate) fn silent() -> Error {
    let message = "the store does not reply: is it running, and is the network up? The client keeps trying";
    Error::new(ErrorKind::Unreachable, message)
}

/// Returns why a store that was connected before cannot be reached now. A primary that is a replica today is a failover in
/// progress: it is worth another try, unlike the same error at the first connect.
pub(crate) fn for_now(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied | ErrorKind::Quorum | ErrorKind::Unreachable => error,
        _ => Error::new(ErrorKind::Unreachable, error.to_string()),
    }
}
