//! How long a lease lasts, and how it ends.
//!
//! No bound here depends on the speed of this machine. A poll that comes late makes each bound easier to keep, not
//! harder; the other bounds are on renewals that are seconds away from being too late. Where a poll must come first, the
//! event that would overtake it waits.

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold, Mutex, Released};
use tokio::sync::watch;

use super::Verdict;
use super::stage::{SOON, Stage, eventually, release, renewal, soon};

dimension! {
    /// A kind of lease.
    Kind {
        /// The lease of a client that sets none.
        Default,
        /// The lease set with `Builder::lease`.
        OfClient,
        /// The lease set with `Mutex::lease`.
        Own,
        /// `Mutex::fixed_lease`
        Fixed,
        /// `Mutex::lease` after `Mutex::fixed_lease`: the later call counts.
        FixedNoMore,
        /// `Mutex::max_hold`
        MaxHold,
        /// `Mutex::fair`
        Fair,
    }
}

dimension! {
    /// The properties of a lease.
    Aspect {
        /// How long its guard relies on it.
        Reliance,
        /// How long the store keeps it.
        Keeping,
        /// Whether it is renewed.
        Renewal,
        /// How it ends while its guard lives.
        End,
        /// How it begins with a message: as a claim, and then as the whole lease.
        Pushed,
    }
}

const SHORT: Duration = Duration::from_millis(1_500);
const LONG: Duration = Duration::from_secs(20);
/// The shortest claim, and the number of a client's exchanges for which it lasts (P7).
const CLAIM: Duration = Duration::from_secs(1);
const EXCHANGES: u32 = 10;

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
impl Kind {
    fn lease(self, aspect: Aspect) -> Duration {
        match (self, aspect) {
            (Self::Default, _) => Duration::from_secs(30),
            (_, Aspect::Reliance | Aspect::Keeping | Aspect::Pushed) => LONG,
            (_, Aspect::Renewal | Aspect::End) => SHORT,
        }
    }

    fn is_renewed(self) -> bool {
        match self {
            Self::Default | Self::OfClient | Self::Own | Self::FixedNoMore | Self::MaxHold | Self::Fair => true,
            Self::Fixed => false,
        }
    }

    /// Renewals of this mutex pass when they are let through.
    async fn mutex(self, aspect: Aspect, stage: &Stage, renewals: watch::Receiver<bool>) -> (Leasehold, Mutex) {
        let lease = self.lease(aspect);
        let client = match self {
            Self::OfClient => stage.late_client(|builder| builder.lease(lease), renewals).await,
            Self::Default | Self::Own | Self::Fixed | Self::FixedNoMore | Self::MaxHold | Self::Fair => {
                stage.late_client(|builder| builder.holder("holder"), renewals).await
            }
        };
        let mutex = client.mutex(stage.name());
        let mutex = match self {
            Self::Default | Self::OfClient => mutex,
            Self::Own => mutex.lease(lease),
            Self::Fixed => mutex.fixed_lease(lease),
            Self::FixedNoMore => mutex.fixed_lease(LONG + LONG).lease(lease),
            Self::MaxHold => mutex.lease(lease).max_hold(2 * lease),
            Self::Fair => mutex.lease(lease).fair(),
        };
        (client, mutex)
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
pub(super) async fn run(kind: Kind, aspect: Aspect, stage: &Stage) -> Verdict {
    if aspect == Aspect::End && kind.is_renewed() && kind != Kind::MaxHold {
        return Verdict::NotApplicable("it is renewed for as long as its guard lives: see Renewal");
    }
    let lease = kind.lease(aspect);
    let begun = Instant::now();
    let (let_through, renewals) = watch::channel(aspect != Aspect::Pushed);
    let (client, mutex) = kind.mutex(aspect, stage, renewals).await;
    match aspect {
        Aspect::Reliance => reliance(lease, &mutex).await,
        Aspect::Keeping => keeping(lease, &mutex).await,
        Aspect::Renewal => match kind.is_renewed() {
            true => renewed(lease, &mutex).await,
            false => not_renewed(lease, &mutex).await,
        },
        Aspect::End => end(kind, lease, &mutex).await,
        Aspect::Pushed => pushed(kind, lease, (&client, &mutex, begun), &let_through, stage).await,
    }
    Verdict::Passed
}

/// A margin is left for clocks that run at different rates.
async fn reliance(lease: Duration, mutex: &Mutex) {
    let begun = Instant::now();
    let guard = mutex.lock().await.expect("granted");
    let (remaining, spent) = (guard.remaining(), begun.elapsed());
    assert!(remaining <= lease - lease / 100 - Duration::from_millis(2), "{remaining:?} of {lease:?}");
    assert!(remaining + spent >= lease - lease / 100 - Duration::from_millis(3), "{remaining:?} of {lease:?}");
    release(guard).await;
}

async fn keeping(lease: Duration, mutex: &Mutex) {
    let begun = Instant::now();
    let guard = mutex.lock().await.expect("granted");
    let kept = mutex.inspect().await.expect("an answer").holder().expect("held").remaining;
    // Read after the answer was made: the guard must be the first to consider the lease over.
    let remaining = guard.remaining();
    let spent = begun.elapsed();
    assert!(kept <= lease && kept + spent >= lease, "{kept:?} of {lease:?} after {spent:?}");
    assert!(remaining <= kept, "relied on for {remaining:?}, kept for {kept:?}");
    release(guard).await;
}

async fn renewed(lease: Duration, mutex: &Mutex) {
    let guard = mutex.lock().await.expect("granted");
    let token = guard.token();
    // At a third. A renewal that came only when the lease was nearly over would have no second chance.
    let least = renewal(&guard, lease).await;
    assert!(least >= lease / 6, "renewed when only {least:?} were left");
    assert_eq!(guard.check(), Ok(token), "a renewal grants nothing new");
    release(guard).await;
}

async fn not_renewed(lease: Duration, mutex: &Mutex) {
    let guard = mutex.lock().await.expect("granted");
    let mut before = guard.remaining();
    assert!(before < lease);
    let lost = guard.lost();
    let watching = async {
        loop {
            let now = guard.remaining();
            assert!(now <= before, "it grew");
            before = now;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        why = lost => assert!(why.reason().is_expiry(), "{why:?}"),
        () = watching => unreachable!("the watcher never ends"),
    }
    assert_eq!(guard.release().await.expect("an answer"), Released::NotHeld, "the work outlived its lease");
}

async fn end(kind: Kind, lease: Duration, mutex: &Mutex) {
    let whole = if kind == Kind::MaxHold { 2 * lease } else { lease };
    let asked = Instant::now();
    let guard = mutex.lock().await.expect("granted");
    let begun = Instant::now();
    let lost = guard.lost();
    let watching = async {
        loop {
            // The clock is read first: a value that is read after it can only be less.
            let (spent, remaining) = (begun.elapsed(), guard.remaining());
            // After its end nothing is left of it, however late we notice the end.
            assert!(
                remaining.is_zero() || spent + remaining <= whole,
                "after {spent:?} there are {remaining:?} of {whole:?} left"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let why = tokio::select! {
        why = lost => why,
        () = watching => unreachable!("the watcher never ends"),
    };
    assert!(why.reason().is_expiry() && guard.check() == Err(why.clone()), "{why:?}");
    // The time counts from the request: the answer may have been delayed.
    assert!(asked.elapsed() >= whole * 9 / 10, "it was not given up early: {:?} of {whole:?}", asked.elapsed());
    eventually("it ends in the store", async || mutex.inspect().await.expect("an answer").holder().is_none()).await;
    assert_eq!(guard.release().await.expect("an answer"), Released::NotHeld, "the work outlived its lease");
}

/// A pushed grant costs no more than a claim if its client is gone, and becomes a whole lease when the client answers.
async fn pushed(
    kind: Kind,
    lease: Duration,
    (client, mutex, connected): (&Leasehold, &Mutex, Instant),
    let_through: &watch::Sender<bool>,
    stage: &Stage,
) {
    let other = stage.client("other").await;
    let before = other.mutex(stage.name()).lock().await.expect("granted");
    let waits = mutex.clone();
    let waiting = tokio::spawn(async move { waits.lock().await });
    stage.waiters(client, 1).await;
    let made = Instant::now();
    release(before).await;
    let guard: Guard = soon("it is granted", waiting).await.expect("no panic").expect("granted");
    let claimed = guard.remaining();
    // Every exchange of the client took less time than all its work since it began to connect.
    let claim = CLAIM.max(EXCHANGES * connected.elapsed());
    assert!(claimed <= claim, "only a claim as yet, of {claim:?} at most: {claimed:?}");
    // Until here the claim was not answered, however late this test came to check it.
    let_through.send_replace(true);
    let is_whole = async || guard.remaining() > claimed;
    eventually("the claim is answered", is_whole).await;
    let (spent, remaining) = (made.elapsed(), guard.remaining());
    if kind == Kind::Fixed {
        // The lease counts from the grant, and not from its claim. (The clock was read before the grant was made.)
        let seen = mutex.inspect().await.expect("an answer").holder().expect("held").remaining;
        assert!(seen <= lease && seen + made.elapsed() >= lease, "{seen:?} of {lease:?} after {:?}", made.elapsed());
        assert!(remaining <= lease - lease / 100, "{remaining:?}");
    } else {
        assert!(remaining <= lease && remaining + spent >= lease * 9 / 10, "{remaining:?} of {lease:?}");
    }
    assert!(spent < SOON);
    release(guard).await;
}
