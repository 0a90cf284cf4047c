//! Injects the fault that comes alone, before the mix, and records the promises for that time. `calm.rs` judges them.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::Inspection;
use leasehold_testkit::boottime_us;
use leasehold_testkit::history::{Event, Promise};

use super::super::calm::{Follow, SLACK, us};
use super::super::client::RUNTIMES;
use super::super::fleet::{CLIENTS, ClientId, PROXIED, is_keeper};
use super::super::kind::Kind;
use super::super::names::Class;
use super::super::options::Store;
use super::super::plan::Strike;
use super::super::stop::{Interrupted, Stop};
use super::Nemesis;
use leasehold_testkit::Random;

/// The clients of which a runtime is blocked or ended.
const DISTURBED: usize = 3;
/// For how long calls are made after a runtime has ended.
const AFTER_END: Duration = Duration::from_secs(1);
/// How long it may take until the ordered clients hold and wait.
const ARRANGED: Duration = Duration::from_secs(3);
/// Longer than a round.
const FOR_THE_ROUND: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(20);
const POLL: Duration = Duration::from_millis(10);
/// A stopped holder resumes this much after the deadline for its successor, so that its own release cannot bring the
/// successor.
const MARGIN: Duration = Duration::from_millis(300);
/// The graces of revocations, in milliseconds.
const GRACE_MS: (u64, u64) = (200, 1_000);
/// The lease of a waiter on a quorum that can be killed while it holds. It ends before the round does.
const BRIEF_LEASE: Duration = Duration::from_secs(3);
/// The leases of holders that are killed, in milliseconds.
const BEREFT_MS: (u64, u64) = (1_000, 1_500);
/// How far the clock is set back behind them, in seconds, by weight: mostly for longer than the promise lasts, seldom by
/// far more. The order of tokens has an excuse for as long if records are lost in the same epoch.
const BACK_S: [(u64, (u64, u64)); 2] = [(75, (4, 6)), (25, (6, 20))];

impl Nemesis<'_> {
    pub(super) fn solo(&mut self, strike: &Strike, stop: &Stop) -> Result<(), Interrupted> {
        let mut dice = Random::new(strike.dice);
        self.ledger.recorder().injected(&format!("{:?}", strike.kind));
        match strike.kind {
            Kind::BlockRuntime | Kind::EndRuntime => self.disturb_runtimes(strike, &mut dice, stop)?,
            Kind::RevokeStopped => self.revoke_stopped(&mut dice),
            Kind::ClockBackBehindDead => self.set_back_behind_dead(&mut dice),
            kind => unreachable!("{kind:?} does not come alone"),
        }
        stop.check()
    }

    /// Clients block or end a runtime, and call the store from their other runtimes meanwhile.
    fn disturb_runtimes(&mut self, strike: &Strike, dice: &mut Random, stop: &Stop) -> Result<(), Interrupted> {
        let time = if strike.kind == Kind::EndRuntime { AFTER_END } else { Duration::from_millis(strike.for_ms) };
        let until = Instant::now() + time;
        let mut slots: Vec<usize> = (0..CLIENTS).collect();
        dice.shuffle(&mut slots);
        for who in
            slots.into_iter().filter_map(|slot| self.stage.fleet.running(slot)).take(DISTURBED).collect::<Vec<_>>()
        {
            let at = dice.index(RUNTIMES);
            self.disturb_runtime(strike, who, at);
            self.stage.fleet.send(who, &format!("probe {at} {}", time.as_millis()));
        }
        stop.sleep_until(until)?;
        self.ledger.calm_until(boottime_us());
        Ok(())
    }

    /// Orders a client to block or end a runtime. The client reports whether the fault has struck.
    pub(super) fn disturb_runtime(&mut self, strike: &Strike, who: ClientId, at: usize) {
        let order = match strike.kind {
            Kind::EndRuntime => format!("end {at}"),
            _ => format!("block {at} {}", strike.for_ms),
        };
        self.stage.fleet.send(who, &order);
        self.ledger.note(strike.kind, &format!("client {}: {order}", who.slot));
    }

    /// Stops a keeper that holds with a long lease; another client revokes the lease and exits. Others wait.
    fn revoke_stopped(&mut self, dice: &mut Random) {
        const KIND: Kind = Kind::RevokeStopped;
        let (name, mut keepers) = (self.names.revoked(), [0, PROXIED]);
        dice.shuffle(&mut keepers);
        let lease = Class::of(&name).longest_lease(self.stage.store);
        let Some((holder, label)) = self.hold(keepers[0], &name, lease) else {
            return self.ledger.note(KIND, "no client holds");
        };
        // The re-checks of such leases come later than the promise, so a waiter must be notified. A waiter that is
        // killed in the mix must leave no long lease behind. One server hands it a claim, which it releases before the
        // renewal. But nodes give their votes for the whole lease.
        let mortal_lease = if self.stage.store == Store::Quorum { lease.min(BRIEF_LEASE) } else { lease };
        let mut waiting = vec![(keepers[1], lease)];
        if dice.chance(50) {
            waiting.extend(self.mortals(dice).into_iter().take(2).map(|slot| (slot, mortal_lease)));
        }
        if !self.wait(&waiting, &name) {
            return self.ledger.note(KIND, "not all clients wait");
        }
        self.ledger.calm_until(boottime_us());
        self.stage.fleet.stop(holder);
        let grace = Duration::from_millis(dice.within(GRACE_MS.0, GRACE_MS.1));
        let from_us = boottime_us();
        let revoked = self.stage.revoke(&name, &label, grace);
        let revoked_us = boottime_us();
        self.ledger.note(KIND, &format!("client {} with a grace of {grace:?}: {revoked:?}", holder.slot));
        // With a directory the process may have been stopped during a step: then all clients wait for it.
        if revoked.is_ok() {
            self.ledger.struck(KIND);
            self.follow(
                Follow {
                    name: name.clone(),
                    behind: label,
                    why: "revoked".into(),
                    from_us,
                    by_us: revoked_us + us(grace + Duration::from_secs(1)),
                },
                waiting.len(),
            );
            if self.stage.store != Store::File {
                self.ledger.calm_until(boottime_us());
            }
        }
        self.stage.fleet.cont(holder);
        // The holder has received the notice, or learns of the revocation at its next renewal.
        let (breaks, to_us) = (Promise::Exclusion, boottime_us() + us(lease / 3 + SLACK));
        let excuse = Event::Fault { name, breaks, from_us, to_us, why: "revoked while stopped".into() };
        self.ledger.recorder().record(excuse);
    }

    /// Kills a client that holds, and sets the server's clock back. Others wait.
    fn set_back_behind_dead(&mut self, dice: &mut Random) {
        const KIND: Kind = Kind::ClockBackBehindDead;
        let name = self.names.bereft();
        let lease = Duration::from_millis(dice.within(BEREFT_MS.0, BEREFT_MS.1));
        let mortals = self.mortals(dice);
        let Some((holder, label)) = self.hold(mortals[0], &name, lease) else {
            return self.ledger.note(KIND, "no client holds");
        };
        let longest = Class::of(&name).longest_lease(self.stage.store);
        let waiting = [(0, longest), (PROXIED, longest), (mortals[1], longest)];
        if !self.wait(&waiting, &name) {
            return self.ledger.note(KIND, "not all clients wait");
        }
        thread::sleep(Duration::from_micros(dice.below(us(lease))));
        self.ledger.calm_until(boottime_us());
        let from_us = boottime_us();
        let Some(dead) = self.stage.fleet.kill(holder) else { return };
        self.ledger.died(dead);
        let dead_us = boottime_us();
        let (least_s, most_s) = dice.weighted(&BACK_S);
        let by_us = dice.within(1_000_000 * least_s, 1_000_000 * most_s);
        self.stage.shift_clock(-by_us.cast_signed());
        self.ledger.note(KIND, &format!("client {} with a lease of {lease:?}, by {by_us} µs", holder.slot));
        self.ledger.struck(KIND);
        self.follow(
            Follow {
                name,
                behind: label,
                why: "killed, and the clock was set back,".into(),
                from_us,
                by_us: dead_us + us(2 * lease + Duration::from_secs(1)),
            },
            waiting.len(),
        );
        self.stage.fleet.revive(holder.slot);
    }

    /// Orders a client to hold a lock for the rest of the round. Returns its label once it holds.
    fn hold(&mut self, slot: usize, name: &str, lease: Duration) -> Option<(ClientId, String)> {
        let who = self.stage.fleet.running(slot)?;
        let label = self.stage.fleet.label(slot);
        self.order((who, name), lease, FOR_THE_ROUND);
        let is_held = |seen: &Inspection| seen.holder().is_some_and(|holder| holder.label == label);
        self.wait_until(name, Instant::now() + ARRANGED, is_held).then_some((who, label))
    }

    /// Orders clients to wait for a lock. Returns whether all of them wait.
    fn wait(&mut self, clients: &[(usize, Duration)], name: &str) -> bool {
        for (slot, lease) in clients {
            if let Some(who) = self.stage.fleet.running(*slot) {
                self.order((who, name), *lease, BRIEF);
            }
        }
        self.wait_until(name, Instant::now() + ARRANGED, |seen| seen.waiters >= clients.len())
    }

    fn order(&mut self, (who, name): (ClientId, &str), lease: Duration, time: Duration) {
        self.stage.fleet.send(who, &format!("hold {name} {} {}", lease.as_millis(), time.as_millis()));
    }

    /// Waits until the next one of the waiting clients holds, or until its deadline. The end of the lease is not enough:
    /// the stopped holder must not resume before it has a successor.
    fn follow(&self, follow: Follow, waiting: usize) {
        let left = Duration::from_micros(follow.by_us.saturating_sub(boottime_us())) + SLACK + MARGIN;
        let is_next = |seen: &Inspection| match seen.holder() {
            Some(holder) => holder.label != follow.behind,
            None => seen.waiters < waiting,
        };
        self.wait_until(&follow.name, Instant::now() + left, is_next);
        self.ledger.follow(follow);
    }

    /// Polls until the lock is in the wanted state. Returns `false` if it is not in time.
    pub(super) fn wait_until(&self, name: &str, until: Instant, wanted: impl Fn(&Inspection) -> bool) -> bool {
        while Instant::now() < until {
            if self.stage.seen(name).is_some_and(|seen| wanted(&seen)) {
                return true;
            }
            thread::sleep(POLL);
        }
        false
    }

    /// Returns the slots of clients that may be killed, in random order.
    pub(super) fn mortals(&self, dice: &mut Random) -> Vec<usize> {
        let mut slots: Vec<usize> = (0..CLIENTS).filter(|slot| !is_keeper(*slot)).collect();
        dice.shuffle(&mut slots);
        slots
    }
}
