//! Locks, works and releases: one item is sold by one task at a time.
//!
//! ```sh
//! cargo run -p leasehold --example lock [URL]
//! ```
//!
//! The URL is that of a store, for example `redis://127.0.0.1:6379`. Without it, the store is `memory:`.

use leasehold::{Leasehold, Released};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leasehold = Leasehold::connect(&url).await?;

    // Four tasks want the same lock. They get it one after another, each with a larger token.
    let tasks: Vec<_> = (1..=4).map(|task| tokio::spawn(sell(leasehold.clone(), task))).collect();
    for task in tasks {
        task.await.expect("the task does not panic")?;
    }
    leasehold.close().await;
    Ok(())
}

async fn sell(leasehold: Leasehold, task: u32) -> leasehold::Result<()> {
    let guard = leasehold.mutex("stock:42").lock().await?;
    guard.check()?; // before each effect
    println!("task {task} sells an item");
    match guard.release().await? {
        Released::Released => Ok(()),
        // The work took longer than the lease could be kept. Another task may have worked at the same time.
        Released::NotHeld => panic!("task {task} lost its lock"),
    }
}
