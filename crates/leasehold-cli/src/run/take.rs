//! Takes the lock, for as long as the user waits, and leaves the queue when told to.

use std::env;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use leasehold::{Guard, Holder, Leasehold, Mutex};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::end::{End, FAILED};
use super::plan::{Patience, Plan, Waiting};
use super::signals::Signals;
use super::teller::Teller;
use super::timing::rounded;
use crate::exit::is_away;
use crate::show::plain;

/// Between two tries to reach a store that is not there.
const TRY_FIRST: Duration = Duration::from_millis(50);
const TRY_LAST: Duration = Duration::from_secs(1);
/// The last try begins when the wait is over, and has so much time: a connection takes several round trips.
const LAST_TRY: Duration = Duration::from_millis(500);
/// However short the wait, a store has so much time to answer once: that nobody knows is no use to anybody.
const ANSWER: Duration = Duration::from_secs(1);
/// Such a wait is told of: whoever looks on is to know what for, and a short one is nobody's business.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// How long a store has to say who holds. Without that there is less to say.
const WHO: Duration = Duration::from_secs(1);
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
pub(crate) async fn take(plan: &Plan, signals: &mut Signals, teller: &mut Teller) -> Result<Taken, End> {
    let deadline = match plan.patience {
        Patience::Both(Waiting::For(wait)) => Instant::now().checked_add(wait),
        Patience::Both(Waiting::ForEver) | Patience::Lock | Patience::No => None,
    };
    let begun = Instant::now();
    let client = unless_told(signals, connect(plan, deadline)).await??;
    let mutex = client.mutex(&plan.name).lease(plan.lease).full_lease();
    match unless_told(signals, lock_aloud(plan, &mutex, (begun, deadline), teller)).await {
        Ok(Ok(guard)) => Ok(Taken { client, guard }),
        Ok(Err(end)) | Err(end) => {
            // Where we only ended, what takes us out of the queue might not be written yet, and we would be counted
            // until our turn comes.
            let _left_or_late = timeout(LEAVE, client.close()).await;
            Err(end)
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
    let begun = Instant::now();
    let mut heard = None;
    loop {
        let builder = Leasehold::builder(&plan.location.url).one_connection().holder(&plan.holder);
        let until = |deadline: Instant| deadline.max(begun + ANSWER).max(Instant::now() + LAST_TRY);
        let tried = match deadline {
            Some(deadline) => timeout_at(until(deadline), builder.connect()).await,
            None => Ok(builder.connect().await),
        };
        let error = match tried {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_) => {
                let silent = || format!("{} does not answer", plan.location.shown());
                let why = heard.map_or_else(silent, |error: leasehold::Error| error.to_string());
                return Err(unreached(plan, &why, begun.elapsed()));
            }
        };
        let waits = matches!(plan.patience, Patience::Both(_)) && is_away(&error);
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        match () {
            () if is_away(&error) && is_on(Mutant::P30BusyUnheard) => {
                return Err(busy(plan, None, Duration::ZERO));
            }
            () if !waits => return Err(error.into()),
            () if left.is_zero() => return Err(unreached(plan, &error, begun.elapsed())),
            () => sleep(pause.min(left)).await,
        }
        heard = Some(error);
        pause = (2 * pause).min(TRY_LAST);
    }
}

/// The store is not there, after a wait for it: how long that was, and what it was for.
fn unreached(plan: &Plan, why: &impl ToString, waited: Duration) -> End {
    let (why, waited) = (why.to_string(), rounded(waited));
    End::error(FAILED, &format!("{why} (waited {waited} for the store, to lock \"{}\")", plan.name))
}

/// Locks, and tells of a wait that is not short.
async fn lock_aloud(
    plan: &Plan,
    mutex: &Mutex,
    (begun, deadline): (Instant, Option<Instant>),
    teller: &mut Teller,
) -> Result<Guard, End> {
    let mut locking = pin!(lock(plan, mutex, deadline));
    let telling = async {
        sleep(TOLD_AFTER).await;
        let holder = inspect(mutex).await?;
        let ours = if is_above(plan, &holder) { ", under which this was started" } else { "" };
        Some(format!(", held by {}{ours}", plain(&holder.label)))
    };
    let taken = tokio::select! {
        biased;
        taken = &mut locking => taken,
        by = telling => {
            teller.news(&format!("waiting for \"{}\"{}", plan.name, by.unwrap_or_default()));
            locking.await
        }
    };
    let waited = begun.elapsed();
    match taken {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(busy(plan, inspect(mutex).await, waited)),
        Err(error) if is_away(&error) && matches!(plan.patience, Patience::Both(_)) => {
            Err(unreached(plan, &error, waited))
        }
        Err(error) => Err(error.into()),
    }
}

/// Who holds, if that is soon known.
async fn inspect(mutex: &Mutex) -> Option<Holder> {
    timeout(WHO, mutex.inspect()).await.ok()?.ok()?.holder
}

/// Whether the holder is the `leasehold run` that we were started under: if it waits for us, we wait for ourselves. It is
/// told and not refused, for what was left behind by `setsid` does not keep it from its end.
fn is_above(plan: &Plan, holder: &Holder) -> bool {
    let is = |variable, value: &str| env::var(variable).is_ok_and(|set| set == value);
    is("LEASEHOLD_NAME", &plan.name) && is("LEASEHOLD_TOKEN", &holder.token.to_string())
}

async fn lock(plan: &Plan, mutex: &Mutex, deadline: Option<Instant>) -> leasehold::Result<Option<Guard>> {
    match (plan.patience, deadline) {
        (Patience::No, _) => mutex.try_lock().await,
        (_, Some(deadline)) => mutex.try_lock_for(deadline.saturating_duration_since(Instant::now())).await,
        // Whoever is connected to most nodes of a quorum does not know yet whether they vote. Where they do not, it is as
        // with a store that is not there: who does not wait for that is told.
        (Patience::Lock, None) if plan.location.is_quorum() => match mutex.try_lock().await? {
            Some(guard) => Ok(Some(guard)),
            None => mutex.lock().await.map(Some),
        },
        (_, None) => mutex.lock().await.map(Some),
    }
}

fn busy(plan: &Plan, holder: Option<Holder>, waited: Duration) -> End {
    let holder = holder.map_or_else(|| "somebody else".into(), |holder| plain(&holder.label).into_owned());
    let waited = match plan.patience {
        Patience::No => String::new(),
        Patience::Lock | Patience::Both(_) => format!(" (waited {})", rounded(waited)),
    };
    End::news(plan.busy_code, &format!("\"{}\" is held by {holder}{waited}", plan.name))
}
