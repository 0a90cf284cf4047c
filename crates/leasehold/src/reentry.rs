//! Re-entry: the guards of one owner share one lease, and are counted here.
//!
//! Nothing of it goes over the wire, and the session knows of no owner: to it and to the store the guards of an owner are
//! one hold. Two things follow, and make the gate that stands before the session for each (name, owner):
//!
//! - **All tasks of an owner share one attempt.** Two of them that lock at the same time must not both go to the store: the
//!   second would wait there for the first, which has no reason to give back, and may be waiting for the second. So the
//!   first one begins an attempt on its own terms, and any of them that is polled drives it: none depends on the runtime
//!   of another (P17). The grant belongs to the first one, and the others re-enter it. If the attempt failed they begin
//!   another one.
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

use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};
use leasehold_spec::Name;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use crate::client::Handle;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::owner::Owner;
use crate::session::{Hold, Session, Terms, Wait};
use crate::sync::{AtomicU64, Mutex, MutexGuard};
use crate::world::Pending;

/// The gates of one client.
#[derive(Default)]
pub(crate) struct Gates(Mutex<HashMap<Key, Weak<Gate>>>);

type Key = (Name, Owner);

/// Where the tasks of one owner meet for one name.
struct Gate {
    client: Arc<Handle>,
    key: Key,
    /// The attempt that is under way, while a task waits for it.
    attempt: Mutex<Option<WeakShared<Pending<Outcome>>>>,
    /// What this owner holds.
    held: Mutex<Weak<Share>>,
}

/// The result of an attempt that tasks share. It belongs to the task that began the attempt, as what a waiter was granted
/// does: the others enter the lease as well. If that task has given up, the next task that is polled takes the grant.
#[derive(Clone)]
struct Outcome {
    result: Arc<Mutex<Option<Entered>>>,
    beginner: Weak<()>,
}

/// `None`: somebody else holds.
type Entered = Result<Option<Arc<Share>>>;

/// How a task gets in.
enum Way {
    /// By the lease that its owner holds.
    ReEnter(Arc<Share>),
    /// By an attempt that it has begun, for as long as it keeps the second part.
    Own(Shared<Pending<Outcome>>, Arc<()>),
    /// By an attempt that another task has begun.
    Anothers(Shared<Pending<Outcome>>),
}

impl Outcome {
    /// Takes the result, for the task that began the attempt.
    fn take(&self) -> Option<Entered> {
        lock(&self.result).take()
    }

    /// Returns what was granted, for another task.
    fn granted(&self) -> Option<Arc<Share>> {
        let mut result = lock(&self.result);
        let Some(Ok(Some(share))) = &*result else { return None };
        match self.beginner.strong_count() {
            0 => result.take()?.ok()?,
            _ => Some(Arc::clone(share)),
        }
    }
}

/// What the guards of an owner share. The last one to go gives it back.
pub(crate) struct Share {
    hold: Arc<Hold>,
    /// The longest lease that was asked for.
    lease_ms: AtomicU64,
    gate: Arc<Gate>,
}

/// Re-enters what the owner holds, or acquires it. Returns `None` if `wait` is over before this owner holds.
///
/// Dropping the future of the last task that waits for an attempt gives the attempt up.
pub(crate) async fn enter(
    client: &Arc<Handle>,
    (name, owner): (&Name, &Owner),
    terms: &Arc<Terms>,
    wait: Wait,
) -> Result<Option<Arc<Share>>> {
    // Before any lock of ours: in a forked child it is as one of the parent's threads has left it.
    client.session().check_usable()?;
    let gate = Gate::of(client, name, owner);
    // What another task was granted, until this one has entered.
    let mut granted = None;
    loop {
        let way = match gate.way(terms, wait) {
            // It was lost meanwhile, and no other guard of it is out.
            Err(_) if granted.take().is_some() => continue,
            way => way?,
        };
        match way {
            Way::ReEnter(share) => return Ok(Some(share)),
            Way::Own(attempt, _beginner) => match attempt.await.take() {
                Some(Ok(Some(share))) if share.hold.check().is_ok() => return Ok(Some(share)),
                // It was granted and lost before this task was polled.
                Some(Ok(Some(_))) | None => {}
                Some(said) => return said,
            },
            Way::Anothers(attempt) => {
                let Some(outcome) = within(client.session(), wait, attempt).await? else { return Ok(None) };
                hit(Mark::SharedAttempt);
                granted = outcome.granted();
            }
        }
    }
}

/// Waits for another task's attempt. Returns `None` if `wait` is over before that.
async fn within(session: &Session, wait: Wait, attempt: Shared<Pending<Outcome>>) -> Result<Option<Outcome>> {
    let outcome = match wait {
        Wait::No => None,
        Wait::ForEver => Some(attempt.await),
        Wait::Until { until_us } => {
            let left_us = until_us.saturating_sub(session.world.now_us());
            session.within(left_us, attempt).await
        }
    };
    if outcome.is_none() {
        session.check_open()?;
    }
    Ok(outcome)
}

impl Gate {
    fn of(client: &Arc<Handle>, name: &Name, owner: &Owner) -> Arc<Self> {
        let key = (name.clone(), owner.clone());
        let mut gates = client.gates().lock();
        gates.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let client = Arc::clone(client);
            let gate = Arc::new(Self { client, key: key.clone(), attempt: Mutex::default(), held: Mutex::default() });
            gates.insert(key, Arc::downgrade(&gate));
            gate
        })
    }

    /// Finds what this owner holds, or the attempt that is under way, or begins one.
    fn way(self: &Arc<Self>, terms: &Arc<Terms>, wait: Wait) -> Result<Way> {
        let mut known = lock(&self.attempt);
        let attempt = known.as_ref().and_then(WeakShared::upgrade).filter(|attempt| attempt.peek().is_none());
        // In this order: a hold is known before the attempt that has won it is over.
        if let Some(share) = self.re_enter(terms)? {
            return Ok(Way::ReEnter(share));
        }
        if let Some(attempt) = attempt.filter(|_| !is_on(Mutant::P16NoTurns)) {
            return Ok(Way::Anothers(attempt));
        }
        let (gate, terms) = (Arc::clone(self), Arc::clone(terms));
        let begun_by = Arc::new(());
        let beginner = Arc::downgrade(&begun_by);
        let acquire: Pending<Outcome> = Box::pin(async move {
            let acquired = gate.client.session().acquire(&gate.key.0, &terms, wait).await;
            let entered = acquired.map(|hold| hold.map(|hold| gate.begin(hold, &terms)));
            Outcome { result: Arc::new(Mutex::new(Some(entered))), beginner }
        });
        let attempt = acquire.shared();
        *known = attempt.downgrade();
        Ok(Way::Own(attempt, begun_by))
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
    let message =
        format!("this owner's lease was lost, and a guard of it is still out: drop it before it locks again ({lost})");
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
