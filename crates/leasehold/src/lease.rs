//! The lease that a guard stands for. Every guard has one inside, and dropping it releases the lease.

mod methods;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, Op, Outcome, Take, Token};

pub(crate) use self::methods::{debug_guard, guard_methods};
use crate::error::{Error, Operation, Result};
use crate::lost::{Lost, LostReason, Released};
use crate::lost_signal::LostSignal;
use crate::observe::Call;
use crate::owner::Owner;
use crate::reentry::{Handle, Share};
use crate::session::{GIVEN_BACK_WITHIN_US, Hold, Wait};
use crate::store::lacks;

/// How long an upgrade waits for the others.
#[derive(Clone, Copy)]
pub(crate) enum Upgrading {
    ForEver,
    For(Duration),
    Now,
}

/// A lease, and its keeper.
pub(crate) struct Lease {
    hold: Arc<Hold>,
    /// `None` once released.
    keeper: Option<Keeper>,
}

/// The handle that a guard keeps alive until it is released.
enum Keeper {
    /// The lease belongs to this guard alone.
    Alone(Arc<Handle>),
    /// The lease belongs to an owner: see [`Mutex::owner`](crate::Mutex::owner).
    Shared(Arc<Share>),
}

impl Lease {
    pub(crate) fn alone(hold: Arc<Hold>, client: Arc<Handle>) -> Self {
        Self { hold, keeper: Some(Keeper::Alone(client)) }
    }

    pub(crate) fn shared(share: Arc<Share>) -> Self {
        Self { hold: Arc::clone(share.hold()), keeper: Some(Keeper::Shared(share)) }
    }

    pub(crate) fn token(&self) -> Token {
        self.hold.token
    }

    /// Returns the place of an arrival at a barrier, counted from the last one.
    pub(crate) fn place(&self) -> u64 {
        self.hold.place
    }

    pub(crate) fn name(&self) -> &str {
        self.hold.name.as_str()
    }

    pub(crate) fn check(&self) -> std::result::Result<Token, Lost> {
        self.hold.check()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.hold.check().is_ok()
    }

    pub(crate) fn remaining(&self) -> Duration {
        Duration::from_micros(self.hold.remaining_us())
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_micros(self.hold.kept_us())
    }

    pub(crate) fn others_wait(&self) -> bool {
        self.hold.contention() != Contention::None
    }

    /// Takes back that the minimum hold has begun, until [`Lease::begin_min_hold`]. Returns whether it did: it does not if
    /// other guards of the owner share the lease.
    pub(crate) fn defer_min_hold(&self) -> bool {
        let is_alone = match &self.keeper {
            Some(Keeper::Alone(_)) => true,
            Some(Keeper::Shared(share)) => Arc::strong_count(share) == 1,
            None => false,
        };
        if is_alone {
            self.hold.waive_min_hold();
        }
        is_alone
    }

    pub(crate) fn begin_min_hold(&self) {
        self.hold.begin_min_hold();
    }

    pub(crate) fn waive_min_hold(&self) {
        self.hold.waive_min_hold();
    }

    pub(crate) fn lost(&self) -> LostSignal {
        LostSignal::new(&self.hold)
    }

    /// Gives a part of the units back, in the background. From now on the lease counts as if that were done (P39).
    pub(crate) fn lower(self, units: u32) -> Self {
        if let Some(client) = self.client() {
            client.session().lower(&self.hold, units);
        }
        self
    }

    /// Makes this lease the only one of its name. Returns it as it is if others hold as well and `wait` is over.
    pub(crate) async fn upgrade(self, wait: Upgrading) -> Result<std::result::Result<Self, Self>> {
        let Some(client) = self.client().map(Arc::clone) else { return Ok(Err(self)) };
        let session = client.session();
        let wait = match wait {
            Upgrading::ForEver => Wait::ForEver,
            Upgrading::For(wait) => session.wait_for(wait),
            Upgrading::Now => Wait::No,
        };
        let upgraded = session.upgrade(&self.hold, wait).await;
        let hold = upgraded.map_err(|error| error.of(Operation::Upgrade, Some(self.name())))?;
        Ok(hold.map(|hold| Self::alone(hold, Arc::clone(&client))).ok_or(self))
    }

    /// Changes the label of the lease, as long as it is held.
    pub(crate) async fn put(&self, label: &str) -> Result<()> {
        let failed = |error: Error| error.of(Operation::Put, Some(self.name()));
        let Some(client) = self.client() else { return Err(self.hold.lost(LostReason::Released).into()) };
        let (id, token, label) = (self.hold.id, self.check()?, label.to_owned());
        let op = Op::Put { id, token, label };
        // A store that notifies observers has this as well.
        client.session().check_take(&Take::NOTIFICATION).map_err(|_| failed(lacks(&op)))?;
        match client.session().ask_about(Call::Put, &self.hold, op).await.map_err(failed)? {
            Outcome::Put => Ok(()),
            _ => Err(self.lost_at_store()),
        }
    }

    /// Gives the lease to the first live waiter with this label. Returns the lease if there is none. After an error, the
    /// lease is released.
    pub(crate) async fn hand_to(self, label: &str) -> Result<Option<Self>> {
        let failed = |error: Error| error.of(Operation::HandTo, Some(self.name()));
        let Some(client) = self.client() else { return Err(self.hold.lost(LostReason::Released).into()) };
        let (id, token, label) = (self.hold.id, self.check()?, label.to_owned());
        let op = Op::HandTo { id, token, label };
        if !client.session().names_successors() {
            return Err(failed(lacks(&op)));
        }
        // P51: sent once. A copy that came after NO WAITER would end the lease of a holder that holds on.
        match client.session().ask(Call::HandTo, &self.hold.name, op).await {
            Ok(Outcome::NoWaiter) => Ok(Some(self)),
            Ok(Outcome::Released) => Ok(None),
            Ok(_) => Err(self.lost_at_store()),
            Err(_) if is_on(Mutant::P51LeadsOn) => Ok(Some(self)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the error of a holder that learns from the store that it holds no more.
    fn lost_at_store(&self) -> Error {
        self.hold.lost(self.hold.why_lost().unwrap_or(LostReason::Expired)).into()
    }

    /// Returns the client and the owner of this guard, if its end releases the lease: no other guard shares it.
    pub(crate) fn sole_keeper(&self) -> Result<(Arc<Handle>, Option<Owner>)> {
        match &self.keeper {
            Some(Keeper::Alone(client)) => Ok((Arc::clone(client), None)),
            Some(Keeper::Shared(share)) if Arc::strong_count(share) == 1 => {
                Ok((Arc::clone(share.client()), Some(share.owner().clone())))
            }
            Some(Keeper::Shared(_)) => {
                let message = "other guards of this owner hold the lock as well, so a wait would not release it: drop \
                               them first";
                Err(Error::invalid(message))
            }
            None => Err(self.hold.lost(LostReason::Released).into()),
        }
    }

    /// Ends a notification whose receiver acts on it, in the background: nobody else gets it (P42).
    pub(crate) fn spend(mut self) {
        if let Some(Keeper::Alone(client)) = self.keeper.take() {
            client.session().spend(&self.hold);
        }
    }

    pub(crate) async fn release(mut self) -> Result<Released> {
        let (client, last) = match self.keeper.take() {
            None => return Ok(Released::NotHeld),
            Some(Keeper::Alone(client)) => (client, None),
            Some(Keeper::Shared(share)) => {
                let client = Arc::clone(share.client());
                client.session().check_usable().map_err(|error| self.failed(error))?;
                // Checked while this guard still counts: after that the last guard may go at any moment.
                let was_valid = self.is_valid();
                match Arc::into_inner(share) {
                    None if is_on(Mutant::P16InnerReleases) => (client, None),
                    None if was_valid => return Ok(Released::Released),
                    None => return Ok(Released::NotHeld),
                    last => (client, last),
                }
            }
        };
        // If this future is dropped here, the session continues the release.
        let released = client.session().release(&self.hold).await;
        drop(last);
        released.map_err(|error| self.failed(error))
    }

    /// Releases, and stops waiting for the reply of the store as soon as no result depends on it. The session repeats
    /// the request.
    pub(crate) async fn finish(self) {
        let client = self.client().map(Arc::clone);
        if let Some(client) = client {
            drop(client.session().within(GIVEN_BACK_WITHIN_US, self.release()).await);
        }
    }

    #[cold]
    fn failed(&self, error: Error) -> Error {
        error.of(Operation::Release, Some(self.name()))
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    #[cfg(feature = "blocking")]
    pub(crate) async fn lost_within(&self, at_most: Duration) -> Option<Lost> {
        self.within(at_most, self.lost()).await
    }

    /// Waits for a loss, of this lease or of one beside it, for at most so long.
    #[cfg(feature = "blocking")]
    pub(crate) async fn within(&self, at_most: Duration, lost: impl Future<Output = Lost>) -> Option<Lost> {
        let within_us = u64::try_from(at_most.as_micros()).unwrap_or(u64::MAX);
        match self.client() {
            Some(client) if client.session().is_surely_ours() => client.session().within(within_us, lost).await,
            // In a forked child: the lease belongs to the parent, so no message about it ever arrives here.
            _ => Some(self.hold.lost(LostReason::Closed)),
        }
    }

    /// Formats a guard, with its name, its token and the remaining time.
    pub(crate) fn fmt_as(&self, guard: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(guard)
            .field("name", &self.hold.name)
            .field("token", &self.token().get())
            .field("remaining", &self.remaining())
            .finish()
    }

    fn client(&self) -> Option<&Arc<Handle>> {
        match self.keeper.as_ref()? {
            Keeper::Alone(client) => Some(client),
            Keeper::Shared(share) => Some(share.client()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Keeper::Alone(client)) = &self.keeper {
            client.session().drop_hold(&self.hold);
        }
    }
}
