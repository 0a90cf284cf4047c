//! Schedules in which a drop or a loss leaked what had been asked for. Each was seen to fail before it was closed.

use std::time::Duration;

use leasehold::{Guard, Leasehold, Lost, Mutex};

use crate::bench::{Bench, Way};
use crate::hand::{Driven, until};
use crate::on_both_stores;

/// A waiter looks after a third of it, and its link is doubted when a sixth of it was silent: longer than a claim.
const LEASE: Duration = Duration::from_secs(9);

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
on_both_stores!(a_look_behind_a_lapsed_grant_leaves_nothing, |bench| {
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
    assert_eq!(Driven::new(guard.lost()).finish("nothing claims it"), Lost::Expired);
    until("it has ended in the store too", || bench.inspect(&other, "a").holder.is_none());
    bench.resume();
    drop(guard);
    close(&bench, subject);
    assert_eq!(bench.inspect(&other, "a").holder, None, "nobody renews it, and nobody gives it back");
});
