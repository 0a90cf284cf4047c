//! Schedules in which a drop or a loss once leaked a grant. Each of these tests failed before the fix.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Guard, Leasehold, Mutex};
use leasehold_testkit::proxy::{Fault, Injected, Requests};

use crate::hand::{Driven, until};
use crate::harness::{Harness, Way};
use crate::on_all_stores;

/// A waiter re-checks after a third of it. Its connection is suspect after a sixth of it without a reply, which is
/// longer than a claim.
const LEASE: Duration = Duration::from_secs(9);

/// How long a grant of a message lasts before it is claimed.
const CLAIM: Duration = Duration::from_secs(1);
const CLAIM_US: i64 = 1_000_000;

fn lock(mutex: &Mutex) -> Driven<leasehold::Result<Guard>> {
    let mutex = mutex.clone();
    Driven::new(async move { mutex.lock().await })
}

fn try_lock(harness: &Harness, mutex: &Mutex) -> Option<Guard> {
    harness.block_on(mutex.try_lock()).expect("an answer")
}

fn close(harness: &Harness, client: Leasehold) {
    assert!(harness.block_on(client.close()).unconfirmed().is_empty());
}

// A re-check was in flight when a message granted the lock to its waiter. The grant expired, because no claim got
// through. Then the store executed the re-check, and granted the same attempt again, for a whole lease. The next
// release named the first token, and got NotHeld. That closed the attempt, and nobody held the second grant.
on_all_stores!(a_recheck_behind_a_lapsed_grant_leaves_nothing, |harness| {
    let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
    let (ours, theirs) = (subject.mutex("a").lease(LEASE), other.mutex("a"));
    let held = try_lock(&harness, &theirs).expect("free");
    let waiting = {
        let mut waiting = lock(&ours);
        assert!(waiting.poll().is_pending());
        until("it waits", || harness.inspect(&other, "a").waiters == 1);
        assert!(waiting.poll().is_pending());
        waiting
    };
    let before = harness.sent().acquires;
    harness.hold(Way::Requests);
    until("its re-check is in flight", || harness.sent().acquires > before);
    drop(held);
    let guard = waiting.finish("the message has come").expect("granted");
    assert!(Driven::new(guard.lost()).finish("nothing claims it").reason().is_expiry());
    until("it has ended in the store too", || harness.inspect(&other, "a").holder().is_none());
    harness.resume(&subject);
    drop(guard);
    close(&harness, subject);
    assert_eq!(harness.inspect(&other, "a").holder(), None, "the second grant is neither renewed nor given back");
});

fn calls(script: Script) -> Requests {
    Requests::script(script.sha())
}

// The same with a client that does not notice the expiry in time (it was stopped; here the server's clock jumps). The
// re-check gets GRANTED while the first grant still counts as held. It is another grant: another client may have held
// in between, so a guard with the first token must not last as long as the second grant.
//
// The re-check must be in flight for less than two seconds, and the clock jumps by more than one. If a busy machine is
// too slow, the test tries again.
#[test]
fn a_guard_does_not_live_on_by_a_later_grant_of_its_attempt() {
    let harness = Harness::redis();
    let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
    let met = (0..5).any(|round| meets_a_later_grant(&harness, &subject, &other, &format!("round {round}")));
    assert!(met, "in five rounds the re-check was never executed in time");
    close(&harness, subject);
}

/// Returns whether the schedule was achieved.
fn meets_a_later_grant(harness: &Harness, subject: &Leasehold, other: &Leasehold, name: &str) -> bool {
    let (proxy, server) = harness.wires();
    let held = try_lock(harness, &other.mutex(name)).expect("free");
    let mut waiting = lock(&subject.mutex(name).lease(LEASE));
    assert!(waiting.poll().is_pending());
    until("it waits", || harness.inspect(other, name).waiters == 1);
    assert!(waiting.poll().is_pending());
    let looking = proxy.inject(Fault::hold(calls(Script::Acquire)).once());
    // Neither claimed nor given back before it was observed.
    let others = [Script::Renew, Script::Release].map(|script| proxy.inject(Fault::hold(calls(script))));
    looking.wait(1, LEASE);
    drop(held);
    let guard = waiting.finish("the message has come").expect("granted");
    // After the claim, and before the re-check is too late.
    server.shift_clock(server.clock_shift() + CLAIM_US + 100_000);
    let lifted = Instant::now();
    looking.lift();
    let holder = || harness.inspect(other, name).holder().map(|holder| holder.token);
    let mut met = false;
    until("the re-check is executed, or too late", || {
        met = holder().is_some_and(|token| token > guard.token());
        met || lifted.elapsed() > CLAIM
    });
    until("the first grant has ended", || {
        let remaining = guard.remaining();
        assert!(remaining <= CLAIM, "{remaining:?} are not left of a claim of {CLAIM:?}");
        guard.check().is_err()
    });
    others.iter().for_each(Injected::lift);
    until("nobody holds", || holder().is_none());
    met
}
