//! The environment of an epoch: a store, the clients, and an observer that no fault strikes.

use std::time::Duration;

use leasehold::{Inspection, Leasehold, Revoked};
use leasehold_testkit::boottime_us;
use tokio::runtime::Handle;

use super::excuse::Excuses;
use super::fleet::Fleet;
use super::ground::{Ground, Losses};
use super::node::Node;
use super::options::Store;
use super::plan::Epoch;

/// The common state of the rounds of one epoch. Fields are dropped in this order.
pub(crate) struct Stage {
    observer: Option<Leasehold>,
    pub(crate) fleet: Fleet,
    pub(crate) ground: Ground,
    pub(crate) store: Store,
    pub(crate) excuses: Excuses,
    /// By how much the clock was set back in this round: leases of dead clients last longer by this much.
    pub(crate) set_back: Duration,
    runtime: Handle,
}

/// The timeout of an inspection that a fault needs.
const INSPECTION: Duration = Duration::from_millis(300);
/// The timeout of an operator's action.
const OPERATION: Duration = Duration::from_secs(3);

impl Stage {
    pub(crate) fn set(store: Store, epoch: Epoch, registers: u16, runtime: Handle) -> Self {
        let ground = Ground::start(store, epoch, &runtime);
        let (urls, observer) = (ground.urls(), ground.calm_url());
        let fleet = Fleet::start(urls, registers);
        let observer = Leasehold::builder(&observer).holder("observer").connect();
        let observer = Some(runtime.block_on(observer).expect("the store is whole"));
        let (excuses, set_back) = (Excuses::default(), Duration::ZERO);
        Self { observer, fleet, ground, store, excuses, set_back, runtime }
    }

    /// Returns the label of this name's holder.
    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        Some(self.seen(name)?.holder()?.label.clone())
    }

    /// Inspects this name.
    pub(crate) fn seen(&self, name: &str) -> Option<Inspection> {
        let mutex = self.observer.as_ref()?.mutex(name);
        let seen = self.runtime.block_on(async { tokio::time::timeout(INSPECTION, mutex.inspect()).await });
        seen.ok()?.ok()
    }

    /// Revokes the lease of the client with this label. The revoking client is gone when this returns.
    pub(crate) fn revoke(&self, name: &str, label: &str, grace: Duration) -> Result<(), String> {
        let url = self.ground.calm_url();
        let revoke = async {
            let operator = Leasehold::builder(&url).holder("operator").connect().await?;
            let mutex = operator.mutex(name);
            let holder = mutex.inspect().await?.holder().cloned().filter(|holder| holder.label == label);
            let revoked = match &holder {
                Some(holder) => mutex.revoke(holder, grace).await?,
                None => Revoked::NotHeld,
            };
            operator.close().await;
            leasehold::Result::Ok(revoked)
        };
        match self.runtime.block_on(async { tokio::time::timeout(OPERATION, revoke).await }) {
            Ok(Ok(Revoked::Within(_))) => Ok(()),
            Ok(Ok(Revoked::NotHeld)) => Err("it does not hold".into()),
            Ok(Err(error)) => Err(leasehold::Error::to_string(&error)),
            Err(_) => Err(format!("no reply in {OPERATION:?}")),
        }
    }

    pub(crate) fn observer(&self) -> &Leasehold {
        self.observer.as_ref().expect("open until the stage is dropped")
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns a server, for faults that strike servers.
    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        self.ground.node(at)
    }

    /// Returns the effect of a server's loss.
    pub(crate) fn losses(&self) -> Losses {
        self.ground.losses(&self.excuses)
    }

    /// Shifts the server's clock by this much, forward or back.
    pub(crate) fn shift_clock(&mut self, by_us: i64) {
        let from_us = boottime_us();
        let redis = self.ground.redis();
        redis.shift_clock(by_us);
        let clock = redis.clock.clone();
        self.excuses.tokens(from_us, &clock);
        if by_us < 0 {
            self.set_back += Duration::from_micros(by_us.unsigned_abs());
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.observer.take());
    }
}
