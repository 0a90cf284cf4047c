//! The read-write lock: readers, writers, and readers that become writers.

use leasehold::Error;
use leasehold_spec::limits::GRANTS_MAX;
use leasehold_testkit::history::{Ended, Share};

use super::super::super::names::Class;
use super::super::section;
use super::super::turn::Turn;
use super::pool::{Way, lease, run};
use super::table::{Primitive, Taken};

pub(super) const PRIMITIVE: Primitive = Primitive {
    classes: &[Class::Rw],
    limit: GRANTS_MAX,
    act: |turn| Box::pin(act(turn)),
    take_all: |client, name, (lease, wait)| {
        let lock = client.rw_lock(name).lease(lease);
        Box::pin(async move { Ok(lock.try_write_for(wait).await?.map(Taken::by)) })
    },
};

#[derive(Clone, Copy)]
enum As {
    Reader,
    Writer,
    Upgraded,
}

async fn act(mut turn: Turn<'_>) {
    let (lease, way) = (lease(&mut turn), Way::pick(&mut turn));
    let lock = turn.client.rw_lock(turn.name);
    let lock = if turn.random.chance(10) { lock.fixed_lease(lease) } else { lock.lease(lease) };
    match turn.random.weighted(&[(60, As::Reader), (30, As::Writer), (10, As::Upgraded)]) {
        As::Reader => {
            turn.doing("read");
            run(turn, (way, lease), lock.read(), async |wait| lock.try_read_for(wait).await, lock.try_read()).await;
        }
        As::Writer => {
            turn.doing("write");
            run(turn, (way, lease), lock.write(), async |wait| lock.try_write_for(wait).await, lock.try_write()).await;
        }
        As::Upgraded => upgrade(turn, &lock, lease).await,
    }
}

/// Reads, and becomes a writer.
async fn upgrade(turn: Turn<'_>, lock: &leasehold::RwLock, lease: std::time::Duration) {
    turn.doing("upgradeable_read");
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    let reader = match lock.upgradeable_read().await {
        Ok(reader) => reader,
        Err(error) => return section::failed(&turn, attempt, &error).await,
    };
    let held = attempt.share(Share::Shared(1)).granted(reader.token().get());
    held.claims(|| reader.check().is_ok());
    // Later reads are not judged: the store ends this grant at some moment of the upgrade.
    held.ended(reader.check().err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason()))));
    // The history knows the writer as a client of its own. So does the record of what ends with a runtime.
    let (writer, shift) = (format!("{}/upgraded", turn.me), turn.shift);
    let turn = Turn { me: &writer, ..turn };
    turn.doing("upgrade");
    let attempt = turn.shift.recorder.attempt(turn.name, turn.me);
    let upgraded: Result<_, Error> = reader.upgrade().await;
    match upgraded {
        Ok(guard) => section::run(turn, attempt, vec![guard], lease).await,
        Err(error) => section::failed(&turn, attempt, &error).await,
    }
    shift.idle(&writer);
}
