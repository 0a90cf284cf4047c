//! Schedules in which a drop or a loss leaked what had been asked for. Each was seen to fail before it was closed.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Guard, Leasehold, Mutex};
use leasehold_testkit::proxy::{Fault, Injected, Requests};

use crate::bench::{Bench, Way};
use crate::hand::{Driven, until};
use crate::on_all_stores;

/// A waiter looks after a third of it, and its link is doubted when a sixth of it was silent: longer than a claim.
const LEASE: Duration = Duration::from_secs(9);

/// What a message grants before it is answered.
const CLAIM: Duration = Duration::from_secs(1);
const CLAIM_US: i64 = 1_000_000;

fn lock(mutex: &Mutex) -> Driven<leasehold::Result<Guard>> {
    let mutex = mutex.clone();
    Driven::new(async move { mutex.lock().await })
}

fn try_lock(bench: &Bench, mutex: &Mutex) -> Option<Guard> {
    bench.block_on(mutex.try_lock()).expect("an answer")
}

fn close(bench: &Bench, client: Leasehold) {
    assert!(bench.block_on(client.close()).unconfirmed().is_empty());
}

// A look was under way when its waiter was granted by a message. The grant lapsed, because nothing got through to claim
// it, and then the look was carried out: the same attempt was granted anew, for a whole lease. The release behind it named
// the first token, was told NotHeld, and that closed the attempt.
on_all_stores!(a_look_behind_a_lapsed_grant_leaves_nothing, |bench| {
    let (subject, other) = (bench.connect("subject"), bench.connect_straight("other"));
    let (ours, theirs) = (subject.mutex("a").lease(LEASE), other.mutex("a"));
    let held = try_lock(&bench, &theirs).expect("free");
    let waiting = {
        let mut waiting = lock(&ours);
        assert!(waiting.poll().is_pending());
        until("it waits", || bench.inspect(&other, "a").waiters == 1);
        assert!(waiting.poll().is_pending());
        waiting
    };
    let before = bench.sent().acquires;
    bench.hold(Way::Requests);
    until("its look is under way", || bench.sent().acquires > before);
    drop(held);
    let guard = waiting.finish("the message has come").expect("granted");
    assert!(Driven::new(guard.lost()).finish("nothing claims it").reason().is_expiry());
    until("it has ended in the store too", || bench.inspect(&other, "a").holder.is_none());
    bench.resume(&subject);
    drop(guard);
    close(&bench, subject);
    assert_eq!(bench.inspect(&other, "a").holder, None, "nobody renews it, and nobody gives it back");
});

fn calls(script: Script) -> Requests {
    Requests::script(script.sha())
}

// The same, with a client that does not notice in time (it was stopped; here the server's clock jumps): the look answers
// GRANTED while the first grant still counts as held. It is another grant: somebody may have held in between, and a guard
// that says the first token must not last as long as the second.
//
// The look must be under way for less than two seconds, and the clock jumps by more than one: a machine that stands still
// in between is given another try.
#[test]
fn a_guard_does_not_live_on_by_a_later_grant_of_its_attempt() {
    let bench = Bench::redis();
    let (subject, other) = (bench.connect("subject"), bench.connect_straight("other"));
    let met = (0..5).any(|round| meets_a_later_grant(&bench, &subject, &other, &format!("round {round}")));
    assert!(met, "in five rounds the look was never carried out in time");
    close(&bench, subject);
}

/// Whether the schedule came about.
fn meets_a_later_grant(bench: &Bench, subject: &Leasehold, other: &Leasehold, name: &str) -> bool {
    let (proxy, server) = bench.wires();
    let held = try_lock(bench, &other.mutex(name)).expect("free");
    let mut waiting = lock(&subject.mutex(name).lease(LEASE));
    assert!(waiting.poll().is_pending());
    until("it waits", || bench.inspect(other, name).waiters == 1);
    assert!(waiting.poll().is_pending());
    let looking = proxy.inject(Fault::hold(calls(Script::Acquire)).once());
    // Neither claimed nor given back before it was seen.
    let others = [Script::Renew, Script::Release].map(|script| proxy.inject(Fault::hold(calls(script))));
    looking.wait(1, LEASE);
    drop(held);
    let guard = waiting.finish("the message has come").expect("granted");
    // Beyond the claim, and before the look is too late.
    server.shift_clock(server.clock_shift() + CLAIM_US + 100_000);
    let lifted = Instant::now();
    looking.lift();
    let holder = || bench.inspect(other, name).holder.map(|holder| holder.token);
    let mut met = false;
    until("the look is carried out, or too late", || {
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
