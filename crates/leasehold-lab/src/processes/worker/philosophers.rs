//! Dining philosophers: each one needs the two forks beside it. Every second one names the right fork first, and the
//! others the left one. A multi-lock takes them in an order of its own, so nobody waits in a circle.

use std::time::Duration;

use super::{Worker, alone, ending, released};
use crate::processes::scene::Scene;

pub(super) async fn dine(worker: &mut Worker) -> leasehold::Result<()> {
    let seats = Scene::Philosophers.processes();
    let mut forks = [worker.who.number, (worker.who.number + 1) % seats];
    if worker.who.number % 2 == 1 {
        forks.reverse();
    }
    let both = leasehold::all(forks.map(|fork| worker.client.mutex(format!("fork {fork}"))));
    while let Some(guard) = worker.get(both.lock()).await? {
        worker.enter(forks.into_iter().zip(guard.tokens()).map(|(fork, token)| alone(fork, token)).collect());
        worker.pause(Duration::from_millis(3)).await;
        worker.leave(ending(&guard.check()));
        released(guard.release().await)?;
        worker.pause(Duration::from_millis(3)).await;
    }
    Ok(())
}
