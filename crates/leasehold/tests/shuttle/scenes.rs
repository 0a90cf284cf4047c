//! The scenes: what threads do at the same time, and what must hold whoever goes first.

use std::sync::Arc;
use std::time::Duration;

use leasehold::fence::{Access, Fenced};
use leasehold::{ErrorKind, Leasehold, Lost, Owner, Released, Token};
use shuttle::future::block_on;
use shuttle::sync::{Barrier, Mutex};

use crate::explore::explore;
use crate::stage::{NAME, Section, Stage, Work, impatient, together, work};

/// Nobody has to wait for a timer.
const AT_ONCE: Duration = Duration::ZERO;
/// What was given up with a request unanswered is closed once that would be late, and no sooner.
const LATE: Duration = Duration::from_millis(2_500);

/// In the section, so many times, by releases that are awaited.
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
fn a_dropped_guard_gives_back_at_once() {
    explore(|| {
        let (stage, section) = (Stage::new(), Arc::<Section>::default());
        let client = stage.client();
        together((0..3).map(|_| {
            let (client, section) = (client.clone(), Arc::clone(&section));
            work(async move {
                for _ in 0..2 {
                    let guard = client.mutex(NAME).lock().await.unwrap();
                    section.work(&guard);
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
                        // Given up as well, wherever it stands.
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

#[test]
fn who_waits_so_long_races_with_the_grant() {
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
fn closing_is_heard_by_everybody_who_holds_or_waits() {
    explore(|| {
        let stage = Stage::new();
        let client = stage.client();
        let mut works: Vec<Work> = Vec::new();
        for _ in 0..3 {
            let client = client.clone();
            works.push(work(async move {
                match client.mutex(NAME).lock().await {
                    Ok(guard) => assert_eq!(guard.lost().await, Lost::Closed),
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
fn the_loss_of_a_lease_is_heard_by_everybody_who_waits_for_it() {
    explore(|| {
        let stage = Stage::new();
        let client = stage.client();
        let guard = block_on(client.mutex(NAME).lock()).unwrap();
        let mut works: Vec<Work> = Vec::new();
        for _ in 0..2 {
            let lost = guard.lost();
            works.push(work(async move { assert_eq!(lost.await, Lost::Released) }));
            let lost = guard.lost();
            works.push(work(async move {
                impatient(lost).await;
            }));
        }
        works.push(work(async move { assert_eq!(guard.release().await.unwrap(), Released::Released) }));
        together(works);
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
fn the_guards_of_an_owner_share_one_lease_and_the_last_gives_it_back() {
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
                // The gate of one round goes while the next is made.
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
        let (fenced, log) = (Arc::new(Fenced::new(0)), Arc::new(Mutex::new(Vec::new())));
        together((1..4).map(|number| {
            let (fenced, log) = (Arc::clone(&fenced), Arc::clone(&log));
            let token = Token::new(number).unwrap();
            let touch: Work = Box::new(move || {
                if let Ok(data) = fenced.read(token) {
                    assert!(*data <= number, "a reader finds what a newer writer has left");
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
