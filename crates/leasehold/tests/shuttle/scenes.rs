//! The scenes: actions of several threads at the same time, and the properties that hold in every order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::fence::{Access, Fenced};
use crate::sync::in_a_panic;
use crate::{ErrorKind, Leasehold, LostReason, Mutex, Owner, Released, Token};
use leasehold_testkit::checker::{Rules, check};
use leasehold_testkit::history::Ended;
use shuttle::future::{block_on, yield_now};
use shuttle::sync::{Barrier, Mutex as Shared};

use super::explore::{explore, let_time_run};
use super::stage::{NAME, Section, Stage, Work, impatient, together, work};

/// No thread needs a timer but the one of 1 ms between two turns of the session's thread: a request that becomes due
/// during a turn waits for the next turn. A lost wake-up costs 250 ms.
const AT_ONCE: Duration = Duration::from_millis(10);
/// An attempt that was given up with a request unanswered is closed once that request would be late, and no sooner.
const LATE: Duration = Duration::from_millis(2_500);

/// No bound on the time.
const FOR_LONG: Duration = Duration::from_secs(3_600);

/// Enters the section this many times, and awaits each release.
fn in_turns(client: &Leasehold, section: &Arc<Section>, times: usize) -> Work {
    let (client, section) = (client.clone(), Arc::clone(section));
    work(async move {
        for _ in 0..times {
            let guard = client.mutex(NAME).lock().await.unwrap();
            section.work(&guard);
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
    })
}

/// Work for the session's thread: guards that are dropped.
fn in_turns_at(client: &Leasehold, name: &'static str, times: usize) -> Work {
    let mutex = client.mutex(name);
    work(async move {
        for _ in 0..times {
            drop(mutex.lock().await.unwrap());
        }
    })
}

#[test]
fn threads_of_a_client_take_turns() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::default());
        let client = stage.client();
        together((0..3).map(|_| in_turns(&client, &section, 2)));
        assert_eq!(section.entered(), 6);
        assert!(block_on(client.close()).unconfirmed().is_empty());
        stage.end(AT_ONCE);
    });
}

#[test]
fn threads_that_share_the_sessions_link_take_turns() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::default());
        let client = block_on(stage.connect(Leasehold::builder("").one_connection())).unwrap();
        together((0..3).map(|_| in_turns(&client, &section, 2)));
        assert_eq!(section.entered(), 6);
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn clients_hand_over_to_each_other() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::default());
        let clients = [stage.client(), stage.client()];
        together(clients.iter().map(|client| in_turns(client, &section, 2)));
        assert_eq!(section.entered(), 4);
        drop(clients);
        stage.end(AT_ONCE);
    });
}

#[test]
fn a_dropped_guard_is_handed_on_or_released_at_once() {
    explore(|| drops(|mutex| mutex));
}

/// Every guard is released to the store: waiters with strict order are in no local queue.
#[test]
fn a_dropped_guard_is_released_at_once() {
    explore(|| drops(Mutex::fair));
}

fn drops(order: fn(Mutex) -> Mutex) {
    let (stage, section) = (Stage::new(), Arc::<Section>::default());
    let client = stage.client();
    together((0..3).map(|_| {
        let (mutex, section) = (order(client.mutex(NAME)), Arc::clone(&section));
        work(async move {
            for _ in 0..2 {
                let guard = mutex.lock().await.unwrap();
                section.work(&guard);
                drop(guard);
            }
        })
    }));
    assert_eq!(section.entered(), 6);
    drop(client);
    stage.end(AT_ONCE);
}

/// A guard that is dropped in a panic is not handed on inside the client: the next holder, of this client or of
/// another, gets the lock from the store. No waiter waits for longer than that takes.
#[test]
fn a_panic_under_the_lock_releases_to_the_store() {
    static HANDED_ON: AtomicUsize = AtomicUsize::new(0);
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let (client, other) = (stage.client(), stage.client());
        let entered = Arc::new(Shared::new(BTreeMap::new()));
        together([(&client, true), (&client, false), (&client, false), (&other, false)].map(|(client, panics)| {
            let (mutex, section, entered) = (client.mutex(NAME), Arc::clone(&section), Arc::clone(&entered));
            work(async move {
                for _ in 0..2 {
                    let guard = mutex.lock().await.unwrap();
                    section.work(&guard);
                    entered.lock().unwrap().insert(guard.token(), panics);
                    match panics {
                        true => in_a_panic(|| drop(guard)),
                        false => drop(guard),
                    }
                }
            })
        }));
        drop((client, other));
        stage.end(AT_ONCE);
        let entered = entered.lock().unwrap();
        assert_eq!(entered.len(), 8);
        for ((_, panicked), (token, _)) in entered.iter().zip(entered.iter().skip(1)) {
            let is_granted = stage.has_granted(*token);
            assert!(is_granted || !panicked, "handed on in a panic, to {token}");
            HANDED_ON.fetch_add(usize::from(!is_granted), Ordering::Relaxed);
        }
    });
    assert!(HANDED_ON.load(Ordering::Relaxed) > 0, "nothing was ever handed on: the test showed nothing");
}

/// On either connection, and whatever the thread has already done with the dropped guards.
#[test]
fn a_client_does_not_contend_with_itself() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let client = stage.client();
        let inside = Arc::clone(&section);
        let mutexes = [client.mutex(NAME), client.mutex(NAME).fair(), client.mutex(NAME).lease(FOR_LONG)];
        let others = in_turns_at(&client, "another name", 2);
        together([
            work(async move {
                for mutex in mutexes {
                    let guard = mutex.try_lock().await.unwrap().expect("no other client contends");
                    inside.work(&guard);
                }
            }),
            others,
        ]);
        assert_eq!(section.entered(), 3);
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn a_dropped_future_leaves_nothing_and_hands_on() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::default());
        let clients = [stage.client(), stage.client()];
        let mut works = vec![in_turns(&clients[0], &section, 2)];
        for client in &clients {
            let (client, section) = (client.clone(), Arc::clone(&section));
            works.push(work(async move {
                for _ in 0..2 {
                    if let Some(guard) = impatient(client.mutex(NAME).lock()).await {
                        let guard = guard.unwrap();
                        section.work(&guard);
                        // Given up as well, at whatever point it is.
                        impatient(guard.release()).await;
                    }
                }
            }));
        }
        together(works);
        drop(clients);
        stage.end(LATE);
    });
}

/// A local queue with all events: guards are released and dropped, waiters come, go and reach their deadlines, and
/// another client contends.
#[test]
fn a_local_queue_goes_on_while_waiters_come_and_go() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let (client, other) = (stage.client(), stage.client());
        let mut works = vec![in_turns(&client, &section, 2), in_turns(&other, &section, 1)];
        let (mutex, inside) = (client.mutex(NAME), Arc::clone(&section));
        works.push(work(async move {
            if let Some(guard) = impatient(mutex.lock()).await {
                inside.work(&guard.unwrap());
            }
            if let Some(guard) = mutex.try_lock_for(Duration::from_millis(5)).await.unwrap() {
                inside.work(&guard);
            }
        }));
        let (mutex, inside) = (client.mutex(NAME), Arc::clone(&section));
        works.push(work(async move {
            let guard = mutex.lock().await.unwrap();
            inside.work(&guard);
            drop(guard);
            if let Some(guard) = mutex.try_lock().await.unwrap() {
                inside.work(&guard);
                impatient(guard.release()).await;
            }
        }));
        together(works);
        drop((client, other));
        stage.end(LATE);
    });
}

/// A local queue is served in the order of arrival, whatever the threads of the client do meanwhile.
#[test]
fn a_local_queue_is_served_in_order() {
    explore(|| {
        let (stage, order) = (Stage::new(), Arc::new(Shared::new(Vec::new())));
        let client = stage.client();
        let guard = block_on(client.mutex(NAME).lock()).unwrap();
        let mut works: Vec<Work> = Vec::new();
        for number in 0..3 {
            let (mutex, order) = (client.mutex(NAME), Arc::clone(&order));
            let mut locking = Box::pin(async move { mutex.lock().await });
            // Each waiter is queued before the next one begins.
            let first = locking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(first.is_pending());
            works.push(work(async move {
                let guard = locking.await.unwrap();
                order.lock().unwrap().push((number, guard.token()));
                drop(guard);
            }));
        }
        works.push(work(async move { assert_eq!(guard.release().await.unwrap(), Released::Released) }));
        together(works);
        let order = order.lock().unwrap();
        assert!(order.is_sorted() && order.len() == 3 && order.is_sorted_by_key(|(_, token)| *token), "{order:?}");
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn closing_ends_a_local_queue_that_is_handed_on() {
    explore(|| {
        let stage = Stage::new();
        let client = stage.client();
        let mut works: Vec<Work> = Vec::new();
        for _ in 0..3 {
            let mutex = client.mutex(NAME);
            works.push(work(async move {
                loop {
                    match mutex.lock().await {
                        Ok(guard) => drop(guard),
                        Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                    }
                }
            }));
        }
        works.push(work(async move { assert!(client.close().await.unconfirmed().is_empty()) }));
        together(works);
        stage.end(LATE);
    });
}

#[test]
fn a_deadline_races_with_the_grant() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let client = stage.client();
        let hold = Duration::from_millis(20);
        let holder = {
            let (client, section, sleep) = (client.clone(), Arc::clone(&section), stage.sleep(hold));
            work(async move {
                let guard = client.mutex(NAME).lock().await.unwrap();
                section.work(&guard);
                sleep.await;
                drop(guard);
            })
        };
        let waits = (0..2).map(|_| {
            let (client, section) = (client.clone(), Arc::clone(&section));
            work(async move {
                if let Some(guard) = client.mutex(NAME).try_lock_for(hold).await.unwrap() {
                    section.work(&guard);
                    drop(guard);
                }
            })
        });
        together(waits.chain([holder]));
        drop(client);
        stage.end(hold + LATE);
    });
}

#[test]
fn closing_notifies_every_holder_and_waiter() {
    explore(|| {
        let stage = Stage::new();
        let client = stage.client();
        let mut works: Vec<Work> = Vec::new();
        for _ in 0..3 {
            let client = client.clone();
            works.push(work(async move {
                match client.mutex(NAME).lock().await {
                    Ok(guard) => assert_eq!(guard.lost().await.reason(), LostReason::Closed),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
                }
            }));
        }
        works.push(work(async move { assert!(client.close().await.unconfirmed().is_empty()) }));
        together(works);
        stage.end(LATE);
    });
}

#[test]
fn the_loss_of_a_lease_wakes_every_task_that_waits_for_it() {
    explore(|| {
        let stage = Stage::new();
        let client = stage.client();
        for _ in 0..6 {
            let guard = block_on(client.mutex(NAME).lock()).unwrap();
            let mut works: Vec<Work> = Vec::new();
            for _ in 0..3 {
                let lost = guard.lost();
                works.push(work(async move { assert_eq!(lost.await.reason(), LostReason::Released) }));
            }
            let lost = guard.lost();
            works.push(work(async move {
                impatient(lost).await;
            }));
            works.push(work(async move { assert_eq!(guard.release().await.unwrap(), Released::Released) }));
            together(works);
        }
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn a_client_whose_connecting_was_given_up_leaves_nothing() {
    explore(|| {
        let stage = Stage::new();
        let connecting = (0..2).map(|_| {
            let connecting = stage.connect(Leasehold::builder(""));
            work(async move {
                impatient(connecting).await.map(Result::unwrap);
            })
        });
        together(connecting);
        stage.end(AT_ONCE);
    });
}

#[test]
fn the_guards_of_an_owner_share_one_lease_and_the_last_releases_it() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let (client, owner) = (stage.client(), Owner::new());
        let mut works = vec![in_turns(&client, &section, 2)];
        for ends_awaited in [true, false] {
            let (mutex, section) = (client.mutex(NAME).owner(&owner), Arc::clone(&section));
            works.push(work(async move {
                let outer = mutex.lock().await.unwrap();
                let inner = mutex.lock().await.unwrap();
                assert_eq!(outer.token(), inner.token());
                section.work(&inner);
                match ends_awaited {
                    true => assert_eq!(outer.release().await.unwrap(), Released::Released),
                    false => drop(outer),
                }
                section.work(&inner);
                drop(inner);
            }));
        }
        together(works);
        assert_eq!(section.entered(), 6);
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn tasks_of_an_owner_never_wait_for_each_other_at_the_store() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let (client, owner, both) = (stage.client(), Owner::new(), Arc::new(Barrier::new(2)));
        together((0..2).map(|_| {
            let (mutex, section, both) = (client.mutex(NAME).owner(&owner), Arc::clone(&section), Arc::clone(&both));
            work(async move {
                // The gate of one round is removed while the next one is made.
                for _ in 0..3 {
                    let guard = mutex.lock().await.unwrap();
                    section.work(&guard);
                    both.wait();
                    drop(guard);
                }
            })
        }));
        assert_eq!(section.entered(), 6);
        drop(client);
        stage.end(AT_ONCE);
    });
}

#[test]
fn a_task_of_an_owner_that_gives_up_passes_its_turn_on() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let (client, owner) = (stage.client(), Owner::new());
        let mut works = vec![in_turns(&client, &section, 1)];
        for _ in 0..2 {
            let (mutex, section) = (client.mutex(NAME).owner(&owner), Arc::clone(&section));
            works.push(work(async move {
                if let Some(guard) = impatient(mutex.lock()).await {
                    section.work(&guard.unwrap());
                }
                section.work(&mutex.lock().await.unwrap());
            }));
        }
        together(works);
        drop(client);
        stage.end(LATE);
    });
}

#[test]
fn fenced_data_is_written_in_the_order_of_tokens() {
    explore(|| {
        let stage = Stage::new();
        let (fenced, log) = (Arc::new(Fenced::new(0)), Arc::new(Shared::new(Vec::new())));
        together((1..4).map(|number| {
            let (fenced, log) = (Arc::clone(&fenced), Arc::clone(&log));
            let token = Token::new(number).unwrap();
            let touch: Work = Box::new(move || {
                if let Ok(data) = fenced.read(token) {
                    assert!(*data <= number, "a reader finds the value of a newer writer");
                }
                let _refused_or_not = fenced.enter(token, Access::Read);
                if let Ok(mut data) = fenced.write(token) {
                    *data = number;
                    log.lock().unwrap().push(number);
                }
            });
            touch
        }));
        stage.end(AT_ONCE);
        let log = log.lock().unwrap();
        assert!(log.is_sorted() && log.last() == Some(&3), "{log:?}");
    });
}

/// Threads, replies and pushes are stopped for as long as leases last, and the session reports each loss correctly.
#[test]
fn a_lease_is_lost_to_its_holder_before_another_has_it() {
    static LOST: AtomicUsize = AtomicUsize::new(0);
    explore(|| {
        let stage = Stage::new();
        let recorder = stage.recorder();
        let (clients, fenced) = ([stage.client(), stage.client()], Arc::new(Fenced::new(0)));
        let_time_run();
        together((0..3).map(|number: usize| {
            let mutex = clients[number % 2].mutex(NAME).lease(Duration::from_millis(100));
            let (recorder, fenced) = (recorder.clone(), Arc::clone(&fenced));
            work(async move {
                for _ in 0..2 {
                    let attempt = recorder.attempt(NAME, &format!("client {number}"));
                    let guard = mutex.lock().await.unwrap();
                    let held = attempt.granted(guard.token().get());
                    for _ in 0..3 {
                        if held.claims(|| guard.is_valid()) {
                            // It may have been lost since: then the data refuses it.
                            let _refused_or_not = fenced.write(guard.token()).map(|mut writes| *writes += 1);
                        } else {
                            LOST.fetch_add(1, Ordering::Relaxed);
                        }
                        yield_now().await;
                    }
                    held.ended(Ended::Released);
                    drop(guard);
                }
            })
        }));
        drop(clients);
        stage.end(FOR_LONG);
        let report = check(&recorder.history(), &Rules::mutex().at_least(6));
        report.assert_clean();
    });
    assert!(LOST.load(Ordering::Relaxed) > 0, "no lease was ever lost: the test showed nothing");
}
