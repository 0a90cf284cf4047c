//! Data of this process behind a gate.

use std::sync::PoisonError;

use leasehold_spec::Token;

use super::{Access, Gate, Stale};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Data that is reached through a token only.
///
/// ```
/// # use leasehold::Token;
/// # use leasehold::fence::{Fenced, Stale};
/// # fn main() -> Result<(), Stale> {
/// # let (a, b) = (Token::new(33).unwrap(), Token::new(34).unwrap());
/// let stock = Fenced::new(5);
/// let left = *stock.read(b)?; // in a program: `guard.token()` of the lock that is held
/// *stock.write(b)? = left - 1;
/// assert!(stock.write(a).is_err()); // an older holder woke up
/// # Ok(())
/// # }
/// ```
///
/// What is returned locks the data, as a [`RwLock`](std::sync::RwLock) does: those who read do so side by side, who writes
/// is alone. It is for a few lines, not to be held while awaiting. A panic while it is held poisons nothing: the next
/// holder finds the data as the panic left it.
#[derive(Debug, Default)]
pub struct Fenced<T> {
    // Locked after the data and never before it: nobody writes between a reader's check and its read.
    gate: Mutex<Gate>,
    data: RwLock<T>,
}

impl<T> Fenced<T> {
    /// Data that nobody has touched.
    pub fn new(data: T) -> Self {
        Self::behind(Gate::new(), data)
    }

    /// Data with the marks that were kept with it.
    pub fn behind(gate: Gate, data: T) -> Self {
        Self { gate: Mutex::new(gate), data: RwLock::new(data) }
    }

    /// Enters to read, and gives the data.
    ///
    /// Blocks while another thread writes; a thread that already holds this data deadlocks with itself.
    ///
    /// # Errors
    /// The token is [`Stale`].
    pub fn read(&self, token: Token) -> Result<RwLockReadGuard<'_, T>, Stale> {
        let data = self.data.read().unwrap_or_else(PoisonError::into_inner);
        self.enter_locked(token, Access::Read)?;
        Ok(data)
    }

    /// Enters to write, and gives the data.
    ///
    /// Blocks while another thread reads or writes; a thread that already holds this data deadlocks with itself.
    ///
    /// # Errors
    /// The token is [`Stale`].
    pub fn write(&self, token: Token) -> Result<RwLockWriteGuard<'_, T>, Stale> {
        let data = self.data.write().unwrap_or_else(PoisonError::into_inner);
        self.enter_locked(token, Access::Write)?;
        Ok(data)
    }

    /// Enters and leaves the data alone: to claim several resources before the first of them is read.
    ///
    /// # Errors
    /// The token is [`Stale`].
    pub fn enter(&self, token: Token, access: Access) -> Result<(), Stale> {
        match access {
            Access::Read => self.read(token).map(drop),
            Access::Write => self.write(token).map(drop),
        }
    }

    /// The marks as they are now, to be kept with the data.
    pub fn gate(&self) -> Gate {
        *self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the fence away.
    pub fn into_inner(self) -> T {
        self.data.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called with the data locked: the check counts only for as long as that lasts.
    fn enter_locked(&self, token: Token, access: Access) -> Result<(), Stale> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).enter(token, access)
    }
}
