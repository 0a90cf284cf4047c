//! Five real servers.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Released};

use crate::common::{LONG, NAME, assert_busy, client, five, granted, join};

const LEASE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_two_of_five_may_be_dead() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), LEASE).await, client(&quorum.url(), LEASE).await);
    let mut token = 0;
    for dead in 0..=3 {
        if dead > 0 {
            quorum.server(dead - 1).kill();
        }
        if dead == 3 {
            let error = a.mutex(NAME).try_lock().await.expect_err("two of five are no majority");
            assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
            println!("{error}");
            break;
        }
        let guard = a.mutex(NAME).lock().await.unwrap();
        assert!(guard.token().get() > token);
        assert_busy(&b.mutex(NAME)).await;
        let waiting = join(&b, &quorum.servers()[dead..]).await;
        let begun = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        let guard = granted(LONG, waiting).await;
        println!("{dead} dead: handed over in {:?}", begun.elapsed());
        token = guard.token().get();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}
