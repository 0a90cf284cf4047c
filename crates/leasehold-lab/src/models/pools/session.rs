//! The knowledge of a session, and its reaction to each message.

use std::collections::VecDeque;

use leasehold_spec::{Answer, Delivery, Event, Grant, GrantId, Mode, Outcome, Refusal, Take, Token};

use super::cases::{Harm, Play, Slip};
use super::pool::Pool;
use crate::models::scene::{ticks, when};
use crate::models::server::grant_id;

/// The length of time, in ticks, for which the store carries out a request that was sent.
const NOT_AFTER: u8 = 2;
/// The attempt that upgrades the first one of its session.
pub(super) const UPGRADE: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Session {
    pub(super) is_dead: bool,
    /// Whether the store believes that the inbox is attached.
    pub(super) is_attached: bool,
    /// The caller has stopped waiting for its upgrade, and keeps its read guard.
    pub(super) gave_up: bool,
    pub(super) has_resized: bool,
    pub(super) attempts: Vec<Attempt>,
    /// Requests on their way to the store.
    pub(super) out: VecDeque<Request>,
    /// Replies and pushes on their way back.
    pub(super) back: VecDeque<Message>,
    /// Requests of a connection that broke. The store may still carry them out.
    pub(super) late: VecDeque<Request>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Attempt {
    pub(super) take: Take,
    pub(super) phase: Phase,
    /// The newest grant that the session knows of (P3).
    pub(super) stated: Token,
    pub(super) ticket: Option<u64>,
    pub(super) asked_at: u8,
    /// The caller has asked for a downgrade.
    pub(super) is_lowered: bool,
    /// The limit on record when the grant was made.
    pub(super) allowed: u32,
    /// Until when an acquire that has lost its reply may be carried out.
    pub(super) open_until: u8,
    /// The token of the last grant that it entered.
    pub(super) held: Token,
    /// Its grant is one of an earlier run of the store, and this run has not confirmed it.
    pub(super) is_of_earlier_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Phase {
    New,
    Waiting,
    /// The caller stops waiting for its upgrade, unless it is granted (P38).
    Stopping,
    Holding {
        token: Token,
        until: u8,
        units: u32,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Request {
    pub(super) n: u8,
    pub(super) ask: Ask,
    pub(super) sent: u8,
    pub(super) not_after: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Ask {
    Queue,
    Try,
    Renew(Token),
    Release(Token),
    Leave,
    Lower(Token, u32),
    /// The resize with this number in the scene.
    Resize(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Message {
    Reply(Request, Answer),
    Push(Delivery),
}

impl Session {
    pub(super) fn new(take: Option<Take>) -> Self {
        Self {
            is_dead: false,
            is_attached: true,
            gave_up: false,
            has_resized: false,
            attempts: take.map(Attempt::new).into_iter().collect(),
            out: VecDeque::new(),
            back: VecDeque::new(),
            late: VecDeque::new(),
        }
    }

    /// Returns the requests that have no reply yet, oldest first.
    pub(super) fn open(&self) -> impl Iterator<Item = &Request> {
        let replied = self.back.iter().filter_map(|message| match message {
            Message::Reply(request, _) => Some(request),
            Message::Push(_) => None,
        });
        replied.chain(&self.out)
    }

    pub(super) fn is_open(&self, n: u8, is_such: impl Fn(Ask) -> bool) -> bool {
        self.open().any(|request| request.n == n && is_such(request.ask))
    }

    pub(super) fn send(&mut self, tick: u8, n: u8, ask: Ask) {
        let mut not_after = tick + NOT_AFTER;
        if let Some(attempt) = self.attempts.get_mut(n as usize) {
            if matches!(ask, Ask::Queue | Ask::Try) {
                attempt.asked_at = tick;
            }
            if let (Ask::Renew(_), Phase::Holding { until, .. }) = (ask, attempt.phase) {
                not_after = until;
            }
        }
        self.out.push_back(Request { n, ask, sent: tick, not_after });
    }

    /// Asks whether the attempt was granted, unless a request that asks this is under way.
    pub(super) fn recheck(&mut self, tick: u8, n: u8) {
        if !self.is_open(n, Ask::asks) {
            let ask = if self.attempts[n as usize].phase == Phase::Stopping { Ask::Try } else { Ask::Queue };
            self.send(tick, n, ask);
        }
    }

    /// Ends an attempt whose caller does not want its grant.
    pub(super) fn leave(&mut self, tick: u8, n: u8) {
        self.attempts[n as usize].phase = Phase::Over;
        if !self.is_open(n, Ask::ends) {
            self.send(tick, n, Ask::Leave);
        }
    }

    /// Breaks the connection. Replies and pushes are lost, and each open request is sent again on the next connection.
    pub(super) fn cut(&mut self, play: &Play, tick: u8, is_kept: bool) {
        let open: Vec<Request> = self.open().copied().collect();
        for Request { n, not_after, .. } in open.iter().filter(|request| request.ask.asks()) {
            let attempt = &mut self.attempts[*n as usize];
            attempt.open_until = attempt.open_until.max(*not_after);
        }
        let out = std::mem::take(&mut self.out);
        if is_kept {
            self.late = out;
        }
        self.back.clear();
        for (at, Request { n, ask, not_after, .. }) in open.iter().copied().enumerate() {
            let is_replaced = |later: &Request| later.n == n && (later.ask.asks() || later.ask.ends());
            // A resize is sent once: its caller does not know whether it was carried out.
            let is_sent_once = matches!(ask, Ask::Resize(_)) && !play.repeats_resizes();
            if is_sent_once || ask.asks() && open[at + 1..].iter().any(is_replaced) {
                continue;
            }
            let is_over = self.attempts.get(n as usize).is_some_and(|attempt| attempt.phase == Phase::Over);
            self.send(tick, n, if is_over && ask.asks() { Ask::Leave } else { ask });
            // The caller of a resize has one deadline for all its repetitions.
            if let (Ask::Resize(_), Some(request)) = (ask, self.out.back_mut()) {
                request.not_after = not_after;
            }
        }
    }
}

impl Session {
    /// Another run of the store answers (P13). It may know an earlier state of each attempt.
    pub(super) fn meet_new_run(&mut self, play: &Play, tick: u8) {
        self.cut(play, tick, false);
        let trusts = play.slips(Slip::SameToken);
        for request in self.out.iter_mut().filter(|request| matches!(request.ask, Ask::Release(_)) && !trusts) {
            request.ask = Ask::Leave;
        }
        for n in 0..self.attempts.len() as u8 {
            let Attempt { phase, held, .. } = self.attempts[n as usize];
            match phase {
                Phase::Waiting | Phase::Stopping => self.attempts[n as usize].stated = Token::NONE,
                Phase::Holding { token, .. } => {
                    self.attempts[n as usize].is_of_earlier_run = !trusts;
                    self.send(tick, n, Ask::Renew(token));
                }
                Phase::Over if self.is_open(n, Ask::ends) => {}
                Phase::Over if trusts && held != Token::NONE => self.send(tick, n, Ask::Release(held)),
                Phase::Over => self.send(tick, n, Ask::Leave),
                Phase::New => {}
            }
        }
    }
}

impl Attempt {
    pub(super) const fn new(take: Take) -> Self {
        Self {
            take,
            phase: Phase::New,
            stated: Token::NONE,
            ticket: None,
            asked_at: 0,
            is_lowered: false,
            allowed: 0,
            open_until: 0,
            held: Token::NONE,
            is_of_earlier_run: false,
        }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Stopping)
    }

    /// Returns the units that the caller believes to hold.
    pub(super) fn inside(&self, tick: u8) -> Option<(Token, u32)> {
        match self.phase {
            Phase::Holding { token, until, units } if until > tick => Some((token, units)),
            _ => None,
        }
    }
}

impl Ask {
    pub(super) const fn asks(self) -> bool {
        matches!(self, Self::Queue | Self::Try)
    }

    pub(super) const fn ends(self) -> bool {
        matches!(self, Self::Release(_) | Self::Leave)
    }
}

impl Pool {
    /// A session accepts the next message.
    pub(super) fn receive(&mut self, play: &Play, s: u8) {
        match self.sessions[s as usize].back.pop_front() {
            Some(Message::Push(push)) if push.event == Event::Granted => {
                let until = when(push.now_us) + ticks(push.left_us);
                self.granted(s, push.id.counter as u8, (push.token, until), true);
            }
            Some(Message::Reply(request, answer)) => self.accept(play, s, request, &answer),
            Some(Message::Push(_)) | None => {}
        }
    }

    fn accept(&mut self, play: &Play, s: u8, request: Request, answer: &Answer) {
        let Request { n, ask, sent, .. } = request;
        let tick = self.tick;
        match (ask, &answer.outcome) {
            (Ask::Queue | Ask::Try, Outcome::Granted { token, left_us, .. }) => {
                let left = ticks(*left_us);
                self.granted(s, n, (*token, sent + left), left < play.scene.lease);
            }
            (Ask::Queue | Ask::Try, Outcome::Queued { ticket, .. }) => self.queued(s, n, *ticket, answer.highest),
            (Ask::Queue | Ask::Try, outcome) => self.not_granted(play, (s, n), outcome, when(answer.now_us)),
            (Ask::Renew(of), Outcome::Renewed { left_us }) => {
                if let Phase::Holding { token, until, .. } = &mut self.attempt(s, n).phase
                    && *token == of
                {
                    *until = (*until).max(sent + ticks(*left_us));
                    self.attempt(s, n).is_of_earlier_run = false;
                }
            }
            (Ask::Renew(_) | Ask::Lower(..), Outcome::Lost { .. }) => self.lost(play, s, n),
            (Ask::Lower(..), Outcome::Late) => self.sessions[s as usize].send(tick, n, ask),
            _ => {}
        }
    }

    /// The store has stated a grant: in a reply, or by a push.
    fn granted(&mut self, s: u8, n: u8, (token, until): (Token, u8), is_claim: bool) {
        let tick = self.tick;
        let session = &mut self.sessions[s as usize];
        let attempt = &mut session.attempts[n as usize];
        match attempt.phase {
            Phase::Waiting | Phase::Stopping => {
                attempt.stated = attempt.stated.max(token);
                if until <= tick {
                    return session.recheck(tick, n);
                }
                attempt.phase = Phase::Holding { token, until, units: attempt.take.units };
                attempt.held = token;
                if n == UPGRADE {
                    session.attempts[0].phase = Phase::Over;
                }
                if is_claim {
                    session.send(tick, n, Ask::Renew(token));
                }
            }
            Phase::Over => session.leave(tick, n),
            Phase::New | Phase::Holding { .. } => {}
        }
    }

    fn queued(&mut self, s: u8, n: u8, ticket: u64, highest: Token) {
        let id = grant_id(s, n);
        let is_ghost = self.store.grants.get(id).is_none() && self.store.queue.iter().any(|entry| entry.id == id);
        let tick = self.tick;
        let session = &mut self.sessions[s as usize];
        let attempt = &mut session.attempts[n as usize];
        match attempt.phase {
            // P3: of two statements, the one with the larger number is the later one, and GRANTED wins a tie.
            Phase::Waiting | Phase::Stopping if highest <= attempt.stated => {
                if is_ghost {
                    self.note(Harm::Ghost);
                }
            }
            Phase::Waiting | Phase::Stopping => attempt.ticket = Some(ticket),
            Phase::Over => session.leave(tick, n),
            Phase::New | Phase::Holding { .. } => {}
        }
    }

    fn not_granted(&mut self, play: &Play, (s, n): (u8, u8), outcome: &Outcome, served: u8) {
        let tick = self.tick;
        let session = &mut self.sessions[s as usize];
        if !session.attempts[n as usize].is_waiting() {
            return;
        }
        match outcome {
            Outcome::Late => return session.recheck(tick, n),
            // P38: an earlier acquire may still be carried out, so the try is repeated at a later tick.
            Outcome::Busy { .. }
                if served <= session.attempts[n as usize].open_until && !play.slips(Slip::BusyEnds) =>
            {
                return;
            }
            Outcome::Busy { .. } => session.gave_up = true,
            Outcome::Refused(Refusal::NoGrant) => session.attempts[0].phase = Phase::Over,
            _ => {}
        }
        session.attempts[n as usize].phase = Phase::Over;
    }

    /// The store does not hold a grant.
    fn lost(&mut self, play: &Play, s: u8, n: u8) {
        let tick = self.tick;
        let upgrade = grant_id(s, UPGRADE);
        let is_upgraded = self.lives(self.store.grants.get(upgrade));
        let session = &mut self.sessions[s as usize];
        let has_upgrade = n == 0 && session.attempts.get(UPGRADE as usize).is_some_and(Attempt::is_waiting);
        if has_upgrade && !play.slips(Slip::BelievesLost) {
            // P37: the upgrade may have been granted. Its re-check decides.
            return session.recheck(tick, UPGRADE);
        }
        if matches!(session.attempts[n as usize].phase, Phase::Holding { .. }) {
            session.attempts[n as usize].phase = Phase::Over;
            if session.attempts[n as usize].is_of_earlier_run {
                session.leave(tick, n);
            }
            if has_upgrade {
                session.leave(tick, UPGRADE);
                if is_upgraded {
                    self.note(Harm::LostTooEarly);
                }
            }
        }
    }

    fn attempt(&mut self, s: u8, n: u8) -> &mut Attempt {
        &mut self.sessions[s as usize].attempts[n as usize]
    }

    /// Whether a grant is in the record, and its time is not over.
    pub(super) fn lives(&self, grant: Option<&Grant>) -> bool {
        grant.is_some_and(|grant| grant.end_us() > self.clock_us())
    }
}

/// Returns the grant that an upgrade replaces.
pub(super) fn replaced(take: &Take) -> Option<GrantId> {
    match take.mode {
        Mode::Instead { id, .. } => Some(id),
        Mode::Plain | Mode::Upgradeable => None,
    }
}
