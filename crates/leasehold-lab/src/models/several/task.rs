//! The knowledge of a task and its session, and its reaction to each message.

use std::collections::VecDeque;

use leasehold_spec::{Answer, Delivery, Event, Outcome, Token};

use super::scenes::{CLAIM, LEASE, Play, Slip};

/// The number of mutexes that each task wants.
pub(super) const MEMBERS: usize = 2;

/// A session with one connection and one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Task {
    pub(super) is_dead: bool,
    pub(super) is_stopped: bool,
    /// Whether the store believes that the inbox is attached. The session is connected if it is alive and attached.
    pub(super) is_attached: bool,
    pub(super) phase: Phase,
    /// The number of its attempts. Each attempt has another ID.
    pub(super) n: u8,
    /// Its grant of each mutex, as far as it knows.
    pub(super) held: [Option<Held>; MEMBERS],
    pub(super) asked_at: u8,
    pub(super) out: VecDeque<Ask>,
    pub(super) back: VecDeque<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Held {
    pub(super) n: u8,
    pub(super) token: Token,
    /// The tick at which the lease ends.
    pub(super) until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Phase {
    Wants,
    /// It has asked for both by one request.
    AsksForAll,
    /// It waits for the mutex at this place of its order, and holds those before.
    Waits(u8),
    /// It works under both since this tick.
    Works(u8),
    /// It has worked, or is dead.
    Done,
}

/// A request, with the tick at which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Ask {
    All { n: u8, sent: u8 },
    Queue { member: usize, n: u8, sent: u8 },
    Renew { member: usize, n: u8, token: Token, sent: u8 },
    Leave { member: usize, n: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Message {
    /// The reply to a request, with one answer, or with one for each mutex. No answer: the store refused all.
    Reply(Ask, Vec<Answer>),
    /// A push about a mutex.
    Push(usize, Delivery),
}

impl Task {
    pub(super) fn new() -> Self {
        Self {
            is_dead: false,
            is_stopped: false,
            is_attached: true,
            phase: Phase::Wants,
            n: 0,
            held: [None; MEMBERS],
            asked_at: 0,
            out: VecDeque::new(),
            back: VecDeque::new(),
        }
    }

    /// Whether the task believes at this tick that it may work.
    pub(super) fn believes(&self, play: &Play, tick: u8) -> bool {
        let is_valid = self.held.iter().all(|held| held.is_some_and(|held| tick < held.until));
        matches!(self.phase, Phase::Works(_)) && (is_valid || play.slips(Slip::EntersLost))
    }

    /// Begins: asks for both by one request, or for the first one.
    pub(super) fn begin(&mut self, play: &Play, (s, tick): (u8, u8)) {
        if !play.scene.asks_for_all {
            return self.wait(play, 0, (s, tick));
        }
        self.n += 1;
        self.phase = Phase::AsksForAll;
        self.out.push_back(Ask::All { n: self.n, sent: tick });
    }

    fn wait(&mut self, play: &Play, at: u8, (s, tick): (u8, u8)) {
        self.n += 1;
        (self.phase, self.asked_at) = (Phase::Waits(at), tick);
        self.out.push_back(Ask::Queue { member: member(play, s, at), n: self.n, sent: tick });
    }

    /// Asks again for what it waits for, and renews what it holds.
    pub(super) fn recheck(&mut self, play: &Play, (s, tick): (u8, u8)) {
        self.asked_at = tick;
        if let Phase::Waits(at) = self.phase {
            self.out.push_back(Ask::Queue { member: member(play, s, at), n: self.n, sent: tick });
        }
        for (member, held) in self.held.iter().enumerate() {
            if let Some(Held { n, token, .. }) = *held {
                self.out.push_back(Ask::Renew { member, n, token, sent: tick });
            }
        }
    }

    /// Gives back what it has, and what it waits for.
    fn give_up(&mut self, play: &Play, s: u8) {
        if let Phase::Waits(at) = self.phase {
            self.out.push_back(Ask::Leave { member: member(play, s, at), n: self.n });
        }
        for (member, held) in self.held.iter_mut().enumerate() {
            if let Some(Held { n, .. }) = held.take() {
                self.out.push_back(Ask::Leave { member, n });
            }
        }
    }

    pub(super) fn finish(&mut self, play: &Play, s: u8) {
        self.give_up(play, s);
        self.phase = Phase::Done;
    }

    /// The connection breaks. Replies and pushes are lost, and open requests are sent again on the next connection. Only
    /// the request for both is not repeated: the task gives its IDs back.
    pub(super) fn cut(&mut self, play: &Play, (s, tick): (u8, u8)) {
        let replied = self.back.drain(..).filter_map(|message| match message {
            Message::Reply(ask, _) => Some(ask),
            Message::Push(..) => None,
        });
        let open: Vec<Ask> = replied.collect::<Vec<_>>().into_iter().chain(self.out.drain(..)).collect();
        self.is_attached = false;
        let mut is_unknown = false;
        for ask in open {
            let Ask::All { n, .. } = ask else {
                self.out.push_back(ask);
                continue;
            };
            is_unknown = true;
            if !play.slips(Slip::KeepsUnknown) {
                self.out.extend((0..MEMBERS).map(|member| Ask::Leave { member, n }));
            }
        }
        if is_unknown && self.phase == Phase::AsksForAll {
            self.wait(play, 0, (s, tick));
        }
    }

    /// Accepts the next message.
    pub(super) fn receive(&mut self, play: &Play, (s, tick): (u8, u8)) {
        match self.back.pop_front() {
            Some(Message::Push(member, push)) if push.event == Event::Granted => {
                let n = push.id.counter as u8;
                self.granted(play, (s, tick), member, Held { n, token: push.token, until: tick + CLAIM });
                self.out.push_back(Ask::Renew { member, n, token: push.token, sent: tick });
            }
            Some(Message::Reply(Ask::All { n, sent }, answers)) => {
                self.told_of_all(play, (s, tick), (n, sent), &answers);
            }
            Some(Message::Reply(Ask::Queue { member, n, sent }, answers)) => match answers[0].outcome {
                Outcome::Granted { token, .. } => {
                    // The answer to a re-check may tell of a grant that is older than the request: it lasts a claim.
                    self.granted(play, (s, tick), member, Held { n, token, until: sent + CLAIM });
                    self.out.push_back(Ask::Renew { member, n, token, sent: tick });
                }
                Outcome::Queued { .. } if n != self.n => self.out.push_back(Ask::Leave { member, n }),
                _ => {}
            },
            Some(Message::Reply(Ask::Renew { member, n, token, sent }, answers)) => {
                let held = self.held[member].filter(|held| (held.n, held.token) == (n, token));
                match (held, &answers[0].outcome) {
                    (Some(held), Outcome::Renewed { .. }) => {
                        self.held[member] = Some(Held { until: held.until.max(sent + LEASE), ..held });
                    }
                    (Some(_), Outcome::Lost { .. }) => self.lost(play, (s, tick), member),
                    _ => {}
                }
            }
            Some(Message::Reply(..) | Message::Push(..)) | None => {}
        }
    }

    fn told_of_all(&mut self, play: &Play, (s, tick): (u8, u8), (n, sent): (u8, u8), answers: &[Answer]) {
        if answers.is_empty() {
            return self.wait(play, 0, (s, tick));
        }
        for (held, answer) in self.held.iter_mut().zip(answers) {
            if let Outcome::Granted { token, .. } = answer.outcome {
                *held = Some(Held { n, token, until: sent + LEASE });
            }
        }
        self.enter(play, (s, tick));
    }

    /// The store has said that an attempt holds a mutex.
    fn granted(&mut self, play: &Play, (s, tick): (u8, u8), of: usize, held: Held) {
        let is_known = |known: Held| (known.n, known.token) == (held.n, held.token);
        match self.phase {
            _ if self.held[of].is_some_and(is_known) => {}
            Phase::Waits(at) if member(play, s, at) == of && held.n == self.n => {
                self.held[of] = Some(held);
                match usize::from(at) + 1 {
                    MEMBERS => self.enter(play, (s, tick)),
                    _ => self.wait(play, at + 1, (s, tick)),
                }
            }
            _ => self.out.push_back(Ask::Leave { member: of, n: held.n }),
        }
    }

    /// Works if all that it holds is valid. Otherwise it begins again.
    fn enter(&mut self, play: &Play, (s, tick): (u8, u8)) {
        self.phase = Phase::Works(tick);
        if !self.believes(play, tick) {
            self.give_up(play, s);
            self.begin(play, (s, tick));
        }
    }

    /// A mutex was lost. A task that waits learns of it when it has all. A task that works stops.
    fn lost(&mut self, play: &Play, (s, tick): (u8, u8), member: usize) {
        self.held[member] = None;
        if matches!(self.phase, Phase::Works(_)) && !self.believes(play, tick) {
            self.finish(play, s);
        }
    }
}

/// Returns the mutex at a place of the order in which a task takes them.
pub(super) fn member(play: &Play, s: u8, at: u8) -> usize {
    let is_reversed = s == 1 && play.slips(Slip::TakesAsNamed);
    if is_reversed { MEMBERS - 1 - usize::from(at) } else { usize::from(at) }
}
