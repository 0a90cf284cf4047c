//! The sale, and the team of workers that sells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Guard, Released, Token};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::plan::Plan;
use crate::shop::{Refusal, Shop, Stock};

/// An order of the manager to a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start to sell.
    Go,
    /// To the sleeper: finish your current sale.
    WakeUp,
    /// Finish your current sale, and start no other.
    Stop,
}

/// A note of a team to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    Ready,
    /// The sleeper holds the lock, has read this number of pieces, has checked its lease, and is about to write.
    AboutToWrite {
        left: u64,
    },
    /// The team has sold this many more pieces.
    Sold(u64),
    Done(Tally),
    Failed(String),
}

/// The results of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) sold: u64,
    /// Sales that the fence refused.
    pub(crate) refused: u64,
    /// Sales given up before the write, because the lease was lost.
    pub(crate) given_up: u64,
    /// Sales whose lease had ended when they were done.
    pub(crate) outlived: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Seller,
    /// The worker that is stopped in its first sale.
    Sleeper,
}

/// How often a team reports its sales.
const PROGRESS: Duration = Duration::from_millis(50);

/// Sells until nothing is left, or until the manager sends `Stop` or is gone.
pub(crate) async fn team(
    plan: &Plan,
    role: Role,
    stock: Stock,
    orders: UnboundedReceiver<Order>,
    notes: UnboundedSender<Note>,
) {
    let last_note = match Shop::open(plan, role, stock).await {
        Ok(shop) => sell_out(plan, role, shop, orders, &notes).await.map_or_else(Note::Failed, Note::Done),
        Err(why) => Note::Failed(why),
    };
    // If the manager is gone, the note is not needed.
    let _ = notes.send(last_note);
}

async fn sell_out(
    plan: &Plan,
    role: Role,
    shop: Shop,
    mut orders: UnboundedReceiver<Order>,
    notes: &UnboundedSender<Note>,
) -> Result<Tally, String> {
    let _ = notes.send(Note::Ready);
    if orders.recv().await != Some(Order::Go) {
        shop.close().await;
        return Ok(Tally::default());
    }
    let (stop, stopped) = watch::channel(false);
    let floor = Arc::new(Floor {
        shop,
        window: Duration::from_micros(plan.window_us),
        sold: AtomicU64::new(0),
        notes: notes.clone(),
        wake_up: Notify::new(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..if role == Role::Sleeper { 1 } else { plan.workers } {
        workers.spawn(work(Arc::clone(&floor), role, stopped.clone()));
    }
    let (mut progress, mut told) = (interval(PROGRESS), 0);
    let mut tally = Tally::default();
    let mut failed = None;
    loop {
        tokio::select! {
            worker = workers.join_next() => match worker {
                Some(Ok(Ok(more))) => tally = tally + more,
                Some(Ok(Err(why))) => {
                    stop.send_replace(true);
                    failed = failed.or(Some(why));
                }
                Some(Err(panicked)) => {
                    stop.send_replace(true);
                    failed = Some(panicked.to_string());
                }
                None => break,
            },
            order = orders.recv(), if !*stop.borrow() => match order {
                Some(Order::WakeUp) => floor.wake_up.notify_one(),
                // The manager has ended the sale, or is gone.
                Some(Order::Stop) | None => {
                    stop.send_replace(true);
                    floor.wake_up.notify_one();
                }
                Some(Order::Go) => {}
            },
            _ = progress.tick() => floor.tell(&mut told),
        }
    }
    floor.tell(&mut told);
    let floor = Arc::into_inner(floor).expect("every worker has ended");
    floor.shop.close().await;
    failed.map_or(Ok(tally), Err)
}

/// The state that the workers of a team share.
struct Floor {
    shop: Shop,
    window: Duration,
    sold: AtomicU64,
    notes: UnboundedSender<Note>,
    wake_up: Notify,
}

enum Sale {
    Sold,
    SoldOut,
    Refused,
    GivenUp,
}

async fn work(floor: Arc<Floor>, mut role: Role, mut stopped: watch::Receiver<bool>) -> Result<Tally, String> {
    let mut tally = Tally::default();
    while !*stopped.borrow() {
        let guard = tokio::select! {
            guard = floor.shop.lock() => guard?,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let sale = floor.sell(guard.as_ref(), role).await;
        role = Role::Seller;
        if let Some(guard) = guard {
            let released = guard.release().await.map_err(|e| e.to_string())?;
            tally.outlived += u64::from(released == Released::NotHeld);
        }
        match sale? {
            Sale::Sold => {
                tally.sold += 1;
                floor.sold.fetch_add(1, Ordering::Relaxed);
            }
            Sale::Refused => tally.refused += 1,
            Sale::GivenUp => tally.given_up += 1,
            Sale::SoldOut => break,
        }
    }
    Ok(tally)
}

impl Floor {
    /// Sells one piece: read, check, subtract, write.
    async fn sell(&self, guard: Option<&Guard>, role: Role) -> Result<Sale, String> {
        let token = guard.map_or(Token::NONE, Guard::token);
        let left = match self.shop.stock.read(token).await {
            Ok(left) => left,
            Err(Refusal::Stale) => return Ok(Sale::Refused),
            Err(Refusal::Broken(why)) => return Err(why),
        };
        let Some(rest) = left.checked_sub(1) else { return Ok(Sale::SoldOut) };
        if !self.window.is_zero() {
            sleep(self.window).await;
        }
        if guard.is_some_and(|guard| guard.check().is_err()) {
            return Ok(Sale::GivenUp);
        }
        // A worker that is stopped here has just seen a valid lease, and does not check again before it writes.
        if role == Role::Sleeper {
            let _ = self.notes.send(Note::AboutToWrite { left });
            self.wake_up.notified().await;
        }
        match self.shop.stock.write(token, rest).await {
            Ok(()) => Ok(Sale::Sold),
            Err(Refusal::Stale) => Ok(Sale::Refused),
            Err(Refusal::Broken(why)) => Err(why),
        }
    }

    fn tell(&self, told: &mut u64) {
        let sold = self.sold.load(Ordering::Relaxed);
        if sold > *told {
            let _ = self.notes.send(Note::Sold(sold - *told));
            *told = sold;
        }
    }
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sold: self.sold + other.sold,
            refused: self.refused + other.refused,
            given_up: self.given_up + other.given_up,
            outlived: self.outlived + other.outlived,
        }
    }
}
