//! Data of this process behind a gate.

use std::sync::PoisonError;

use leasehold_spec::Token;

use super::gate::{Access, Gate, Stale};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Data that can be accessed only with a token.
///
/// ```
/// # use leasehold::Token;
/// # use leasehold::fence::{Fenced, Stale};
/// # fn main() -> Result<(), Stale> {
/// # let (a, b) = (Token::new(33).unwrap(), Token::new(34).unwrap());
/// let stock = Fenced::new(5);
/// let left = *stock.read(b)?; // in a program: `guard.token()` of the lock that is held
/// *stock.write(b)? = left - 1;
/// assert!(stock.write(a).is_err()); // a former holder wakes up
/// # Ok(())
/// # }
/// ```
///
/// The returned guards lock the data like a [`RwLock`](std::sync::RwLock): readers share it, a writer is alone. They
/// are meant for a few lines of code, and must not be held across `await`. A panic does not poison the data: the next
/// holder finds the data as the panic left it.
#[derive(Debug, Default)]
pub struct Fenced<T> {
    // Locked after the data and never before it, so that no write comes between a reader's check and its read.
    gate: Mutex<Gate>,
    data: RwLock<T>,
}

impl<T> Fenced<T> {
    /// Returns data that nobody has accessed.
    pub fn new(data: T) -> Self {
        Self::behind(Gate::new(), data)
    }

    /// Returns data with marks that were stored with it.
    pub fn behind(gate: Gate, data: T) -> Self {
        Self { gate: Mutex::new(gate), data: RwLock::new(data) }
    }

    /// Enters to read, and returns the data.
    ///
    /// This blocks while another thread writes. A thread that already has a guard of this data deadlocks.
    ///
    /// # Errors
    ///
    /// The token is [`Stale`].
    pub fn read(&self, token: Token) -> Result<RwLockReadGuard<'_, T>, Stale> {
        let data = self.data.read().unwrap_or_else(PoisonError::into_inner);
        self.enter_locked(token, Access::Read)?;
        Ok(data)
    }

    /// Enters to write, and returns the data.
    ///
    /// This blocks while another thread reads or writes. A thread that already has a guard of this data deadlocks.
    ///
    /// # Errors
    ///
    /// The token is [`Stale`].
    pub fn write(&self, token: Token) -> Result<RwLockWriteGuard<'_, T>, Stale> {
        let data = self.data.write().unwrap_or_else(PoisonError::into_inner);
        self.enter_locked(token, Access::Write)?;
        Ok(data)
    }

    /// Enters without accessing the data. Use it to enter several resources before you read the first of them.
    ///
    /// # Errors
    ///
    /// The token is [`Stale`].
    pub fn enter(&self, token: Token, access: Access) -> Result<(), Stale> {
        match access {
            Access::Read => self.read(token).map(drop),
            Access::Write => self.write(token).map(drop),
        }
    }

    /// Returns the current marks, so that you can store them with the data.
    pub fn gate(&self) -> Gate {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the fence and returns the data.
    pub fn into_inner(self) -> T {
        self.data.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Must be called with the data locked: the check is valid only for as long as that lasts.
    fn enter_locked(&self, token: Token, access: Access) -> Result<(), Stale> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).enter(token, access)
    }
}
