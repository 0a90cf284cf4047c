//! Thousands of calls at the same time.

use std::time::{Duration, Instant};

use leasehold::{Mutex, Released};

use crate::conformance::Backend;
use crate::conformance::stage::{Stage, soon};

/// Enough calls that a store on a disk takes longer than the lease if it serves them in the order of their arrival.
const ARRIVALS: usize = 2_000;
/// Each of them is a request to three servers, and other cells share the machine.
const OF_A_QUORUM: usize = 500;
const LEASE: Duration = Duration::from_millis(1_500);
/// How long `inspect` may take (the table *Time* of the crate's front page).
const ANSWER: Duration = Duration::from_secs(2);

/// Two clients ask for one lock thousands of times. Their lease is renewed in time, and inspections are answered.
pub(super) async fn a_crowd_holds_nobody_up(stage: &Stage) {
    let clients = [stage.client("a").await, stage.client("b").await];
    let held = clients[0].mutex(stage.name()).lease(LEASE).lock().await.expect("granted");
    let count = if stage.running().backend() == Backend::Quorum { OF_A_QUORUM } else { ARRIVALS };
    let crowd = stage.name_of("crowd");
    // In strict order each of them has an entry of its own at the store.
    let arrive = |mutex: Mutex| tokio::spawn(async move { mutex.lock().await?.release().await });
    let arrivals: Vec<_> = (0..count).map(|at| arrive(clients[at % 2].mutex(&crowd).fair())).collect();
    let (mut longest, mut looks) = (Duration::ZERO, 0);
    while looks == 0 || arrivals.iter().any(|arrival| !arrival.is_finished()) {
        for client in &clients {
            let begun = Instant::now();
            let seen = client.mutex(stage.name()).inspect().await.expect("an answer");
            assert_eq!(seen.holder().expect("it is renewed").token, held.token());
            longest = longest.max(begun.elapsed());
        }
        looks += 1;
    }
    println!("{count} arrivals, {looks} times two looks: the longest took {longest:.1?}");
    for arrival in arrivals {
        let end = soon("it is served", arrival).await.expect("no panic").expect("an answer");
        assert_eq!(end, Released::Released);
    }
    assert!(longest < ANSWER, "{longest:?}");
    assert_eq!(held.release().await.expect("an answer"), Released::Released, "it was renewed meanwhile");
}
