//! Waiters: their order, their number and their time limits.

use super::{KEY, LEASE_S, OUR_TWO, PUNCTUAL, our_lock, our_workers, work, workers};
use crate::client::{Client, Mark};
use crate::judge::Observable;
use crate::scene::{Ours, Scene};
use crate::specimens::Lock;
use crate::specimens::random_delay::RandomDelay;
use crate::specimens::redisson::Redisson;
use crate::specimens::reentrant::Reentrant;
use crate::world::Bounds;

pub(super) const STARVATION: Scene = Scene {
    id: "H14",
    title: "starvation",
    lock: "compare-and-delete, with random delays between tries",
    story: "A locks again and again. B's tries always come while A holds.",
    remedy: "Waiters have places, and a release grants to the first one.",
    seeks: Observable::Starvation(3),
    flawed: |stage| {
        stage.process("A", |client| work(client, RandomDelay::new(KEY, LEASE_S), 4));
        stage.process("B", |client| work(client, RandomDelay::new(KEY, LEASE_S), 1));
    },
    ours: Ours {
        stage: |stage| {
            stage.process("A", |client| work(client, our_lock("A"), 4));
            stage.process("B", |client| work(client, our_lock("B"), 1));
        },
        ..OUR_TWO
    },
    bounds: PUNCTUAL,
};

pub(super) const HERD: Scene = Scene {
    id: "H15",
    title: "a thundering herd",
    lock: "Redisson's lock",
    story: "A releases. The message wakes B, C and D. All three ask, one of them gets the lock, and two \
            asked in vain.",
    remedy: "A release grants to one waiter, and one message notifies it.",
    seeks: Observable::Herd(3),
    flawed: |stage| workers(stage, &["A", "B", "C", "D"], |client| Redisson::new(client, KEY, LEASE_S)),
    ours: Ours { stage: |stage| our_workers(stage, &["A", "B", "C", "D"]), ..OUR_TWO },
    bounds: Bounds { end_ms: 1000, ..PUNCTUAL },
};

/// The time for which the caller of H17 wants to wait, in seconds.
const WAIT_S: u64 = 1;

/// Holds the lock for longer than the other caller of H17 wants to wait.
async fn hold_long(client: Client, lock: impl Lock) {
    client.mark(Mark::Wants(None));
    let grant = lock.lock(&client).await;
    client.mark(Mark::Enters(grant.held));
    client.sleep_ms(2 * LEASE_S * 1000).await;
    client.mark(Mark::Leaves);
    lock.unlock(&client, &grant).await;
}

pub(super) const WAIT_FOR_LEASE: Scene = Scene {
    id: "H17",
    title: "a wait that becomes the lease",
    lock: "tryLock(time) of the re-entrant lock",
    story: "B calls tryLock(1 s) while A holds. The time becomes B's lease, and B waits without an end.",
    remedy: "The wait and the lease are two settings, and the wait is bounded.",
    seeks: Observable::Overrun(2000),
    flawed: |stage| {
        stage.process("A", |client| async move {
            let lock = Reentrant::new(&client, KEY, LEASE_S);
            hold_long(client, lock).await;
        });
        stage.process("B", |client| async move {
            // Another thread makes the lock of B, so that it has another owner than A: that is another hazard (H16).
            client.spawn(|client| async move {
                let lock = Reentrant::new(&client, KEY, LEASE_S);
                client.mark(Mark::Wants(Some(WAIT_S * 1000)));
                let grant = lock.try_lock(&client, WAIT_S).await;
                client.mark(Mark::Enters(grant.held));
                client.mark(Mark::Leaves);
                lock.unlock(&client, &grant).await;
            });
        });
    },
    ours: Ours {
        stage: |stage| {
            stage.process("A", |client| hold_long(client, our_lock("A")));
            stage.process("B", |client| async move {
                let lock = our_lock("B");
                client.mark(Mark::Wants(Some(WAIT_S * 1000)));
                match lock.lock_within(&client, Some(WAIT_S * 1000)).await {
                    Some(grant) => {
                        client.mark(Mark::Enters(grant.held));
                        client.mark(Mark::Leaves);
                        lock.unlock(&client, &grant).await;
                    }
                    None => client.mark(Mark::GivesUp),
                }
            });
        },
        ..OUR_TWO
    },
    bounds: PUNCTUAL,
};
