//! A waker runs the caller's own code, on the stack that wakes it. It may call the session again at once, and an
//! executor that is shutting down drops the very future that it was to poll.

use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use leasehold::{Guard, LostSignal, Released};

use crate::hand::until;
use crate::harness::Harness;
use crate::on_all_stores;

/// Drops its value when it is woken.
struct Drops<T>(Mutex<Option<T>>);

impl<T: Send> Wake for Drops<T> {
    fn wake(self: Arc<Self>) {
        let dropped = self.0.lock().expect("nobody panics").take();
        drop(dropped);
    }
}

fn drops<T: Send + 'static>(what: T) -> (Arc<Drops<T>>, Waker) {
    let drops = Arc::new(Drops(Mutex::new(Some(what))));
    (Arc::clone(&drops), Waker::from(drops))
}

impl<T> Drops<T> {
    fn has_dropped(&self) -> bool {
        self.0.lock().expect("nobody panics").is_none()
    }
}

/// Fails if `body` never ends.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let running = thread::spawn(move || {
        body();
        done.send(()).expect("the test waits");
    });
    match is_done.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test is in a deadlock"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => running.join().expect("no panic"),
    }
}

on_all_stores!(a_waker_may_drop_a_guard_of_its_own_client, |harness| {
    ends(move || {
        let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
        let lock = |client: &leasehold::Leasehold, name: &str| {
            harness.block_on(client.mutex(name).try_lock()).expect("an answer").expect("free")
        };

        // Woken by its grant.
        let held = lock(&other, "a");
        let (dropped, waker) = drops(lock(&subject, "b"));
        let mutex = subject.mutex("a");
        let mut waiting = Box::pin(async move { mutex.lock().await });
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until("it waits", || harness.inspect(&other, "a").waiters == 1);
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(held);
        until("the guard is dropped", || dropped.has_dropped());
        until("and given back", || harness.inspect(&other, "b").holder().is_none());
        drop(waiting);

        // Woken by its loss.
        let guard = lock(&subject, "c");
        let (dropped, waker) = drops(lock(&subject, "d"));
        let mut lost = Box::pin(guard.lost());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(harness.block_on(guard.release()).expect("an answer"), Released::Released);
        until("the guard is dropped", || dropped.has_dropped());
        until("and given back", || harness.inspect(&other, "d").holder().is_none());

        // Woken by the end of the client.
        let (guard, held) = (lock(&subject, "e"), lock(&other, "f"));
        let (dropped, waker) = drops(guard);
        let mutex = subject.mutex("f");
        let mut waiting = Box::pin(async move { mutex.lock().await });
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until("it waits", || harness.inspect(&other, "f").waiters == 1);
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(harness.block_on(subject.close()).unconfirmed().is_empty());
        assert!(dropped.has_dropped());
        drop(held);
    });
});

// When a future is dropped, its waker must neither be called nor dropped under a lock: it may be the last reference to
// its task, and drop the task as well.
on_all_stores!(a_future_that_goes_may_take_a_guard_of_its_own_client_along, |harness| {
    ends(move || {
        let (subject, other) = (harness.connect("subject"), harness.connect_straight("other"));
        let lock = |client: &leasehold::Leasehold, name: &str| {
            harness.block_on(client.mutex(name).try_lock()).expect("an answer").expect("free")
        };
        let held = lock(&other, "a");
        // In the local queue, and as an attempt of its own.
        for (mutex, name) in [(subject.mutex("a"), "b"), (subject.mutex("a").fair(), "c")] {
            let (dropped, waker) = drops(lock(&subject, name));
            let mut waiting = Box::pin(async move { mutex.lock().await });
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            until("it waits", || harness.inspect(&other, "a").waiters == 1);
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            drop((dropped, waker));
            drop(waiting);
            until("it has left", || harness.inspect(&other, "a").waiters == 0);
            until("the guard is dropped, and given back", || harness.inspect(&other, name).holder().is_none());
        }
        drop(lock(&subject, "d"));
        drop(held);
    });
});

#[test]
fn a_dropped_signal_keeps_no_waker() {
    let harness = Harness::memory("signals");
    let client = harness.connect("subject");
    let guard: Guard = harness.block_on(client.mutex("a").lock()).expect("granted");
    // A leader's lease lasts for weeks, and each of its tasks waits for the loss beside its work.
    let (leader, leaders) = drops(());
    let (task, tasks) = drops(());
    let mut kept = guard.lost();
    let poll = |signal: &mut LostSignal, waker: &Waker| {
        assert!(Pin::new(signal).poll(&mut Context::from_waker(waker)).is_pending());
    };
    poll(&mut kept, &leaders);
    let unused = Arc::strong_count(&task);
    let (mut cloned, mut fresh) = (kept.clone(), guard.lost());
    poll(&mut cloned, &tasks);
    poll(&mut fresh, &tasks);
    poll(&mut fresh, &tasks);
    assert!(Arc::strong_count(&task) > unused);
    drop((cloned, fresh));
    assert_eq!(Arc::strong_count(&task), unused, "a dropped signal keeps no task");
    drop(guard);
    until("the other signal is notified of the end", || leader.has_dropped());
    assert!(!task.has_dropped());
}
