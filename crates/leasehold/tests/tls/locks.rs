//! Locks and fences over TLS work as without it.

use std::time::Duration;

use leasehold::fence::{Access, RedisFence};
use leasehold::{Leasehold, Released};
use leasehold_testkit::server::Clients;
use leasehold_testkit::{RedisServer, wait_until};

use crate::common::{Files, HOSTS, LONG, hang_up, in_time, inboxes, server};

/// By name and by address; with a hand-over, a reconnect while a lock is held and awaited, and a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_and_handed_over() {
    let server = RedisServer::start_tls();
    let by_name = Leasehold::builder(&server.tls_url()).lease(Duration::from_secs(3)).connect().await.unwrap();
    let by_address = Leasehold::connect(&server.tls_url().replace("localhost", "127.0.0.1")).await.unwrap();
    let first = by_name.mutex("stock").lock().await.unwrap();
    let mutex = by_address.mutex("stock");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    in_time("a waiter", async {
        while by_name.mutex("stock").inspect().await.unwrap().waiters != 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    hang_up(&server);
    wait_until("both clients have reconnected", LONG, || inboxes(&server) == 2);
    first.check().unwrap();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    let second = in_time("the lock", waiting).await.unwrap().unwrap();
    second.check().unwrap();
    server.restart();
    drop(in_time("the lock", by_name.mutex("other").lock()).await.unwrap());
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_works_over_tls() {
    let server = RedisServer::start_tls();
    let fence = RedisFence::connect(&server.tls_url()).await.unwrap();
    let client = Leasehold::connect(&server.tls_url()).await.unwrap();
    let guard = client.mutex("stock").lock().await.unwrap();
    fence.enter("stock", guard.token(), Access::Write).await.unwrap();
    fence.set("stock", guard.token(), "7").await.unwrap();
    hang_up(&server);
    assert_eq!(fence.get("stock", guard.token()).await.unwrap().as_deref(), Some(&b"7"[..]));
    drop(guard);
    let newer = in_time("the lock", client.mutex("stock").lock()).await.unwrap();
    fence.set("stock", newer.token(), "6").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_client_certificate() {
    let (server, authority) = server(|authority| authority.server(&HOSTS), Clients::Certified);
    let files = Files::new();
    let url = format!("{}&{}", server.tls_url(), files.show(&authority.client()));
    let client = Leasehold::connect(&url).await.unwrap();
    assert_eq!(client.mutex("stock").lock().await.unwrap().release().await.unwrap(), Released::Released);
    let fence = RedisFence::connect(&url).await.unwrap();
    drop(fence);
}
