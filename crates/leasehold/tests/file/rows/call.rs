//! Calls about a name whose rows were changed.

use std::time::Duration;

use leasehold::{Error, ErrorKind, Leasehold, Result};

use super::scene::Props;

const BRIEF: Duration = Duration::from_millis(3);

/// A call after the change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Lock,
    LockFairly,
    Inspect,
    Names,
    Revoke,
    Read,
    Upgradeable,
    Write,
    Acquire,
    AcquireAll,
    Resize,
    NotifyOne,
    NotifyAll,
    Remaining,
    CountDown,
    Create,
    Delete,
    Await,
    Arrive,
    GiveBack,
    StopWaiting,
}

pub(super) const CALLS: &[Call] = &[
    Call::Lock,
    Call::LockFairly,
    Call::Inspect,
    Call::Names,
    Call::Revoke,
    Call::Read,
    Call::Upgradeable,
    Call::Write,
    Call::Acquire,
    Call::AcquireAll,
    Call::Resize,
    Call::NotifyOne,
    Call::NotifyAll,
    Call::Remaining,
    Call::CountDown,
    Call::Create,
    Call::Delete,
    Call::Await,
    Call::Arrive,
    Call::GiveBack,
    Call::StopWaiting,
];

/// The error names the state of the lock, or the damage: it sends nobody to look at a disk or at a network.
pub(super) fn assert_clear(error: &Error, call: Call) {
    let is_clear = match error.kind() {
        ErrorKind::Store => error.to_string().contains("invalid record"),
        ErrorKind::Unreachable | ErrorKind::Quorum | ErrorKind::Denied | ErrorKind::Foreign => false,
        _ => true,
    };
    assert!(is_clear, "{call:?}: {:?}: {error}", error.kind());
}

impl Call {
    pub(super) async fn make(self, client: &Leasehold, name: &str, props: &mut Props) -> Result<()> {
        match self {
            Self::Lock => client.mutex(name).try_lock().await.map(drop),
            Self::LockFairly => client.mutex(name).fair().try_lock_for(BRIEF).await.map(drop),
            Self::Inspect => client.mutex(name).inspect().await.map(drop),
            Self::Names => client.names().await.map(drop),
            Self::Revoke => {
                let mutex = client.mutex(name);
                match mutex.inspect().await?.holder() {
                    Some(holder) => mutex.revoke(holder, Duration::ZERO).await.map(drop),
                    None => Ok(()),
                }
            }
            Self::Read => client.rw_lock(name).try_read_for(BRIEF).await.map(drop),
            Self::Upgradeable => client.rw_lock(name).try_upgradeable_read_for(BRIEF).await.map(drop),
            Self::Write => client.rw_lock(name).try_write_for(BRIEF).await.map(drop),
            Self::Acquire => client.semaphore(name, 3).try_acquire_for(BRIEF).await.map(drop),
            Self::AcquireAll => client.semaphore(name, 3).try_acquire_many_for(3, BRIEF).await.map(drop),
            Self::Resize => client.semaphore(name, 3).resize(2).await.map(drop),
            Self::NotifyOne => client.condvar(name).notify_one().await.map(drop),
            Self::NotifyAll => client.condvar(name).notify_all().await.map(drop),
            Self::Remaining => client.latch(name).remaining().await.map(drop),
            Self::CountDown => client.latch(name).count_down_as("a part").await,
            Self::Create => client.latch(name).create(2).await,
            Self::Delete => client.latch(name).delete().await,
            Self::Await => client.latch(name).wait_for(BRIEF).await.map(drop),
            Self::Arrive => client.barrier(name, 3).wait_for(BRIEF).await.map(drop),
            Self::GiveBack => {
                props.guards.pop();
                Ok(())
            }
            Self::StopWaiting => {
                props.waiting.pop().into_iter().for_each(|task| task.abort());
                Ok(())
            }
        }
    }
}
