//! The end of an attempt to get a lock of any primitive: the work of a task while it holds, and the release; or the reason
//! why it got nothing.

use std::time::Duration;

use leasehold::{Error, LostReason, Released};
use leasehold_testkit::boottime_us;
use leasehold_testkit::history::{Answered, Attempt, Ended, Event, GaveUp, Held, Promise, Share};

use super::super::names::{Class, Names};
use super::runtimes::{RUNTIMES, in_place};
use super::turn::Turn;
use crate::lease::Lease;

/// Records that an attempt got no grant.
pub(super) fn gave_up(turn: &Turn<'_>, attempt: Attempt, why: GaveUp) {
    attempt.gave_up(why);
    turn.shift.count("gave up");
}

/// Records that an attempt failed, and pauses.
pub(super) async fn failed(turn: &Turn<'_>, attempt: Attempt, error: &Error) {
    attempt.gave_up(GaveUp::Failed(error.to_string()));
    turn.shift.count(&format!("error: {:?}", error.kind()));
    turn.shift.sleep(Duration::from_millis(20)).await;
}

/// Runs a section under guards that all belong to one lease.
pub(super) async fn run<L: Lease>(turn: Turn<'_>, attempt: Attempt, guards: Vec<L>, lease: Duration) {
    let held = attempt.share(guards[0].share()).granted(guards[0].token());
    Section { turn, held, lease }.run(guards).await;
}

/// A critical section.
struct Section<'a> {
    turn: Turn<'a>,
    held: Held,
    lease: Duration,
}

/// How long a section is.
#[derive(Clone, Copy)]
enum Length {
    Short,
    Middle,
    Long,
    /// Longer than the lease, which is renewed meanwhile.
    BeyondLease,
}

impl Section<'_> {
    async fn run<L: Lease>(mut self, mut guards: Vec<L>) {
        self.turn.doing("section");
        let length = match Class::of(self.turn.name) {
            Class::Hot => [(930, Length::Short), (60, Length::Middle), (8, Length::Long), (2, Length::BeyondLease)],
            _ => [(780, Length::Short), (150, Length::Middle), (50, Length::Long), (20, Length::BeyondLease)],
        };
        // The sections of a keeper are shorter than its leases.
        let lease_us = u64::try_from(self.lease.as_micros().min(2_000_000)).expect("seconds");
        let length_us = match self.turn.random.weighted(&length) {
            Length::Short => self.turn.random.below(3_000),
            Length::Middle => self.turn.random.within(5_000, 40_000),
            Length::Long => self.turn.random.within(50_000, lease_us),
            Length::BeyondLease => self.turn.random.within(lease_us, 2 * lease_us),
        };
        let effects = if length_us < 5_000 { self.turn.random.within(0, 2) } else { self.turn.random.within(1, 5) };
        // The last guard to be dropped releases the lease: any of them.
        let last = self.turn.random.index(guards.len());
        let guard = guards.swap_remove(last);
        for _ in 0..effects {
            if !self.effect(&guard).await {
                break;
            }
            self.stay(&guard, length_us / effects).await;
            guards.pop();
        }
        drop(guards);
        self.end(guard).await;
    }

    /// Writes to each register under the lease, if the lease is still held. The unfenced register needs the client's
    /// care: it checks its guard before it writes.
    async fn effect(&mut self, guard: &impl Lease) -> bool {
        let (token, check) = (guard.token(), || guard.check().is_ok());
        if !self.held.claims(check) {
            return false;
        }
        if guard.share() != Share::Exclusive {
            return self.read(guard).await;
        }
        self.turn.shift.notes.fencing(self.turn.name, self.turn.me, token);
        self.held.fenced(in_place(|| self.turn.registers.write_fenced(self.turn.name, token)));
        if Names::is_of_epoch(self.turn.name) {
            return true;
        }
        let counting = self.held.counting();
        let Some(read) = in_place(|| self.turn.registers.read(self.turn.name)) else { return true };
        if self.turn.random.chance(30) {
            // The client pauses after the read. In this time another client may write, if the lock does not exclude it.
            self.turn.shift.sleep(Duration::from_micros(self.turn.random.below(10_000))).await;
        }
        let from_us = boottime_us();
        if !self.held.claims(check) {
            return false;
        }
        self.turn.shift.notes.counting(self.turn.name, self.turn.me);
        let answer = in_place(|| self.turn.registers.write(self.turn.name, read + 1));
        counting.wrote(read, answer);
        let is_inside = self.held.claims(check);
        if !is_inside || answer == Answered::Unknown {
            // The client was stopped or slow between the check and the end of the write. This register has no fence, so
            // no lock can help.
            let (name, to_us) = (self.turn.name.to_owned(), boottime_us());
            let why = "the lease ended between a check and the end of its write".to_owned();
            let excuse = Event::Fault { name, breaks: Promise::UnfencedWrites, from_us, to_us, why };
            self.turn.shift.recorder.record(excuse);
        }
        is_inside
    }

    /// Reads the unfenced register twice, with a pause in between: the holders of shared grants write nothing.
    async fn read(&mut self, guard: &impl Lease) -> bool {
        for _ in 0..2 {
            let Turn { name, registers, .. } = &mut self.turn;
            in_place(|| self.held.read(|| registers.read(name)));
            self.turn.shift.sleep(Duration::from_micros(self.turn.random.below(10_000))).await;
        }
        self.held.claims(|| guard.check().is_ok())
    }

    /// Holds on for some time and checks the guard repeatedly, so that a holder that believes in its lease for too long
    /// is recorded.
    async fn stay(&self, guard: &impl Lease, for_us: u64) {
        const CHECK_US: u64 = 10_000;
        for _ in 0..for_us / CHECK_US {
            self.turn.shift.sleep(Duration::from_micros(CHECK_US)).await;
            if self.turn.shift.over() || !self.held.claims(|| guard.check().is_ok()) {
                return;
            }
        }
        self.turn.shift.sleep(Duration::from_micros(for_us % CHECK_US)).await;
    }

    async fn end(self, guard: impl Lease) {
        if let Err(lost) = guard.check() {
            self.held.ended(Ended::Lost(format!("{:?}", lost.reason())));
            // Without the duration, so that the same cause is one line.
            let why = format!("{:?}", lost.reason());
            self.turn.shift.count(&format!("lost: {}", why.split(' ').next().unwrap_or_default()));
            if lost.reason() == LostReason::Released {
                // Only this guard can release the lock, and it has not.
                println!("{} lost token {} of {}: {lost:?}", self.turn.me, guard.token(), self.turn.name);
            }
        } else if self.turn.random.chance(3) {
            self.wait_lost(&guard).await;
        } else {
            self.held.ended(Ended::Released);
        }
        match self.turn.random.below(100) {
            0..50 => {
                self.turn.doing("release");
                self.released(guard.release().await);
            }
            50..65 => {
                let there = (self.turn.at + 1 + self.turn.random.index(RUNTIMES - 1)) % RUNTIMES;
                self.turn.doing("release on another runtime");
                match self.turn.shift.runtimes.handle(there).spawn(guard.release()).await {
                    Ok(released) => self.released(released),
                    // That runtime has ended. The release goes on without its future.
                    Err(_) => self.turn.shift.count("release: its runtime ended"),
                }
            }
            65..75 => {
                let timeout = Duration::from_micros(self.turn.random.below(3_000));
                // The release goes on without its future.
                let _dropped = tokio::time::timeout(timeout, guard.release()).await;
            }
            _ => drop(guard),
        }
    }

    fn released(&self, released: leasehold::Result<Released>) {
        match released {
            Ok(Released::Released) => self.turn.shift.count("released"),
            Ok(Released::NotHeld) => self.turn.shift.count("not held"),
            Err(error) => self.turn.shift.count(&format!("release: {:?}", error.kind())),
        }
    }

    /// Holds until the lease is lost, or for a while.
    async fn wait_lost(&self, guard: &impl Lease) {
        self.turn.doing("waiting for a loss");
        let signal = guard.lost();
        let most_us = u64::try_from(self.lease.as_micros().min(2_000_000)).expect("seconds") * 5 / 4;
        let lost = tokio::select! {
            biased;
            () = self.stay(guard, most_us) => guard.check().err(),
            lost = signal => Some(lost),
        };
        self.held.ended(lost.map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason()))));
    }
}
