//! A subscriber of `tracing` gets a span for each call, and events for changes that no call causes.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use leasehold::{Guard, Leasehold, LostReason};
use leasehold_testkit::proxy::{FaultProxy, Way};
use leasehold_testkit::{RedisServer, wait_until};
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const LONG: Duration = Duration::from_secs(20);

/// Everything that was emitted: a span as `span acquire stock`, an event as `event lost stock`.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Notifies the tasks that wait for a line.
static ADDED: Notify = Notify::const_new();
/// Guards to drop when an event names their lock: a subscriber may call this crate.
static DROPPED: Mutex<Option<HashMap<String, Guard>>> = Mutex::new(None);

struct Collector {
    last: AtomicU64,
}

/// The fields `message` and `lock`, and the others as text.
#[derive(Default)]
struct Fields {
    message: String,
    lock: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "lock" => self.lock = format!("{value:?}"),
            name => self.others += &format!(" {name}={value:?}"),
        }
    }
}

fn seen() -> Vec<String> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note(line: String) {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    ADDED.notify_waiters();
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        note(format!("span {} {}", span.metadata().name(), fields.lock));
        Id::from_u64(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let guard = DROPPED.lock().unwrap().as_mut().and_then(|guards| guards.remove(&fields.lock));
        drop(guard);
        note(format!("event {} {}{}", fields.message, fields.lock, fields.others));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Installs the collector for this process, once.
fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Collector { last: AtomicU64::new(0) }).unwrap());
}

fn is_seen(line: &str) -> bool {
    seen().iter().any(|seen| seen.starts_with(line))
}

#[track_caller]
fn await_line(line: &str) {
    wait_until(line, LONG, || is_seen(line));
}

async fn seen_soon(line: &str) {
    let emitted = timeout(LONG, async {
        loop {
            // Registered before the check: a line that comes in between is not missed.
            let added = ADDED.notified();
            if is_seen(line) {
                return;
            }
            added.await;
        }
    });
    assert!(emitted.await.is_ok(), "{line} was not emitted, but {:?}", seen());
}

async fn client(store: &str) -> Leasehold {
    collect();
    Leasehold::connect(store).await.unwrap()
}

#[tokio::test]
async fn each_call_is_a_span_with_the_name_of_its_operation() {
    let client = client("memory:").await;
    let mutex = client.mutex("calls");
    let guard = mutex.lock().await.unwrap();
    let holder = mutex.inspect().await.unwrap().holder().cloned().unwrap();
    let _revoked = mutex.revoke(&holder, Duration::ZERO).await.unwrap();
    let _not_held = guard.release().await.unwrap();
    for operation in ["acquire", "inspect", "revoke", "release"] {
        assert!(is_seen(&format!("span {operation} calls")), "{operation}: {:?}", seen());
    }
}

#[tokio::test]
async fn waiting_and_handing_over_are_events() {
    let (a, b) = (client("memory:tracing").await, client("memory:tracing").await);
    for (other, name, to) in [(&a, "inside", "inside the client"), (&b, "outside", "to the next waiter")] {
        let guard = a.mutex(name).lock().await.unwrap();
        let next = other.mutex(name);
        let waiting = tokio::spawn(async move { next.lock().await });
        seen_soon(&format!("event waits: somebody else holds the lock {name}")).await;
        let _released = guard.release().await.unwrap();
        drop(timeout(LONG, waiting).await.unwrap().unwrap().unwrap());
        assert!(is_seen(&format!("event handed over {to} {name}")), "{:?}", seen());
    }
}

/// The guard is dropped in the subscriber, and this takes the mutex of the session: nothing is emitted under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_an_event_with_its_reason_and_a_subscriber_may_call_back() {
    let client = client("memory:").await;
    let mutex = client.mutex("revoked");
    let guard = mutex.lock().await.unwrap();
    let lost = guard.lost();
    let other = client.mutex("dropped in the subscriber").lock().await.unwrap();
    DROPPED.lock().unwrap().get_or_insert_default().insert("revoked".into(), other);
    let holder = mutex.inspect().await.unwrap().holder().cloned().unwrap();
    let _revoked = mutex.revoke(&holder, Duration::from_secs(5)).await.unwrap();
    assert_eq!(timeout(LONG, lost).await.unwrap().reason(), LostReason::Revoked);
    seen_soon("event lost revoked reason=").await;
    let line = seen().into_iter().find(|line| line.starts_with("event lost revoked")).unwrap();
    assert!(line.contains("revoked the lease") || line.contains("revoked"), "{line}");
    assert!(client.mutex("dropped in the subscriber").try_lock().await.unwrap().is_some());
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_an_event_for_the_store_and_for_each_renewal() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let client = client(&proxy.url()).await;
    let guard = client.mutex("outage").lease(Duration::from_secs(3)).lock().await.unwrap();
    proxy.stall(Way::Both);
    await_line("event renewal late outage");
    proxy.resume();
    proxy.refuse_connections();
    proxy.cut_all();
    await_line("event store lost");
    proxy.accept_connections();
    await_line("event store back");
    drop(guard);
}
