//! The work of a task while it holds a lock, and the release.

use std::time::Duration;

use leasehold::{Guard, LostReason, Released};
use leasehold_testkit::history::{Answered, Ended, Event, Held, Promise};
use leasehold_testkit::{Registers, boottime_us};

use super::super::names::{Class, Names};
use super::runtimes::{RUNTIMES, in_place};
use super::shift::Shift;
use leasehold_testkit::Random;

/// A critical section.
pub(super) struct Section<'a> {
    pub(super) shift: &'a Shift,
    pub(super) me: &'a str,
    /// The runtime of the task.
    pub(super) at: usize,
    pub(super) name: &'a str,
    pub(super) held: Held,
    pub(super) lease: Duration,
    pub(super) registers: &'a mut Registers,
    pub(super) random: &'a mut Random,
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
    /// Runs the section. All guards belong to one lease.
    pub(super) async fn run(mut self, mut guards: Vec<Guard>) {
        self.shift.doing(self.me, "section", self.name);
        let length = match Class::of(self.name) {
            Class::Hot => [(930, Length::Short), (60, Length::Middle), (8, Length::Long), (2, Length::BeyondLease)],
            _ => [(780, Length::Short), (150, Length::Middle), (50, Length::Long), (20, Length::BeyondLease)],
        };
        // The sections of a keeper are shorter than its leases.
        let lease_us = u64::try_from(self.lease.as_micros().min(2_000_000)).expect("seconds");
        let length_us = match self.random.weighted(&length) {
            Length::Short => self.random.below(3_000),
            Length::Middle => self.random.within(5_000, 40_000),
            Length::Long => self.random.within(50_000, lease_us),
            Length::BeyondLease => self.random.within(lease_us, 2 * lease_us),
        };
        let effects = if length_us < 5_000 { self.random.within(0, 2) } else { self.random.within(1, 5) };
        // The last guard to be dropped releases the lease: any of them.
        let last = self.random.index(guards.len());
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
    async fn effect(&mut self, guard: &Guard) -> bool {
        let (token, check) = (guard.token().get(), || guard.check().is_ok());
        if !self.held.claims(check) {
            return false;
        }
        self.shift.notes.fencing(self.name, self.me, token);
        self.held.fenced(in_place(|| self.registers.write_fenced(self.name, token)));
        if Names::is_of_epoch(self.name) {
            return true;
        }
        let counting = self.held.counting();
        let Some(read) = in_place(|| self.registers.read(self.name)) else { return true };
        if self.random.chance(30) {
            // The client pauses after the read. In this time another client may write, if the lock does not exclude it.
            self.shift.sleep(Duration::from_micros(self.random.below(10_000))).await;
        }
        let from_us = boottime_us();
        if !self.held.claims(check) {
            return false;
        }
        self.shift.notes.counting(self.name, self.me);
        let answer = in_place(|| self.registers.write(self.name, read + 1));
        counting.wrote(read, answer);
        let is_inside = self.held.claims(check);
        if !is_inside || answer == Answered::Unknown {
            // The client was stopped or slow between the check and the end of the write. This register has no fence, so
            // no lock can help.
            let (name, to_us) = (self.name.to_owned(), boottime_us());
            let why = "the lease ended between a check and the end of its write".to_owned();
            let excuse = Event::Fault { name, breaks: Promise::UnfencedWrites, from_us, to_us, why };
            self.shift.recorder.record(excuse);
        }
        is_inside
    }

    /// Holds on for some time and checks the guard repeatedly, so that a holder that believes in its lease for too long
    /// is recorded.
    async fn stay(&self, guard: &Guard, for_us: u64) {
        const CHECK_US: u64 = 10_000;
        for _ in 0..for_us / CHECK_US {
            self.shift.sleep(Duration::from_micros(CHECK_US)).await;
            if self.shift.over() || !self.held.claims(|| guard.check().is_ok()) {
                return;
            }
        }
        self.shift.sleep(Duration::from_micros(for_us % CHECK_US)).await;
    }

    async fn end(self, guard: Guard) {
        if let Err(lost) = guard.check() {
            self.held.ended(Ended::Lost(format!("{:?}", lost.reason())));
            // Without the duration, so that the same cause is one line.
            let why = format!("{:?}", lost.reason());
            self.shift.count(&format!("lost: {}", why.split(' ').next().unwrap_or_default()));
            if lost.reason() == LostReason::Released {
                // Only this guard can release the lock, and it has not.
                println!("{} lost token {} of {}: {lost:?}", self.me, guard.token(), self.name);
            }
        } else if self.random.chance(3) {
            self.wait_lost(&guard).await;
        } else {
            self.held.ended(Ended::Released);
        }
        match self.random.below(100) {
            0..50 => {
                self.shift.doing(self.me, "release", self.name);
                self.released(guard.release().await);
            }
            50..65 => {
                let there = (self.at + 1 + self.random.index(RUNTIMES - 1)) % RUNTIMES;
                self.shift.doing(self.me, "release on another runtime", self.name);
                match self.shift.runtimes.handle(there).spawn(guard.release()).await {
                    Ok(released) => self.released(released),
                    // That runtime has ended. The release goes on without its future.
                    Err(_) => self.shift.count("release: its runtime ended"),
                }
            }
            65..75 => {
                let timeout = Duration::from_micros(self.random.below(3_000));
                // The release goes on without its future.
                let _dropped = tokio::time::timeout(timeout, guard.release()).await;
            }
            _ => drop(guard),
        }
    }

    fn released(&self, released: leasehold::Result<Released>) {
        match released {
            Ok(Released::Released) => self.shift.count("released"),
            Ok(Released::NotHeld) => self.shift.count("not held"),
            Err(error) => self.shift.count(&format!("release: {:?}", error.kind())),
        }
    }

    /// Holds until the lease is lost, or for a while.
    async fn wait_lost(&self, guard: &Guard) {
        self.shift.doing(self.me, "waiting for a loss", self.name);
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
