//! The URL of an embedded store. (The calls on it, and that its clients exclude each other, are tested in
//! `conformance.rs`, as for every store. The last test is about work, and needs no server.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::seam::{Guess, Real, choose};
use leasehold::{ErrorKind, Leasehold};
use leasehold_spec::{Acquire, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Take};

#[tokio::test]
async fn a_store_without_a_name_is_this_clients_own() {
    let (a, b) = (Leasehold::connect("memory:").await.unwrap(), Leasehold::connect("memory:").await.unwrap());
    let held = a.mutex("x").lock().await.unwrap();
    assert!(a.clone().mutex("x").try_lock().await.unwrap().is_none(), "a clone is the same client");
    let other = b.mutex("x").try_lock().await.unwrap().expect("another store");
    drop((held, other));
}

#[tokio::test]
async fn a_store_with_a_name_is_shared_by_those_who_name_it() {
    let connect = async |url| Leasehold::connect(url).await.unwrap();
    let (a, b, c) = (connect("memory:one").await, connect("memory:one").await, connect("memory:One").await);
    let held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(c.mutex("x").try_lock().await.unwrap().is_some(), "case counts");
    drop(held);
}

#[tokio::test]
async fn a_url_that_names_no_store_is_refused_and_not_repeated() {
    for url in ["", "memory", "postgres://x", "redis", "http://s3cret@x", "s3cret"] {
        let error = Leasehold::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains("memory:NAME"), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}

/// Work that does not await cannot be dropped, but its lease is lost all the same.
#[tokio::test]
async fn work_that_blocks_beyond_its_lease_is_lost() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a").fixed_lease(Duration::from_millis(150));
    let blocked = mutex.run(async |_| std::thread::sleep(Duration::from_millis(150))).await;
    assert_eq!(blocked.unwrap_err().kind(), ErrorKind::Lost);
}

/// The thread does not wait for its tick after the last reply has come.
#[tokio::test]
async fn closing_ends_with_the_last_answer() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let guards = [leasehold.mutex("a").lock().await.unwrap(), leasehold.mutex("b").lock().await.unwrap()];
    let begun = Instant::now();
    assert!(leasehold.close().await.unconfirmed().is_empty());
    // A tick is 250 ms; without it this takes one or two.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    drop(guards);
}

/// A session that has reconnected has its inbox on the new connection, whatever happens to the old one.
#[tokio::test]
async fn an_old_link_takes_no_newer_inbox_with_it() {
    let store = choose("memory:", None, &Real::world()).unwrap();
    let (old, new) = (store.open().await.unwrap(), store.open().await.unwrap());
    let heard = Arc::new(AtomicUsize::new(0));
    let (waiter, holder) = (SessionId(1), SessionId(2));
    for link in [&old, &new] {
        let heard = Arc::clone(&heard);
        let inbox = move |_| {
            heard.fetch_add(1, Ordering::SeqCst);
        };
        link.attach(waiter, Arc::new(inbox)).await.unwrap();
    }
    old.close();
    drop(old);
    let name = Name::new("x").unwrap();
    let ask = async |op: Op| new.apply(&name, &op, Guess::default()).await.unwrap().outcome;
    let queue = Patience::Queue(Place {
        claim_ms: 1000,
        limit_ms: None,
        ticket: None,
        hears: Hears::Listens,
        order: Order::Relaxed,
    });
    let acquire = |session| {
        let (id, label) = (GrantId { session, counter: 1, nonce: 1 }, "".into());
        Op::Acquire(Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: 60_000,
            range: 1,
            not_after_us: u64::MAX,
            patience: queue.clone(),
            label,
        })
    };
    let Outcome::Granted { token, .. } = ask(acquire(holder)).await else { panic!("it is free") };
    assert!(matches!(ask(acquire(waiter)).await, Outcome::Queued { .. }));
    let id = GrantId { session: holder, counter: 1, nonce: 1 };
    assert_eq!(ask(Op::Release { id, token, used: token }).await, Outcome::Released);
    assert_eq!(heard.load(Ordering::SeqCst), 1, "the waiter was passed over");
}
