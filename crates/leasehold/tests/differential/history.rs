//! Random histories. They prefer rare cases: half of the choices read the model first, so that a release is often that
//! of the held grant, a renewal that of a marked one, and the clock stops at the end of a lease.

mod plays;
mod several;

use leasehold_spec::limits::{LEASE_MAX_MS, RANGE_MAX, RENEW_BATCH, RETENTION_MS, REVOKE_GRACE_MS, TOKEN_LEAD_US};
use leasehold_spec::{Acquire, Contention, From, GrantId, Kind, Op, Outcome, Patience, Renew, SessionId, Take, Token};

use leasehold_testkit::Random;
use leasehold_testkit::differential::{LABELS, NAMES};

use crate::chance;
use crate::rig::{Lock, Rig};

/// An acquire that was sent once. It may be sent again, with any result of the first one.
#[derive(Clone)]
struct Attempt {
    lock: usize,
    acquire: Acquire,
    token: Option<Token>,
    ticket: Option<u64>,
}

pub(crate) struct History<'a> {
    rig: &'a mut Rig,
    random: Random,
    locks: Vec<Lock>,
    sessions: usize,
    attempts: Vec<Attempt>,
}

impl<'a> History<'a> {
    pub(crate) fn new(rig: &'a mut Rig, seed: u64, sessions: usize) -> Self {
        let mut random = Random::new(seed);
        let locks = NAMES[..random.index(NAMES.len()) + 1].iter().map(|name| Lock::new(name)).collect();
        let mut history = Self { rig, random, locks, sessions, attempts: Vec::new() };
        for number in 0..sessions {
            if history.random.chance(80) {
                history.rig.attach(number, true);
            }
        }
        history
    }

    fn apply(&mut self, lock: usize, op: &Op) {
        let guess = self.guess(lock);
        self.rig.apply(&mut self.locks[lock], op, guess);
    }

    fn guess(&mut self, lock: usize) -> Contention {
        match self.random.chance(70) {
            true => self.locks[lock].model.contention(),
            false => *self.random.pick(&[Contention::None, Contention::Others, Contention::Strict]),
        }
    }

    fn lease_ms(&mut self) -> u64 {
        *self.random.pick(&[100, 300, 1_000, 30_000, RETENTION_MS, RETENTION_MS + 1, 120_000, LEASE_MAX_MS])
    }

    fn place(&mut self) -> Patience {
        chance::place(&mut self.random)
    }

    fn not_after_us(&mut self) -> u64 {
        chance::not_after_us(&mut self.random, self.rig.now_us())
    }

    fn acquire_anew(&mut self, lock: usize, session: usize, patience: Patience) {
        let acquire = self.new_acquire(session, patience);
        self.attempts.push(Attempt { lock, acquire, token: None, ticket: None });
        self.ask(self.attempts.len() - 1);
    }

    fn new_acquire(&mut self, session: usize, patience: Patience) -> Acquire {
        let id = GrantId {
            session: self.rig.harness.session(session),
            counter: self.attempts.len() as u64,
            nonce: self.random.number(),
        };
        Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: self.lease_ms(),
            not_after_us: self.not_after_us(),
            patience,
            label: (*self.random.pick(&LABELS)).into(),
            range: self.range(),
        }
    }

    fn acquire_again(&mut self, at: usize) {
        let not_after_us = self.not_after_us();
        let ticket = match self.random.below(5) {
            0 => None,
            // The place of another waiter: no client requests it, but both sides must agree.
            1 | 2 => self.one_of(self.attempts[at].lock).and_then(|other| self.attempts[other].ticket),
            _ => self.attempts[at].ticket,
        };
        let another = self.random.chance(10).then(|| self.place());
        let acquire = &mut self.attempts[at].acquire;
        acquire.not_after_us = not_after_us;
        match &mut acquire.patience {
            Patience::Queue(place) => place.ticket = ticket,
            Patience::Try => acquire.patience = another.unwrap_or(Patience::Try),
        }
        self.ask(at);
    }

    fn ask(&mut self, at: usize) {
        let Attempt { lock, acquire, .. } = self.attempts[at].clone();
        let guess = self.guess(lock);
        match self.rig.apply(&mut self.locks[lock], &Op::Acquire(acquire), guess) {
            Some(Outcome::Granted { token, .. }) => self.attempts[at].token = Some(token),
            Some(Outcome::Queued { ticket, .. }) => self.attempts[at].ticket = Some(ticket),
            _ => {}
        }
    }

    /// Returns an attempt at this name: of the holder, of a waiter, or an earlier one.
    fn one_of(&mut self, lock: usize) -> Option<usize> {
        let model = &self.locks[lock].model;
        let holder = model.grants.sole().map(|grant| grant.id);
        let wanted = match self.random.below(4) {
            0 | 1 => holder,
            2 if !model.queue.is_empty() => Some(model.queue[self.random.index(model.queue.len())].id),
            _ => None,
        };
        let here: Vec<_> = (0..self.attempts.len()).filter(|&at| self.attempts[at].lock == lock).collect();
        match wanted {
            Some(id) => here.into_iter().find(|&at| self.attempts[at].acquire.id == id),
            None if here.is_empty() => None,
            None => Some(*self.random.pick(&here)),
        }
    }

    /// Returns the token of an attempt, from a reply or a push; seldom another one.
    fn token(&mut self, at: usize) -> Token {
        let Attempt { lock, acquire, token, .. } = &self.attempts[at];
        let held = self.locks[*lock].model.held_by(acquire.id).map(|grant| grant.token);
        let last = self.locks[*lock].model.last;
        match self.random.below(12) {
            0 => last,
            1 => Token::NONE,
            _ => held.or(*token).unwrap_or(last),
        }
    }

    fn look(&mut self, lock: usize) {
        if let Some(at) = self.one_of(lock) {
            self.acquire_again(at);
        }
    }

    fn release(&mut self, lock: usize) {
        if let Some(at) = self.one_of(lock) {
            let token = self.token(at);
            let used = self.used(lock, token);
            self.apply(lock, &Op::Release { id: self.attempts[at].acquire.id, token, used });
        }
    }

    fn leave(&mut self, lock: usize) {
        let queue = &self.locks[lock].model.queue;
        if !queue.is_empty() && self.random.chance(85) {
            let id = queue[self.random.index(queue.len())].id;
            return self.apply(lock, &Op::Leave { id, used: Token::NONE });
        }
        if let Some(at) = self.one_of(lock) {
            let token = self.token(at);
            let used = if self.random.chance(40) { Token::NONE } else { self.used(lock, token) };
            self.apply(lock, &Op::Leave { id: self.attempts[at].acquire.id, used });
        }
    }

    fn cool_down(&mut self, lock: usize) {
        let Some(at) = self.one_of(lock) else { return };
        let token = self.token(at);
        let used = if self.random.chance(30) { Token::NONE } else { self.used(lock, token) };
        let for_ms = if self.random.chance(20) { 1 } else { self.lease_ms() };
        self.apply(lock, &Op::CoolDown { id: self.attempts[at].acquire.id, used, for_ms });
    }

    /// Sends a late request of an attempt whose lease cools down.
    fn late_in_a_cool_down(&mut self, lock: usize, (id, token): (GrantId, Token)) {
        match self.random.below(6) {
            0 => self.renew_as(lock, id, token),
            1 => self.reserve_as(lock, id, token),
            2 => self.apply(lock, &Op::Leave { id, used: token }),
            3 => self.apply(lock, &Op::Release { id, token, used: token }),
            4 => self.apply(lock, &Op::CoolDown { id, used: token, for_ms: LEASE_MAX_MS }),
            _ => match self.attempts.iter().position(|attempt| attempt.acquire.id == id) {
                Some(at) => self.acquire_again(at),
                None => self.apply(lock, &Op::Settle),
            },
        }
    }

    fn range(&mut self) -> u64 {
        match self.random.below(4) {
            0 => 1,
            1 => self.random.within(2, RANGE_MAX),
            2 => RANGE_MAX,
            // More than any grant gets.
            _ => *self.random.pick(&[0, 2, RANGE_MAX + 1]),
        }
    }

    /// Returns the last used token of a grant: one that a session may send, or one that it may not.
    fn used(&mut self, lock: usize, token: Token) -> Token {
        let reserved = self.locks[lock].model.reserved();
        match self.random.below(8) {
            0..=2 => token,
            3 | 4 => token.plus(self.random.within(0, reserved.get().saturating_sub(token.get()))),
            5 => reserved,
            6 => *self.random.pick(&[reserved.plus(1), token.plus(RANGE_MAX), Token::HIGHEST]),
            _ => *self.random.pick(&[Token::NONE, Token::new(token.get().saturating_sub(1)).unwrap()]),
        }
    }

    fn reserve(&mut self, lock: usize) {
        let Some(at) = self.one_of(lock) else { return };
        let (id, token) = (self.attempts[at].acquire.id, self.token(at));
        self.reserve_as(lock, id, token);
    }

    fn reserve_as(&mut self, lock: usize, id: GrantId, token: Token) {
        let range = match self.random.below(3) {
            0 => self.random.within(1, 4 * RANGE_MAX),
            1 => self.random.within(1, TOKEN_LEAD_US),
            _ => *self.random.pick(&[0, RANGE_MAX + 1, TOKEN_LEAD_US, 10 * TOKEN_LEAD_US, u64::MAX]),
        };
        self.apply(lock, &Op::Reserve { id, token, range });
    }

    fn put(&mut self, lock: usize) {
        let Some(at) = self.one_of(lock) else { return };
        let (id, token) = (self.attempts[at].acquire.id, self.token(at));
        let label = (*self.random.pick(&LABELS)).to_owned();
        self.apply(lock, &Op::Put { id, token, label });
    }

    /// Hands to the label of a waiter, or to another one.
    fn hand_to(&mut self, lock: usize) {
        let Some(at) = self.one_of(lock) else { return };
        let (id, token) = (self.attempts[at].acquire.id, self.token(at));
        self.hand_to_as(lock, id, token);
    }

    fn hand_to_as(&mut self, lock: usize, id: GrantId, token: Token) {
        let queue = &self.locks[lock].model.queue;
        let label = match queue.is_empty() || self.random.chance(20) {
            true => (*self.random.pick(&LABELS)).to_owned(),
            false => queue[self.random.index(queue.len())].label.clone(),
        };
        self.apply(lock, &Op::HandTo { id, token, label });
    }

    /// Returns a renewal, mostly with the length of the grant, as a session sends it.
    fn renewal(&mut self, lock: usize, id: GrantId, token: Token) -> Renew {
        let from = if self.random.chance(70) { From::Now } else { From::Grant };
        let granted_ms = self.locks[lock].model.held_by(id).map(|grant| grant.length_ms);
        let lease_ms = granted_ms.filter(|_| self.random.chance(70)).unwrap_or_else(|| self.lease_ms());
        Renew { id, token, from, lease_ms, not_after_us: self.not_after_us() }
    }

    fn renew_as(&mut self, lock: usize, id: GrantId, token: Token) {
        let renew = self.renewal(lock, id, token);
        self.apply(lock, &Op::Renew(renew));
    }

    fn renew(&mut self, lock: usize) {
        if let Some(at) = self.one_of(lock) {
            let token = self.token(at);
            self.renew_as(lock, self.attempts[at].acquire.id, token);
        }
    }

    /// Renews as a holder does, over the spans into which the clock is divided. Half of the holders have reserved tokens
    /// before, often ahead of the clock.
    fn renew_on_and_on(&mut self, lock: usize, (id, token): (GrantId, Token), lease_ms: u64) {
        if self.random.chance(50) {
            self.reserve_as(lock, id, token);
        }
        for _ in 0..3 {
            let not_after_us = self.rig.now_us() + 2_000_000;
            self.apply(lock, &Op::Renew(Renew { id, token, from: From::Now, lease_ms, not_after_us }));
            self.rig.move_clock(i64::try_from(lease_ms * 600).unwrap_or(0), &mut self.locks);
        }
    }

    /// Renews all names in a batch, some of them with a queue.
    fn renew_many(&mut self) {
        let mut batch = Vec::new();
        for lock in 0..self.locks.len().min(RENEW_BATCH) {
            let Some(at) = self.one_of(lock) else { continue };
            let mut id = self.attempts[at].acquire.id;
            if self.random.chance(5) {
                // Of the right client, but for another grant.
                id.nonce ^= 1;
            }
            let token = self.token(at);
            batch.push((lock, self.renewal(lock, id, token)));
        }
        self.rig.renew(&mut self.locks, &batch, Kind::Mutex);
    }

    fn revoke(&mut self, lock: usize) {
        let Some(at) = self.one_of(lock) else { return };
        let mut holder = self.attempts[at].acquire.id.public();
        if self.random.chance(10) {
            holder.session = SessionId(7);
        }
        let token = self.token(at);
        let grace_ms = *self.random.pick(&[0, 700, REVOKE_GRACE_MS]);
        self.apply(lock, &Op::Revoke { holder, token, grace_ms });
    }

    /// Moves the clock to the end of a lease, past the retention, or back.
    fn move_clock(&mut self) {
        let lock = self.random.index(self.locks.len());
        let left_us = self.locks[lock].model.grants.sole().map_or(0, |grant| grant.left_us(self.rig.now_us()));
        let by_us = chance::step_of_clock(&mut self.random, left_us);
        self.rig.move_clock(by_us, &mut self.locks);
    }
}
