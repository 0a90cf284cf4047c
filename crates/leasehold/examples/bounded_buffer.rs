//! A producer and a consumer share a buffer with three places. Each waits for the other.
//!
//! ```sh
//! cargo run -p leasehold --example bounded_buffer [URL]
//! ```

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold::Leasehold;

const PLACES: usize = 3;
const ITEMS: u32 = 6;

/// The state that the lock protects. Real programs have it in a database, which checks the token.
type Buffer = Arc<Mutex<VecDeque<u32>>>;

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leasehold = Leasehold::connect(&url).await?;
    let buffer = Buffer::default();
    let (consumed, produced) =
        tokio::join!(tokio::spawn(consume(leasehold.clone(), Arc::clone(&buffer))), produce(leasehold, buffer));
    produced?;
    match consumed {
        Ok(consumed) => println!("{} items arrived, in order", consumed?),
        Err(panic) => println!("the consumer panicked: {panic}"),
    }
    Ok(())
}

async fn produce(leasehold: Leasehold, buffer: Buffer) -> leasehold::Result<()> {
    let (mutex, not_empty, not_full) =
        (leasehold.mutex("buffer"), leasehold.condvar("buffer: not empty"), leasehold.condvar("buffer: not full"));
    for item in 1..=ITEMS {
        let guard = not_full
            .wait_while(mutex.lock().await?, |_token| ready(with(&buffer, |buffer| buffer.len() == PLACES)))
            .await?;
        guard.check()?; // before the change
        with(&buffer, |buffer| buffer.push_back(item));
        not_empty.notify_one().await?;
        let _released = guard.release().await?;
    }
    Ok(())
}

async fn consume(leasehold: Leasehold, buffer: Buffer) -> leasehold::Result<u32> {
    let (mutex, not_empty, not_full) =
        (leasehold.mutex("buffer"), leasehold.condvar("buffer: not empty"), leasehold.condvar("buffer: not full"));
    for item in 1..=ITEMS {
        let guard = not_empty
            .wait_while(mutex.lock().await?, |_token| ready(with(&buffer, |buffer| buffer.is_empty())))
            .await?;
        guard.check()?; // before the change
        assert_eq!(with(&buffer, VecDeque::pop_front), Some(item));
        not_full.notify_one().await?;
        let _released = guard.release().await?;
    }
    Ok(ITEMS)
}

fn with<T>(buffer: &Buffer, change: impl FnOnce(&mut VecDeque<u32>) -> T) -> T {
    change(&mut buffer.lock().unwrap_or_else(PoisonError::into_inner))
}
