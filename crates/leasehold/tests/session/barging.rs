//! Calls that only try, beside waiters of the same client.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use leasehold_spec::{Op, Outcome, Patience};

use crate::harness::{Harness, MS, token};

/// A guard is dropped in a panic, and two callers of this client have waited for it for a while. The thread of the session
/// has still to send the release and the acquire of the waiters. (Here it stands still while it sends a release of another
/// name.) A call that only tries sends the release itself, and its own acquire right behind it: so it gets the lock before
/// those that wait. `try_lock` acquires the lock "if it is free and nobody waits for it".
#[tokio::test]
async fn a_try_does_not_pass_the_waiters_of_its_own_client() {
    let mut harness = Harness::new().await;
    let other = harness.locked_as("other", 30_000, 5).await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let waiting = harness.add_local_waiters(30_000, 2).await;
    let (stands, is_standing) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let gate = Mutex::new(Some((stands, may_go_on)));
    let on_ask = move |_: &Op| {
        if std::thread::current().name() == Some("leasehold")
            && let Some((stands, may_go_on)) = gate.lock().unwrap().take()
        {
            stands.send(()).unwrap();
            let _ = may_go_on.recv_timeout(Duration::from_secs(10));
        }
    };
    *harness.store.on_ask.lock().unwrap() = Some(Arc::new(on_ask));
    drop(other);
    is_standing.recv_timeout(Duration::from_secs(10)).expect("the thread sends the release of the other name");
    let section = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("the work panics"));
    });
    assert!(section.await.is_err());
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let trying = tokio::spawn(async move { mutex.try_lock().await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let is_done = trying.is_finished();
    go_on.send(()).unwrap();
    let mut order = Vec::new();
    let mut requests = Vec::new();
    while order.len() < 3 && !(is_done && order.len() == 2) {
        let request = harness.next().await;
        match &request.op {
            Op::Release { id: of, .. } if *of == id => order.push("release"),
            Op::Acquire(acquire) if acquire.patience == Patience::Try => order.push("try"),
            Op::Acquire(_) => order.push("waiter"),
            _ => {}
        }
        requests.push(request);
    }
    // The store would do this: the first acquire behind the release is granted.
    for (request, outcome) in requests.into_iter().filter_map(|request| match &request.op {
        Op::Acquire(acquire) if acquire.patience == Patience::Try => {
            Some((request, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 1 }))
        }
        _ => None,
    }) {
        harness.reply(request, outcome, 9);
    }
    let tried = trying.await.unwrap().unwrap();
    assert!(tried.is_none(), "it got the lock before those that wait: {order:?}");
    drop(waiting);
}
