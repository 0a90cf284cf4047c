//! Random histories of pools. Like those of mutexes they prefer rare cases.

mod gates;

use leasehold::seam::Guess;
use leasehold_spec::limits::{LEASE_MAX_MS, RETENTION_MS, REVOKE_GRACE_MS};
use leasehold_spec::{
    Acquire, Contention, From, GrantId, GrantState, Hears, Kind, Mode, Op, Outcome, Patience, Renew, Take, Token,
};
use leasehold_testkit::Random;
use leasehold_testkit::differential::{LABELS, NAMES};

use crate::chance;
use crate::rig::{Lock, Rig};

/// An acquire that was sent once. It may be sent again, with any result of the first one.
#[derive(Clone)]
struct Attempt {
    acquire: Acquire,
    ticket: Option<u64>,
}

pub(crate) struct PoolHistory<'a> {
    rig: &'a mut Rig,
    random: Random,
    /// The name, alone.
    locks: Vec<Lock>,
    kind: Kind,
    limit: u32,
    sessions: usize,
    attempts: Vec<Attempt>,
}

impl<'a> PoolHistory<'a> {
    pub(crate) fn new(rig: &'a mut Rig, seed: u64, sessions: usize, kinds: &[Kind]) -> Self {
        let mut random = Random::new(seed);
        let locks = vec![Lock::new(NAMES[random.index(NAMES.len())])];
        let kind = *random.pick(kinds);
        let limit = if kind == Kind::ReadWrite { Take::READ.limit } else { *random.pick(&[1, 2, 5, 300]) };
        let mut history = Self { rig, random, locks, kind, limit, sessions, attempts: Vec::new() };
        for number in 0..sessions {
            if history.random.chance(80) {
                history.rig.attach(number, true);
            }
        }
        if history.random.chance(5) {
            history.acquire_anew(Take::MUTEX, Patience::Try);
        }
        history
    }

    /// Plays a history with this number of steps.
    pub(crate) fn play(mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
        self.rig.end_history();
    }

    /// Plays a queue that is longer than one step can serve, of waiters that all fit at once, or are dead.
    pub(crate) fn play_crowd(mut self, steps: usize) {
        let all = if self.kind == Kind::ReadWrite { Take::WRITE } else { Take::permits(self.limit, self.limit) };
        self.acquire_anew(all, Patience::Try);
        let one = Take { units: 1, ..all };
        for _ in 0..self.random.within(60, 180) {
            let mut patience = self.place();
            if let (Patience::Queue(place), true) = (&mut patience, self.random.chance(99)) {
                (place.hears, place.limit_ms) = (Hears::Listens, None);
            }
            self.acquire_anew(one, patience);
        }
        let alive = self.random.chance(50);
        for number in 0..self.sessions {
            if self.random.chance(95) {
                self.rig.attach(number, alive);
            }
        }
        for _ in 0..steps {
            match self.random.below(4) {
                0 => self.release(),
                1 => drop(self.apply(&Op::Settle)),
                2 => self.move_clock(),
                _ => self.step(),
            }
        }
        self.rig.end_history();
    }

    fn step(&mut self) {
        if self.rig.harness.is_full() && self.random.chance(25) {
            self.rig.fill_memory(false);
        }
        if self.locks[0].model.upgrade.is_some() && self.random.chance(20) {
            return self.release_for_the_upgrade();
        }
        match self.random.below(100) {
            0..=13 => {
                let take = self.take();
                self.acquire_anew(take, Patience::Try);
            }
            14..=33 => {
                let (take, place) = (self.take(), self.place());
                self.acquire_anew(take, place);
            }
            34..=41 => self.upgrade(),
            42..=50 => self.look(),
            51..=56 => self.release(),
            57..=59 => self.cool_down(),
            60..=65 => self.leave(),
            66..=72 => self.renew(),
            73..=74 => self.lower(),
            75..=77 => self.resize(),
            78..=82 => self.revoke(),
            83..=84 => drop(self.apply(&Op::Settle)),
            85..=86 => drop(self.apply(&Op::Inspect)),
            87..=93 => self.move_clock(),
            94..=97 => {
                let (session, is_attached) = (self.random.index(self.sessions), self.random.chance(60));
                self.rig.attach(session, is_attached);
            }
            _ => self.rig.fill_memory(true),
        }
    }

    fn apply(&mut self, op: &Op) -> Option<Outcome> {
        let model = &self.locks[0].model;
        let kind = if self.random.chance(90) { model.kind } else { *self.random.pick(&[Kind::Mutex, self.kind]) };
        let guess = Guess { kind, contention: *self.random.pick(&[Contention::None, Contention::Others]) };
        if kind.is_pool() != model.kind.is_pool() && model.last != Token::NONE && !matches!(op, Op::Acquire(_)) {
            self.rig.count("met the other encoding");
        }
        self.rig.apply(&mut self.locks[0], op, guess)
    }

    fn take(&mut self) -> Take {
        match self.random.below(60) {
            0 => return Take::MUTEX,
            1 => return *self.random.pick(&[Take::READ, Take::WRITE, Take::permits(1, 2), Take::permits(2, 7)]),
            _ => {}
        }
        match (self.kind, self.random.below(10)) {
            (Kind::ReadWrite, 0..=4) => Take::READ,
            (Kind::ReadWrite, 5 | 6) => Take::UPGRADEABLE_READ,
            (Kind::ReadWrite, _) => Take::WRITE,
            (_, 0) => Take::permits(*self.random.pick(&[0, self.limit + 1]), self.limit),
            (_, 1) => Take::permits(self.limit, self.limit),
            _ => {
                let units = self.random.within(1, u64::from(self.limit.min(4)));
                Take::permits(u32::try_from(units).unwrap(), self.limit)
            }
        }
    }

    fn lease_ms(&mut self) -> u64 {
        *self.random.pick(&[100, 300, 1_000, 30_000, 30_000, RETENTION_MS, RETENTION_MS + 1, 120_000, LEASE_MAX_MS])
    }

    fn place(&mut self) -> Patience {
        chance::place(&mut self.random)
    }

    fn not_after_us(&mut self) -> u64 {
        chance::not_after_us(&mut self.random, self.rig.now_us())
    }

    fn acquire_anew(&mut self, take: Take, patience: Patience) {
        let session = self.rig.harness.session(self.random.index(self.sessions));
        let id = GrantId { session, counter: self.attempts.len() as u64, nonce: self.random.number() };
        let (lease_ms, not_after_us) = (self.lease_ms(), self.not_after_us());
        let label = (*self.random.pick(&LABELS)).to_owned();
        let acquire = Acquire { id, take, lease_ms, not_after_us, patience, label: label.into(), range: 1 };
        self.attempts.push(Attempt { acquire, ticket: None });
        self.ask(self.attempts.len() - 1);
    }

    fn ask(&mut self, at: usize) {
        let acquire = self.attempts[at].acquire.clone();
        if let Some(Outcome::Queued { ticket, .. }) = self.apply(&Op::Acquire(acquire)) {
            self.attempts[at].ticket = Some(ticket);
        }
    }

    /// Asks for an upgrade of a grant: mostly of one that may be upgraded.
    fn upgrade(&mut self) {
        let grants: Vec<_> = self.locks[0].model.grants.iter().collect();
        let upgradeable = grants.iter().find(|grant| grant.mode == Mode::Upgradeable);
        let any = (!grants.is_empty()).then(|| grants[self.random.index(grants.len())]);
        let Some(of) = upgradeable.copied().or(any) else { return };
        let take = Take::upgrade(of.id, if self.random.chance(95) { of.token } else { Token::NONE });
        let patience = if self.random.chance(25) { Patience::Try } else { self.place() };
        self.acquire_anew(take, patience);
    }

    /// Repeats a request, often one of a waiter or of an upgrade that waits.
    fn look(&mut self) {
        let Some(at) = self.one_of() else { return };
        let ticket = match self.random.below(6) {
            0 => None,
            // The place of another waiter: no client requests it, but both sides must agree.
            1 => self.one_of().and_then(|other| self.attempts[other].ticket),
            _ => self.attempts[at].ticket,
        };
        let (not_after_us, gives_up) = (self.not_after_us(), self.random.chance(10));
        let acquire = &mut self.attempts[at].acquire;
        acquire.not_after_us = not_after_us;
        match &mut acquire.patience {
            patience @ Patience::Queue(_) if gives_up => *patience = Patience::Try,
            Patience::Queue(place) => place.ticket = ticket,
            Patience::Try => {}
        }
        self.ask(at);
    }

    /// Returns an attempt: of a holder, of a waiter, of an upgrade, or an earlier one.
    fn one_of(&mut self) -> Option<usize> {
        let model = &self.locks[0].model;
        let holders: Vec<GrantId> = model.grants.iter().map(|grant| grant.id).collect();
        let waiters: Vec<GrantId> = model.queue.iter().map(|entry| entry.id).collect();
        let wanted = match self.random.below(6) {
            0..=2 if !holders.is_empty() => Some(*self.random.pick(&holders)),
            3 | 4 if !waiters.is_empty() => Some(waiters[self.random.index(waiters.len().min(3))]),
            _ => model.upgrade.as_ref().map(|upgrade| upgrade.id),
        };
        match wanted {
            Some(id) => self.attempts.iter().position(|attempt| attempt.acquire.id == id),
            None if self.attempts.is_empty() => None,
            None => Some(self.random.index(self.attempts.len())),
        }
    }

    /// Returns an attempt and the token of its grant; seldom another token.
    fn holder(&mut self) -> Option<(GrantId, Token)> {
        let at = self.one_of()?;
        let id = self.attempts[at].acquire.id;
        let model = &self.locks[0].model;
        let held = model.grants.get(id).map(|grant| grant.token);
        Some((id, if self.random.chance(5) { Token::NONE } else { held.unwrap_or(model.last) }))
    }

    /// Releases a grant that the upgrade waits for.
    fn release_for_the_upgrade(&mut self) {
        let other = self.locks[0].model.grants.iter().find(|grant| grant.mode != Mode::Upgradeable && grant.is_held());
        let Some((id, token)) = other.map(|grant| (grant.id, grant.token)) else { return };
        self.apply(&Op::Release { id, token, used: token });
    }

    fn release(&mut self) {
        let Some((mut id, token)) = self.holder() else { return };
        if self.random.chance(5) {
            // Of the right client, but for another grant.
            id.nonce ^= 1;
        }
        self.apply(&Op::Release { id, token, used: token });
    }

    fn leave(&mut self) {
        let Some((id, _)) = self.holder() else { return };
        self.apply(&Op::Leave { id, used: Token::NONE });
    }

    fn cool_down(&mut self) {
        let Some((id, _)) = self.holder() else { return };
        let for_ms = if self.random.chance(20) { 1 } else { self.lease_ms() };
        self.apply(&Op::CoolDown { id, used: Token::NONE, for_ms });
    }

    fn renew(&mut self) {
        let marked = self.locks[0].model.grants.iter().find(|grant| grant.state == GrantState::Revoked);
        let marked = marked.map(|grant| (grant.id, grant.token)).filter(|_| self.random.chance(50));
        let Some((mut id, token)) = marked.or_else(|| self.holder()) else { return };
        if self.random.chance(5) {
            id.nonce ^= 1;
        }
        let from = if self.random.chance(70) { From::Now } else { From::Grant };
        let granted_ms = self.locks[0].model.held_by(id).map(|grant| grant.length_ms);
        let lease_ms = granted_ms.filter(|_| self.random.chance(60)).unwrap_or_else(|| self.lease_ms());
        let renew = Renew { id, token, from, lease_ms, not_after_us: self.not_after_us() };
        if self.random.chance(50) {
            self.apply(&Op::Renew(renew));
            return;
        }
        let kind = if self.random.chance(90) { self.kind } else { Kind::Mutex };
        self.rig.renew(&mut self.locks, &[(0, renew)], kind);
    }

    fn lower(&mut self) {
        let Some((mut id, token)) = self.holder() else { return };
        if !self.locks[0].model.kind.is_pool() {
            // No client lowers the grant of a mutex.
            id.nonce ^= 1;
        }
        let units = u32::try_from(self.random.below(3)).unwrap();
        self.apply(&Op::Lower { id, token, units });
    }

    fn resize(&mut self) {
        let limit = self.locks[0].model.limit;
        let from = if self.random.chance(80) { limit } else { limit + 1 };
        let to = *self.random.pick(&[0, 1, 2, 3, 300]);
        let not_after_us = self.not_after_us();
        if let Some(Outcome::Resized) = self.apply(&Op::Resize { from, to, not_after_us }) {
            self.limit = to;
        }
    }

    fn revoke(&mut self) {
        let Some((id, token)) = self.holder() else { return };
        let grace_ms = *self.random.pick(&[0, 700, REVOKE_GRACE_MS]);
        self.apply(&Op::Revoke { holder: id.public(), token, grace_ms });
    }

    /// Moves the clock to the end of a lease, past the retention, or back.
    fn move_clock(&mut self) {
        let first_us = self.locks[0].model.grants.first_end_us().unwrap_or(0);
        let left_us = first_us.saturating_sub(self.rig.now_us());
        let by_us = chance::step_of_clock(&mut self.random, left_us);
        self.rig.move_clock(by_us, &mut self.locks);
    }
}
