//! Five real servers.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold, Released};
use leasehold_testkit::Quorum;

async fn five() -> Quorum {
    let quorum = Quorum::builder(5).max_lease(Duration::from_secs(10)).start();
    leasehold::quorum::begin(&quorum.url()).await.expect("all are there");
    quorum
}

async fn client(url: &str) -> Leasehold {
    Leasehold::builder(url).lease(Duration::from_secs(5)).connect().await.expect("a majority is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_two_of_five_may_be_dead() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url()).await, client(&quorum.url()).await);
    let mut token = 0;
    for dead in 0..=3 {
        if dead > 0 {
            quorum.server(dead - 1).kill();
        }
        if dead == 3 {
            let error = a.mutex("a").try_lock().await.expect_err("two of five are no majority");
            assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
            println!("{error}");
            break;
        }
        let guard = a.mutex("a").lock().await.unwrap();
        assert!(guard.token().get() > token);
        assert!(b.mutex("a").try_lock().await.unwrap().is_none());
        let next = b.mutex("a");
        let waiting = tokio::spawn(async move { next.lock().await.map(|guard| (guard, Instant::now())) });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let (guard, at) = waiting.await.unwrap().unwrap();
        println!("{dead} dead: handed over in {:?}", at - begun);
        token = guard.token().get();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}
