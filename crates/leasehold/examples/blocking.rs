//! The same operations for threads, without an async runtime.
//!
//! ```sh
//! cargo run -p leasehold --features blocking --example blocking [URL]
//! ```

use std::thread;
use std::time::Duration;

use leasehold::blocking::{Canceller, Leasehold};

fn main() -> leasehold::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let leasehold = Leasehold::connect(&url)?;

    // A thread may lock again what it holds. The last guard releases.
    let mutex = leasehold.mutex("stock:42").reentrant();
    let outer = mutex.lock()?;
    let inner = mutex.lock()?;
    assert_eq!(inner.token(), outer.token());
    println!("this thread holds the lock twice");

    // Another thread waits, until this one cancels the wait.
    let (canceller, waiter) = (Canceller::new(), mutex.clone());
    let switch = canceller.clone();
    let waiting = thread::spawn(move || waiter.lock_or_cancel(&switch));
    thread::sleep(Duration::from_millis(100));
    canceller.cancel();
    let result = waiting.join().expect("the thread does not panic")?;
    assert!(result.is_none());
    println!("another thread stopped waiting");

    // `on_lost` calls a function on a new thread. `wait_lost` waits here.
    outer.on_lost(|lost| println!("never printed: the lock is released, not lost ({lost})"));
    assert_eq!(inner.wait_lost(Duration::from_millis(10)), None);

    drop(inner);
    let _released = outer.release()?;
    println!("released");
    leasehold.close();
    Ok(())
}
