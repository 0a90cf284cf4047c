//! Servers that lie: garbage, halves of replies, wrong types and numbers, impossible lengths, endless pushes. At each
//! stage of a client's life every call ends within its bound, nothing panics, and no client relies on a lease for
//! longer than it lasts. When the server replies correctly again, the client goes on.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[expect(dead_code, reason = "its memory is measured elsewhere")]
mod liar;

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Guard, Leasehold, Mutex};
use liar::{Liar, Lie, Says};

/// The time that a busy machine may add to a bound.
const SLACK: Duration = Duration::from_secs(5);
/// The time until a client that has lost its server works again: an unanswered request (2 s), a new connection (5 s), a
/// re-check (1 s).
const BACK: Duration = Duration::from_secs(15);
const LEASE: Duration = Duration::from_millis(1_500);
/// How often a step is repeated that a busy machine can prevent.
const TRIES: usize = 10;

/// The lies of every stage, in place of the reply or beside it.
fn lies() -> Vec<Says> {
    let bytes = |bytes: &[u8]| Says::Instead(bytes.to_vec());
    vec![
        bytes(b"\x00\xff\xfe not the protocol \r\n"),
        bytes(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        bytes(b"$4\r\n\xff\xfe\xfd\xfc\r\n"),
        bytes(b":42\r\n"),
        bytes(b"_\r\n"),
        bytes(b"+OK\r\n"),
        bytes(b"*0\r\n"),
        bytes(b"*-5\r\n"),
        bytes(b"$-7\r\n"),
        bytes(b"%1\r\n+a\r\n+b\r\n"),
        bytes(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"),
        bytes(b"-ERR nothing that anybody knows\r\n"),
        bytes(b"$999999999999\r\nabc"),
        bytes(b"*2147483647\r\n"),
        bytes(b"*9223372036854775807\r\n"),
        bytes(b"%9223372036854775807\r\n"),
        bytes(b">9223372036854775807\r\n"),
        bytes(&b"*1\r\n".repeat(10_000)),
        // A token larger than any client grants; one that was never granted; an impossible time.
        bytes(b"$16\r\n9999999999999999\r\n"),
        bytes(b"$16\r\n0000000000000000\r\n"),
        bytes(b"$56\r\nGRANTED 18446744073709551615 18446744073709551615 N D - 1\r\n"),
        // Nearly the reply to a renewal.
        bytes(b"$16\r\nR179527653608644\r\n"),
        bytes(b"$18\r\nR17952765360864499\r\n"),
        bytes(b"$17\r\nR-795276536086449\r\n"),
        bytes(b"$35\r\nR1795276536086449\nR1795276536086449\r\n"),
        bytes(b"$71\r\nRENEWED 1795276536086449 1795276536085874 N D - 18446744073709551615 10\r\n"),
        Says::Before(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\nlh1\r\n".to_vec()),
        Says::Before(b":1\r\n".to_vec()),
        Says::Twice,
        Says::HalfAndSilence,
        Says::HalfAndEnd,
        Says::Silence,
        Says::Endless(Vec::new(), b">2\r\n$7\r\nnothing\r\n$1\r\na\r\n".repeat(100)),
        Says::Endless(b"$536870912\r\n".to_vec(), vec![b'x'; 1 << 16]),
        Says::Endless(b"+".to_vec(), vec![b'x'; 1 << 16]),
    ]
}

/// Runs one test for each lie, all at once.
async fn each<F: Future<Output = ()> + Send + 'static>(
    test: impl Fn(Liar, Says, String) -> F,
    stages: &[&'static str],
) {
    let mut running = Vec::new();
    for &stage in stages {
        for says in lies() {
            let what = format!("{stage}: {says:?}").chars().take(100).collect::<String>();
            let liar = Liar::start();
            liar.lie((stage, says.clone()));
            running.push((what.clone(), tokio::spawn(test(liar, says, what))));
        }
    }
    let mut failed = Vec::new();
    for (what, test) in running {
        if let Err(error) = test.await {
            failed.push(format!("{what}: {error}"));
        }
    }
    assert!(failed.is_empty(), "{} lies broke the client:\n{}", failed.len(), failed.join("\n"));
}

async fn within<T>(bound: Duration, what: &str, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = tokio::time::timeout(bound + SLACK, work).await;
    done.unwrap_or_else(|_| panic!("{what}: nothing after {:?}", began.elapsed()))
}

/// The server sends the real replies again: a client can connect, and every waiter gets its lock.
async fn recovers(liar: &Liar, client: &Leasehold, what: &str) {
    liar.tell_the_truth();
    let guard = within(BACK, what, client.mutex("recovered").lease(LEASE).lock()).await;
    drop(guard.unwrap_or_else(|error| panic!("{what}: afterwards: {error}")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_the_greeting() {
    let stages = ["HELLO", "ROLE", "INFO", "rights", "TIME", "SUBSCRIBE", "PUBLISH"];
    each(
        async |liar: Liar, _, what: String| {
            // The bound of `connect`, and of the callers' lane after it.
            let connected = within(Duration::from_secs(6), &what, Leasehold::connect(&liar.url())).await;
            let client = match connected {
                // For this stage the bytes were valid.
                Ok(client) => client,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("127.0.0.1") || text.contains("the store"), "{what}: {text}");
                    liar.tell_the_truth();
                    within(Duration::from_secs(6), &what, Leasehold::connect(&liar.url())).await.unwrap()
                }
            };
            assert!(liar.lies() > 0, "{what}: it never lied");
            recovers(&liar, &client, &what).await;
        },
        &stages,
    )
    .await;
}

/// Returns a client whose server has sent only real replies so far, with the lock of another name.
async fn client_of(liar: &Liar, lie: Lie) -> (Leasehold, Guard) {
    liar.tell_the_truth();
    let client = Leasehold::connect(&liar.url()).await.unwrap();
    let other = client.mutex("other").fixed_lease(LEASE).lock().await.unwrap();
    liar.lie(lie);
    (client, other)
}

/// The client must not rely on a lease that has ended, whatever the server sends.
async fn ends_in_time(guard: Guard, what: &str) {
    let began = Instant::now();
    while guard.is_valid() {
        assert!(began.elapsed() <= LEASE, "{what}: the guard is valid beyond its fixed lease");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_an_acquire() {
    each(
        async |liar: Liar, says, what: String| {
            let (client, other) = client_of(&liar, ("acquire", says)).await;
            let mutex = client.mutex("n").lease(LEASE);
            let tried = within(LEASE / 6, &what, mutex.try_lock()).await;
            let tried = tried.map(|guard| guard.is_some()).map_err(|error| error.kind());
            // Three of the lies are valid replies. The others lead to an error.
            let fine =
                [Ok(true), Ok(false), Err(ErrorKind::Unreachable), Err(ErrorKind::Store), Err(ErrorKind::Foreign)];
            assert!(fine.contains(&tried), "{what}: {tried:?}");
            let waited =
                within(Duration::from_millis(600), &what, mutex.try_lock_for(Duration::from_millis(100))).await;
            assert!(waited.is_ok() || waited.is_err_and(|error| error.kind() != ErrorKind::Lost), "{what}");
            assert!(liar.lies() > 0, "{what}: it never lied");
            ends_in_time(other, &what).await;
            recovers(&liar, &client, &what).await;
        },
        &["acquire"],
    )
    .await;
}

fn also_replies(says: &Says) -> bool {
    matches!(says, Says::Before(_) | Says::Twice)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_a_renewal() {
    each(
        async |liar: Liar, says, what: String| {
            let (client, other) = client_of(&liar, ("renew", says.clone())).await;
            let (mut other, mut is_kept) = (Some(other), false);
            // On a busy machine a lease can end before its renewal is sent. Then the test tries again.
            for _ in 0..TRIES {
                let guard = within(BACK, &what, client.mutex("n").lease(LEASE).lock()).await.unwrap();
                if let Some(other) = other.take() {
                    ends_in_time(other, &what).await;
                }
                is_kept = tokio::time::timeout(2 * LEASE, guard.lost()).await.is_err();
                if is_kept || liar.lies() > 0 {
                    break;
                }
            }
            // Two of the lies also send the real reply, and one is a push, which does not concern renewals.
            assert!(!is_kept || also_replies(&says), "{what}: kept by a lie");
            assert!(liar.lies() > 0, "{what}: it never lied");
            recovers(&liar, &client, &what).await;
        },
        &["renew"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_a_release() {
    each(
        async |liar: Liar, says, what: String| {
            let (client, other) = client_of(&liar, ("return", says)).await;
            let mutex = client.mutex("n").lease(LEASE);
            // On a busy machine a lease can end before it is released, and no request is sent then. Then the test tries
            // again.
            for _ in 0..TRIES {
                let guard = within(BACK, &what, mutex.lock()).await.unwrap();
                let _any = within(LEASE + Duration::from_secs(2), &what, guard.release()).await;
                if liar.lies() > 0 {
                    break;
                }
            }
            assert!(liar.lies() > 0, "{what}: it never lied");
            ends_in_time(other, &what).await;
            recovers(&liar, &client, &what).await;
        },
        &["return"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_a_hand_over() {
    // A strict holder is not notified of waiters: the first push is that of the grant.
    each(async |liar: Liar, says, what: String| pushes(Mutex::fair, liar, says, what).await, &["push"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_the_message_that_others_wait() {
    each(async |liar: Liar, says, what: String| pushes(|mutex| mutex, liar, says, what).await, &["push"]).await;
}

/// The first push is a lie: the push to the holder, or the push to the waiter.
async fn pushes(order: fn(Mutex) -> Mutex, liar: Liar, says: Says, what: String) {
    let (client, other) = client_of(&liar, ("push", says)).await;
    let holder = order(client.mutex("n").lease(LEASE)).lock().await.unwrap();
    let second = Leasehold::connect(&liar.url()).await.unwrap();
    let waiter = second.mutex("n").lease(LEASE);
    let waiting = tokio::spawn(async move { waiter.lock().await });
    // A lie may break the connection of this request.
    let queued = async {
        while second.mutex("n").inspect().await.map_or(0, |there| there.waiters) == 0 && !waiting.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(BACK, &what, queued).await;
    drop(holder.release().await);
    // Granted by the push or by a re-check.
    let granted = within(BACK, &what, waiting).await.unwrap();
    assert!(granted.is_ok() && liar.lies() > 0, "{what}: {granted:?}");
    drop(granted);
    ends_in_time(other, &what).await;
    recovers(&liar, &client, &what).await;
    recovers(&liar, &second, &what).await;
}
