//! Takes the lock, for as long as the user waits, and leaves the queue when told to.

use std::future::Future;
use std::time::Duration;

use leasehold::{ErrorKind, Guard, Leasehold, Mutex};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::end::{End, FAILED};
use super::plan::{Patience, Plan, Waiting};
use super::signals::Signals;

/// Between two tries to reach a store that is not there.
const TRY_FIRST: Duration = Duration::from_millis(50);
const TRY_LAST: Duration = Duration::from_secs(1);
/// However short the wait, a store has so much time to answer once: that nobody knows is no use to anybody.
const ANSWER: Duration = Duration::from_secs(1);
/// For how long a store is asked to strike us from the queue. Where it does not hear of it, it passes over us when our
/// turn comes: our connection is gone.
const LEAVE: Duration = Duration::from_secs(1);

/// A held lock. The client is kept with it.
pub(crate) struct Taken {
    pub(crate) client: Leasehold,
    pub(crate) guard: Guard,
}

/// # Errors
/// Why there is no lock.
pub(crate) async fn take(plan: &Plan, signals: &mut Signals) -> Result<Taken, End> {
    let deadline = match plan.patience {
        Patience::Both(Waiting::For(wait)) => Instant::now().checked_add(wait),
        Patience::Both(Waiting::ForEver) | Patience::Lock | Patience::No => None,
    };
    let client = unless_told(signals, connect(plan, deadline)).await??;
    let mutex = client.mutex(&plan.name).lease(plan.lease).full_lease();
    match unless_told(signals, lock(plan, &mutex, deadline)).await {
        Ok(Ok(guard)) => Ok(Taken { client, guard }),
        Ok(Err(end)) => Err(end),
        Err(told) => {
            let _left_or_late = timeout(LEAVE, client.close()).await;
            Err(told)
        }
    }
}

/// Drops the work when a signal says so.
async fn unless_told<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Result<T, End> {
    tokio::select! {
        biased;
        one = signals.leave() => Err(End::signal(one)),
        done = work => Ok(done),
    }
}

async fn connect(plan: &Plan, deadline: Option<Instant>) -> Result<Leasehold, End> {
    let mut pause = TRY_FIRST;
    let answer = Instant::now() + ANSWER;
    loop {
        let builder = Leasehold::builder(&plan.location.url).one_connection().holder(&plan.holder);
        let tried = match deadline {
            Some(deadline) => timeout_at(deadline.max(answer), builder.connect()).await,
            None => Ok(builder.connect().await),
        };
        let error = match tried {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_) => return Err(End::error(FAILED, &"the store does not answer, and the wait is over")),
        };
        let waits = matches!(plan.patience, Patience::Both(_)) && error.kind() == ErrorKind::Unreachable;
        let is_over = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
        match () {
            () if error.kind() == ErrorKind::Unreachable && is_on(Mutant::P30BusyUnheard) => return Err(busy(plan)),
            () if !waits || is_over => return Err(error.into()),
            () => sleep(pause).await,
        }
        pause = (2 * pause).min(TRY_LAST);
    }
}

async fn lock(plan: &Plan, mutex: &Mutex, deadline: Option<Instant>) -> Result<Guard, End> {
    let taken = match (plan.patience, deadline) {
        (Patience::No, _) => mutex.try_lock().await,
        (_, Some(deadline)) => mutex.try_lock_for(deadline.saturating_duration_since(Instant::now())).await,
        (_, None) => mutex.lock().await.map(Some),
    };
    taken?.ok_or_else(|| busy(plan))
}

fn busy(plan: &Plan) -> End {
    End::news(plan.busy_code, &format!("\"{}\" is held by somebody else", plan.name))
}
