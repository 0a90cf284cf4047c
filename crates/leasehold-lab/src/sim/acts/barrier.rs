//! Barriers: tasks arrive, stop waiting, and are dropped while they wait. These are acts beside those of the mutex.

use std::sync::Mutex as Lock;
use std::time::Duration;

use leasehold::ErrorKind;

use super::super::call::Method;
use super::super::exec::lock;
use super::super::plan::MS;
use super::super::worker::Worker;
use super::pool::random_wait;

const WAIT: Method = Method::asks("wait at a barrier");

/// The arrivals of a run.
#[derive(Default)]
pub(super) struct Rounds(Lock<Vec<Arrival>>);

struct Arrival {
    name: String,
    /// When the store had certainly ended it. An arrival that was dropped, or whose program died, has no such time.
    until_us: Option<u64>,
    has_led: bool,
}

impl Rounds {
    fn begin(&self, name: &str) -> usize {
        let mut arrivals = lock(&self.0);
        arrivals.push(Arrival { name: name.to_owned(), until_us: None, has_led: false });
        arrivals.len() - 1
    }

    /// Ends an arrival that was let through. Returns what is wrong: another party must have waited at the same time, and
    /// each leader needs a party of its own that has not led.
    fn let_through(&self, number: usize, (from_us, now_us): (u64, u64), has_led: bool) -> Option<&'static str> {
        let mut arrivals = lock(&self.0);
        arrivals[number].until_us = Some(now_us);
        arrivals[number].has_led = has_led;
        let name = &arrivals[number].name;
        let of_this = || arrivals.iter().enumerate().filter(|(_, arrival)| arrival.name == *name);
        let met = |(at, other): (usize, &Arrival)| at != number && other.until_us.is_none_or(|us| us >= from_us);
        if !of_this().any(met) {
            return Some("P52: a party was let through alone");
        }
        let leaders = of_this().filter(|(_, arrival)| arrival.has_led).count();
        (leaders > of_this().count() / 2).then_some("P52: more leaders than rounds")
    }

    fn end(&self, number: usize, now_us: u64) {
        lock(&self.0)[number].until_us = Some(now_us);
    }
}

pub(super) async fn act(worker: &mut Worker, name: &str) {
    // A party that is out of reach for this time fails. So it has to be longer than most faults.
    let lease = Duration::from_millis(worker.rng.between(1_000, 30_000));
    let name = format!("{name}: step");
    let barrier = worker.leasehold.barrier(&name, 2).lease(lease);
    let wait = random_wait(worker);
    let drops_after_us = if worker.rng.percent(20) { worker.rng.scaled(1, 5_000 * MS) } else { u64::MAX / 2 };
    let (call, number) = (worker.call(WAIT.what), worker.sim.ledgers.rounds.begin(&name));
    let result = tokio::select! {
        biased;
        result = barrier.wait_for(wait) => result,
        () = worker.sleep(drops_after_us) => return worker.sim.book.count("a dropped arrival"),
    };
    let now_us = worker.sim.exec.now_us();
    if let Ok(Some(passed)) = &result {
        let wrong = worker.sim.ledgers.rounds.let_through(number, (call.began_us, now_us), passed.is_leader());
        wrong.into_iter().for_each(|what| worker.wrong(what));
    } else if matches!(result, Ok(None)) {
        // After an error the party may still be counted: it does not know.
        worker.sim.ledgers.rounds.end(number, now_us);
    }
    match result {
        Ok(Some(passed)) if passed.is_leader() => worker.sim.book.count("a round let through"),
        Ok(Some(_)) => worker.sim.book.count("another party let through"),
        Ok(None) => worker.sim.book.count("an arrival whose time was over"),
        Err(error) if error.kind() == ErrorKind::Broken => worker.sim.book.count("a broken round"),
        Err(error) => worker.check_result(WAIT, Some(&error), &call),
    }
}
