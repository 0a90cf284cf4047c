//! A guard, as the laboratories use it.

use leasehold::seam::Pending;
use leasehold::{Guard, Leadership, Lost, Permit, ReadGuard, Released, Result, UpgradeableReadGuard, WriteGuard};
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

/// Permits of a semaphore, and their number.
pub(crate) struct Permits {
    pub(crate) permit: Permit,
    pub(crate) units: u32,
}

/// Writes `Lease` for a guard of the library. `release` is the method that gives it back.
macro_rules! lease {
    ($guard:ty, |$this:ident| $inner:expr, $share:expr) => {
        lease!($guard, |$this| $inner, $share, release);
    };
    ($guard:ty, |$this:ident| $inner:expr, $share:expr, $release:ident) => {
        impl Lease for $guard {
            fn share(&self) -> Share {
                let $this = self;
                $share
            }

            fn token(&self) -> u64 {
                let $this = self;
                $inner.token().get()
            }

            fn check(&self) -> std::result::Result<(), Lost> {
                let $this = self;
                $inner.check().map(drop)
            }

            fn left_us(&self) -> u64 {
                let $this = self;
                u64::try_from($inner.remaining().as_micros()).unwrap_or(u64::MAX)
            }

            fn lost(&self) -> Pending<Lost> {
                let $this = self;
                Box::pin($inner.lost())
            }

            fn release(self) -> Pending<Result<Released>> {
                let $this = self;
                Box::pin($inner.$release())
            }
        }
    };
}

lease!(Guard, |_guard| _guard, Share::Exclusive);
lease!(ReadGuard, |_guard| _guard, Share::Shared(1));
lease!(UpgradeableReadGuard, |_guard| _guard, Share::Shared(1));
lease!(WriteGuard, |_guard| _guard, Share::Exclusive);
lease!(Leadership, |_leads| _leads, Share::Exclusive, resign);
lease!(Permits, |permits| permits.permit, Share::Shared(permits.units));
