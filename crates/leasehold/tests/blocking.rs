//! The blocking API: the calls that the other APIs do not have (those are in `conformance.rs`, as for every store), and
//! its behavior where threads differ from tasks.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::blocking::{Canceller, Guard, Leasehold, Mutex};
use leasehold::{ErrorKind, LostReason, Owner, Released, Token};
use leasehold_testkit::{RedisServer, wait_until};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3_600);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A store, and how to reach it.
struct Fixture {
    url: String,
    _server: Option<RedisServer>,
    _dir: Option<TempDir>,
}

impl Fixture {
    fn in_memory(name: &str) -> Self {
        Self { url: format!("memory:{name}"), _server: None, _dir: None }
    }

    fn in_a_directory() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { url: format!("file:{}", dir.path().display()), _server: None, _dir: Some(dir) }
    }

    fn on_redis() -> Self {
        let server = RedisServer::start();
        Self { url: server.url(), _server: Some(server), _dir: None }
    }

    fn connect(&self) -> Leasehold {
        Leasehold::connect(&self.url).unwrap()
    }
}

/// Runs a test with the embedded store, with a directory and with Redis.
macro_rules! on_all_stores {
    ($name:ident, |$fixture:ident| $body:block) => {
        mod $name {
            use super::*;

            fn check($fixture: Fixture) {
                $body
            }

            #[test]
            fn in_memory() {
                check(Fixture::in_memory(stringify!($name)));
            }

            #[test]
            fn in_a_directory() {
                check(Fixture::in_a_directory());
            }

            #[test]
            fn on_redis() {
                check(Fixture::on_redis());
            }
        }
    };
}

#[track_caller]
fn until(what: &str, done: impl FnMut() -> bool) {
    wait_until(what, SOON, done);
}

fn waiters(mutex: &Mutex) -> usize {
    mutex.inspect().unwrap().waiters
}

fn is_free(mutex: &Mutex) -> bool {
    let seen = mutex.inspect().unwrap();
    seen.holder().is_none() && seen.waiters == 0
}

fn release(guard: Guard) {
    assert_eq!(guard.release().unwrap(), Released::Released);
}

/// Fails if `body` never ends.
fn ends<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let running = thread::spawn(move || drop(done.send(body())));
    match is_done.recv_timeout(3 * SOON) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test is in a deadlock"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(running.join().unwrap_err()),
    }
}

on_all_stores!(a_thread_re_enters_its_own_lock_and_no_other_thread_does, |fixture| {
    let client = fixture.connect();
    let mutex = client.mutex("a").reentrant();
    let outer = mutex.lock().unwrap();
    let inner = mutex.try_lock().unwrap().expect("it holds");
    assert_eq!(inner.token(), outer.token());
    assert_eq!(mutex.run(|guard| guard.check()).unwrap(), Ok(outer.token()));

    // The guard goes to another thread. The owner stays here.
    let theirs = mutex.clone();
    let inner = thread::spawn(move || {
        assert!(theirs.try_lock().unwrap().is_none(), "a guard makes no owner");
        assert!(theirs.try_lock_for(20 * MS).unwrap().is_none());
        inner
    });
    let inner = inner.join().unwrap();
    release(outer);
    assert!(mutex.try_lock_for(Duration::ZERO).unwrap().is_some(), "it holds by the other");

    let theirs = mutex.clone().fair(); // in the store's queue, where the test sees it
    let waiting = thread::spawn(move || theirs.lock().unwrap().token());
    until("the other thread waits", || waiters(&mutex) == 1);
    let held = inner.token();
    thread::spawn(move || release(inner)).join().unwrap();
    assert!(waiting.join().unwrap() > held);

    // A mutex that is not reentrant re-enters nothing, nor does a thread of another client.
    let held = mutex.lock().unwrap();
    assert!(client.mutex("a").try_lock().unwrap().is_none());
    assert!(fixture.connect().mutex("a").reentrant().try_lock().unwrap().is_none());
    release(held);
});

on_all_stores!(a_guard_comes_with_a_whole_lease_after_a_wait_too, |fixture| {
    let client = fixture.connect();
    let held = client.mutex("a").lock().unwrap();
    let mutex = client.mutex("a").lease(LONG).full_lease();
    let waits = mutex.clone();
    let waiting = thread::spawn(move || waits.lock().unwrap());
    until("it waits", || waiters(&mutex) == 1);
    release(held);
    let guard = waiting.join().unwrap();
    assert!(guard.remaining() > LONG / 2 && guard.grace() > LONG / 2, "more than the claim: {guard:?}");
    let holder = mutex.inspect().unwrap().holder().cloned().unwrap();
    let _within = mutex.revoke(&holder, Duration::from_secs(5)).unwrap();
    assert_eq!(guard.wait_lost(SOON).map(|lost| lost.reason()), Some(LostReason::Revoked));
    assert!(guard.grace() <= Duration::from_secs(5), "no longer than requested: {:?}", guard.grace());
});

on_all_stores!(a_call_of_the_canceller_ends_every_wait_that_uses_it, |fixture| {
    let client = fixture.connect();
    let mutex = client.mutex("a").fair(); // in the store's queue, where the test sees them
    let stop = Canceller::new();
    assert!(!stop.is_cancelled());
    release(mutex.lock_or_cancel(&stop).unwrap().expect("free"));

    let held = mutex.lock().unwrap();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (mutex, stop) = (mutex.clone(), stop.clone());
            thread::spawn(move || mutex.lock_or_cancel(&stop).unwrap().is_none())
        })
        .collect();
    until("all wait", || waiters(&mutex) == 8);
    stop.cancel();
    stop.cancel();
    assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap()));
    until("they have left the queue", || waiters(&mutex) == 0);
    assert!(held.is_valid());
    release(held);

    assert!(stop.is_cancelled() && stop.clone().is_cancelled());
    let before = mutex.lock().unwrap().token();
    until("the lock is released", || is_free(&mutex));
    assert!(mutex.lock_or_cancel(&stop).unwrap().is_none(), "cancelled before it began");
    assert!(is_free(&mutex));
    let error = client.mutex("two\nlines").lock_or_cancel(&Canceller::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(mutex.lock().unwrap().token() > before);
});

// The grant and the call happen at the same moment. In either order, nothing is held afterwards.
on_all_stores!(a_call_at_the_moment_of_the_grant_leaks_nothing, |fixture| {
    let (client, other) = (fixture.connect(), fixture.connect());
    let (mutex, theirs) = (client.mutex("a"), other.mutex("a"));
    let (mut granted, mut cancelled) = (0, 0);
    for round in 0..400 {
        let held = theirs.lock().unwrap();
        let stop = Canceller::new();
        let (waits, stops) = (mutex.clone(), stop.clone());
        let waiting = thread::spawn(move || waits.lock_or_cancel(&stops).unwrap());
        until("it waits", || waiters(&theirs) == 1);
        // Sometimes the grant is first and sometimes the call, and often neither.
        let calls = thread::spawn(move || {
            (0..round % 40 * 20).for_each(|_| std::hint::spin_loop());
            stop.cancel();
        });
        (0..(400 - round) % 30 * 20).for_each(|_| std::hint::spin_loop());
        drop(held);
        match waiting.join().unwrap() {
            Some(guard) => {
                assert!(guard.is_valid());
                granted += 1;
            }
            None => cancelled += 1,
        }
        calls.join().unwrap();
        until("nobody holds and nobody waits", || is_free(&theirs));
    }
    println!("{granted} granted, {cancelled} cancelled");
    assert!(client.close().unconfirmed().is_empty());
});

/// Terms on which no lease is handed on or kept, and those of another local queue.
fn other_terms(mutex: &Mutex) -> Vec<Mutex> {
    let lease = Duration::from_secs(10);
    vec![
        mutex.clone().lease(lease),
        mutex.clone().fair(),
        mutex.clone().fixed_lease(lease),
        mutex.clone().max_hold(LONG),
        mutex.clone().full_lease(),
        mutex.clone().reentrant(),
    ]
}

// A guard that was dropped a moment ago is released before the next request of this client.
on_all_stores!(a_client_does_not_contend_with_itself, |fixture| {
    let client = fixture.connect();
    let mutex = client.mutex("a");
    let mut mutexes = other_terms(&mutex);
    mutexes.push(mutex);
    let mut before = Token::NONE;
    for round in 0..700 {
        let mutex = &mutexes[round * round % mutexes.len()];
        let guard =
            mutex.try_lock().unwrap().unwrap_or_else(|| panic!("contends with itself in round {round}: {mutex:?}"));
        assert!(guard.token() > before);
        before = guard.token();
    }
});

on_all_stores!(a_kept_lease_does_not_block_its_client_on_other_terms, |fixture| {
    let (client, other) = (fixture.connect(), fixture.connect());
    let mutex = client.mutex("a");
    let keeps = mutex.clone().sticky(60 * SECOND);
    for round in 0..30 {
        for mutex in other_terms(&mutex) {
            drop(keeps.lock().unwrap());
            if round == 0 {
                assert!(other.mutex("a").try_lock().unwrap().is_none(), "it is kept");
            }
            let guard =
                mutex.try_lock().unwrap().unwrap_or_else(|| panic!("contends with itself in round {round}: {mutex:?}"));
            drop(guard);
        }
    }
});

on_all_stores!(a_wait_for_the_loss_ends_with_it_or_in_time, |fixture| {
    let client = fixture.connect();
    let guard = client.mutex("a").lock().unwrap();
    let begun = Instant::now();
    assert_eq!(guard.wait_lost(50 * MS), None);
    assert!(begun.elapsed() >= 50 * MS);
    assert_eq!(guard.wait_lost(Duration::ZERO), None);

    let waits = Arc::new(guard);
    let waiting = thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| waits.wait_lost(LONG))).collect();
        let seen = client.mutex("a").inspect().unwrap().holder().cloned().unwrap();
        assert!(client.is_holder(&seen) && client.clone().is_holder(&seen) && !fixture.connect().is_holder(&seen));
        let _ = client.mutex("a").revoke(&seen, Duration::from_secs(5)).unwrap();
        waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(waiting.iter().all(|lost| lost.as_ref().is_some_and(|lost| lost.reason() == LostReason::Revoked)));
    assert_eq!(
        waits.wait_lost(Duration::ZERO).map(|lost| lost.reason()),
        Some(LostReason::Revoked),
        "the reason does not change"
    );
    drop(waits);

    let fixed = client.mutex("b").fixed_lease(200 * MS).lock().unwrap();
    assert_eq!(fixed.wait_lost(Duration::MAX).map(|lost| lost.reason()), Some(LostReason::FixedLease));
    assert_eq!(fixed.release().unwrap(), Released::NotHeld);
});

on_all_stores!(on_lost_runs_on_a_thread_of_its_own, |fixture| {
    let client = fixture.connect();
    let revoke = |name: &str| {
        let seen = client.mutex(name).inspect().unwrap().holder().cloned().unwrap();
        let _ = client.mutex(name).revoke(&seen, Duration::from_secs(5)).unwrap();
    };
    // The callback of a loss is called once. It may do anything, even block for longer than any lease of this client.
    let other = client.mutex("other").lease(600 * MS).lock().unwrap();
    let guard = client.mutex("a").lock().unwrap();
    let (sender, receiver) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let locks = client.mutex("b");
    let here = thread::current().id();
    guard.on_lost(move |lost| {
        assert_ne!(thread::current().id(), here);
        release(locks.lock().unwrap());
        sender.send((lost, thread::current().id())).unwrap();
        may_go_on.recv().unwrap();
    });
    guard.on_lost(|_| std::panic::resume_unwind(Box::new("the callback panics")));
    let (also, also_received) = mpsc::channel();
    guard.on_lost(move |lost| also.send(lost).unwrap());
    revoke("a");
    let (lost, there) = receiver.recv_timeout(SOON).unwrap();
    assert_eq!((lost.reason(), also_received.recv_timeout(SOON)), (LostReason::Revoked, Ok(lost.clone())));
    let mut least = other.remaining();
    until("the other leases are renewed while the callback blocks", || {
        let now = other.remaining();
        let is_renewed = now > least;
        least = now;
        is_renewed
    });
    go_on.send(()).unwrap();

    // The lease is lost already: the callback is called at once.
    let (sender, receiver) = mpsc::channel();
    guard.on_lost(move |lost| sender.send((lost, thread::current().id())).unwrap());
    let (lost, elsewhere) = receiver.recv_timeout(SOON).unwrap();
    assert!(lost.reason() == LostReason::Revoked && elsewhere != here && elsewhere != there);
    drop(guard);
    release(other);
});

on_all_stores!(on_lost_is_not_called_for_a_released_lease, |fixture| {
    let client = fixture.connect();
    let calls = Arc::new(AtomicUsize::new(0));
    let call = |guard: &Guard| {
        let calls = Arc::clone(&calls);
        guard.on_lost(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
        });
    };
    for round in 0..20 {
        let guard = client.mutex("a").lock().unwrap();
        call(&guard);
        match round % 2 {
            0 => release(guard),
            _ => drop(guard),
        }
    }
    // The callback is dropped together with the hold: nothing keeps it.
    assert_eq!((Arc::strong_count(&calls), calls.load(Ordering::SeqCst)), (1, 0));

    // Of an owner's guards the last one counts, whichever guard the callback was given to.
    let mutex = client.mutex("a").reentrant();
    let (outer, inner) = (mutex.lock().unwrap(), mutex.lock().unwrap());
    call(&inner);
    release(inner);
    assert_eq!(Arc::strong_count(&calls), 2, "the lease is still held");
    let kept = client.mutex("b").lock().unwrap();
    call(&kept);
    assert!(client.close().unconfirmed().is_empty());
    until("both callbacks are called when the client is closed", || calls.load(Ordering::SeqCst) == 2);
    drop((outer, kept));
});

on_all_stores!(run_reports_work_that_outlived_its_lease, |fixture| {
    let client = fixture.connect();
    let mutex = client.mutex("a");
    let token: Token = mutex.run(|guard| guard.token()).unwrap();
    assert!(is_free(&mutex));
    let fixed = mutex.clone().fixed_lease(100 * MS);
    let error = fixed.run(|guard| guard.wait_lost(LONG)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let works = mutex.clone();
    let panicked =
        thread::spawn(move || works.run(|_| -> () { std::panic::resume_unwind(Box::new("the work panics")) }));
    assert!(panicked.join().is_err());
    assert!(mutex.lock().unwrap().token() > token, "a panic releases the lock, and poisons nothing");
});

// Within a runtime a call blocks its thread, and needs nothing of that runtime. One poll makes more calls than tokio's
// budget has steps: under that budget, tokio's primitives would return "not ready" for ever.
on_all_stores!(a_call_within_a_runtime_needs_nothing_of_it, |fixture| {
    let builders = [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()];
    for mut builder in builders {
        let url = fixture.url.clone();
        let runtime = builder.enable_all().build().unwrap();
        ends(move || {
            runtime.block_on(async {
                let spawned = tokio::spawn(async move {
                    let client = Leasehold::connect(&url).unwrap();
                    for _ in 0..300 {
                        release(client.mutex("a").lock().unwrap());
                    }
                    let held = client.mutex("a").lock().unwrap();
                    let holds = thread::spawn(move || {
                        until("it waits", || held.wait_lost(10 * MS).is_some() || waiters(&client.mutex("a")) == 1);
                        drop(held);
                    });
                    let waits = Leasehold::connect(&url).unwrap();
                    let guard = waits.mutex("a").lock().unwrap();
                    assert_eq!(guard.wait_lost(20 * MS), None);
                    release(guard);
                    holds.join().unwrap();
                    assert!(waits.close().unconfirmed().is_empty());
                });
                spawned.await.unwrap();
            });
        });
    }
});

// Any code that has the handle of a thread may wake it, and libraries do.
on_all_stores!(a_spurious_wake_up_does_not_end_a_wait, |fixture| {
    let client = fixture.connect();
    let mutex = client.mutex("a");
    let held = mutex.lock().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (waits, over) = (mutex.clone().fair(), Arc::clone(&is_over)); // in the store's queue, where the test sees it
    let waiting = thread::spawn(move || {
        let guard = waits.lock().unwrap();
        over.store(true, Ordering::SeqCst);
        guard
    });
    until("it waits", || waiters(&mutex) == 1);
    for _ in 0..1_000 {
        waiting.thread().unpark();
        thread::yield_now();
    }
    assert!(!is_over.load(Ordering::SeqCst) && held.is_valid());
    release(held);
    release(waiting.join().unwrap());
});

// A counter without atomic instructions: read, yield, write. Threads of one owner do not exclude each other, so they
// need a lock of their own beside it.
on_all_stores!(owners_exclude_each_other_whichever_thread_works, |fixture| {
    const OWNERS: usize = 4;
    const THREADS: usize = 3;
    const ROUNDS: u64 = 40;
    let counter = AtomicU64::new(0);
    let inside = AtomicUsize::new(usize::MAX);
    let clients: Vec<_> = (0..2).map(|_| fixture.connect()).collect();
    let owners: Vec<_> = (0..OWNERS).map(|_| (Owner::new(), StdMutex::new(0_usize))).collect();
    thread::scope(|scope| {
        for (number, (owner, among)) in owners.iter().enumerate() {
            // An owner belongs to one client.
            let mutex = clients[number % 2].mutex("a").owner(owner);
            for thread in 0..THREADS {
                let (mutex, counter, inside) = (mutex.clone(), &counter, &inside);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut guards = vec![mutex.lock().unwrap()];
                        for _ in 0..(round as usize + thread) % 3 {
                            guards.push(mutex.try_lock().unwrap().expect("it holds"));
                        }
                        let mut entered = among.lock().unwrap();
                        *entered += 1;
                        inside.store(number, Ordering::Relaxed);
                        let seen = counter.load(Ordering::Relaxed);
                        thread::yield_now();
                        counter.store(seen + 1, Ordering::Relaxed);
                        assert_eq!(inside.load(Ordering::Relaxed), number, "another owner was inside");
                        let token = guards[0].check().unwrap();
                        assert!(guards.iter().all(|guard| guard.token() == token), "one grant, one token");
                        drop(entered);
                        // In any order.
                        guards.rotate_left(thread % 2);
                        while let Some(guard) = guards.pop() {
                            release(guard);
                        }
                    }
                });
            }
        }
    });
    assert_eq!(counter.into_inner(), (OWNERS * THREADS) as u64 * ROUNDS, "no update was overwritten");
    for client in clients {
        assert!(is_free(&client.mutex("a")));
        assert!(client.close().unconfirmed().is_empty());
    }
});

#[test]
fn the_error_for_an_invalid_url_says_the_reason() {
    assert_eq!(Leasehold::connect("").unwrap_err().kind(), ErrorKind::Invalid);
    let error = Leasehold::builder("memory:").prefix("p").connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let client = Leasehold::builder("memory:").lease(LONG).holder("a thread").connect().unwrap();
    let guard = client.mutex("a").lock().unwrap();
    let holder = client.mutex("a").inspect().unwrap().holder().cloned().unwrap();
    assert_eq!((holder.label.as_str(), holder.token), ("a thread", guard.token()));
    assert!(guard.remaining() > LONG / 2 && !guard.others_wait());
    assert_eq!(client.names().unwrap(), ["a"]);
}

#[test]
fn p23_a_thread_can_waive_the_minimum_hold() {
    let fixture = Fixture::in_memory("waived");
    let mutex = fixture.connect().mutex("job").min_hold(LONG);
    let guard = mutex.lock().unwrap();
    guard.waive_min_hold();
    assert_eq!(guard.release().unwrap(), Released::Released);
    assert!(mutex.try_lock().unwrap().is_some(), "it does not cool down");
}
