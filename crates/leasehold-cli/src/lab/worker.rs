//! The worker of a trial: it uses the library as any program does, obeys orders, and reports what happens.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use leasehold::{Guard, Leasehold, Mutex};
use leasehold_hazards::live::ours::{Event, News, Order, Slot, now};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use crate::exit::{Exit, Failure};

/// Arguments of the hidden verb `worker`.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    /// The store
    store: String,
    /// The lease in milliseconds
    lease_ms: u64,
}

/// The name of the lock.
const NAME: &str = "lock";
/// A holder reports this often for how long it believes that it holds.
const BELIEF: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &WorkerArgs) -> Result<Exit, Failure> {
    // A worker can be stopped while it should read that its input has ended.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound
        .map_err(|error| Failure::system("cannot bind the life of the worker to that of its parent", &error.into()))?;
    let tasks = LocalSet::new();
    crate::block_on(tasks.run_until(async {
        let client = Leasehold::builder(&args.store).lease(Duration::from_millis(args.lease_ms)).connect().await?;
        report(0, News::Ready(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()));
        obey(client.mutex(NAME)).await;
        Ok(Exit::Done)
    }))
}

/// Obeys the orders until the input ends.
async fn obey(mutex: Mutex) {
    let (send, mut lines) = unbounded_channel();
    thread::spawn(move || io::stdin().lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let mut threads = BTreeMap::new();
    while let Some(line) = lines.recv().await {
        let parsed = line.split_once(' ').map(|(slot, order)| (slot.parse::<Slot>(), order.parse::<Order>()));
        let Some((Ok(slot), Ok(order))) = parsed else {
            report(0, News::Failed(format!("unknown order: {line}")));
            continue;
        };
        let orders = threads.entry(slot).or_insert_with(|| {
            let (send, orders) = unbounded_channel();
            spawn_local(Thread { slot, mutex: mutex.clone(), orders, later: VecDeque::new() }.obey());
            send
        });
        // A thread ends after a failure, which it has reported.
        let _sent = orders.send(order);
    }
}

/// One thread, which is a task here.
struct Thread {
    slot: Slot,
    mutex: Mutex,
    orders: UnboundedReceiver<Order>,
    /// The orders that came while the thread waited for the lock.
    later: VecDeque<Order>,
}

impl Thread {
    async fn obey(mut self) {
        let (mut held, mut checked) = (None::<Guard>, None);
        while let Some(order) = self.next(held.as_ref()).await {
            match (order, held.take()) {
                (Order::Lock(limit_ms), None) => match self.lock(limit_ms).await {
                    Ok(Some(guard)) => {
                        report(self.slot, News::Enters(guard.token().get(), end_of(&guard)));
                        held = Some(guard);
                    }
                    Ok(None) => report(self.slot, News::GivesUp),
                    Err(error) => return report(self.slot, News::Failed(error.to_string())),
                },
                (Order::Check, Some(guard)) => {
                    checked = guard.check().ok();
                    report(self.slot, News::Checked(checked.is_some()));
                    // The orders can come so fast that the thread would never report this otherwise.
                    report(self.slot, News::Believes(end_of(&guard)));
                    held = Some(guard);
                }
                (Order::Write, guard @ Some(_)) => {
                    if let Some(token) = checked.take() {
                        report(self.slot, News::Writes(token.get()));
                    }
                    held = guard;
                }
                (Order::Release, Some(guard)) => {
                    report(self.slot, News::Leaves);
                    match guard.release().await {
                        Ok(_) => report(self.slot, News::Released),
                        Err(error) => return report(self.slot, News::Failed(error.to_string())),
                    }
                }
                (Order::Drop, Some(guard)) => {
                    report(self.slot, News::Leaves);
                    drop(guard);
                }
                (order, _) => return report(self.slot, News::Failed(format!("{order} is out of order"))),
            }
        }
    }

    /// Waits for the next order. Meanwhile a holder reports for how long it believes that it holds.
    async fn next(&mut self, held: Option<&Guard>) -> Option<Order> {
        if let Some(order) = self.later.pop_front() {
            return Some(order);
        }
        loop {
            tokio::select! {
                order = self.orders.recv() => return order,
                () = sleep(BELIEF), if held.is_some() => {
                    report(self.slot, News::Believes(held.map_or(Duration::ZERO, end_of)));
                }
            }
        }
    }

    /// Waits for the lock. An order to cancel drops the future, and other orders wait.
    async fn lock(&mut self, limit_ms: Option<u64>) -> leasehold::Result<Option<Guard>> {
        report(self.slot, News::Wants(limit_ms));
        let mutex = self.mutex.clone();
        let wait = async move {
            match limit_ms {
                Some(ms) => mutex.try_lock_for(Duration::from_millis(ms)).await,
                None => mutex.lock().await.map(Some),
            }
        };
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                result = &mut wait => return result,
                order = self.orders.recv() => match order {
                    Some(Order::Cancel) | None => return Ok(None),
                    Some(order) => self.later.push_back(order),
                },
            }
        }
    }
}

/// Returns the time until which a holder believes that it holds. A delay between the two readings makes it later: so no
/// holder says too early that it stops.
fn end_of(guard: &Guard) -> Duration {
    let left = guard.remaining();
    if left.is_zero() { Duration::ZERO } else { now() + left }
}

/// Writes an event that happens now.
fn report(slot: Slot, news: News) {
    let event = Event::now(slot, news);
    // Nobody reads on if the trial is over.
    let _written = writeln!(io::stdout().lock(), "{event}");
}
