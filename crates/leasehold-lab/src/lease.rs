//! A guard, as the laboratories use it.

use leasehold::seam::Pending;
use leasehold::{Guard, Lost, Released, Result};
use leasehold_testkit::history::Share;

/// The guard of a grant. Each method does what the method of the guard with the same name does.
pub(crate) trait Lease: Send + Sync + 'static {
    /// Returns the part of the name that the grant takes.
    fn share(&self) -> Share;

    fn token(&self) -> u64;

    fn check(&self) -> std::result::Result<(), Lost>;

    /// Returns how much is left of the lease.
    fn left_us(&self) -> u64;

    fn lost(&self) -> Pending<Lost>;

    fn release(self) -> Pending<Result<Released>>;
}

impl Lease for Guard {
    fn share(&self) -> Share {
        Share::Exclusive
    }

    fn token(&self) -> u64 {
        self.token().get()
    }

    fn check(&self) -> std::result::Result<(), Lost> {
        self.check().map(drop)
    }

    fn left_us(&self) -> u64 {
        u64::try_from(self.remaining().as_micros()).unwrap_or(u64::MAX)
    }

    fn lost(&self) -> Pending<Lost> {
        Box::pin(self.lost())
    }

    fn release(self) -> Pending<Result<Released>> {
        Box::pin(self.release())
    }
}
