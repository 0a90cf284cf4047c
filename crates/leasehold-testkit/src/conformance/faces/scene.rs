//! Brings a name into a situation.

use std::time::Duration;

use leasehold::{Error, Holder, Inspection, Leasehold, LostReason, NodeSays, NodeView, Owner, Released, Token};
use tokio::task::JoinHandle;

use super::Situation;
use super::subject::{Client, Held, Subject};
use crate::conformance::HandOver;
use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, eventually, soon};

/// The state at the moment of the call.
pub(super) struct Scene<S: Subject> {
    /// The caller.
    pub(super) caller: S::Client,
    /// The subject that it calls.
    pub(super) subject: S,
    /// An observer, which changes nothing.
    pub(super) witness: Leasehold,
    /// The client that holds; the caller's where nobody does.
    pub(super) holding: S::Client,
    /// Its guard.
    pub(super) guard: Option<S::Held>,
    /// The last holder that was seen.
    pub(super) seen: Option<Holder>,
    /// A waiter. Where nobody releases, it gets an error at the end, when its client is closed.
    pub(super) queued: Option<JoinHandle<Result<S::Held, Error>>>,
    /// Where the caller waits.
    pub(super) waits_at: WaitsAt,
}

/// The place of a waiter.
pub(super) enum WaitsAt {
    /// In the queue of the store.
    Store,
    /// In its own client, which holds: the store gets no request.
    Client,
}

impl<S: Subject> Scene<S> {
    /// Returns the largest token that was granted.
    pub(super) fn top(&self) -> Option<Token> {
        self.guard.as_ref().map(S::Held::token).max(self.seen.as_ref().map(|holder| holder.token))
    }
}

/// The shortest lease, which ends soon.
const SHORT_MS: u64 = 100;
const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn set<S: Subject>(at: Situation, stage: &Stage) -> Scene<S> {
    let witness = stage.client("witness").await;
    let (caller, other) = (S::Client::connect(stage, "caller").await, S::Client::connect(stage, "other").await);
    let (subject, theirs) = (S::of(&caller, stage.name()), S::excluding(&other, stage.name()));
    let waits_inside = S::WAITS_INSIDE && stage.running().hand_over() == HandOver::Local;
    let waits_at = match at {
        Situation::HeldBySelf | Situation::HeldByOtherOwner if waits_inside => WaitsAt::Client,
        _ => WaitsAt::Store,
    };
    let mut scene =
        Scene { holding: caller.clone(), caller, subject, witness, guard: None, seen: None, queued: None, waits_at };
    match at {
        Situation::New => {}
        Situation::Free => {
            let guard = theirs.acquire().await.expect("granted");
            scene.see(stage).await;
            assert_eq!(guard.release().await, Released::Released);
        }
        Situation::HeldBySelf => scene.hold_by_caller(None, stage).await,
        Situation::HeldByOtherOwner => {
            scene.hold_by_caller(Some(&Owner::new()), stage).await;
            scene.subject = scene.subject.owner(&Owner::new());
        }
        Situation::HeldByOwner => scene.hold_by_owner(stage).await,
        Situation::LostByOwner => {
            scene.hold_by_owner(stage).await;
            scene.revoke(stage).await;
        }
        Situation::OwnerWaits => {
            scene.hold(other, theirs, stage).await;
            scene.subject = scene.subject.owner(&Owner::new());
            scene.queue(scene.subject.clone(), stage).await;
        }
        Situation::HeldByOther => scene.hold(other, theirs, stage).await,
        Situation::HeldAndQueued => {
            scene.hold(other, theirs, stage).await;
            let third = S::Client::connect(stage, "third").await;
            scene.queue(S::excluding(&third, stage.name()), stage).await;
        }
        Situation::Lapsed => {
            // A session releases a lease that it cannot renew; a crashed one sends nothing.
            let mut crashed = Raw::attach_for(stage, S::EXCLUDING).await;
            crashed.take().await;
            scene.see(stage).await;
            crashed.shorten(SHORT_MS).await;
            // It must have ended on every node of a quorum: each executed the last renewal at its own time.
            let has_ended = |node: &NodeView| matches!(node.says, NodeSays::Free);
            let is_over = |seen: Inspection| seen.holder().is_none() && seen.nodes.iter().all(has_ended);
            eventually("its lease has ended", async || is_over(stage.inspect(&scene.witness).await)).await;
        }
        Situation::Revoked => {
            scene.hold(other, theirs, stage).await;
            scene.revoke(stage).await;
        }
        Situation::CancelledWaiter => {
            scene.hold(other, theirs, stage).await;
            let waits = S::OfTasks::excluding(&stage.client("third").await, stage.name());
            let waiting = tokio::spawn(async move { waits.acquire().await.map(drop) });
            stage.waiters(&scene.witness, 1).await;
            waiting.abort();
            assert!(waiting.await.expect_err("it was aborted").is_cancelled());
            stage.waiters(&scene.witness, 0).await;
        }
        Situation::BadName => {
            scene.hold(other, theirs, stage).await;
            scene.subject = S::of(&scene.caller, "two\nlines");
        }
        Situation::BadLease => {
            scene.hold(other, theirs, stage).await;
            scene.subject = scene.subject.lease(Duration::from_millis(1));
        }
        Situation::Closed => {
            scene.hold(other, theirs, stage).await;
            assert!(scene.caller.clone().close().await.unconfirmed().is_empty());
            // Closing twice is the same as closing once.
            scene.holding = scene.caller.clone();
        }
    }
    scene
}

impl<S: Subject> Scene<S> {
    async fn hold(&mut self, by: S::Client, take: S, stage: &Stage) {
        self.guard = Some(take.acquire().await.expect("granted"));
        self.holding = by;
        self.see(stage).await;
    }

    /// Holds as the caller's own client, with a take that excludes the caller's.
    async fn hold_by_caller(&mut self, owner: Option<&Owner>, stage: &Stage) {
        let take = S::excluding(&self.caller, stage.name());
        let take = if let Some(owner) = owner { take.owner(owner) } else { take };
        self.hold(self.caller.clone(), take, stage).await;
    }

    async fn hold_by_owner(&mut self, stage: &Stage) {
        self.subject = self.subject.clone().owner(&Owner::new());
        self.hold(self.caller.clone(), self.subject.clone(), stage).await;
    }

    async fn queue(&mut self, waits: S, stage: &Stage) {
        self.queued = Some(tokio::spawn(async move { waits.acquire().await }));
        stage.waiters(&self.witness, 1).await;
    }

    /// Takes the turn of the waiter.
    pub(super) async fn turn(&mut self, what: &str) -> S::Held {
        let waiting = self.queued.take().expect("somebody waits");
        soon(what, waiting).await.expect("no panic").expect("granted")
    }

    async fn revoke(&mut self, stage: &Stage) {
        let holder = self.seen.as_ref().expect("somebody holds");
        let _ = S::OfTasks::of(&self.witness, stage.name()).revoke(holder, GRACE).await.expect("an answer");
        assert_eq!(self.guard.as_ref().expect("somebody holds").lost().await.reason(), LostReason::Revoked);
    }

    async fn see(&mut self, stage: &Stage) {
        self.seen = stage.inspect(&self.witness).await.holder().cloned();
        assert!(self.seen.is_some(), "somebody holds");
    }
}
