//! Waiters that look for themselves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::seam::{Fault, Message, World};
use leasehold_spec::{Joined, Name, Op, Outcome, Patience};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};
use crate::store::any_error;

#[tokio::test]
async fn p15_a_waiter_whose_push_was_lost_looks() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(600);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    let begun = Instant::now();
    let (look, again) = bench.next_acquire().await;
    // A third of the lease, less a fifth, at the earliest.
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
    assert_eq!(again.id, acquire.id);
    assert!(matches!(again.patience, Patience::Queue(place) if place.ticket == Some(42)));
    bench.say(look, Outcome::Granted { token: token(8), left_us: 600 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

#[tokio::test]
async fn p15_a_waiter_looks_when_the_awaited_lease_ends_and_again_when_it_was_renewed() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (mut asked, acquire) = bench.next_acquire().await;
    let begun = Instant::now();
    for turn in 1..=3 {
        bench.say(asked, queued(42, 200), 7);
        let look;
        (asked, look) = bench.next_acquire().await;
        assert_eq!(look.id, acquire.id);
        let waited = begun.elapsed();
        // Long before the waiter's own look, in four seconds at the earliest.
        assert!((turn * Duration::from_millis(200)..Duration::from_millis(3_500)).contains(&waited), "{waited:?}");
    }
}

/// A server that lies, or a record that was damaged, can say so of any lease.
#[tokio::test]
async fn p15_a_lease_that_ends_beyond_all_time_stops_no_waiter() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(600);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Queued { ticket: 42, left_us: u64::MAX, joined: Joined::Before }, 7);
    let (look, _) = bench.next_acquire().await;
    bench.say(look, Outcome::Granted { token: token(8), left_us: 600 * MS, range: 1 }, 8);
    assert!(locking.await.unwrap().is_ok());
}

/// The store has seen the holder die: long before the waiter's own look, and long before the lease ends.
#[tokio::test]
async fn p26_a_waiter_looks_when_the_holder_died() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 7);
    // The answer is heard before: by a task of the caller's, which tells nobody.
    pause(100).await;
    let begun = Instant::now();
    bench.tell(Message::Look(Name::new("name").unwrap()));
    bench.tell(Message::Look(Name::new("nobody waits for this one").unwrap()));
    let (look, again) = bench.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert!(begun.elapsed() < Duration::from_millis(3_500));
    // That look may have been carried out before the death of which this tells.
    bench.tell(Message::Look(Name::new("name").unwrap()));
    assert_eq!(bench.next().await.op, Op::Settle);
    bench.say(look, queued(42, 60_000), 7);
    pause(100).await;
    bench.nothing();
}

/// The answer by which a waiter stands in the queue is older than the death, and its caller's task was late to hear it.
#[tokio::test]
async fn p26_an_answer_from_before_the_death_takes_nothing_back() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    // So that nothing falls due before the answer is heard, nor the waiter's own look ever.
    world.stand_still();
    bench.tell(Message::Look(Name::new("name").unwrap()));
    bench.say(asked, queued(42, 60_000), 7);
    pause(100).await;
    world.set_on(10 * MS);
    let (_, again) = bench.next_acquire().await;
    assert_eq!(again.id, acquire.id);
}

/// A look would be refused then, as every request that could need memory.
#[tokio::test]
async fn p15_a_name_is_settled_when_the_memory_is_full() {
    let mut bench = Bench::new().await;
    let _locking = bench.lock(30_000);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(42, 100), 7);
    let (look, _) = bench.next_acquire().await;
    look.reply.send(Err(Fault::NoMemory(any_error()))).unwrap();
    assert_eq!(bench.next().await.op, Op::Settle);
}

/// What falls due while there is no link waits for one, and the thread does not look for it a thousand times a second.
#[tokio::test]
async fn p15_a_lease_that_ends_while_the_store_is_away_keeps_nobody_busy() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let _waiting = bench.lock(30_000);
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(1, 100), 7);
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(200).await;
    let before = world.sleeps.load(Ordering::SeqCst);
    pause(500).await;
    let sleeps = world.sleeps.load(Ordering::SeqCst) - before;
    // One each 50 ms.
    assert!(sleeps <= 20, "{sleeps} in half a second");
    bench.store.may_attach.store(true, Ordering::SeqCst);
    let (look, _) = bench.next_acquire().await;
    bench.say(look, queued(1, 60_000), 7);
}

#[tokio::test]
async fn p15_every_waiter_looks_after_a_reconnect() {
    let mut bench = Bench::new().await;
    let _waiting = [bench.lock_apart(30_000), bench.lock_apart(30_000)];
    for ticket in [1, 2] {
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(ticket, 60_000), 7);
    }
    pause(50).await;
    bench.cut_home();
    bench.home_again(3).await;
    for _ in 0..2 {
        // At once: without the reconnect it would be due in four to six seconds.
        let (look, acquire) = timeout(Duration::from_secs(2), bench.next_acquire()).await.expect("it looks");
        assert!(matches!(acquire.patience, Patience::Queue(place) if place.ticket.is_some()));
        bench.say(look, queued(1, 60_000), 7);
    }
}

/// So many wait that the server would be behind for longer than a link is believed. On a new link they look in turn.
#[tokio::test]
async fn p15_many_waiters_look_in_turn_after_a_reconnect() {
    const WAITERS: usize = 6_000;
    let mut bench = Bench::new().await;
    let _waiting: Vec<_> = (0..WAITERS).map(|number| bench.lock_as(&format!("name {number}"), 900_000)).collect();
    let mut queued_up = BTreeSet::new();
    while queued_up.len() < WAITERS {
        let (asked, acquire) = bench.next_acquire().await;
        queued_up.insert(acquire.id.counter);
        bench.say(asked, queued(1, 900_000), 7);
    }
    bench.cut_home();
    bench.home_again(3).await;
    let (mut unanswered, mut looked) = (Vec::new(), BTreeSet::new());
    let mut most = 0;
    while looked.len() < WAITERS {
        // Answered where nothing more comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        if let Ok(Some(asked)) = timeout(within, bench.requests.recv()).await {
            unanswered.push(asked);
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {WAITERS} are forgotten", WAITERS - looked.len());
        let mut together = BTreeSet::new();
        for asked in unanswered.drain(..) {
            let Op::Acquire(acquire) = &asked.op else { panic!("{:?}", asked.op) };
            together.insert(acquire.id.counter);
            bench.say(asked, queued(1, 900_000), 7);
        }
        most = most.max(together.len());
        looked.append(&mut together);
    }
    assert!(most < WAITERS, "all at once");
}

#[tokio::test]
async fn p15_a_look_that_re_enters_the_queue_calls_the_others_to_look() {
    let mut bench = Bench::new().await;
    let _early = bench.lock(3_000);
    let (asked, early) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let _late = bench.lock(30_000);
    let (asked, late) = bench.next_acquire().await;
    bench.say(asked, queued(2, 60_000), 7);
    // The first look finds that it had been dropped. The other would look in four seconds at the earliest.
    let (look, again) = bench.next_acquire().await;
    assert_eq!(again.id, early.id);
    let begun = Instant::now();
    bench.say(look, Outcome::Queued { ticket: 1, left_us: 60_000 * MS, joined: Joined::Now }, 7);
    let (_, again) = bench.next_acquire().await;
    assert_eq!(again.id, late.id);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "{:?}", begun.elapsed());
}

/// However many requests there are in one turn of the session's thread: each has left before the next one is made, and
/// nothing that is sent later overtakes it.
#[tokio::test]
async fn p11_a_turn_sends_all_that_it_has_noted() {
    const WAITING: usize = 300;
    let mut bench = Bench::new().await;
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        waiting.push(bench.lock_as(&format!("name {number}"), 30_000));
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(1, 60_000), 7);
    }
    pause(50).await;
    let (made, sent) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (at_the_last, sending) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&sent));
    let last = Arc::clone(&at_the_last);
    *bench.store.at_once.lock().unwrap() = Some(Box::new(move |_| {
        sending.fetch_add(1, Ordering::SeqCst);
        None
    }));
    *bench.store.on_ask.lock().unwrap() = Some(Arc::new(move |_: &Op| {
        if made.fetch_add(1, Ordering::SeqCst) + 1 == WAITING {
            last.store(sent.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }));
    bench.tell(Message::LookAtAll);
    for _ in 0..WAITING {
        let _look = bench.next_acquire().await;
    }
    assert_eq!(at_the_last.load(Ordering::SeqCst), WAITING - 1);
}
