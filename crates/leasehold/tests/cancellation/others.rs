//! The other futures, and guards: dropped where it hurts.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{Guard, Leasehold, Released};

use crate::bench::{Bench, Way};
use crate::hand::{Driven, poll_all, until};
use crate::on_all_stores;

const LONG: Duration = Duration::from_secs(60);

struct Ward {
    bench: Bench,
    subject: Leasehold,
    other: Leasehold,
}

impl Ward {
    fn new(bench: Bench) -> Self {
        let (subject, other) = (bench.connect("subject"), bench.connect_straight("other"));
        Self { bench, subject, other }
    }

    fn lock(&self, client: &Leasehold, name: &str) -> Guard {
        self.bench.block_on(client.mutex(name).try_lock()).expect("an answer").expect("free")
    }

    fn there(&self, name: &str) -> usize {
        self.bench.there(&self.other, &[name.to_owned()])
    }

    #[track_caller]
    fn is_free(&self, name: &str) {
        until("nobody holds and nobody waits", || self.there(name) == 0);
        drop(self.lock(&self.other, name));
    }

    /// Closes, when so many releases were sent: a dropped one is sent again, by the session.
    #[track_caller]
    fn ends(self, releases: u64) {
        until("the session has sent what is to be sent", || self.bench.sent().releases == releases);
        let before = self.bench.sent();
        assert!(self.bench.block_on(self.subject.close()).unconfirmed().is_empty());
        assert_eq!(self.bench.sent(), before, "closing found nothing to give back");
    }
}

on_all_stores!(a_dropped_release_gives_back_all_the_same, |bench| {
    let ward = Ward::new(bench);
    let release = |guard: Guard| Driven::new(async move { guard.release().await });

    drop(release(ward.lock(&ward.subject, "never polled")));
    ward.is_free("never polled");

    for (name, way) in [("held on its way", Way::Requests), ("answer held", Way::Replies)] {
        let guard = ward.lock(&ward.subject, name);
        let lost = guard.lost();
        let mut releasing = release(guard);
        let before = ward.bench.sent().releases;
        ward.bench.hold(way);
        assert!(releasing.poll().is_pending());
        until("it is sent", || ward.bench.sent().releases > before);
        assert!(Driven::new(lost).poll().is_ready(), "no longer valid from the moment that it is under way");
        match way {
            Way::Requests => assert_eq!(ward.there(name), 1),
            Way::Replies => until("it is carried out", || ward.there(name) == 0),
        }
        drop(releasing);
        ward.bench.resume(&ward.subject);
        ward.is_free(name);
    }

    let guard = ward.lock(&ward.subject, "answered and unseen");
    ward.bench.hold(Way::Replies);
    let mut releasing = release(guard);
    assert!(releasing.poll().is_pending());
    ward.bench.resume(&ward.subject);
    until("its answer has come", || releasing.is_woken());
    drop(releasing);
    ward.is_free("answered and unseen");
    // One never polled, three of which nobody heard.
    ward.ends(1 + 3 * 2);
});

on_all_stores!(a_dropped_try_lock_for_leaves_nothing, |bench| {
    let ward = Ward::new(bench);
    let wait = |name: &str| {
        let mutex = ward.subject.mutex(name);
        Driven::new(async move { mutex.try_lock_for(LONG).await })
    };

    drop(wait("never polled"));
    ward.is_free("never polled");

    for (name, way) in [("on its way", Way::Requests), ("answer held", Way::Replies)] {
        let before = ward.bench.sent().acquires;
        ward.bench.hold(way);
        let mut waiting = wait(name);
        assert!(waiting.poll().is_pending());
        until("it is sent", || ward.bench.sent().acquires > before);
        drop(waiting);
        ward.bench.resume(&ward.subject);
        ward.is_free(name);
    }

    let held = ward.lock(&ward.other, "queued");
    let mut waiting = [wait("queued")];
    poll_all(&mut waiting);
    until("it waits", || ward.there("queued") == 2);
    drop(waiting);
    until("it waits no more", || ward.there("queued") == 1);
    drop(held);
    ward.is_free("queued");

    let held = ward.lock(&ward.other, "granted unseen");
    let mut waiting = wait("granted unseen");
    assert!(waiting.poll().is_pending());
    until("it waits", || ward.there("granted unseen") == 2);
    // Asked after it on the same connection, and so answered after it: what wakes it from now on is the grant.
    let _ = ward.bench.inspect(&ward.subject, "granted unseen");
    assert!(!waiting.is_woken() || waiting.poll().is_pending());
    drop(held);
    let is_ours = || {
        let holder = ward.bench.inspect(&ward.other, "granted unseen").holder;
        holder.is_some_and(|holder| holder.label == "subject")
    };
    until("it is granted", || waiting.is_woken() && is_ours());
    drop(waiting);
    ward.is_free("granted unseen");
    ward.ends(1);
});

on_all_stores!(a_dropped_run_drops_its_work_and_gives_back, |bench| {
    let ward = Ward::new(bench);
    let dropped = Arc::new(AtomicBool::new(false));
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let held = ward.lock(&ward.other, "waiting");
    let mutex = ward.subject.mutex("waiting");
    let mut running = Driven::new(async move { mutex.run(async |_: &Guard| ()).await });
    assert!(running.poll().is_pending());
    until("it waits", || ward.there("waiting") == 2);
    drop(running);
    until("it waits no more", || ward.there("waiting") == 1);
    drop(held);
    ward.is_free("waiting");

    let (mutex, work) = (ward.subject.mutex("working"), Work(Arc::clone(&dropped)));
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
    ward.is_free("working");

    let mutex = ward.subject.mutex("releasing");
    let before = ward.bench.sent().releases;
    let mut running = Driven::new(async move { mutex.run(async |guard: &Guard| guard.token()).await });
    // The answer to its acquire comes, and is not looked at; the one to its release is held.
    ward.bench.hold(Way::Replies);
    assert!(running.poll().is_pending());
    ward.bench.resume(&ward.subject);
    until("the acquire is answered", || running.is_woken());
    ward.bench.hold(Way::Replies);
    assert!(running.poll().is_pending());
    until("its release is sent", || ward.bench.sent().releases > before);
    drop(running);
    ward.bench.resume(&ward.subject);
    ward.is_free("releasing");
    // The work's, and one of which nobody heard.
    ward.ends(1 + 2);
});

on_all_stores!(a_guard_needs_no_runtime_to_give_back, |bench| {
    let ward = Ward::new(bench);
    let by_drop = ward.lock(&ward.subject, "dropped on a plain thread");
    thread::spawn(move || drop(by_drop)).join().expect("no panic");
    ward.is_free("dropped on a plain thread");

    let released = Driven::new(ward.lock(&ward.subject, "released by hand").release()).finish("released");
    assert_eq!(released.expect("an answer"), Released::Released);

    // A client whose runtime has gone, with the callers' connection in it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = ward.bench.url();
    let (client, guard) = runtime.block_on(async {
        let client = Leasehold::connect(&url).await.expect("connected");
        let guard = client.mutex("its runtime has gone").lock().await.expect("granted");
        (client, guard)
    });
    drop(runtime);
    assert!(guard.is_valid());
    drop(guard);
    ward.is_free("its runtime has gone");
    let mutex = client.mutex("no runtime at all");
    let guard = Driven::new(async move { mutex.lock().await }).finish("granted").expect("granted");
    assert_eq!(Driven::new(guard.release()).finish("released").expect("an answer"), Released::Released);
    assert!(Driven::new(client.close()).finish("closed").unconfirmed().is_empty());
    ward.ends(2);
});
