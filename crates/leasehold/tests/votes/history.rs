//! Random histories. They prefer rare events: half of the choices depend on the model.

use leasehold_spec::limits::{LEASE_MAX_MS, QUEUE_MAX, RANGE_MAX, RETENTION_MS, REVOKE_GRACE_MS, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Ask, Charter, Marker, Renewal, Request, Said, Wait};
use leasehold_spec::{From, GrantId, Order, Token};
use leasehold_testkit::Random;
use leasehold_testkit::differential::{LABELS, NAMES};

use crate::rig::{CHARTER, Lock, Rig};

/// An attempt that has asked once. It may ask again in another round, in any state.
#[derive(Clone)]
struct Attempt {
    lock: usize,
    id: GrantId,
    token: Token,
    range: u64,
    wait: Option<Wait>,
    label: &'static str,
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

    /// Plays a history of this many steps.
    pub(crate) fn play(mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
        self.rig.end_history();
    }

    /// Plays a history with a queue of mostly dead waiters, longer than one step reads.
    pub(crate) fn play_crowd(mut self, steps: usize) {
        self.locks.truncate(1);
        let (ask, first) = (self.attempt(0), self.rig.now_us() - 1_000_000);
        self.ask(&ask);
        if self.locks[0].model.grant.is_some() {
            let count = self.random.within(20, 180);
            self.rig.crowd(&mut self.locks[0], first, count);
        }
        for _ in 0..steps {
            match self.random.below(4) {
                0 => self.give_back_of_holder(),
                1 => self.apply(0, &Request::Settle),
                2 => self.move_clock(),
                _ => self.step(),
            }
        }
        self.rig.end_history();
    }

    /// Plays a history with a queue that is full, or almost full.
    pub(crate) fn play_full(mut self, steps: usize) {
        self.locks = vec![Lock::new("full")];
        self.rig.is_unread = true;
        let first = self.rig.now_us();
        self.take(first);
        self.rig.crowd(&mut self.locks[0], first, QUEUE_MAX as u64 - 3);
        for _ in 0..steps {
            match self.random.below(12) {
                0 => self.give_back(0),
                1 => self.ask_again(0),
                2 => self.step(),
                _ => {
                    let attempt = Attempt { wait: Some(self.wait()), ..self.attempt(0) };
                    self.ask(&attempt);
                }
            }
        }
        self.rig.is_unread = false;
        self.rig.check_stored(&self.locks[0]);
        self.rig.end_history();
    }

    /// Acquires a free name, without any random choice.
    fn take(&mut self, now_us: u64) {
        let attempt = Attempt { token: Token::new(now_us).unwrap(), range: 1, wait: None, ..self.attempt(0) };
        self.attempts.push(attempt.clone());
        let Attempt { id, token, range, wait, label, .. } = attempt;
        let (lease_ms, not_after_us, label) = (LEASE_MAX_MS, now_us + 2_000_000, label.to_owned());
        let ask = Request::Ask(Ask { id, token, range, lease_ms, not_after_us, wait, label });
        let said = self.rig.ask(&mut self.locks[0], &ask);
        assert!(matches!(said, Some(Said::Granted { .. })), "{said:?}");
    }

    fn step(&mut self) {
        if self.rig.harness.is_full() && self.random.chance(25) {
            self.rig.fill_memory(false);
        }
        let lock = self.random.index(self.locks.len());
        match self.random.below(100) {
            0..=27 => {
                let attempt = self.attempt(lock);
                self.ask(&attempt);
            }
            28..=42 => self.ask_again(lock),
            43..=47 => self.give_back_of_holder(),
            48..=51 => self.pause(lock),
            52..=57 => self.give_back(lock),
            58..=59 => self.cool_down(lock),
            60..=66 => self.renew(lock),
            67..=71 => self.renew_many(),
            72..=75 => self.revoke(lock),
            76..=78 => self.apply(lock, &Request::Settle),
            79..=80 => self.apply(lock, &Request::Inspect),
            81..=88 => self.move_clock(),
            89..=93 => {
                let session = self.random.index(self.sessions);
                let is_attached = self.random.chance(60);
                self.rig.attach(session, is_attached);
            }
            94..=95 => self.rig.fill_memory(true),
            _ => self.change_marker(),
        }
    }

    fn apply(&mut self, lock: usize, request: &Request) {
        self.rig.ask(&mut self.locks[lock], request);
    }

    fn lease_ms(&mut self) -> u64 {
        *self.random.pick(&[100, 300, 1_000, 30_000, RETENTION_MS, RETENTION_MS + 1, 120_000, LEASE_MAX_MS])
    }

    /// Returns one of a few tickets: some are equal.
    fn wait(&mut self) -> Wait {
        let second = self.rig.now_us() / 1_000_000 * 1_000_000;
        let ticket = match self.random.below(10) {
            0 => 0,
            1 => self.rig.now_us(),
            _ => second + self.random.below(6),
        };
        Wait { ticket, order: if self.random.chance(25) { Order::Strict } else { Order::Relaxed } }
    }

    fn maybe_wait(&mut self) -> Option<Wait> {
        self.random.chance(65).then(|| self.wait())
    }

    fn not_after_us(&mut self) -> u64 {
        let now_us = self.rig.now_us();
        match self.random.below(14) {
            0 => now_us - self.random.within(0, 3_000_000),
            _ => now_us + 2_000_000,
        }
    }

    /// Returns a token that a client would propose, and rarely one that no client would.
    fn token(&mut self, lock: usize) -> Token {
        let (now_us, highest) = (self.rig.now_us(), self.locks[lock].model.highest.get());
        let window_us = TOKEN_WINDOW_MS * 1000;
        let number = match self.random.below(20) {
            0 => highest,
            1 => highest.saturating_sub(5),
            2 => now_us + window_us + 200_000,
            3 => now_us - window_us - 200_000,
            4 => now_us + window_us - 300_000,
            5 => 0,
            6..=9 => highest + 1,
            10 => now_us + self.random.below(1_500_000),
            _ => now_us.max(highest + 1),
        };
        Token::new(number).unwrap()
    }

    fn attempt(&mut self, lock: usize) -> Attempt {
        let session = self.rig.harness.session(self.random.index(self.sessions));
        let id = GrantId { session, counter: self.attempts.len() as u64, nonce: self.random.number() };
        let range = *self.random.pick(&[0, 1, 1, 2, RANGE_MAX, RANGE_MAX, 3_000_000]);
        let (token, wait) = (self.token(lock), self.maybe_wait());
        Attempt { lock, id, token, range, wait, label: LABELS[self.random.index(LABELS.len())] }
    }

    fn ask(&mut self, attempt: &Attempt) {
        let lease_ms = self.lease_ms();
        self.ask_for(attempt, lease_ms);
    }

    fn ask_for(&mut self, attempt: &Attempt, lease_ms: u64) {
        let Attempt { lock, id, token, range, wait, label } = attempt.clone();
        let not_after_us = self.not_after_us();
        let ask = Ask { id, token, range, lease_ms, not_after_us, wait, label: label.to_owned() };
        self.attempts.retain(|other| other.id != id);
        self.attempts.push(attempt.clone());
        if let Some(Said::Granted { token, range, .. }) = self.rig.ask(&mut self.locks[lock], &Request::Ask(ask)) {
            let last = self.attempts.last_mut().unwrap();
            (last.token, last.range) = (token, range);
        }
    }

    /// Repeats a request, or begins another round.
    fn ask_again(&mut self, lock: usize) {
        let Some(mut attempt) = self.one_of(lock) else { return };
        if self.random.chance(60) {
            attempt.token = self.token(lock);
        }
        if self.random.chance(25) {
            attempt.wait = self.maybe_wait();
        }
        if let Some(wait) = attempt.wait.as_mut().filter(|_| self.random.chance(10)) {
            wait.order = if wait.order == Order::Strict { Order::Relaxed } else { Order::Strict };
        }
        self.ask(&attempt);
    }

    /// Returns an attempt at this name: the one with the vote, a waiting or a called one, or any earlier one.
    fn one_of(&mut self, lock: usize) -> Option<Attempt> {
        let model = &self.locks[lock].model;
        let wanted = match self.random.below(5) {
            0 => model.grant.as_ref().map(|granted| granted.id),
            1 => model.called.map(|called| called.id),
            2 if !model.queue.is_empty() => {
                let at = self.random.index(model.queue.len().min(100));
                model.queue.keys().nth(at).map(|(_, id)| *id)
            }
            _ => None,
        };
        let here: Vec<_> = self.attempts.iter().filter(|attempt| attempt.lock == lock).collect();
        match wanted.or_else(|| (!here.is_empty()).then(|| here[self.random.index(here.len())].id)) {
            Some(id) => here.into_iter().find(|attempt| attempt.id == id).cloned(),
            None => None,
        }
    }

    fn give_back_of_holder(&mut self) {
        let lock = self.random.index(self.locks.len());
        if let Some(id) = self.locks[lock].model.grant.as_ref().map(|granted| granted.id) {
            let wait = if self.random.chance(15) { self.maybe_wait() } else { None };
            let upto = self.upto(lock);
            self.apply(lock, &Request::GiveBack { id, upto, wait });
        }
    }

    /// Pauses in a run. Mostly the client comes back, or gives back once more.
    fn pause(&mut self, lock: usize) {
        let holder = self.locks[lock].model.grant.as_ref().map(|granted| granted.id);
        let Some(id) = holder.filter(|_| self.random.chance(80)).or_else(|| Some(self.one_of(lock)?.id)) else {
            return;
        };
        let (upto, notice_ms) = (self.upto(lock), self.random.below(2) * 50);
        self.apply(lock, &Request::Pause { id, upto, notice_ms });
        match self.random.below(4) {
            0 => self.apply(lock, &Request::GiveBack { id, upto: Token::HIGHEST, wait: None }),
            1 => self.step(),
            _ => {
                let attempt = self.attempt(lock);
                self.ask(&attempt);
            }
        }
    }

    fn give_back(&mut self, lock: usize) {
        let Some(Attempt { id, wait, .. }) = self.one_of(lock) else { return };
        let wait = match self.random.below(4) {
            0 => self.maybe_wait(),
            1 => wait,
            _ => None,
        };
        let upto = self.upto(lock);
        self.apply(lock, &Request::GiveBack { id, upto, wait });
    }

    fn cool_down(&mut self, lock: usize) {
        let Some(Attempt { id, .. }) = self.one_of(lock) else { return };
        let (upto, for_ms) = (self.upto(lock), self.lease_ms());
        self.apply(lock, &Request::CoolDown { id, upto, for_ms });
    }

    /// Returns the largest token in most cases, and otherwise one near a granted token.
    fn upto(&mut self, lock: usize) -> Token {
        let held = self.locks[lock].model.grant.as_ref().map(|granted| granted.token.get());
        match (self.random.below(4), held) {
            (0, Some(held)) => Token::new((held + self.random.below(3)).saturating_sub(1)).expect("a token"),
            _ => Token::HIGHEST,
        }
    }

    fn renewal(&mut self, lock: usize) -> Option<Renewal> {
        let held = self.locks[lock].model.grant.as_ref().map(|granted| granted.id).filter(|_| self.random.chance(60));
        let of = held.and_then(|id| self.attempts.iter().find(|attempt| attempt.id == id).cloned());
        let of = of.or_else(|| self.one_of(lock))?;
        let mut id = of.id;
        if self.random.chance(4) {
            // The right client, and another grant.
            id.nonce ^= 1;
        }
        let token = if self.random.chance(90) { of.token } else { self.token(lock) };
        let from = if self.random.chance(75) { From::Now } else { From::Grant };
        let fill = self.random.chance(50).then(|| of.label.to_owned());
        let (lease_ms, not_after_us) = (self.lease_ms(), self.not_after_us());
        Some(Renewal { id, token, range: of.range, from, lease_ms, not_after_us, fill })
    }

    fn renew(&mut self, lock: usize) {
        if let Some(renewal) = self.renewal(lock) {
            self.apply(lock, &Request::Renew(renewal));
        }
    }

    /// Renews every name in one batch.
    fn renew_many(&mut self) {
        let mut batch = Vec::new();
        for lock in 0..self.locks.len() {
            batch.extend(self.renewal(lock).map(|renewal| (lock, renewal)));
        }
        if !batch.is_empty() {
            self.rig.renew(&mut self.locks, &batch);
        }
    }

    fn revoke(&mut self, lock: usize) {
        let held = self.locks[lock].model.grant.as_ref().map(|granted| (granted.id.public(), granted.token));
        let grace_ms = *self.random.pick(&[0, 0, 1, 700, REVOKE_GRACE_MS]);
        let (holder, token) = match (held, self.one_of(lock)) {
            (Some(held), _) if self.random.chance(80) => held,
            (_, Some(other)) => (other.id.public(), other.token),
            (_, None) => return,
        };
        self.apply(lock, &Request::Revoke { holder, token, grace_ms });
    }

    /// Moves the clock to the end of a lease or a call, past the retention, or back.
    fn move_clock(&mut self) {
        let lock = self.random.index(self.locks.len());
        let (model, now_us) = (&self.locks[lock].model, self.rig.now_us());
        let left_us = model.grant.as_ref().map_or(0, |granted| granted.left_us(now_us));
        let called_us = model.called.map_or(0, |called| called.until_us.saturating_sub(now_us));
        let signed = |us: u64| i64::try_from(us).unwrap();
        let by_us = match self.random.below(14) {
            0..=2 => signed(left_us) + 1_000,
            3 => signed(left_us) - 20_000,
            4 | 5 => signed(called_us) + 1_000,
            6 => 20_000_000,
            7 => 70_000_000,
            8 => 200_000,
            9 => -1_500_000,
            10 => -40_000_000,
            11 => -300_000_000,
            _ => 2_000_000,
        };
        self.rig.move_clock(by_us.clamp(-86_400_000_000, 2 * 86_400_000_000), &mut self.locks);
    }

    /// Removes the marker of the node or restores an older one, and has clients greet the node again.
    fn change_marker(&mut self) {
        let before = self.rig.marker();
        let run = match self.random.below(3) {
            0 => self.rig.run(),
            1 => "the run before".to_owned(),
            _ => "0123456789abcdef0123456789abcdef01234567".to_owned(),
        };
        let charter = match self.random.below(8) {
            0 => Charter { nodes: 5, ..CHARTER },
            1 => Charter { max_lease_ms: 1_000, ..CHARTER },
            _ => CHARTER,
        };
        match self.random.below(6) {
            0 => self.rig.put_marker(None),
            1 => {
                let now_us = self.rig.now_us();
                let rests_until_us = *self.random.pick(&[0, now_us - 1_000_000, now_us + 30_000_000, now_us * 2]);
                let (forgets, was_used) = (self.random.chance(50), self.random.chance(50));
                self.rig.put_marker(Some(Marker { charter, run, forgets, rests_until_us, was_used }));
            }
            2 => self.rig.greet(),
            _ => {
                for _ in 0..self.random.within(1, 4) {
                    let forgets = self.random.chance(50);
                    self.rig.greet_as(charter, &run, forgets);
                }
            }
        }
        // A link that has not seen the change sends some requests. After that the node is usually as good as new.
        for _ in 0..self.random.below(4) {
            let lock = self.random.index(self.locks.len());
            match self.random.below(3) {
                0 => self.renew(lock),
                1 => self.give_back(lock),
                _ => {
                    let attempt = self.attempt(lock);
                    self.ask(&attempt);
                }
            }
        }
        if self.random.chance(50) {
            let asked = if self.random.chance(50) { self.rig.marker() } else { before };
            self.rig.begin_as_asked(asked.as_ref());
        }
        if self.random.chance(85) {
            self.rig.begin();
        }
        self.rig.greet();
    }
}
