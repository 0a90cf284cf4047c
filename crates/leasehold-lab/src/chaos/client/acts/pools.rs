//! Read-write locks and semaphores: tasks take their shares in every way there is, and give up.

use std::time::Duration;

use leasehold::{Result, RwLock, Semaphore};
use leasehold_spec::limits::GRANTS_MAX;
use leasehold_testkit::history::{Attempt, Ended, GaveUp, Share};

use super::super::super::names::Class;
use super::super::section;
use super::super::turn::Turn;
use super::table::{Act, ActFuture, Primitive};
use crate::lease::{Lease, Permits};

pub(super) const RW_LOCK: Primitive =
    Primitive { classes: &[Class::Shared], limit: GRANTS_MAX, act: |turn| Box::pin(act(turn)) };

pub(super) const SEMAPHORE: Primitive =
    Primitive { classes: &[Class::Permits], limit: PERMITS, act: |turn| Box::pin(acquire(turn)) };

/// The number of permits of each semaphore.
pub(in super::super::super) const PERMITS: u32 = 3;

type Run = for<'a> fn(Turn<'a>, Attempt, RwLock, Duration) -> ActFuture<'a>;

const fn of(what: &'static str, gave_up: GaveUp, run: Run) -> Act<Run> {
    Act { what, gave_up, run }
}

const ACTS: [(u64, &Act<Run>); 8] = [
    (
        30,
        &of("read", GaveUp::Cancelled, |turn, attempt, lock, lease| {
            Box::pin(async move { play(turn, attempt, lock.read().await.map(Some), GaveUp::Cancelled, lease).await })
        }),
    ),
    (
        20,
        &of("write", GaveUp::Cancelled, |turn, attempt, lock, lease| {
            Box::pin(async move { play(turn, attempt, lock.write().await.map(Some), GaveUp::Cancelled, lease).await })
        }),
    ),
    (
        10,
        &of("try_read", GaveUp::Busy, |turn, attempt, lock, lease| {
            Box::pin(async move { play(turn, attempt, lock.try_read().await, GaveUp::Busy, lease).await })
        }),
    ),
    (
        10,
        &of("try_write_for", GaveUp::TimedOut, |mut turn, attempt, lock, lease| {
            Box::pin(async move {
                let wait = wait(&mut turn);
                play(turn, attempt, lock.try_write_for(wait).await, GaveUp::TimedOut, lease).await;
            })
        }),
    ),
    (
        8,
        &of("read, canceled", GaveUp::Cancelled, |mut turn, attempt, lock, lease| {
            Box::pin(async move {
                let asked = give_up(&mut turn, lock.read()).await;
                play(turn, attempt, asked, GaveUp::Cancelled, lease).await;
            })
        }),
    ),
    (
        8,
        &of("write, canceled", GaveUp::Cancelled, |mut turn, attempt, lock, lease| {
            Box::pin(async move {
                let asked = give_up(&mut turn, lock.write()).await;
                play(turn, attempt, asked, GaveUp::Cancelled, lease).await;
            })
        }),
    ),
    (7, &of("downgrade", GaveUp::Cancelled, |turn, attempt, lock, _| Box::pin(downgrade(turn, attempt, lock)))),
    (7, &of("upgrade", GaveUp::Cancelled, |turn, attempt, lock, lease| Box::pin(upgrade(turn, attempt, lock, lease)))),
];

/// Returns a lease of a length of its own.
fn lease(turn: &mut Turn<'_>) -> Duration {
    let Turn { shift, name, random, .. } = turn;
    let longest_ms = u64::try_from(Class::of(name).longest_lease(shift.store).as_millis()).expect("seconds");
    Duration::from_millis(random.within(longest_ms / 2, longest_ms))
}

async fn act(mut turn: Turn<'_>) {
    let lease = lease(&mut turn);
    let lock = turn.client.rw_lock(turn.name);
    let lock = if turn.random.chance(10) { lock.fixed_lease(lease) } else { lock.lease(lease) };
    let act = turn.random.weighted(&ACTS);
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    turn.doing(act.what);
    (act.run)(turn, attempt, lock, lease).await;
}

/// Plays the section of a grant, or records that there is none.
async fn play<L: Lease>(turn: Turn<'_>, attempt: Attempt, asked: Result<Option<L>>, why: GaveUp, lease: Duration) {
    match asked {
        Ok(Some(guard)) => section::run(turn, attempt, vec![guard], lease).await,
        Ok(None) => section::gave_up(&turn, attempt, why),
        Err(error) => section::failed(&turn, attempt, &error).await,
    }
}

fn wait(turn: &mut Turn<'_>) -> Duration {
    Duration::from_millis(turn.random.within(1, 1_500))
}

/// Waits for a while, and drops the future then.
async fn give_up<L>(turn: &mut Turn<'_>, asked: impl Future<Output = Result<L>>) -> Result<Option<L>> {
    let wait = Duration::from_micros(turn.random.below(60_000));
    tokio::time::timeout(wait, asked).await.map_or(Ok(None), |granted| granted.map(Some))
}

/// Records a share that is held for a moment, and that the task gives up by another call than a release.
async fn held_for_a_moment(turn: &mut Turn<'_>, attempt: Attempt, guard: &impl Lease, share: Share) {
    let held = attempt.share(share).granted(guard.token());
    let is_held = held.claims(|| guard.check().is_ok());
    turn.shift.sleep(Duration::from_micros(turn.random.below(3_000))).await;
    held.ended(if is_held { Ended::Released } else { Ended::Lost("at once".into()) });
}

/// Writes, and becomes a reader: by the same grant, with fewer units.
async fn downgrade(mut turn: Turn<'_>, attempt: Attempt, lock: RwLock) {
    let writer = match lock.write().await {
        Ok(writer) => writer,
        Err(error) => return section::failed(&turn, attempt, &error).await,
    };
    held_for_a_moment(&mut turn, attempt, &writer, Share::Exclusive).await;
    let reader = writer.downgrade();
    turn.shift.sleep(Duration::from_micros(turn.random.below(20_000))).await;
    turn.shift.count(if reader.check().is_ok() { "downgraded" } else { "downgraded and lost" });
}

/// Reads, and becomes a writer if the other readers go in time.
async fn upgrade(mut turn: Turn<'_>, attempt: Attempt, lock: RwLock, lease: Duration) {
    let reader = match give_up(&mut turn, lock.upgradeable_read()).await {
        Ok(Some(reader)) => reader,
        asked => return play(turn, attempt, asked, GaveUp::Cancelled, lease).await,
    };
    held_for_a_moment(&mut turn, attempt, &reader, Share::Shared(1)).await;
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    let wait = wait(&mut turn);
    match reader.try_upgrade_for(wait).await {
        Ok(Ok(writer)) => {
            turn.shift.count("upgraded");
            play(turn, attempt, Ok(Some(writer)), GaveUp::TimedOut, lease).await;
        }
        Ok(Err(reader)) => {
            drop(reader);
            section::gave_up(&turn, attempt, GaveUp::TimedOut);
        }
        Err(error) => section::failed(&turn, attempt, &error).await,
    }
}

/// Takes one or several permits.
async fn acquire(mut turn: Turn<'_>) {
    let lease = lease(&mut turn);
    let semaphore = turn.client.semaphore(turn.name, PERMITS).lease(lease);
    let units = u32::try_from(turn.random.within(1, 10)).map_or(1, |roll| if roll > PERMITS { 1 } else { roll });
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    turn.doing("acquire");
    let (asked, why) = ask(&mut turn, &semaphore, units).await;
    let asked = asked.map(|permit| permit.map(|permit| Permits { permit, units }));
    play(turn, attempt, asked, why, lease).await;
}

async fn ask(turn: &mut Turn<'_>, semaphore: &Semaphore, units: u32) -> (Result<Option<leasehold::Permit>>, GaveUp) {
    match turn.random.below(10) {
        0..6 => (semaphore.acquire_many(units).await.map(Some), GaveUp::Cancelled),
        6 => (semaphore.try_acquire_many(units).await, GaveUp::Busy),
        7 | 8 => (semaphore.try_acquire_many_for(units, wait(turn)).await, GaveUp::TimedOut),
        _ => (give_up(turn, semaphore.acquire_many(units)).await, GaveUp::Cancelled),
    }
}
