//! Two candidates, and an observer that prints who leads.
//!
//! ```sh
//! cargo run -p leasehold --example election [URL]
//! ```

use leasehold::{Leader, Leasehold};

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leasehold = Leasehold::connect(&url).await?;
    let election = leasehold.election("shard 7");
    let mut observer = election.observe();
    print(observer.next().await?);

    let first = election.campaign("10.0.0.3:7000").await?;
    print(observer.next().await?);

    // The second candidate waits for its turn.
    let candidate = tokio::spawn({
        let election = election.clone();
        async move { election.campaign("10.0.0.4:7000").await }
    });
    first.check()?; // before each effect
    let _released = first.resign().await?;
    let second = match candidate.await {
        Ok(elected) => elected?,
        Err(panic) => {
            println!("the candidate panicked: {panic}");
            return Ok(());
        }
    };
    print(observer.next().await?);
    // A program that just ends leads until its lease ends.
    let _released = second.resign().await?;
    Ok(())
}

fn print(leader: Option<Leader>) {
    match leader {
        Some(leader) => println!("{} leads", leader.value),
        None => println!("nobody leads"),
    }
}
