//! The settings of a face, and their conversion to the terms of the session.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::{LEASE_MAX_MS, LEASE_MIN_MS, PARTIES_MAX, PERMITS_MAX, STICKY_MAX_MS};
use leasehold_spec::{Kind, Order, Take};

use crate::error::{Error, Result};
use crate::session::{Entry, QueueHint, Renewal, Terms};

/// The settings of a face, as the program gave them. [`Settings::terms`] checks them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) take: Take,
    pub(crate) lease: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) order: Order,
    pub(crate) entry: Entry,
    pub(crate) sticky: Duration,
    pub(crate) min_hold: Duration,
}

impl Settings {
    /// Returns the settings of a face that names none but its lease.
    pub(crate) fn new(take: Take, lease: Duration) -> Self {
        let (renewal, order, entry) = (Renewal::Always, Order::Relaxed, Entry::OnClaim);
        Self { take, lease, renewal, order, entry, sticky: Duration::ZERO, min_hold: Duration::ZERO }
    }

    /// Returns the terms on which the session acquires.
    ///
    /// # Errors
    ///
    /// `Invalid` for a value out of range, and for settings that contradict each other.
    pub(crate) fn terms(&self, label: Arc<str>) -> Result<Terms> {
        let Self { take, renewal, order, entry, .. } = *self;
        check_units(&take)?;
        let lease_ms = check_lease(self.lease)?;
        if let Renewal::For { hold_us } = renewal
            && hold_us < lease_ms * 1000
        {
            let message =
                format!("max_hold is shorter than the lease ({:?}): use a shorter lease, or fixed_lease", self.lease);
            return Err(Error::invalid(message));
        }
        let (sticky_us, queue) = (self.sticky_us()?, QueueHint::default());
        let min_hold_us = self.min_hold_us()?;
        let terms = Terms { take, lease_ms, renewal, order, entry, sticky_us, min_hold_us, label, queue };
        if sticky_us > 0 && !terms.may_share() {
            let message = "sticky cannot be combined with fair, fixed_lease, max_hold, min_hold or full_lease: \
                           remove one of them";
            return Err(Error::invalid(message));
        }
        Ok(terms)
    }

    /// Returns the minimum hold in microseconds, if the lease can last that long.
    fn min_hold_us(&self) -> Result<u64> {
        let (hold, longest) = (self.min_hold, Duration::from_millis(LEASE_MAX_MS));
        let (most, name) = match self.renewal {
            Renewal::Always => (longest, "24 h"),
            Renewal::For { hold_us } => (longest.min(Duration::from_micros(hold_us)), "max_hold"),
            Renewal::Never => (self.lease, "the fixed lease"),
        };
        match u64::try_from(hold.as_micros()) {
            Ok(us) if hold <= most => Ok(us),
            _ => Err(Error::invalid(format!("a min_hold of {hold:?} is longer than {name}: use a shorter one"))),
        }
    }

    fn sticky_us(&self) -> Result<u64> {
        match u64::try_from(self.sticky.as_micros()) {
            Ok(us) if us <= STICKY_MAX_MS * 1000 => Ok(us),
            _ => {
                let keep = self.sticky;
                Err(Error::invalid(format!("cannot keep a lease for {keep:?}: sticky is at most {STICKY_MAX_MS} ms")))
            }
        }
    }
}

/// Checks the number of permits of a semaphore, and of an acquire, or of the parties of a barrier. Some kinds have no
/// number.
fn check_units(take: &Take) -> Result<()> {
    let Take { kind, limit, units, .. } = *take;
    if kind == Kind::Semaphore && !(1..=PERMITS_MAX).contains(&limit) {
        return Err(Error::invalid(format!("a semaphore of {limit} permits is out of range: use 1 to {PERMITS_MAX}")));
    }
    if kind == Kind::Barrier && !(1..=PARTIES_MAX).contains(&limit) {
        return Err(Error::invalid(format!("a barrier of {limit} parties is out of range: use 1 to {PARTIES_MAX}")));
    }
    if limit > 0 && !(1..=limit).contains(&units) {
        return Err(Error::invalid(format!("{units} of {limit} permits can never be acquired: use 1 to {limit}")));
    }
    Ok(())
}

/// Returns the lease in milliseconds, if it is in range.
pub(crate) fn check_lease(lease: Duration) -> Result<u64> {
    match u64::try_from(lease.as_millis()) {
        Ok(ms) if (LEASE_MIN_MS..=LEASE_MAX_MS).contains(&ms) => Ok(ms),
        _ => Err(Error::invalid(format!("a lease of {lease:?} is out of range: use {LEASE_MIN_MS} ms to 24 h"))),
    }
}
