//! Waits that are shorter than a round trip may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Guard, Leasehold, Mutex};
use tokio::task::JoinHandle;

use crate::conformance::stage::{Stage, soon};

/// The number of calls of each kind.
const CALLS: u32 = 250;
/// The longest wait.
const LONGEST: Duration = Duration::from_millis(50);
/// A wait within which the lock is released.
const LAST: Duration = Duration::from_millis(5);
/// The lock is released at most this long before the wait ends.
const MOMENTS: Duration = Duration::from_millis(3);
/// How long a store may take to answer a request, however short the caller's wait.
const ANSWER: Duration = Duration::from_millis(500);

/// While others lock and release all the time, a short wait ends with a guard or without one. It never ends with an
/// error: the store answers, and another client holds, or is about to release.
pub(super) async fn short_waits_are_answered(stage: &Stage) {
    let (ours, theirs) = (stage.client("ours").await, stage.client("theirs").await);
    let is_over = Arc::new(AtomicBool::new(false));
    let name = |part| stage.name_of(part);
    let contend = |mutex: Mutex| contend(mutex, Arc::clone(&is_over));
    let contenders = [
        contend(theirs.mutex(name("plain"))),
        contend(theirs.mutex(name("full lease"))),
        contend(ours.mutex(name("full lease"))),
    ];
    let (plain, full_lease) = (ours.mutex(name("plain")), ours.mutex(name("full lease")).full_lease());
    let (late, full_late) = tokio::join!(calls(&plain), calls(&full_lease));
    let late = late + full_late + last_moments(stage, &ours, &theirs).await;
    is_over.store(true, Ordering::Relaxed);
    for contender in contenders {
        assert!(soon("a contender ends", contender).await.expect("no panic") > 0, "nobody contended");
    }
    assert!(late < CALLS / 10, "a machine this slow proves nothing: {late} answers were late");
}

/// The lock is released at a moment shortly before the wait is over: the grant is in flight when the wait ends.
async fn last_moments(stage: &Stage, ours: &Leasehold, theirs: &Leasehold) -> u32 {
    let kinds = [("plain", Mutex::clone as fn(&Mutex) -> Mutex), ("full lease", |mutex| mutex.clone().full_lease())];
    let [plain, full_lease] = kinds.map(|(kind, of)| {
        let name = stage.name_of(format_args!("{kind}, last"));
        let (mutex, theirs) = (of(&ours.mutex(&name)), theirs.mutex(&name));
        tokio::spawn(async move {
            let mut late = 0;
            for call in 0..CALLS {
                let guard = theirs.lock().await.expect("granted");
                let before_the_end = MOMENTS * call / CALLS;
                // A thread's sleep is more exact than a runtime's timer.
                let releasing = tokio::task::spawn_blocking(move || {
                    std::thread::sleep(LAST.saturating_sub(before_the_end));
                    drop(guard);
                });
                late += one(&mutex, LAST, call).await.1;
                releasing.await.expect("no panic");
            }
            late
        })
    });
    plain.await.expect("no panic") + full_lease.await.expect("no panic")
}

/// Locks and releases until it gets a stop signal. Returns how often it did.
fn contend(mutex: Mutex, is_over: Arc<AtomicBool>) -> JoinHandle<u32> {
    tokio::spawn(async move {
        let mut turns = 0;
        while !is_over.load(Ordering::Relaxed) {
            let guard = mutex.lock().await.expect("granted");
            guard.release().await.map(drop).expect("given back");
            turns += 1;
            // A hand-over inside a client does not let the other tasks of this thread run by itself.
            tokio::task::yield_now().await;
        }
        turns
    })
}

/// Returns whether a call got the lock, and whether its answer came later than promised.
async fn one(mutex: &Mutex, wait: Duration, call: u32) -> (u32, u32) {
    let begun = Instant::now();
    let ended: Result<Option<Guard>, _> = mutex.try_lock_for(wait).await;
    match ended {
        Ok(guard) => (u32::from(guard.is_some()), 0),
        Err(error) => {
            let took = begun.elapsed();
            let is_late =
                matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum) && took >= wait.max(ANSWER);
            assert!(is_late, "call {call}, with a wait of {wait:?}, ended after {took:?}: {error}");
            (0, 1)
        }
    }
}

/// Makes calls with waits from 0 to 50 ms. Returns how many answers came later than promised.
async fn calls(mutex: &Mutex) -> u32 {
    let mut late = 0;
    for call in 0..CALLS {
        late += one(mutex, LONGEST * (call % 26) / 25, call).await.1;
    }
    late
}
