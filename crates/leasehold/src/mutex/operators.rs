//! The operations for operators: inspect and revoke.

use std::time::Duration;

use leasehold_spec::limits::REVOKE_GRACE_MS;
use leasehold_spec::{Op, Outcome};

use super::Mutex;
use crate::error::{Error, Operation, Result};
use crate::inspection::{Holder, Inspection, Revoked};

impl Mutex {
    /// Returns who holds the lock, with which token, for how long, and the length of the queue. It takes one round trip
    /// and changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Invalid`, `Unreachable`, `Quorum`, `Foreign`, `Denied`, `Unsupported`, `Closed`.
    pub async fn inspect(&self) -> Result<Inspection> {
        let failed = |error: Error| self.failed(Operation::Inspect, error);
        let name = self.name().map_err(failed)?;
        let (inspection, nodes) = self.client.session().inspect(name).await.map_err(failed)?;
        let waiters = usize::try_from(inspection.waiters).unwrap_or(usize::MAX);
        Ok(Inspection { holder: inspection.holder.map(Holder::from), waiters, nodes })
    }

    /// Takes the lease away from the holder that [`Mutex::inspect`] returned. It takes one round trip. A later holder
    /// is not affected.
    ///
    /// The store notifies the holder at once. The lease ends when the holder releases it, and at the latest after
    /// `grace` (at most 5 s; zero ends it at once). The next waiter holds the lock within 1 s after that, even if the
    /// former holder is stopped, and even if the program that revoked has ended.
    ///
    /// Two messages can get lost:
    ///
    /// - The message to the holder. The holder then learns of the revocation at its next renewal, up to a third of its
    ///   lease later. The next holder may work at the same time. Only a fence keeps the two apart.
    /// - The messages to the waiters. The store notifies the first waiters of two clients. If both clients die within
    ///   the grace, or both messages are lost, the lock is handed on at the next re-check of any waiter. A waiter
    ///   re-checks after at most 40 % of the lease that it asked for, and at most 6 s.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease may or may not be revoked.
    ///
    /// # Errors
    ///
    /// See [`Mutex::inspect`]. Also `Invalid` for a longer grace.
    pub async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        let failed = |error: Error| self.failed(Operation::Revoke, error);
        let grace_ms = grace.as_millis();
        if grace_ms > u128::from(REVOKE_GRACE_MS) {
            let message = format!("a grace of {grace:?} is too long: use at most {REVOKE_GRACE_MS} ms");
            return Err(failed(Error::invalid(message)));
        }
        let op = Op::Revoke { holder: holder.id, token: holder.token, grace_ms: grace_ms as u64 };
        let name = self.name().map_err(failed)?;
        match self.client.session().ask_once(name, op).await.map_err(failed)? {
            Outcome::Revoking { left_us } => Ok(Revoked::Within(Duration::from_micros(left_us))),
            _ => Ok(Revoked::NotHeld),
        }
    }
}
