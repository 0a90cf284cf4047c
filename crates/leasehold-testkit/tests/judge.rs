//! The tools together: a toy lock on a real server, correct and incorrect, with and without faults. The judge must accept
//! the correct one and reject the incorrect one, or its verdict on a real lock is worth nothing.

use std::thread;
use std::time::Duration;

use leasehold_testkit::checker::{Report, Rules, Violation, check};
use leasehold_testkit::history::{Ended, GaveUp, Held, Promise, Recorder};
use leasehold_testkit::proxy::{Fault, FaultProxy, Requests};
use leasehold_testkit::{RedisServer, Registers, Resp, boottime_us};

const NAME: &str = "stock";
const LOCK: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end
return 0
";
const COMPARE_AND_DELETE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
";

/// How the toy releases.
#[derive(Clone, Copy)]
enum Release {
    ComparesOwner,
    /// The oldest mistake: it deletes the key, whoever holds.
    Deletes,
}

/// A textbook lock with a token.
struct Toy<'a> {
    resp: Resp,
    client: &'a str,
    lease_ms: u64,
    release: Release,
    recorder: &'a Recorder,
}

struct Grant {
    held: Held,
    token: u64,
    valid_until_us: u64,
}

impl Grant {
    fn claims(&self) -> bool {
        self.held.claims(|| boottime_us() < self.valid_until_us)
    }
}

impl<'a> Toy<'a> {
    fn new(port: u16, client: &'a str, lease_ms: u64, release: Release, recorder: &'a Recorder) -> Self {
        Self { resp: Resp::connect(port), client, lease_ms, release, recorder }
    }

    fn try_lock(&mut self) -> Option<Grant> {
        let attempt = self.recorder.attempt(NAME, self.client);
        let asked_us = boottime_us();
        let lease = self.lease_ms.to_string();
        let token = self.resp.command(&["EVAL", LOCK, "2", "lock", "tokens", self.client, &lease]).int();
        let token = token.and_then(|token| u64::try_from(token).ok()).expect("a token or 0");
        if token == 0 {
            attempt.gave_up(GaveUp::Busy);
            return None;
        }
        Some(Grant { held: attempt.granted(token), token, valid_until_us: asked_us + self.lease_ms * 990 })
    }

    /// Polls, as toys do, until the timeout of a connection.
    fn lock(&mut self) -> Grant {
        let deadline_us = boottime_us() + 60_000_000;
        while boottime_us() < deadline_us {
            match self.try_lock() {
                Some(grant) => return grant,
                None => thread::sleep(Duration::from_micros(200)),
            }
        }
        panic!("{} waited for a minute", self.client);
    }

    fn unlock(&mut self, grant: &Grant) {
        grant.held.ended(Ended::Released);
        match self.release {
            Release::ComparesOwner => {
                self.resp.command(&["EVAL", COMPARE_AND_DELETE, "1", "lock", self.client]);
            }
            Release::Deletes => {
                self.resp.command(&["DEL", "lock"]);
            }
        }
    }
}

/// Runs one critical section: a write to each register.
fn work(grant: &Grant, registers: &mut Registers) {
    assert!(grant.claims(), "a lease of a minute is valid at once");
    grant.held.fenced(registers.write_fenced(NAME, grant.token));
    let counting = grant.held.counting();
    let read = registers.read(NAME).expect("the registers answer");
    counting.wrote(read, registers.write(NAME, read + 1));
    grant.claims();
}

/// When the lock is released.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    BackAfterTheWork,
    BackBeforeIt,
}

/// Four clients run fifty sections each.
fn contend(given: Given) -> Report {
    let (locks, registers) = (RedisServer::start(), RedisServer::start());
    let recorder = Recorder::in_memory();
    thread::scope(|scope| {
        for client in ["a", "b", "c", "d"] {
            let (recorder, locks, registers) = (&recorder, locks.port(), registers.port());
            scope.spawn(move || {
                let mut toy = Toy::new(locks, client, 60_000, Release::ComparesOwner, recorder);
                let mut registers = Registers::at(registers);
                for _ in 0..50 {
                    let grant = toy.lock();
                    if given == Given::BackBeforeIt {
                        toy.resp.command(&["DEL", "lock"]);
                    }
                    work(&grant, &mut registers);
                    toy.unlock(&grant);
                }
            });
        }
    });
    Registers::at(registers.port()).record_final(NAME, &recorder);
    check(&recorder.history(), &Rules::mutex().at_least(200))
}

#[test]
fn a_correct_lock_passes() {
    let report = contend(Given::BackAfterTheWork);
    report.assert_clean();
    assert_eq!((report.grants, report.claimed, report.refused, report.lost_updates), (200, 200, 0, 0));
}

#[test]
fn a_missing_lock_is_found() {
    let report = contend(Given::BackBeforeIt);
    let overlaps = report.violations.iter().filter(|v| matches!(v, Violation::Overlap { .. })).count();
    assert!(overlaps > 0, "four clients in one section at once: {report:?}");
    assert!(!report.violations.iter().any(|v| matches!(v, Violation::FenceFell { .. } | Violation::SameToken { .. })));
}

#[test]
fn a_release_that_deletes_another_grant_is_found() {
    for (release, is_right) in [(Release::ComparesOwner, true), (Release::Deletes, false)] {
        let locks = RedisServer::start();
        let recorder = Recorder::in_memory();
        let toy = |client, lease_ms| Toy::new(locks.port(), client, lease_ms, release, &recorder);
        let (mut a, mut b, mut c) = (toy("a", 50), toy("b", 60_000), toy("c", 60_000));
        let first = a.lock();
        let second = b.lock(); // when the lease of a has run out
        a.unlock(&first); // late
        let third = c.try_lock();
        assert_eq!(third.is_none(), is_right);
        // Claims last microseconds at least.
        thread::sleep(Duration::from_millis(1));
        assert!(third.is_none_or(|third| third.claims()));
        assert!(second.claims());
        let report = check(&recorder.history(), &Rules::mutex().at_least(2));
        match is_right {
            true => report.assert_clean(),
            false => assert!(matches!(&report.violations[..], [Violation::Overlap { .. }]), "{report:?}"),
        }
    }
}

#[test]
fn a_clock_that_jumps_makes_two_holders_and_the_fence_stops_the_first() {
    for declared in [true, false] {
        let (locks, registers) = (RedisServer::builder().skew().start(), RedisServer::start());
        let recorder = Recorder::in_memory();
        let toy = |client| Toy::new(locks.port(), client, 30_000, Release::ComparesOwner, &recorder);
        let mut registers = Registers::at(registers.port());
        let (mut a, mut b) = (toy("a"), toy("b"));
        let first = a.try_lock().expect("free");
        assert!(first.claims());
        assert!(b.try_lock().is_none());
        if declared {
            recorder.excuse(NAME, Promise::Exclusion, Duration::from_secs(30), "the server's clock jumps ahead");
        }
        locks.shift_clock(31_000_000);
        let second = b.try_lock().expect("the server believes that the lease has ended");
        thread::sleep(Duration::from_millis(1));
        work(&second, &mut registers);
        // The first client is also convinced that it holds, and its clock is right: only the register can refuse it.
        work(&first, &mut registers);
        registers.record_final(NAME, &recorder);
        let report = check(&recorder.history(), &Rules::mutex().at_least(2));
        let broken = if declared { &report.excused } else { &report.violations };
        assert!(matches!(&broken[..], [Violation::Overlap { .. }]), "{report:?}");
        assert_eq!((report.violations.len() + report.excused.len(), report.refused), (1, 1));
    }
}

#[test]
fn a_lost_reply_differs_from_a_refusal() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let recorder = Recorder::in_memory();
    let mut registers = Registers::at(proxy.port());
    let held = recorder.attempt(NAME, "a").granted(1);
    held.fenced(registers.write_fenced(NAME, 1));
    let lost = proxy.inject(Fault::cut_at_reply(Requests::named("EVAL")).once());
    held.fenced(registers.write_fenced(NAME, 1));
    assert_eq!(lost.hits(), 1);
    held.fenced(registers.write_fenced(NAME, 0));
    registers.record_final(NAME, &recorder);
    let report = check(&recorder.history(), &Rules::mutex());
    report.assert_clean();
    assert_eq!((report.unknown, report.refused), (1, 1));
}
