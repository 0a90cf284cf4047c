//! The handle of a client, and re-entry: the guards of one owner share one lease, and are counted here.
//!
//! Nothing of re-entry is sent to the store, and the session knows no owners: to both, the guards of an owner are one hold.
//! For each name and owner there is a gate in front of the session, with two rules:
//!
//! - **One task asks, the others wait for its result.** If two tasks of one owner lock at the same time, they must not both
//!   ask the store: the second would wait there for the first, which has no reason to release, and may be waiting for the
//!   second. So a gate has a turn. The task that has the turn asks the store. The next task finds the hold, or asks in its
//!   place. Dropping a future at any point gives up its turn.
//! - **The last guard releases.** The guards share the hold by reference count, and the end of the last one is the release.
//!   From that moment on a new lock finds no hold, and asks the store after that release: nobody enters a lease that is
//!   being released.
//!
//! A lost hold is not entered (P16), and not replaced while a guard of it is out: a second guard with a new token would
//! suggest to the owner that its work under the first was exclusive until now. It was not.
//!
//! A gate lives as long as a task waits at it or holds by it, so an owner that is gone leaves nothing.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use leasehold_spec::Name;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::{Mutex as Turns, MutexGuard as Turn};

use crate::error::{Error, ErrorKind, Result};
use crate::lost::Lost;
use crate::owner::Owner;
use crate::session::{Hold, Session, Terms, Wait};
use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// The part that clones, mutexes and guards share. Dropping the last handle closes the session.
pub(crate) struct Handle {
    session: Session,
    lease: Duration,
    label: Arc<str>,
    gates: Gates,
}

impl Handle {
    pub(crate) fn new(session: Session, lease: Duration, label: Arc<str>) -> Self {
        Self { session, lease, label, gates: Gates::default() }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.label)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.begin_close();
    }
}

/// The gates of one client.
#[derive(Default)]
pub(crate) struct Gates(Mutex<HashMap<Key, Weak<Gate>>>);

type Key = (Name, Owner);

/// The meeting point of the tasks of one owner for one name.
struct Gate {
    client: Arc<Handle>,
    key: Key,
    /// The task that has it asks the store. First come, first served.
    turn: Turns<()>,
    /// The hold of this owner. It is not under the turn, which is taken as long as a task waits: re-entry must not wait.
    held: Mutex<Weak<Share>>,
}

/// The lease that the guards of an owner share. The last guard releases it.
pub(crate) struct Share {
    hold: Arc<Hold>,
    /// The longest lease of its guards.
    lease_ms: AtomicU64,
    gate: Arc<Gate>,
}

/// Enters again the lock that the owner holds, or acquires it. `None`: somebody else holds it, or another task of this
/// owner is acquiring it, and `wait` is over.
///
/// If the future is dropped, the next task gets the turn, and the attempt is given up.
pub(crate) async fn enter(
    client: &Arc<Handle>,
    (name, owner): (&Name, &Owner),
    terms: &Arc<Terms>,
    wait: Wait,
) -> Result<Option<Arc<Share>>> {
    // This comes before any mutex: in a forked child a mutex is as one of the parent's threads has left it.
    client.session().check_usable()?;
    let gate = Gate::of(client, name, owner);
    if let Some(share) = gate.re_enter(terms)? {
        return Ok(Some(share));
    }
    let turn = match is_on(Mutant::P16NoTurns) {
        true => None,
        false => match gate.turn(wait).await? {
            None => return Ok(None),
            turn => turn,
        },
    };
    // The task that had the turn before may hold by now.
    if let Some(share) = gate.re_enter(terms)? {
        hit(Mark::TurnFoundHold);
        return Ok(Some(share));
    }
    let hold = client.session().acquire(name, terms, wait).await?;
    let share = hold.map(|hold| gate.begin(hold, terms));
    drop(turn);
    Ok(share)
}

impl Gate {
    fn of(client: &Arc<Handle>, name: &Name, owner: &Owner) -> Arc<Self> {
        let key = (name.clone(), owner.clone());
        let mut gates = client.gates.lock();
        gates.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (client, turn, held) = (Arc::clone(client), Turns::new(()), Mutex::default());
            let gate = Arc::new(Self { client, key: key.clone(), turn, held });
            gates.insert(key, Arc::downgrade(&gate));
            gate
        })
    }

    /// Returns the hold of this owner, if there is one. No round trip.
    fn re_enter(&self, terms: &Terms) -> Result<Option<Arc<Share>>> {
        let held = lock(&self.held).upgrade();
        let Some(share) = held else { return Ok(None) };
        match share.hold.check() {
            Err(lost) if !is_on(Mutant::P16ReentersLost) => {
                self.client.session().check_open()?;
                hit(Mark::ReEntryRefused);
                Err(lost_before(lost))
            }
            _ => {
                self.client.session().check_lease(terms.lease_ms)?;
                hit(Mark::ReEntered);
                share.lengthen(terms.lease_ms);
                Ok(Some(share))
            }
        }
    }

    async fn turn(&self, wait: Wait) -> Result<Option<Turn<'_, ()>>> {
        if let Ok(turn) = self.turn.try_lock() {
            return Ok(Some(turn));
        }
        let session = self.client.session();
        let turn = match wait {
            Wait::No => None,
            Wait::ForEver => session.while_open(self.turn.lock()).await,
            Wait::Until { until_us } => {
                let left_us = until_us.saturating_sub(session.world.now_us());
                session.while_open(session.within(left_us, self.turn.lock())).await.flatten()
            }
        };
        if turn.is_none() {
            session.check_open()?;
        }
        Ok(turn)
    }

    fn begin(self: &Arc<Self>, hold: Arc<Hold>, terms: &Terms) -> Arc<Share> {
        let share = Arc::new(Share { hold, lease_ms: AtomicU64::new(terms.lease_ms), gate: Arc::clone(self) });
        *lock(&self.held) = Arc::downgrade(&share);
        share
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.client.session().is_ours() {
            return;
        }
        let mut gates = self.client.gates.lock();
        // Another gate may be in its place: a task made it after the last user of this gate was gone, and before this.
        let is_gone = |gate: &Weak<Self>| gate.strong_count() == 0 || is_on(Mutant::P16DropsAnothersGate);
        if gates.get(&self.key).is_some_and(is_gone) {
            gates.remove(&self.key);
        }
    }
}

impl Share {
    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn client(&self) -> &Arc<Handle> {
        &self.gate.client
    }

    /// Returns the owner whose guards share the lease.
    pub(crate) fn owner(&self) -> &Owner {
        &self.gate.key.1
    }

    fn lengthen(&self, lease_ms: u64) {
        if self.lease_ms.fetch_max(lease_ms, Ordering::AcqRel) < lease_ms {
            self.client().session().lengthen(&self.hold, lease_ms);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.client().session().drop_hold(&self.hold);
    }
}

impl Gates {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Gate>>> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost_before(lost: Lost) -> Error {
    let reason = lost.reason();
    let message = format!(
        "the lease of this owner was lost ({reason}), and a guard of it still exists: drop that guard before you lock \
         again"
    );
    Error::new(ErrorKind::Lost, message).because(lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Leasehold;

    fn gates(client: &Leasehold) -> usize {
        client.handle().gates.lock().len()
    }

    fn block_on(future: impl Future<Output = Result<()>>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future).unwrap();
    }

    #[test]
    fn owners_that_have_gone_leave_nothing() {
        block_on(async {
            let client = Leasehold::connect("memory:").await?;
            for number in 0..100_000_u32 {
                let mutex = client.mutex(format!("name {}", number % 7)).owner(&Owner::new());
                let outer = mutex.lock().await?;
                let inner = mutex.lock().await?;
                assert_eq!(gates(&client), 1);
                // By either way, and in either order.
                let (first, last) = if number % 2 == 0 { (outer, inner) } else { (inner, outer) };
                let _ = first.release().await?;
                drop(last);
                assert_eq!(gates(&client), 0);
            }
            Ok(())
        });
    }

    #[test]
    fn who_gave_up_or_was_refused_leaves_nothing() {
        block_on(async {
            let client = Leasehold::connect("memory:").await?;
            let held = client.mutex("a").lock().await?;
            let mutex = client.mutex("a").owner(&Owner::new());
            assert!(mutex.try_lock().await?.is_none());
            assert_eq!(gates(&client), 0);
            let mut waiting = [Box::pin(mutex.lock()), Box::pin(mutex.lock())];
            for waiting in &mut waiting {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(waiting.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(gates(&client), 1, "they meet at one");
            drop(waiting);
            assert_eq!(gates(&client), 0);
            drop(held);
            let panics = std::panic::AssertUnwindSafe(mutex.lock().await?);
            let panicked = std::panic::catch_unwind(move || {
                let _guard = panics;
                std::panic::resume_unwind(Box::new("the work gives up"));
            });
            assert!(panicked.is_err());
            assert_eq!(gates(&client), 0);
            drop(client.mutex("a").lock().await?);
            Ok(())
        });
    }
}
