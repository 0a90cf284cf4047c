//! Brings a name into a situation.

use std::time::Duration;

use leasehold::{Guard, Holder, Leasehold, Lost, Mutex, Token};
use tokio::task::JoinHandle;

use super::Situation;
use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, eventually, release, soon};

/// What there is when the call is made.
pub(super) struct Scene {
    /// Who calls.
    pub(super) caller: Leasehold,
    /// What it calls.
    pub(super) mutex: Mutex,
    /// Who looks on, and does nothing.
    pub(super) witness: Leasehold,
    /// Whose client holds; the caller's where nobody does.
    pub(super) holding: Leasehold,
    /// Its guard.
    pub(super) guard: Option<Guard>,
    /// Who was seen holding last.
    pub(super) seen: Option<Holder>,
    /// Who waits.
    pub(super) queued: Option<JoinHandle<Guard>>,
}

impl Scene {
    /// The largest token that anybody was granted.
    pub(super) fn top(&self) -> Option<Token> {
        self.guard.as_ref().map(Guard::token).max(self.seen.as_ref().map(|holder| holder.token))
    }
}

/// The shortest lease: it has soon ended.
const SHORT_MS: u64 = 100;
const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn set(at: Situation, stage: &Stage) -> Scene {
    let (caller, witness) = (stage.client("caller").await, stage.client("witness").await);
    let other = stage.client("other").await;
    let (mutex, theirs) = (caller.mutex(stage.name()), other.mutex(stage.name()));
    let mut scene = Scene { holding: caller.clone(), caller, mutex, witness, guard: None, seen: None, queued: None };
    match at {
        Situation::New => {}
        Situation::Free => {
            let guard = theirs.lock().await.expect("granted");
            scene.see(stage).await;
            release(guard).await;
        }
        Situation::HeldBySelf => scene.hold(stage, scene.caller.clone()).await,
        Situation::HeldByOther => scene.hold(stage, other).await,
        Situation::HeldAndQueued => {
            scene.hold(stage, other).await;
            let waits = stage.client("third").await.mutex(stage.name());
            scene.queued = Some(tokio::spawn(async move { waits.lock().await.expect("granted") }));
            stage.waiters(&scene.witness, 1).await;
        }
        Situation::Lapsed => {
            // A session gives back what it cannot renew; a crashed one says nothing.
            let mut crashed = Raw::attach(stage).await;
            crashed.take().await;
            scene.see(stage).await;
            crashed.shorten(SHORT_MS).await;
            eventually("its lease has ended", async || stage.inspect(&scene.witness).await.holder.is_none()).await;
        }
        Situation::Revoked => {
            scene.hold(stage, other).await;
            let holder = scene.seen.as_ref().expect("somebody holds");
            let _ = scene.witness.mutex(stage.name()).revoke(holder, GRACE).await.expect("an answer");
            let told = scene.guard.as_ref().map(Guard::lost).expect("somebody holds");
            assert_eq!(soon("it is told", told).await, Lost::Revoked);
        }
        Situation::CancelledWaiter => {
            scene.hold(stage, other).await;
            let waits = stage.client("third").await.mutex(stage.name());
            let waiting = tokio::spawn(async move { waits.lock().await.map(drop) });
            stage.waiters(&scene.witness, 1).await;
            waiting.abort();
            assert!(waiting.await.expect_err("it was aborted").is_cancelled());
            stage.waiters(&scene.witness, 0).await;
        }
        Situation::BadName => {
            scene.hold(stage, other).await;
            scene.mutex = scene.caller.mutex("two\nlines");
        }
        Situation::BadLease => {
            scene.hold(stage, other).await;
            scene.mutex = scene.mutex.lease(Duration::from_millis(1));
        }
        Situation::Closed => {
            scene.hold(stage, other).await;
            assert!(scene.caller.clone().close().await.unconfirmed().is_empty());
            // Closed twice is closed.
            scene.holding = scene.caller.clone();
        }
    }
    scene
}

impl Scene {
    async fn hold(&mut self, stage: &Stage, by: Leasehold) {
        self.guard = Some(by.mutex(stage.name()).lock().await.expect("granted"));
        self.holding = by;
        self.see(stage).await;
    }

    async fn see(&mut self, stage: &Stage) {
        self.seen = stage.inspect(&self.witness).await.holder;
        assert!(self.seen.is_some(), "somebody holds");
    }
}
