//! The other futures, and guards: dropped at the worst moments.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{Guard, Leasehold, Released};

use crate::hand::{Driven, poll_all, until};
use crate::harness::{Harness, Way};
use crate::on_all_stores;

const LONG: Duration = Duration::from_secs(60);

struct Fixture {
    harness: Harness,
    subject: Leasehold,
    other: Leasehold,
}

impl Fixture {
    fn new(harness: Harness) -> Self {
        let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
        Self { harness, subject, other }
    }

    fn lock(&self, client: &Leasehold, name: &str) -> Guard {
        self.harness.block_on(client.mutex(name).try_lock()).expect("an answer").expect("free")
    }

    fn occupancy(&self, name: &str) -> usize {
        self.harness.occupancy(&self.other, &[name.to_owned()])
    }

    #[track_caller]
    fn is_free(&self, name: &str) {
        until("nobody holds and nobody waits", || self.occupancy(name) == 0);
        drop(self.lock(&self.other, name));
    }

    /// Closes the client once this many releases were sent. The session repeats a release whose future was dropped.
    #[track_caller]
    fn ends(self, releases: u64) {
        until("the session has sent all releases", || self.harness.sent().releases == releases);
        let before = self.harness.sent();
        assert!(self.harness.block_on(self.subject.close()).unconfirmed().is_empty());
        assert_eq!(self.harness.sent(), before, "close had nothing to give back");
    }
}

on_all_stores!(a_dropped_release_gives_back_all_the_same, |harness| {
    let fixture = Fixture::new(harness);
    let release = |guard: Guard| Driven::new(async move { guard.release().await });

    drop(release(fixture.lock(&fixture.subject, "never polled")));
    fixture.is_free("never polled");

    for (name, way) in [("request held", Way::Requests), ("answer held", Way::Replies)] {
        let guard = fixture.lock(&fixture.subject, name);
        let lost = guard.lost();
        let mut releasing = release(guard);
        let before = fixture.harness.sent().releases;
        fixture.harness.hold(way);
        assert!(releasing.poll().is_pending());
        until("it is sent", || fixture.harness.sent().releases > before);
        assert!(Driven::new(lost).poll().is_ready(), "the guard is invalid as soon as its release is in flight");
        match way {
            Way::Requests => assert_eq!(fixture.occupancy(name), 1),
            Way::Replies => until("the request is executed", || fixture.occupancy(name) == 0),
        }
        drop(releasing);
        fixture.harness.resume(&fixture.subject);
        fixture.is_free(name);
    }

    let guard = fixture.lock(&fixture.subject, "answered and unseen");
    fixture.harness.hold(Way::Replies);
    let mut releasing = release(guard);
    assert!(releasing.poll().is_pending());
    fixture.harness.resume(&fixture.subject);
    until("its answer has come", || releasing.is_woken());
    drop(releasing);
    fixture.is_free("answered and unseen");
    // One future was never polled, and the replies of three were never received.
    fixture.ends(1 + 3 * 2);
});

on_all_stores!(a_dropped_try_lock_for_leaves_nothing, |harness| {
    let fixture = Fixture::new(harness);
    let wait = |name: &str| {
        let mutex = fixture.subject.mutex(name);
        Driven::new(async move { mutex.try_lock_for(LONG).await })
    };

    drop(wait("never polled"));
    fixture.is_free("never polled");

    for (name, way) in [("request held", Way::Requests), ("answer held", Way::Replies)] {
        let before = fixture.harness.sent().acquires;
        fixture.harness.hold(way);
        let mut waiting = wait(name);
        assert!(waiting.poll().is_pending());
        until("it is sent", || fixture.harness.sent().acquires > before);
        drop(waiting);
        fixture.harness.resume(&fixture.subject);
        fixture.is_free(name);
    }

    let held = fixture.lock(&fixture.other, "queued");
    let mut waiting = [wait("queued")];
    poll_all(&mut waiting);
    until("it waits", || fixture.occupancy("queued") == 2);
    drop(waiting);
    until("it waits no more", || fixture.occupancy("queued") == 1);
    drop(held);
    fixture.is_free("queued");

    let held = fixture.lock(&fixture.other, "granted unseen");
    let mut waiting = wait("granted unseen");
    assert!(waiting.poll().is_pending());
    until("it waits", || fixture.occupancy("granted unseen") == 2);
    // This request is sent after the others on the same connection, and so answered after them: from now on only the
    // grant can wake the future.
    let _ = fixture.harness.inspect(&fixture.subject, "granted unseen");
    assert!(!waiting.is_woken() || waiting.poll().is_pending());
    drop(held);
    let is_ours = || {
        let holder = fixture.harness.inspect(&fixture.other, "granted unseen").holder().cloned();
        holder.is_some_and(|holder| holder.label == "subject")
    };
    until("it is granted", || waiting.is_woken() && is_ours());
    drop(waiting);
    fixture.is_free("granted unseen");
    fixture.ends(1);
});

on_all_stores!(a_dropped_run_drops_its_work_and_gives_back, |harness| {
    let fixture = Fixture::new(harness);
    let dropped = Arc::new(AtomicBool::new(false));
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let held = fixture.lock(&fixture.other, "waiting");
    let mutex = fixture.subject.mutex("waiting");
    let mut running = Driven::new(async move { mutex.run(async |_: &Guard| ()).await });
    assert!(running.poll().is_pending());
    until("it waits", || fixture.occupancy("waiting") == 2);
    drop(running);
    until("it waits no more", || fixture.occupancy("waiting") == 1);
    drop(held);
    fixture.is_free("waiting");

    let (mutex, work) = (fixture.subject.mutex("working"), Work(Arc::clone(&dropped)));
    let begun = Arc::new(AtomicBool::new(false));
    let begin = Arc::clone(&begun);
    let mut running = Driven::new(async move {
        let work = async move |guard: &Guard| {
            begin.store(guard.is_valid(), Ordering::SeqCst);
            let _work = work;
            pending::<()>().await;
        };
        mutex.run(work).await
    });
    until("it works", || {
        assert!(running.poll().is_pending());
        begun.load(Ordering::SeqCst)
    });
    assert!(!dropped.load(Ordering::SeqCst));
    drop(running);
    assert!(dropped.load(Ordering::SeqCst), "the work goes with it");
    fixture.is_free("working");

    let mutex = fixture.subject.mutex("releasing");
    let before = fixture.harness.sent().releases;
    let mut running = Driven::new(async move { mutex.run(async |guard: &Guard| guard.token()).await });
    // The reply to its acquire comes, and the future is not polled. The reply to its release is held.
    fixture.harness.hold(Way::Replies);
    assert!(running.poll().is_pending());
    fixture.harness.resume(&fixture.subject);
    until("the acquire is answered", || running.is_woken());
    fixture.harness.hold(Way::Replies);
    assert!(running.poll().is_pending());
    until("its release is sent", || fixture.harness.sent().releases > before);
    drop(running);
    fixture.harness.resume(&fixture.subject);
    fixture.is_free("releasing");
    // The release of the work, and one whose reply was never received.
    fixture.ends(1 + 2);
});

on_all_stores!(a_guard_needs_no_runtime_to_give_back, |harness| {
    let fixture = Fixture::new(harness);
    let by_drop = fixture.lock(&fixture.subject, "dropped on a plain thread");
    thread::spawn(move || drop(by_drop)).join().expect("no panic");
    fixture.is_free("dropped on a plain thread");

    let released = Driven::new(fixture.lock(&fixture.subject, "released by hand").release()).finish("released");
    assert_eq!(released.expect("an answer"), Released::Released);

    // A client whose runtime has gone, and with it the callers' connection.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = fixture.harness.url();
    let (client, guard) = runtime.block_on(async {
        let client = Leasehold::connect(&url).await.expect("connected");
        let guard = client.mutex("its runtime has gone").lock().await.expect("granted");
        (client, guard)
    });
    drop(runtime);
    assert!(guard.is_valid());
    drop(guard);
    fixture.is_free("its runtime has gone");
    let mutex = client.mutex("no runtime at all");
    let guard = Driven::new(async move { mutex.lock().await }).finish("granted").expect("granted");
    assert_eq!(Driven::new(guard.release()).finish("released").expect("an answer"), Released::Released);
    assert!(Driven::new(client.close()).finish("closed").unconfirmed().is_empty());
    fixture.ends(2);
});
