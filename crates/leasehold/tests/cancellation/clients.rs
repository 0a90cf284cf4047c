//! Clients that are dropped, half connected, or closed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::seam::{Pending, Real, Store, World, choose};
use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::forward::{Forward, ForwardWorld};
use leasehold_testkit::{RedisServer, Value};

use crate::hand::{Driven, until};
use crate::harness::Harness;
use crate::on_all_stores;

/// The real world, and the number of sessions that live in it.
struct Counted {
    sessions: Arc<AtomicUsize>,
}

struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ForwardWorld for Counted {
    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        self.sessions.fetch_add(1, Ordering::SeqCst);
        let leaving = Leaving(Arc::clone(&self.sessions));
        Real.spawn_session(Box::pin(async move {
            session.await;
            drop(leaving);
        }))
    }
}

/// Returns how many connections a server has beside the one that asks.
fn connections(server: &RedisServer) -> usize {
    match server.command(&["CLIENT", "LIST"]) {
        Value::Bulk(list) => String::from_utf8_lossy(&list).lines().count() - 1,
        other => panic!("{other:?}"),
    }
}

on_all_stores!(a_dropped_connect_leaves_nothing, |harness| {
    let sessions = Arc::new(AtomicUsize::new(0));
    let world: Arc<dyn World> = Arc::new(Forward(Counted { sessions: Arc::clone(&sessions) }));
    let mut finished = 0;
    let in_runtime = harness.runtime.enter();
    for polls in 0..12 {
        let store: Arc<dyn Store> = choose(&harness.url(), None, &world).expect("a good URL");
        let mut connecting = Driven::new(Leasehold::builder("").connect_to(store, Arc::clone(&world)));
        let mut client = None;
        // Dropped before it begins, in each step, and when it is connected.
        for _ in 0..polls {
            if let std::task::Poll::Ready(connected) = connecting.poll() {
                client = Some(connected.expect("connected"));
                break;
            }
            until("the next step", || connecting.is_woken());
        }
        drop(connecting);
        finished += usize::from(client.is_some());
        drop(client);
        until("its thread has ended", || sessions.load(Ordering::SeqCst) == 0);
    }
    drop(in_runtime);
    assert!((1..12).contains(&finished), "some were dropped before the end, and some after: {finished}");
    if let Some(server) = harness.server() {
        until("its connections are closed", || connections(server) == 0);
    }
});

on_all_stores!(a_closed_client_asks_nothing_and_keeps_nothing, |harness| {
    let client = harness.connect_straight("subject");
    let (mutex, again) = (client.mutex("a"), client.clone());
    let guard = harness.block_on(mutex.lock()).expect("granted");
    let holder = harness.block_on(mutex.inspect()).expect("an answer").holder().cloned().expect("held");
    assert!(harness.block_on(client.close()).unconfirmed().is_empty());

    let kinds = [
        harness.block_on(mutex.lock()).expect_err("closed").kind(),
        harness.block_on(mutex.try_lock()).expect_err("closed").kind(),
        harness.block_on(mutex.inspect()).expect_err("closed").kind(),
        harness.block_on(mutex.revoke(&holder, Duration::ZERO)).expect_err("closed").kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Closed; 4]);
    assert!(harness.block_on(again.clone().close()).unconfirmed().is_empty(), "a second close has no effect");
    if let Some(server) = harness.server() {
        until("its connections are closed although handles of the client live", || connections(server) == 0);
    }
    drop((guard, again));
});

on_all_stores!(a_dropped_close_closes, |harness| {
    let other = harness.connect_straight("other");
    for polls in 0..2 {
        let client = harness.connect("subject");
        let (kept, name) = (client.clone(), format!("polled {polls} times"));
        let guard = harness.block_on(client.mutex(&name).lock()).expect("granted");
        let mut closing = Driven::new(client.close());
        for _ in 0..polls {
            let _ = closing.poll();
        }
        drop(closing);
        assert!(!guard.is_valid());
        assert_eq!(harness.block_on(kept.mutex(&name).try_lock()).expect_err("closed").kind(), ErrorKind::Closed);
        until("the lock is released", || harness.inspect(&other, &name).holder().is_none());
    }
});
