//! The condition variable.

mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::{Take, Token};

pub use self::wait::Woken;
use crate::acquirer::Acquirer;
use crate::error::Result;
use crate::guard::Guard;
use crate::reentry::Handle;
use crate::rwlock::WriteGuard;
use crate::session::Wait;

/// A condition variable: a holder of a lock releases it, waits until another holder has changed something, and holds the
/// lock again.
///
/// Use it if programs wait for a state that a lock protects: a queue that is not empty, a job that is done. If they wait
/// only for the lock, use the lock. If nothing is protected and a state is reached only once, use a
/// [`Latch`](crate::Latch).
///
/// A condition variable belongs to no lock in the store. It works with the guards of a [`Mutex`](crate::Mutex) and with
/// write guards of an [`RwLock`](crate::RwLock), of any client and any store. All programs must use the same lock with it.
/// In one store, the lock and the condition variable need different names.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// # async fn is_empty() -> bool { false }
/// let (mutex, not_empty) = (leasehold.mutex("jobs"), leasehold.condvar("jobs: not empty"));
/// // The consumer: the condition is asked for under the lock, before each wait.
/// let guard = not_empty.wait_while(mutex.lock().await?, |_token| is_empty()).await?;
/// guard.check()?; // take a job
/// guard.release().await?;
/// // The producer changes the state under the lock, and notifies.
/// let guard = mutex.lock().await?; // add a job
/// not_empty.notify_one().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # What is promised
///
/// - A notification that is made after the caller of a wait has checked its condition under the lock is not missed: the
///   waiter stands in the queue before the lock is free.
/// - Waiters are notified first come, first served. A notification without a waiter does nothing.
/// - A notification is a lease of its receiver, until the receiver has the lock again. If the receiver dies before, the
///   next waiter is notified: within about 1 s if the receiver did not wake up, and otherwise when that lease ends. On
///   `file:` it is notified at once.
/// - A wake-up can be spurious, as with every condition variable: if a message was lost or the store has restarted, the
///   waiter may have missed a notification, so it wakes up. Check the condition again: prefer [`Condvar::wait_while`].
///
/// A condition variable is cheap to create and to clone. Creating one does no I/O, and the first call reports an invalid
/// name. A quorum has no condition variables, and refuses the first call with `Unsupported`.
#[derive(Clone)]
pub struct Condvar {
    acquirer: Acquirer,
}

/// A guard with which a caller can wait: [`Guard`], [`WriteGuard`], and those of the module `blocking`. It is sealed.
pub trait CondvarGuard: sealed::Sealed {}

pub(crate) mod sealed {
    /// A lease, which no other crate sees.
    #[expect(missing_debug_implementations, reason = "no other crate gets one")]
    pub struct Inner(pub(crate) crate::lease::Lease);

    /// Guards that are made of a lease.
    pub trait Sealed: Sized {
        #[doc(hidden)]
        fn into_inner(self) -> Inner;
        #[doc(hidden)]
        fn of_inner(inner: Inner) -> Self;
    }
}

/// Lets a caller wait with these guards.
macro_rules! condvar_guard {
    ($($guard:ty),*) => {
        $(
            impl crate::condvar::CondvarGuard for $guard {}

            impl crate::condvar::sealed::Sealed for $guard {
                fn into_inner(self) -> crate::condvar::sealed::Inner {
                    crate::condvar::sealed::Inner(self.0)
                }

                fn of_inner(inner: crate::condvar::sealed::Inner) -> Self {
                    Self(inner.0)
                }
            }
        )*
    };
}
#[cfg(feature = "blocking")]
pub(crate) use condvar_guard;

impl Condvar {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        Self { acquirer: Acquirer::new(client, name, Take::NOTIFICATION) }
    }

    /// Releases the guard, waits for a notification, and returns a new guard of the same lock. The lock is acquired on the
    /// terms and with the owner of the earlier guard. The token is a new one, unless the wait ends before it has
    /// released the lock.
    ///
    /// It takes one round trip before the lock is free, and one after the notification if the lock is free then. A caller
    /// must check its condition again: see [`Condvar::wait_while`]. A condition that can fail needs a loop of its own:
    ///
    /// ```
    /// # async fn example(condvar: leasehold::Condvar, mut guard: leasehold::Guard) -> leasehold::Result<()> {
    /// # async fn is_empty() -> leasehold::Result<bool> { Ok(false) }
    /// while is_empty().await? {
    ///     guard = condvar.wait(guard).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released, and a notification that was received passes on to the next waiter.
    ///
    /// # Errors
    ///
    /// After each error the lock is not held, and the caller waits no more.
    ///
    /// - `Lost`: the guard was lost before the caller stood in the queue, so the state may have changed unnoticed. Lock
    ///   again, and check the condition.
    /// - `Invalid`: other guards of the same [owner](crate::Mutex::owner) hold the lock, or the name is invalid.
    /// - `Mismatch`: the name is no condition variable. `Full`: 10,000 callers wait.
    /// - Those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn wait<G: CondvarGuard>(&self, guard: G) -> Result<G> {
        Ok(self.wait_until(guard, Wait::ForEver).await?.0)
    }

    /// Waits while the condition is true, and returns the guard once it is false. The condition is called with the token,
    /// while the lock is held: before the first wait and after each wait.
    ///
    /// # Cancel safety
    ///
    /// See [`Condvar::wait`].
    ///
    /// # Errors
    ///
    /// See [`Condvar::wait`].
    pub async fn wait_while<G: CondvarGuard, F: Future<Output = bool>>(
        &self,
        guard: G,
        condition: impl FnMut(Token) -> F,
    ) -> Result<G> {
        Ok(self.wait_while_until(guard, condition, Wait::ForEver).await?.0)
    }

    /// Waits like [`Condvar::wait`], for at most `wait`. The lock is held again in both cases, so the call may take longer
    /// than `wait`.
    ///
    /// # Cancel safety
    ///
    /// See [`Condvar::wait`].
    ///
    /// # Errors
    ///
    /// See [`Condvar::wait`].
    pub async fn wait_for<G: CondvarGuard>(&self, guard: G, wait: Duration) -> Result<(G, Woken)> {
        self.wait_until(guard, self.acquirer.wait_for(wait)).await
    }

    /// Waits like [`Condvar::wait_while`], for at most `wait` in total. If the result says `TimedOut`, the condition is
    /// still true.
    ///
    /// # Cancel safety
    ///
    /// See [`Condvar::wait`].
    ///
    /// # Errors
    ///
    /// See [`Condvar::wait`].
    pub async fn wait_while_for<G: CondvarGuard, F: Future<Output = bool>>(
        &self,
        guard: G,
        condition: impl FnMut(Token) -> F,
        wait: Duration,
    ) -> Result<(G, Woken)> {
        self.wait_while_until(guard, condition, self.acquirer.wait_for(wait)).await
    }

    /// Notifies the waiter that came first, and returns whether there was one. One round trip.
    ///
    /// Call it while you hold the lock, or after you have released it: a waiter that checked its condition before your
    /// change stands in the queue already.
    ///
    /// While the store is unreachable, the request is repeated for at most the lease. A repeat can wake another waiter for
    /// nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the waiter may have been notified. The request is not repeated then.
    ///
    /// # Errors
    ///
    /// - `Unreachable`: the store did not reply in the time above. Notify again, because nobody knows whether a waiter was
    ///   notified.
    /// - `Mismatch`: the name is no condition variable.
    /// - Those of [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn notify_one(&self) -> Result<bool> {
        Ok(self.acquirer.notify(1).await? > 0)
    }

    /// Notifies all waiters, and returns how many waited. Dead waiters count until their turn comes. One round trip.
    ///
    /// The waiters acquire the lock one after the other. If only one of them can use the change, call
    /// [`Condvar::notify_one`].
    ///
    /// # Cancel safety
    ///
    /// See [`Condvar::notify_one`].
    ///
    /// # Errors
    ///
    /// See [`Condvar::notify_one`].
    pub async fn notify_all(&self) -> Result<usize> {
        Ok(self.acquirer.notify(u32::MAX).await? as usize)
    }

    /// Sets the lease of notifications, from 100 ms to 24 h. If the receiver of a notification dies while it acquires the
    /// lock, the next waiter is notified after this time. Default: the lease of the client, see [`crate::Builder::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { acquirer: self.acquirer.lease(lease) }
    }

    async fn wait_until<G: CondvarGuard>(&self, guard: G, wait: Wait) -> Result<(G, Woken)> {
        let (lease, woken) = wait::wait(&self.acquirer, guard.into_inner().0, wait).await?;
        Ok((G::of_inner(sealed::Inner(lease)), woken))
    }

    async fn wait_while_until<G: CondvarGuard, F: Future<Output = bool>>(
        &self,
        guard: G,
        mut condition: impl FnMut(Token) -> F,
        wait: Wait,
    ) -> Result<(G, Woken)> {
        let (mut lease, mut woken) = (guard.into_inner().0, Woken::Notified);
        while condition(lease.token()).await {
            if woken == Woken::TimedOut {
                return Ok((G::of_inner(sealed::Inner(lease)), woken));
            }
            (lease, woken) = wait::wait(&self.acquirer, lease, wait).await?;
        }
        Ok((G::of_inner(sealed::Inner(lease)), Woken::Notified))
    }
}

condvar_guard!(Guard, WriteGuard);

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquirer.fmt_as("Condvar", f)
    }
}
