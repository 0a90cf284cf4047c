//! Waits for a limited time, and tells a busy lock from an unreachable store.
//!
//! ```sh
//! cargo run -p leasehold --example timeouts [URL]
//! ```

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold, Mutex};
use tokio::time::timeout;

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leasehold = Leasehold::connect(&url).await?;
    let mutex = leasehold.mutex("deploy");

    let guard = mutex.lock().await?;
    attempt(&mutex).await?; // prints that the lock is busy
    drop(guard);
    attempt(&mutex).await?; // prints that it was acquired

    // Any other limit works as well: dropping the future leaves the queue.
    let guard = mutex.lock().await?;
    match timeout(Duration::from_millis(100), mutex.lock()).await {
        Ok(guard) => drop(guard?),
        Err(_elapsed) => println!("not acquired within 100 ms"),
    }

    // A release waits for the store, at most for the lease and 2 s. After this timeout it continues in the background.
    match timeout(Duration::from_secs(1), guard.release()).await {
        Ok(released) => println!("{:?}", released?),
        Err(_elapsed) => println!("the store has not confirmed the release yet"),
    }
    Ok(())
}

async fn attempt(mutex: &Mutex) -> leasehold::Result<()> {
    match mutex.try_lock_for(Duration::from_millis(200)).await {
        Ok(Some(guard)) => println!("acquired with token {}", guard.token()),
        Ok(None) => println!("busy for 200 ms: somebody else holds the lock"),
        Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum) => {
            println!("the store is unreachable, try again later: {error}");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
