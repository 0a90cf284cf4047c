//! The faces on a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released};
use leasehold_testkit::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_many_clients_never_meet() {
    let server = RedisServer::start();
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    let begun = Instant::now();
    for _ in 0..4 {
        let leasehold = Leasehold::connect(&server.url()).await.unwrap();
        for _ in 0..8 {
            let (mutex, inside) = (leasehold.mutex("one"), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..50 {
                    let guard = mutex.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    tokio::task::yield_now().await;
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    assert!(guard.check().unwrap().get() > last, "tokens rise");
                    last = guard.token().get();
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            }));
        }
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("nobody starves").unwrap();
    }
    println!("{:?}", begun.elapsed());
}
