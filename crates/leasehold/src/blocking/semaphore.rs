//! The semaphore, for threads.

use std::time::Duration;

use super::methods::{blocking_calls, blocking_face, blocking_guard, blocking_guard_methods, blocking_or_cancel};
use super::wait::wait;
use crate::error::Result;
use crate::lease::guard_methods;
use crate::member::Member;

/// A number of permits under one name, like [`crate::Semaphore`].
#[derive(Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

blocking_guard! {
    /// Held permits, like [`crate::Permit`]. Dropping this releases them in the background.
    Permit
}

impl Semaphore {
    blocking_calls! { "crate::Semaphore":
        wait acquire() -> Permit;
        wait acquire_many(permits: u32) -> Permit;
        limited try_acquire() -> Permit;
        limited try_acquire_many(permits: u32) -> Permit;
        limited try_acquire_for(wait: Duration) -> Permit;
        limited try_acquire_many_for(permits: u32, wait: Duration) -> Permit;
        plain member(permits: u32) -> Member;
    }

    blocking_or_cancel! { "crate::Semaphore":
        acquire_or_cancel = acquire() -> Permit;
        acquire_many_or_cancel = acquire_many(permits: u32) -> Permit;
    }

    /// See [`crate::Semaphore::resize`].
    ///
    /// # Errors
    ///
    /// See [`crate::Semaphore::resize`].
    pub fn resize(&self, permits: u32) -> Result<Self> {
        wait(self.0.resize(permits)).map(Self)
    }
}

blocking_face!(Semaphore, "crate::Semaphore");
