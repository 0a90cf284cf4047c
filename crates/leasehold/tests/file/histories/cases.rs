//! Cases that random histories do not meet: more waiters than one step serves.

use std::sync::atomic::Ordering;

use leasehold_spec::{GrantId, Kind, Op, Outcome, Rest, SessionId, Take};

use super::{CLIENTS, rig};
use crate::Store;

/// A step serves 64 waiters and says that there are more. An unread part of the pool changes nothing of that.
#[tokio::test(flavor = "multi_thread")]
async fn p34_the_rows_of_more_than_64_served_waiters() {
    let store = Store::new();
    let mut rig = rig(&store, 1, Kind::ReadWrite).await;
    let writes = rig.queued(0, Take::WRITE);
    assert!(matches!(rig.play_op(0, writes.clone()).await.outcome, Outcome::Granted { .. }));
    for at in 0..150 {
        let reads = rig.queued(at % CLIENTS, Take::READ);
        rig.play_op(at % CLIENTS, reads).await;
    }
    let writer = rig.model.grants.sole().cloned().unwrap();
    let released = rig.play_op(0, Op::Release { id: writer.id, token: writer.token, used: writer.token }).await;
    assert_eq!((released.rest, rig.model.grants.len()), (Rest::More, 64));
    assert_eq!(rig.play_op(1, Op::Settle).await.rest, Rest::More);
    assert_eq!((rig.play_op(2, Op::Settle).await.rest, rig.model.grants.len()), (Rest::Done, 150));
    // All leases end together, and one step ends them.
    rig.world.0.now_us.fetch_add(60_000_000, Ordering::SeqCst);
    rig.play_op(3, Op::Settle).await;
    assert!(rig.model.grants.is_empty());
}

/// A latch opens, and a notification reaches all: in both cases a step serves 64 waiters, and its last message says that
/// there are more (P34).
#[tokio::test(flavor = "multi_thread")]
async fn p34_the_rows_of_more_than_64_notified_waiters() {
    for take in [Take::OPEN_LATCH, Take::NOTIFICATION] {
        let store = Store::new();
        let mut rig = rig(&store, 1, take.kind).await;
        if take.kind == Kind::Latch {
            rig.play_op(0, Op::CreateLatch { limit: 1, keep_ms: 1_000, not_after_us: u64::MAX }).await;
        }
        for at in 0..150 {
            let waits = rig.queued(at % CLIENTS, take);
            assert!(matches!(rig.play_op(at % CLIENTS, waits).await.outcome, Outcome::Queued { .. }));
        }
        let born = rig.model.latch.born;
        let id = GrantId { session: SessionId(9), counter: 1, nonce: 1 };
        let wakes = if take.kind == Kind::Latch { Op::CountDown { id, born } } else { Op::Notify { count: 150 } };
        assert_eq!((rig.play_op(0, wakes).await.rest, rig.model.grants.len()), (Rest::More, 64));
        assert_eq!(rig.play_op(1, Op::Settle).await.rest, Rest::More);
        assert_eq!((rig.play_op(2, Op::Settle).await.rest, rig.model.grants.len()), (Rest::Done, 150));
    }
}

/// The deletion of a latch notifies 64 of its waiters, wherever they are. The others ask again by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn p44_the_rows_of_a_deleted_latch() {
    let store = Store::new();
    let mut rig = rig(&store, 1, Kind::Latch).await;
    for limit in 1..=2 {
        rig.play_op(0, Op::CreateLatch { limit, keep_ms: 1_000, not_after_us: u64::MAX }).await;
        for at in 0..100 {
            let waits = rig.queued(at % CLIENTS, Take::OPEN_LATCH);
            rig.play_op(at % CLIENTS, waits).await;
        }
        let born = rig.model.latch.born;
        assert_eq!(rig.play_op(0, Op::DeleteLatch { born }).await.outcome, Outcome::Deleted);
        assert!(rig.model.queue.is_empty());
        assert_eq!(rig.seen["a latch: told: Ending"], u64::from(limit) * 64);
        let dismissed: i64 = rig.db.query_row("SELECT count(*) FROM dismissed", [], |row| row.get(0)).unwrap();
        assert_eq!(dismissed, 64);
    }
    // The next latch of the name leaves no message of this one.
    rig.play_op(0, Op::CreateLatch { limit: 1, keep_ms: 1_000, not_after_us: u64::MAX }).await;
    let dismissed: i64 = rig.db.query_row("SELECT count(*) FROM dismissed", [], |row| row.get(0)).unwrap();
    assert_eq!(dismissed, 0);
}
