//! Random histories of condition variables, latches and barriers: names whose waiters wait for no lease.

use leasehold_spec::limits::COUNTS_MAX;
use leasehold_spec::{GrantId, Hears, Kind, Op, Patience, SessionId, Take, Token};

use super::PoolHistory;

impl PoolHistory<'_> {
    /// Plays a history with this number of steps.
    pub(crate) fn play_gate(mut self, steps: usize) {
        for _ in 0..steps {
            self.step_of_gate();
        }
        self.rig.end_history();
    }

    /// Plays a queue that is longer than one step can serve, and opens the gate.
    pub(crate) fn play_crowd_at_gate(mut self, steps: usize) {
        if self.kind == Kind::Latch {
            self.create(1);
        }
        for _ in 0..self.random.within(60, 180) {
            let mut patience = self.place();
            if let (Patience::Queue(place), true) = (&mut patience, self.random.chance(99)) {
                (place.hears, place.limit_ms) = (Hears::Listens, None);
            }
            self.acquire_anew(self.gate(), patience);
        }
        let alive = self.random.chance(70);
        for number in 0..self.sessions {
            if self.random.chance(95) {
                self.rig.attach(number, alive);
            }
        }
        match self.kind {
            Kind::Latch => self.count_down(),
            Kind::Barrier => self.arrive(),
            _ => drop(self.apply(&Op::Notify { count: u32::MAX })),
        }
        for _ in 0..steps {
            match self.random.below(4) {
                0 => self.step_of_gate(),
                1 => self.spend_or_release(),
                _ => drop(self.apply(&Op::Settle)),
            }
        }
        self.rig.end_history();
    }

    fn step_of_gate(&mut self) {
        if self.rig.harness.is_full() && self.random.chance(25) {
            self.rig.fill_memory(false);
        }
        match self.random.below(100) {
            0..=3 => {
                let take = self.any_take();
                self.acquire_anew(take, Patience::Try);
            }
            4..=20 => {
                let (take, place) = (self.any_take(), self.place());
                self.acquire_anew(take, place);
            }
            21..=32 => self.look(),
            33..=47 => self.open(),
            48..=57 => self.spend_or_release(),
            58..=61 => self.leave(),
            62..=67 => self.renew(),
            68 => self.cool_down(),
            69 => self.resize(),
            70 => self.lower(),
            71..=74 => self.revoke(),
            75 => self.put(),
            76..=78 => drop(self.apply(&Op::Settle)),
            79..=81 => drop(self.apply(&Op::Inspect)),
            82..=91 => self.move_clock(),
            92..=97 => {
                let (session, is_attached) = (self.random.index(self.sessions), self.random.chance(60));
                self.rig.attach(session, is_attached);
            }
            _ => self.rig.fill_memory(true),
        }
    }

    fn gate(&self) -> Take {
        match self.kind {
            Kind::Latch => Take::OPEN_LATCH,
            Kind::Barrier => Take::arrival(self.limit),
            _ => Take::NOTIFICATION,
        }
    }

    fn any_take(&mut self) -> Take {
        match self.random.below(30) {
            0 => *self.random.pick(&[Take::MUTEX, Take::READ, Take::permits(1, 2)]),
            1 => *self.random.pick(&[Take::OPEN_LATCH, Take::NOTIFICATION, Take::arrival(2), Take::arrival(5)]),
            _ => self.gate(),
        }
    }

    /// Lets waiters through, of whatever kind the gate is; seldom with a request for the other kind.
    fn open(&mut self) {
        if self.kind == Kind::Barrier && self.random.chance(90) {
            return self.arrive();
        }
        let is_latch = (self.kind == Kind::Latch) != self.random.chance(5);
        match self.random.below(10) {
            _ if !is_latch => {
                let count = *self.random.pick(&[0, 1, 1, 1, 2, 3, u32::MAX]);
                self.apply(&Op::Notify { count });
            }
            0..=2 => {
                let limit = *self.random.pick(&[0, 0, 1, 2, 3, 3, 5, COUNTS_MAX + 1]);
                self.create(limit);
            }
            3 => {
                let born = self.born();
                self.apply(&Op::DeleteLatch { born });
            }
            _ => self.count_down(),
        }
    }

    fn arrive(&mut self) {
        let place = self.place();
        self.acquire_anew(self.gate(), place);
    }

    fn create(&mut self, limit: u32) {
        let keep_ms = *self.random.pick(&[0, 1_000, 60_000, 3_600_000, 86_400_000]);
        let not_after_us = self.not_after_us();
        self.apply(&Op::CreateLatch { limit, keep_ms, not_after_us });
    }

    /// Counts down with one of a few IDs, so that many count-downs are repeats.
    fn count_down(&mut self) {
        let id = GrantId { session: SessionId(7), counter: self.random.below(7), nonce: self.random.below(2) };
        let born = self.born();
        self.apply(&Op::CountDown { id, born });
    }

    /// Returns the token of the latch; seldom another one.
    fn born(&mut self) -> Token {
        let born = self.locks[0].model.latch.born;
        if self.random.chance(5) { self.locks[0].model.last } else { born }
    }

    fn spend_or_release(&mut self) {
        let Some((mut id, token)) = self.holder() else { return };
        if self.random.chance(5) {
            id.nonce ^= 1;
        }
        let is_spent = self.random.chance(if self.kind == Kind::Condition { 60 } else { 10 });
        self.apply(&if is_spent { Op::Spend { id, token } } else { Op::Release { id, token, used: token } });
    }

    fn put(&mut self) {
        let Some((mut id, token)) = self.holder() else { return };
        if self.locks[0].model.kind.is_pool() {
            // Only a mutex has a leader.
            id.nonce ^= 1;
        }
        self.apply(&Op::Put { id, token, label: "b".to_owned() });
    }
}
