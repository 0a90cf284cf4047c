//! Re-entry: the guards of one owner share one lease, and are counted here.
//!
//! Nothing of it goes over the wire, and the session knows of no owner: to it and to the store the guards of an owner are
//! one hold. Two things follow, and make the gate that stands before the session for each (name, owner):
//!
//! - **One goes, the others wait for what becomes of it.** Two tasks of one owner that lock at the same time must not both
//!   go to the store: the second would wait there for the first, which has no reason to give back, and may be waiting for
//!   the second. So there is a turn: who has it asks the store, and who gets it next finds the hold, or asks in its place.
//!   Giving up is dropping the turn, wherever the future stands.
//! - **The last one gives back.** The guards share the hold by reference count, and its end is the release. A new lock
//!   finds no hold from that moment on, and goes to the store behind that release: nothing of a lease that is being given
//!   back is ever entered.
//!
//! A lost hold is not entered either (P16), and not replaced while a guard of it is out: a second guard with a new token
//! would make the owner believe that what it did under the first was exclusive up to now. It was not.
//!
//! A gate lives as long as somebody is at it or holds by it: an owner that has gone leaves nothing.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use leasehold_spec::Name;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::{Mutex as Turns, MutexGuard as Turn};

use crate::client::Handle;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::owner::Owner;
use crate::session::{Hold, Terms, Wait};
use crate::sync::{AtomicU64, Mutex, MutexGuard};

/// The gates of one client.
#[derive(Default)]
pub(crate) struct Gates(Mutex<HashMap<Key, Weak<Gate>>>);

type Key = (Name, Owner);

/// Where the tasks of one owner meet for one name.
struct Gate {
    client: Arc<Handle>,
    key: Key,
    /// Whoever has it asks the store. First come, first served.
    turn: Turns<()>,
    /// What this owner holds. Apart from the turn, which is taken for as long as somebody waits: re-entry asks nobody.
    held: Mutex<Weak<Share>>,
}

/// What the guards of an owner share. The last one to go gives it back.
pub(crate) struct Share {
    hold: Arc<Hold>,
    /// The longest lease that was asked for.
    lease_ms: AtomicU64,
    gate: Arc<Gate>,
}

/// Enters again what the owner holds, or acquires it. `None`: somebody else holds, or another of this owner is on its way,
/// and `wait` is over.
///
/// Dropping the future gives the turn to the next, and gives up what was asked for.
pub(crate) async fn enter(
    client: &Arc<Handle>,
    (name, owner): (&Name, &Owner),
    terms: &Arc<Terms>,
    wait: Wait,
) -> Result<Option<Arc<Share>>> {
    // Before any lock of ours: in a forked child it is as one of the parent's threads has left it.
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
    // Whoever had the turn before may hold by now.
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
        let mut gates = client.gates().lock();
        gates.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let (client, turn, held) = (Arc::clone(client), Turns::new(()), Mutex::default());
            let gate = Arc::new(Self { client, key: key.clone(), turn, held });
            gates.insert(key, Arc::downgrade(&gate));
            gate
        })
    }

    /// What this owner holds, if it does; no round trip.
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
        let mut gates = self.client.gates().lock();
        // Another may stand in its place: whoever came after the last one had gone, and before this, has made it.
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
        client.handle().gates().lock().len()
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
