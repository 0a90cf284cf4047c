//! The runtime that connected ends, or is polled by nobody.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released};
use tokio::runtime::{Builder, Runtime};

use crate::common::{MAX_LEASE, NAME, PROMPT, await_no_residue, client, five, within};

/// Far below the 250 ms after which a request that too few nodes answered is asked again.
const USUAL: Duration = Duration::from_millis(100);
/// How many locks the slowest of them is the median of.
const LOCKS: usize = 9;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How long a lock and its release take, in the median: on a busy machine one or two may be slow.
async fn median(client: &Leasehold) -> Duration {
    let mut took = Vec::new();
    for _ in 0..LOCKS {
        let begun = Instant::now();
        let guard = within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap();
        assert_eq!(within(PROMPT, "the release", guard.release()).await.unwrap(), Released::Released);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[LOCKS / 2]
}

/// Nobody connects the nodes of its lane any more: the lane ends with it, and another one is opened.
#[test]
fn locks_are_as_fast_as_before_when_the_runtime_that_connected_has_ended() {
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let quorum = servers.block_on(five());
    let client = first.block_on(client(&quorum.url(), MAX_LEASE));
    let before = first.block_on(median(&client));
    drop(first);
    let after = second.block_on(median(&client));
    println!("before {before:?}, after {after:?}");
    assert!(after < USUAL, "{after:?}");
    second.block_on(client.close());
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

#[test]
fn locks_are_as_fast_as_before_when_nobody_polls_the_runtime_that_connected() {
    let (servers, first, second) = (runtime(), runtime(), runtime());
    let quorum = servers.block_on(five());
    let client = first.block_on(client(&quorum.url(), MAX_LEASE));
    let guard = first.block_on(client.mutex(NAME).lock()).unwrap();
    let after = second.block_on(async {
        assert_eq!(within(PROMPT, "the release", guard.release()).await.unwrap(), Released::Released);
        median(&client).await
    });
    assert!(after < USUAL, "{after:?}");
    second.block_on(client.close());
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}
