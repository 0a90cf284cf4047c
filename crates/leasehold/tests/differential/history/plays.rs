//! The kinds of histories, and the choice of the next step.

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::{GrantState, Hears, Op, Patience};

use super::History;

impl History<'_> {
    /// Plays a history with this number of steps.
    pub(crate) fn play(mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
        self.rig.end_history();
    }

    /// Plays a queue of mostly dead waiters that is longer than one step can read.
    pub(crate) fn play_crowd(mut self, steps: usize) {
        self.locks.truncate(1);
        for _ in 0..self.random.within(20, 180) {
            let session = 1 + self.random.index(self.sessions - 1);
            let mut patience = self.place();
            if let (Patience::Queue(place), true) = (&mut patience, self.random.chance(99)) {
                (place.hears, place.limit_ms) = (Hears::Listens, None);
            }
            self.acquire_anew(0, session, patience);
        }
        for number in 0..self.sessions {
            if self.random.chance(95) {
                self.rig.attach(number, false);
            }
        }
        for _ in 0..steps {
            match self.random.below(4) {
                0 => self.release(0),
                1 => self.apply(0, &Op::Settle),
                2 => self.move_clock(),
                _ => self.step(),
            }
        }
        self.rig.end_history();
    }

    /// Plays claims that run out one after the other, of more sessions than a record remembers.
    pub(crate) fn play_lapses(mut self) {
        self.locks.truncate(1);
        for number in 0..self.sessions {
            self.rig.attach(number, true);
        }
        for round in 0..2 {
            for session in 0..self.sessions {
                let mut place = self.place();
                if let Patience::Queue(place) = &mut place {
                    (place.limit_ms, place.hears, place.ticket) = (None, Hears::Listens, None);
                    place.claim_ms = 1_000;
                }
                self.acquire_anew(0, session, place);
                if round == 1 && self.random.chance(30) {
                    self.look(0);
                }
            }
        }
        for _ in 0..self.sessions {
            self.rig.move_clock(1_100_000, &mut self.locks);
            if self.random.chance(10) {
                self.rig.move_clock(-1_500_000, &mut self.locks);
            }
            self.apply(0, &Op::Settle);
            if self.locks[0].model.lapses.len() == leasehold_spec::limits::LAPSES {
                self.rig.count("sixteen lapses");
            }
            if self.random.chance(20) {
                self.step();
            }
        }
        self.rig.end_history();
    }

    /// Plays a queue that is full, or almost.
    pub(crate) fn play_full(mut self, steps: usize) {
        self.locks = vec![self.rig.full_queue()];
        for _ in 0..steps {
            match self.random.below(20) {
                // The clock may have moved past the end of the record in the meantime.
                0 => self.leave(0),
                1 => self.look(0),
                2 => self.step(),
                _ => {
                    let session = self.random.index(self.sessions);
                    let place = self.place();
                    self.acquire_anew(0, session, place);
                }
            }
        }
        self.rig.check_full_queue(&self.locks[0]);
        self.rig.end_history();
    }

    fn step(&mut self) {
        if self.rig.harness.is_full() && self.random.chance(15) {
            self.rig.fill_memory(false);
        }
        let lock = self.random.index(self.locks.len());
        if self.random.chance(32) && self.step_that_fits(lock) {
            return;
        }
        match self.random.below(100) {
            0..=2 => self.acquire_all(),
            3 => self.many(),
            4..=10 => {
                let session = self.random.index(self.sessions);
                self.acquire_anew(lock, session, Patience::Try);
            }
            11..=27 => {
                let session = self.random.index(self.sessions);
                let place = self.place();
                self.acquire_anew(lock, session, place);
            }
            28..=30 => self.reserve(lock),
            31 => self.put(lock),
            32 => self.hand_to(lock),
            33..=41 => self.look(lock),
            42..=46 => self.release(lock),
            47..=49 => self.cool_down(lock),
            50..=57 => self.leave(lock),
            58..=64 => self.renew(lock),
            65..=68 => self.renew_many(),
            69..=76 => self.revoke(lock),
            77..=78 => self.apply(lock, &Op::Settle),
            79..=82 => self.apply(lock, &Op::Inspect),
            83..=90 => self.move_clock(),
            91..=96 => {
                let session = self.random.index(self.sessions);
                if self.random.chance(60) { self.rig.attach(session, true) } else { self.rig.attach(session, false) }
            }
            _ => self.rig.fill_memory(true),
        }
    }

    /// Does a step that would be rare by chance alone.
    fn step_that_fits(&mut self, lock: usize) -> bool {
        if !self.locks[lock].model.queue.is_empty() && self.random.chance(30) {
            self.leave(lock);
            return true;
        }
        let model = &self.locks[lock].model;
        let (grant, released) = (model.grants.sole().cloned(), model.released);
        match (grant, released) {
            (Some(grant), _) if grant.state == GrantState::Revoked => {
                self.renew_as(lock, grant.id, grant.token);
                true
            }
            (Some(grant), _) if !grant.is_held() && self.random.chance(70) => {
                self.late_in_a_cool_down(lock, (grant.id, grant.token));
                true
            }
            (Some(grant), _) if grant.state == GrantState::Held && self.random.chance(8) => {
                self.renew_on_and_on(lock, (grant.id, grant.token), grant.length_ms);
                true
            }
            (Some(grant), _) if self.random.chance(12) => {
                let used = self.used(lock, grant.token);
                let for_ms = self.lease_ms();
                self.apply(lock, &Op::CoolDown { id: grant.id, used, for_ms });
                true
            }
            (Some(grant), _) if self.random.chance(25) => {
                let used = self.used(lock, grant.token);
                self.apply(lock, &Op::Leave { id: grant.id, used });
                true
            }
            (Some(grant), _) if !self.locks[lock].model.queue.is_empty() && self.random.chance(30) => {
                self.hand_to_as(lock, grant.id, grant.token);
                true
            }
            (Some(grant), _) if self.random.chance(46) => {
                self.reserve_as(lock, grant.id, grant.token);
                true
            }
            (Some(grant), _) => {
                let token = grant.token;
                let grace_ms = *self.random.pick(&[0, 1, 500, REVOKE_GRACE_MS]);
                self.apply(lock, &Op::Revoke { holder: grant.id.public(), token, grace_ms });
                true
            }
            (None, Some(released)) => {
                let Some(at) = self.attempts.iter().position(|attempt| attempt.acquire.id == released) else {
                    return false;
                };
                match self.attempts[at].token {
                    Some(token) if self.random.chance(30) => {
                        let used = self.used(lock, token);
                        self.apply(lock, &Op::Release { id: released, token, used });
                    }
                    _ => self.acquire_again(at),
                }
                true
            }
            (None, None) => false,
        }
    }
}
