//! Inputs that are refused, with a helpful message, and inputs that are just accepted. Nothing is sent for a refused
//! input.

use std::time::Duration;

use leasehold::{Error, ErrorKind, Leasehold, blocking};
use tokio::task::spawn_blocking;

use super::Verdict;
use super::stage::{Stage, release};

dimension! {
    /// An input at a limit.
    Input {
        /// An empty name.
        NameEmpty,
        /// 256 bytes of name.
        NameTooLong,
        /// A line break in a name.
        NameControl,
        /// 255 bytes of name.
        NameLongest,
        /// Every sort of letter, and the special characters of keys and channels.
        NameOdd,
        /// 99 ms of lease.
        LeaseTooShort,
        /// A second more than a day.
        LeaseTooLong,
        /// The longest duration that the type can express.
        LeaseEndless,
        /// 100 ms of lease.
        LeaseShortest,
        /// A whole day.
        LeaseLongest,
        /// No lease is set, also where the store's longest lease is shorter than the default.
        LeaseUnsaid,
        /// A longest hold that is shorter than the lease.
        HoldTooShort,
        /// The client's own lease.
        ClientLease,
        /// 257 bytes of label.
        LabelTooLong,
        /// A line break in a label.
        LabelControl,
        /// 256 bytes of label.
        LabelLongest,
        /// More than 5 s of grace.
        GraceTooLong,
        /// A wait that is too long for any clock.
        WaitEndless,
    }
}

#[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
pub(super) async fn run(input: Input, stage: &Stage) -> Verdict {
    let client = stage.client("caller").await;
    match input {
        Input::NameEmpty => bad_name(&client, "", "empty").await,
        Input::NameTooLong => bad_name(&client, &"x".repeat(256), "256 bytes").await,
        Input::NameControl => bad_name(&client, "a\nb", "control character at byte 1").await,
        Input::NameLongest => good_names(&client, &[&"x".repeat(255)]).await,
        Input::NameOdd => {
            let odd = ["{", "}", "%7B", "{a}b", "a b", " ", "Ä/ö:ü", "日本語", "*", "inbox:1", "\u{301}", "'\"\\"];
            let names: Vec<String> = odd.iter().map(|odd| stage.name_of(odd)).collect();
            good_names(&client, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        }
        Input::LeaseTooShort => bad_lease(&client, Duration::from_millis(99)).await,
        Input::LeaseTooLong => bad_lease(&client, Duration::from_secs(86_401)).await,
        Input::LeaseEndless => bad_lease(&client, Duration::MAX).await,
        Input::LeaseShortest => good_lease(&client, stage, Duration::from_millis(100)).await,
        Input::LeaseLongest => good_lease(&client, stage, Duration::from_secs(86_400)).await,
        Input::LeaseUnsaid => lease_unsaid(stage).await,
        Input::HoldTooShort => {
            let mutex = client.mutex(stage.name()).max_hold(Duration::from_secs(29));
            invalid(mutex.lock().await.err(), "max_hold is shorter than the lease (30s)");
        }
        Input::ClientLease => {
            let bad = Leasehold::builder(stage.url()).lease(Duration::from_millis(99));
            invalid(bad.connect().await.err(), "a lease of 99ms is out of range");
        }
        Input::LabelTooLong => bad_label(stage, &"x".repeat(257)).await,
        Input::LabelControl => bad_label(stage, "a\nb").await,
        Input::LabelLongest => {
            let label = format!("spaces and Ä {}", "x".repeat(256 - 14));
            assert_eq!(label.len(), 256);
            let named = stage.client(&label).await;
            let guard = named.mutex(stage.name()).lock().await.expect("granted");
            assert_eq!(stage.inspect(&client).await.holder().expect("held").label, label);
            release(guard).await;
        }
        Input::GraceTooLong => {
            let guard = client.mutex(stage.name()).lock().await.expect("granted");
            let holder = stage.inspect(&client).await.holder().cloned().expect("held");
            let refused = client.mutex(stage.name()).revoke(&holder, Duration::from_millis(5_001)).await;
            invalid(refused.err(), "a grace of 5.001s is too long");
            assert!(guard.is_valid() && !stage.inspect(&client).await.holder().expect("held").is_revoked);
            release(guard).await;
        }
        Input::WaitEndless => {
            let guard = client.mutex(stage.name()).try_lock_for(Duration::MAX).await.expect("an answer").expect("free");
            let waits = client.mutex(stage.name()).fair();
            let waiting = tokio::spawn(async move { waits.try_lock_for(Duration::MAX).await });
            stage.waiters(&client, 1).await;
            release(guard).await;
            release(waiting.await.expect("no panic").expect("an answer").expect("its turn")).await;
        }
    }
    Verdict::Passed
}

async fn bad_name(client: &Leasehold, name: &str, message: &str) {
    let mutex = client.mutex(name);
    invalid(mutex.lock().await.err(), message);
    invalid(mutex.try_lock().await.err(), message);
    invalid(mutex.try_lock_for(Duration::ZERO).await.err(), message);
    invalid(mutex.run(async |_| ()).await.err(), message);
    invalid(mutex.inspect().await.err(), message);
}

/// The names are of different locks, and each is shown as it was given.
async fn good_names(client: &Leasehold, names: &[&str]) {
    let mut guards = Vec::new();
    for name in names {
        let guard = client.mutex(name).try_lock().await.expect("an answer").expect("two names share no lock");
        assert_eq!(guard.name(), *name);
        guards.push(guard);
    }
    for guard in guards {
        let seen = client.mutex(guard.name()).inspect().await.expect("an answer").holder().cloned().expect("held");
        assert_eq!(seen.token, guard.token());
        release(guard).await;
    }
}

async fn bad_lease(client: &Leasehold, lease: Duration) {
    let mutex = client.mutex("never locked");
    for mutex in [mutex.clone().lease(lease), mutex.clone().fixed_lease(lease)] {
        invalid(mutex.lock().await.err(), "use 100 ms to 24 h");
        invalid(mutex.try_lock().await.err(), "use 100 ms to 24 h");
    }
    assert_eq!(mutex.inspect().await.expect("an answer").holder(), None);
}

async fn good_lease(client: &Leasehold, stage: &Stage, lease: Duration) {
    let guard = client.mutex(stage.name()).lease(lease).lock().await.expect("granted");
    let kept = stage.inspect(client).await.holder().map(|holder| holder.remaining);
    assert!(kept.is_none_or(|kept| kept <= lease), "{kept:?}");
    drop(guard);
}

/// Every call that locks uses the default, if the store allows it.
async fn lease_unsaid(stage: &Stage) {
    let (url, longest) = stage.of_short_leases().await;
    let client = Leasehold::connect(&url).await.expect("connected");
    let mutex = client.mutex(stage.name());
    let fits = |left: Duration| assert!(left <= longest && left > longest / 2, "{left:?} of {longest:?}");
    for mutex in [mutex.clone(), mutex.clone().fair(), mutex.clone().full_lease()] {
        let guard = mutex.lock().await.expect("granted");
        fits(guard.remaining());
        release(guard).await;
        let guard = mutex.try_lock_for(Duration::from_secs(60)).await.expect("an answer").expect("free");
        fits(guard.remaining());
        release(guard).await;
        mutex.run(async |guard| fits(guard.remaining())).await.expect("granted");
    }
    assert!(client.close().await.unconfirmed().is_empty());
    let guard = spawn_blocking(move || blocking::Leasehold::connect(&url)?.mutex("blocking").lock());
    fits(guard.await.expect("no panic").expect("granted").remaining());
}

async fn bad_label(stage: &Stage, label: &str) {
    let refused = Leasehold::builder(stage.url()).holder(label).connect().await;
    invalid(refused.err(), "the holder's label must have at most 256 bytes and no control characters");
}

fn invalid(error: Option<Error>, message: &str) {
    let error = error.expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!error.may_have_acted() && !error.is_retryable());
    assert!(error.to_string().contains(message), "{error}");
}
