//! The mutex: a task acquires it in every way there is, and gives up in every way there is.

use std::time::Duration;

use leasehold::{Error, Guard, Mutex, Owner, Result};
use leasehold_testkit::history::{GaveUp, Promise};

use super::super::super::names::Class;
use super::super::call::Call;
use super::super::section;
use super::super::turn::Turn;
use super::table::{Act, ActFuture, Primitive, Taken};

pub(super) const PRIMITIVE: Primitive = Primitive {
    classes: &[
        Class::Hot,
        Class::Warm,
        Class::Cold,
        Class::Open,
        Class::Far,
        Class::Own,
        Class::Revoked,
        Class::Bereft,
        Class::Line,
        Class::Long,
    ],
    limit: 1,
    act: |turn| Box::pin(act(turn)),
    take_all: |client, name, (lease, wait)| {
        let mutex = client.mutex(name).lease(lease);
        Box::pin(async move { Ok(mutex.try_lock_for(wait).await?.map(Taken::by)) })
    },
};

/// Asks for the lock. Returns the guards of one lease, or none.
type Run = for<'a> fn(&'a mut Turn<'_>, Mutex) -> ActFuture<'a, Result<Vec<Guard>>>;

const fn of(what: &'static str, gave_up: GaveUp, run: Run) -> Act<Run> {
    Act { what, gave_up, run }
}

const ACTS: [(u64, &Act<Run>); 6] = [
    (45, &of("lock", GaveUp::Cancelled, |_, mutex| Box::pin(async move { Ok(vec![mutex.lock().await?]) }))),
    (10, &of("try_lock", GaveUp::Busy, |_, mutex| Box::pin(async move { mutex.try_lock().await.map(all) }))),
    (12, &of("try_lock_for", GaveUp::TimedOut, |turn, mutex| Box::pin(try_for(turn, mutex)))),
    (10, &of("try_lock_for, short", GaveUp::TimedOut, |turn, mutex| Box::pin(try_shortly(turn, mutex)))),
    (14, &of("lock, canceled", GaveUp::Cancelled, |turn, mutex| Box::pin(cancel(turn, mutex)))),
    (9, &of("lock by an owner", GaveUp::Cancelled, |_, mutex| Box::pin(twice(mutex)))),
];
/// The longest short wait.
const SHORT_MS: u64 = 50;
/// After its wait, `try_lock_for` waits for this time for a reply of the store, and for the same time again for the
/// claim of a full lease.
const REPLY_WAIT: Duration = Duration::from_secs(1);

async fn act(mut turn: Turn<'_>) {
    if Class::of(turn.name) == Class::Open && turn.random.chance(25) {
        return revoke(turn).await;
    }
    let (mutex, lease) = mutex(&mut turn);
    let act = turn.random.weighted(&ACTS);
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    turn.doing(act.what);
    match (act.run)(&mut turn, mutex).await {
        Ok(guards) if guards.is_empty() => section::gave_up(&turn, attempt, act.gave_up.clone()),
        Ok(guards) => section::run(turn, attempt, guards, lease).await,
        Err(error) => section::failed(&turn, attempt, &error).await,
    }
}

/// Returns a mutex with terms of its own, and its lease.
fn mutex(turn: &mut Turn<'_>) -> (Mutex, Duration) {
    let Turn { shift, client, name, random, .. } = turn;
    let longest_ms = u64::try_from(Class::of(name).longest_lease(shift.store).as_millis()).expect("seconds");
    // Most leases are alike: tasks of one client that ask for the same lease share one local queue and hand over
    // locally.
    let shortest_ms = if random.chance(70) { longest_ms } else { longest_ms / 2 };
    let lease = Duration::from_millis(random.within(shortest_ms, longest_ms));
    let mutex = client.mutex(name);
    let mutex = if random.chance(10) { mutex.fair() } else { mutex };
    let mutex = if random.chance(10) { mutex.fixed_lease(lease) } else { mutex.lease(lease) };
    (if random.chance(5) { mutex.full_lease() } else { mutex }, lease)
}

fn all(tried: Option<Guard>) -> Vec<Guard> {
    tried.into_iter().collect()
}

async fn try_for(turn: &mut Turn<'_>, mutex: Mutex) -> Result<Vec<Guard>> {
    mutex.try_lock_for(Duration::from_millis(turn.random.within(1, 1_500))).await.map(all)
}

/// Waits for less time than a round trip may take.
async fn try_shortly(turn: &mut Turn<'_>, mutex: Mutex) -> Result<Vec<Guard>> {
    let is_zero = turn.random.chance(10);
    let wait = Duration::from_micros(if is_zero { 0 } else { turn.random.within(1, SHORT_MS * 1_000) });
    let call = Call::begin(turn.shift, turn.at, "try_lock_for with a short wait", (wait, REPLY_WAIT));
    let tried = mutex.try_lock_for(wait).await;
    call.ended(turn.me, tried.as_ref().err().map(Error::kind));
    tried.map(all)
}

async fn cancel(turn: &mut Turn<'_>, mutex: Mutex) -> Result<Vec<Guard>> {
    let wait = Duration::from_micros(turn.random.below(60_000));
    let locked = tokio::time::timeout(wait, mutex.lock()).await;
    locked.map_or(Ok(Vec::new()), |locked| locked.map(|guard| vec![guard]))
}

/// Acquires twice for one owner, which gives one lease. If the first grant was lost before the second was made, only
/// one of the two is returned.
async fn twice(mutex: Mutex) -> Result<Vec<Guard>> {
    let mutex = mutex.owner(&Owner::new());
    let (one, other) = tokio::join!(mutex.lock(), mutex.lock());
    match (one, other) {
        (Ok(one), Ok(other)) if one.token() == other.token() => Ok(vec![one, other]),
        // Two grants, one after the other: the later one counts, and the earlier one has ended.
        (Ok(one), Ok(other)) => {
            if one.is_valid() && other.is_valid() {
                println!("an owner holds {} with tokens {} and {}", one.name(), one.token(), other.token());
            }
            Ok(vec![if one.token() > other.token() { one } else { other }])
        }
        (Ok(guard), Err(_)) | (Err(_), Ok(guard)) => Ok(vec![guard]),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Revokes the grant of the current holder. Until the holder surely knows of it, two clients may believe that they
/// hold.
async fn revoke(turn: Turn<'_>) {
    let (shift, name) = (turn.shift, turn.name);
    turn.doing("revoke");
    let mutex = turn.client.mutex(name);
    let Ok(seen) = mutex.inspect().await else { return shift.count("inspect failed") };
    let Some(holder) = seen.holder() else { return };
    let grace = Duration::from_millis(*turn.random.pick(&[0, 200, 1_000]));
    // The excuse is recorded before the call, because a client that is killed during the call cannot record it any
    // more. A reply is awaited for two seconds.
    excuse_revoked(&turn, grace + Duration::from_secs(2));
    let answer = mutex.revoke(holder, grace).await;
    if answer.is_err() {
        // The revocation may still be carried out.
        excuse_revoked(&turn, grace + Duration::from_secs(5));
    }
    shift.count(if answer.is_ok() { "revoked" } else { "revoke failed" });
}

/// Excuses overlaps: within this time the lease ends at the store, and its holder may believe in it for its whole
/// length.
fn excuse_revoked(turn: &Turn<'_>, within: Duration) {
    let longest = Class::of(turn.name).longest_lease(turn.shift.store);
    turn.shift.recorder.excuse(turn.name, Promise::Exclusion, within + longest, "revoked");
}
