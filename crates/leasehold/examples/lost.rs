//! Stops the work when the lease is lost.
//!
//! ```sh
//! cargo run -p leasehold --example lost [URL]
//! ```
//!
//! Here an operator revokes the lock while the work runs. A lease can also be lost because the process was stopped, or
//! because the store was unreachable for too long. The holder reacts in the same way.

use std::time::Duration;

use leasehold::{Guard, Leasehold, Lost};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:shop".to_owned());
    let leasehold = Leasehold::connect(&url).await?;
    let guard = leasehold.mutex("report").lock().await?;
    let operator = tokio::spawn(revoke(url));

    let done = tokio::select! {
        done = work(&guard) => done,
        lost = guard.lost() => Err(lost),
    };
    match done {
        Ok(()) => println!("the work is done"),
        // For `grace`, nobody else gets the lock: finish or undo the current step in this time. It is zero if the lease
        // was not revoked, but has ended.
        Err(lost) => println!("{lost}; {} s are left to stop", guard.grace().as_secs_f64().ceil()),
    }
    operator.await.expect("the task does not panic")
}

async fn work(guard: &Guard) -> Result<(), Lost> {
    for step in 1..=100 {
        // The token of `check` belongs to the effect: a resource that checks it refuses a former holder.
        let token = guard.check()?;
        println!("step {step} with token {token}");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Another program would do this, or `leasehold revoke report`.
async fn revoke(url: String) -> leasehold::Result<()> {
    sleep(Duration::from_millis(350)).await;
    let mutex = Leasehold::connect(&url).await?.mutex("report");
    if let Some(holder) = mutex.inspect().await?.holder() {
        mutex.revoke(holder, Duration::from_secs(2)).await?;
    }
    Ok(())
}
