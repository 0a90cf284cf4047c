//! The knowledge of a waiter, and its reaction to each message.

use std::collections::VecDeque;

use leasehold_spec::{Answer, Delivery, Event, Joined, Outcome, Token};

use super::scenes::{Play, Slip};
use super::world::World;

/// A session with one connection. The notifier has one as well, and never waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Session {
    pub(super) is_dead: bool,
    /// Whether the store believes that the inbox is attached. The session is connected if it is alive and attached.
    pub(super) is_attached: bool,
    pub(super) phase: Phase,
    /// The number of its attempt. Each wait is another attempt.
    pub(super) n: u8,
    /// Its place in the queue, as it learned it first.
    pub(super) ticket: Option<u64>,
    pub(super) asked_at: u8,
    /// The run of the store to which it was connected last.
    pub(super) run: u8,
    pub(super) out: VecDeque<Ask>,
    pub(super) back: VecDeque<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Phase {
    /// It wants the lock, to look at the buffer. The token is that of its notification.
    Looks(Option<Token>),
    /// It enters the queue, and holds the lock.
    Enters,
    /// It stands in the queue, and has released the lock.
    Stands,
    /// It has its item, or is dead.
    Done,
    /// The notifier: this many items are left to put in.
    Adds(u8),
    /// The notifier has notified, and has no reply yet.
    Notifies(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Ask {
    Queue(u8, Option<u64>),
    Renew(u8, Token),
    Leave(u8),
    Spend(u8, Token),
    Notify,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Message {
    Reply(Ask, Answer),
    Push(Delivery),
}

impl Session {
    pub(super) fn new(phase: Phase) -> Self {
        Self {
            is_dead: false,
            is_attached: true,
            phase,
            n: 0,
            ticket: None,
            asked_at: 0,
            run: 0,
            out: VecDeque::new(),
            back: VecDeque::new(),
        }
    }

    /// Whether a request that asks for its place has no reply yet.
    pub(super) fn asks(&self) -> bool {
        let replied = self.back.iter().filter_map(|message| match message {
            Message::Reply(ask, _) => Some(ask),
            Message::Push(_) => None,
        });
        replied.chain(&self.out).any(|ask| matches!(ask, Ask::Queue(..)))
    }

    /// Enters the queue with a new attempt.
    pub(super) fn enter(&mut self, tick: u8) {
        self.n += 1;
        (self.phase, self.ticket, self.asked_at) = (Phase::Enters, None, tick);
        self.out.push_back(Ask::Queue(self.n, None));
    }

    pub(super) fn recheck(&mut self, tick: u8) {
        self.asked_at = tick;
        self.out.push_back(Ask::Queue(self.n, self.ticket));
    }

    /// P43: it may have missed a notification. One that it is granted at this moment passes on.
    fn wake_unsure(&mut self) {
        self.out.push_back(Ask::Leave(self.n));
        self.phase = Phase::Looks(None);
    }

    /// The connection breaks. Replies and pushes are lost, and open requests are sent again on the next connection.
    pub(super) fn cut(&mut self) {
        let open = self.back.drain(..).filter_map(|message| match message {
            Message::Reply(ask, _) => Some(ask),
            Message::Push(_) => None,
        });
        let open: VecDeque<Ask> = open.collect();
        let later = std::mem::replace(&mut self.out, open);
        self.out.extend(later);
        self.is_attached = false;
    }

    /// The session connects again, and asks at once for what it waits for.
    pub(super) fn attach(&mut self, play: &Play, (tick, run): (u8, u8)) {
        self.is_attached = true;
        let is_new = self.run != run;
        self.run = run;
        if self.phase != Phase::Stands {
            return;
        }
        if is_new && !play.slips(Slip::TrustsNewRun) {
            return self.wake_unsure();
        }
        if !self.asks() {
            self.recheck(tick);
        }
    }
}

impl World {
    /// A session accepts its next message.
    pub(super) fn receive(&mut self, play: &Play, s: u8) {
        let session = &mut self.sessions[s as usize];
        match session.back.pop_front() {
            Some(Message::Push(push)) if push.event == Event::Granted => {
                self.granted(play, (s, push.id.counter as u8), push.token, true);
            }
            Some(Message::Reply(Ask::Queue(n, _), answer)) => match answer.outcome {
                Outcome::Granted { token, .. } => self.granted(play, (s, n), token, false),
                Outcome::Queued { ticket, joined, .. } => self.queued(play, (s, n), ticket, joined),
                _ => {}
            },
            Some(Message::Reply(Ask::Notify, _)) => {
                if let Phase::Notifies(left) = session.phase {
                    session.phase = if left == 0 { Phase::Done } else { Phase::Adds(left) };
                }
            }
            Some(Message::Reply(..) | Message::Push(_)) | None => {}
        }
    }

    /// The store has said that an attempt is notified.
    fn granted(&mut self, play: &Play, (s, n): (u8, u8), token: Token, is_push: bool) {
        let session = &mut self.sessions[s as usize];
        if n != session.n {
            return session.out.push_back(Ask::Leave(n));
        }
        match session.phase {
            Phase::Enters | Phase::Stands => {
                if session.phase == Phase::Enters {
                    self.holder = self.holder.filter(|holder| *holder != s);
                }
                let is_spent = play.slips(Slip::SpendsFirst);
                session.phase = Phase::Looks(Some(token).filter(|_| !is_spent));
                session.out.push_back(if is_spent { Ask::Spend(n, token) } else { Ask::Renew(n, token) });
            }
            // It has this grant already, by the push or by the reply. A later one is given back.
            Phase::Looks(Some(known)) if known == token => {}
            _ if is_push => session.out.push_back(Ask::Leave(n)),
            _ => {}
        }
    }

    /// The store has said that an attempt waits.
    fn queued(&mut self, play: &Play, (s, n): (u8, u8), ticket: u64, joined: Joined) {
        let session = &mut self.sessions[s as usize];
        match session.phase {
            _ if n != session.n => session.out.push_back(Ask::Leave(n)),
            Phase::Enters => {
                (session.phase, session.ticket) = (Phase::Stands, Some(ticket));
                self.holder = self.holder.filter(|holder| *holder != s);
            }
            Phase::Stands => {
                let was_dropped = joined == Joined::Now || session.ticket != Some(ticket);
                if was_dropped && !play.slips(Slip::SleepsOn) {
                    session.wake_unsure();
                }
            }
            // Its grant has ended, and the request that came late put it into the queue again.
            _ => session.out.push_back(Ask::Leave(n)),
        }
    }
}
