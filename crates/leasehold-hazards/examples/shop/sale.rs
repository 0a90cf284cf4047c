//! The sales of one process.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use leasehold::{Leasehold, Mutex, Token};
use leasehold_hazards::client::Client;
use leasehold_hazards::live::direct::Process;
use leasehold_hazards::specimens::Lock;
use leasehold_hazards::specimens::compare_and_delete::CompareAndDelete;
use leasehold_hazards::specimens::delete_expired::DeleteExpired;
use leasehold_hazards::specimens::get_del::GetDel;
use leasehold_hazards::specimens::getset::{GetSet, Test};
use leasehold_hazards::specimens::guard_thread::GuardThread;
use leasehold_hazards::specimens::local::Local;
use leasehold_hazards::specimens::multi_lock::MultiLock;
use leasehold_hazards::specimens::no_lock::NoLock;
use leasehold_hazards::specimens::random_delay::RandomDelay;
use leasehold_hazards::specimens::redisson::Redisson;
use leasehold_hazards::specimens::redlock::Redlock;
use leasehold_hazards::specimens::reentrant::Reentrant;
use leasehold_hazards::specimens::set_ex::SetEx;
use leasehold_hazards::specimens::setnx::SetNx;
use leasehold_hazards::specimens::setnx_expire::SetNxExpire;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::locks::LockName;
use crate::plan::Plan;
use crate::stock::{Refusal, Stock};

/// The message to the manager that a sale is about to write, and waits.
pub(crate) const IN_A_SALE: &str = "in a sale";

/// The result of a request to buy.
#[derive(Clone, Debug)]
pub(crate) enum Sale {
    Sold,
    SoldOut,
    /// The lock was not available in time.
    NoLock,
    /// The lease was lost, or the stock refused the token.
    Refused,
    Failed(String),
}

/// The shop, as one process sees it.
pub(crate) struct Shop {
    plan: Plan,
    process: Process,
    stock: Stock,
    /// The lock of `--lock local`: all workers of the process share it.
    local: Local,
    /// The lock of `--lock leasehold`.
    mutex: Option<Mutex>,
    pub(crate) stop: Stop,
}

/// The place in a sale at which the manager stops the process.
#[derive(Default)]
pub(crate) struct Stop {
    is_wanted: Cell<bool>,
    go_on: Notify,
}

impl Shop {
    pub(crate) async fn open(plan: &Plan) -> Result<Self, String> {
        let mutex = match plan.lock {
            LockName::Leasehold => {
                let leasehold = Leasehold::connect(&plan.url()).await.map_err(|error| error.to_string())?;
                Some(leasehold.mutex(plan.lock_key()).lease(Duration::from_secs(plan.lease_s)))
            }
            _ => None,
        };
        Ok(Self {
            plan: plan.clone(),
            process: Process::new(plan.servers.clone()),
            stock: Stock::open(plan).await?,
            local: Local::default(),
            mutex,
            stop: Stop::default(),
        })
    }

    /// Makes the client of a worker.
    pub(crate) fn client(&self) -> Client {
        self.process.client()
    }

    /// Sells one piece. As in the tutorials, each request makes a lock object of its own.
    pub(crate) async fn buy(&self, client: &Client) -> Sale {
        let (key, lease_s, servers) = (&*self.plan.lock_key(), self.plan.lease_s, self.plan.servers.len());
        match self.plan.lock {
            LockName::None => self.buy_under(&NoLock, client).await,
            LockName::Local => self.buy_under(&self.local, client).await,
            LockName::SetNx => self.buy_under(&SetNx::new(key), client).await,
            LockName::SetNxExpire => self.buy_under(&SetNxExpire::new(key, lease_s), client).await,
            LockName::GetSet => self.buy_under(&GetSet::new(key, lease_s, Test::OldIsCurrent), client).await,
            LockName::DeleteExpired => self.buy_under(&DeleteExpired::new(key, lease_s), client).await,
            LockName::SetEx => self.buy_under(&SetEx::new(key, lease_s), client).await,
            LockName::GetDel => self.buy_under(&GetDel::new(key, lease_s), client).await,
            LockName::CompareAndDelete => self.buy_under(&CompareAndDelete::new(key, lease_s), client).await,
            LockName::Reentrant => self.buy_under(&Reentrant::new(client, key, lease_s), client).await,
            LockName::Redisson => self.buy_under(&Redisson::new(client, key, lease_s), client).await,
            LockName::GuardThread => self.buy_under(&GuardThread::new(key, lease_s), client).await,
            LockName::Redlock => self.buy_under(&Redlock::new(key, lease_s, servers), client).await,
            LockName::MultiLock => self.buy_under(&MultiLock::new(key, lease_s, servers), client).await,
            LockName::RandomDelay => self.buy_under(&RandomDelay::new(key, lease_s), client).await,
            LockName::Leasehold => self.buy_under_leasehold().await,
        }
    }

    async fn buy_under(&self, lock: &impl Lock, client: &Client) -> Sale {
        let Some(grant) = self.process.within(client, self.plan.limit, lock.lock(client)).await else {
            return Sale::NoLock;
        };
        let sale = self.sell(None, lock.check(client, &grant)).await;
        lock.unlock(client, &grant).await;
        sale.unwrap_or_else(Sale::from)
    }

    async fn buy_under_leasehold(&self) -> Sale {
        let Some(mutex) = &self.mutex else { return Sale::NoLock };
        let guard = match mutex.try_lock_for(self.plan.limit).await {
            Ok(Some(guard)) => guard,
            Ok(None) => return Sale::NoLock,
            Err(error) => return Sale::Failed(error.to_string()),
        };
        let is_held = async { guard.check().is_ok() };
        let sale = self.sell(Some(guard.token()), is_held).await;
        match guard.release().await {
            Ok(_) => sale.unwrap_or_else(Sale::from),
            Err(error) => Sale::Failed(error.to_string()),
        }
    }

    /// Reads, checks, works and writes.
    async fn sell(&self, token: Option<Token>, is_held: impl Future<Output = bool>) -> Result<Sale, Refusal> {
        let left = self.stock.read(token).await?;
        let Some(rest) = left.checked_sub(1) else { return Ok(Sale::SoldOut) };
        if !self.plan.work.is_zero() {
            sleep(self.plan.work).await;
        }
        if !is_held.await {
            return Ok(Sale::Refused);
        }
        // A process that is stopped here does not check again before it writes.
        self.stop.here().await;
        self.stock.write(token, rest).await?;
        Ok(Sale::Sold)
    }
}

impl Stop {
    /// Orders the next sale to wait right before its write.
    pub(crate) fn want(&self) {
        self.is_wanted.set(true);
    }

    /// Lets the sale go on.
    pub(crate) fn go_on(&self) {
        self.go_on.notify_one();
    }

    async fn here(&self) {
        if self.is_wanted.take() {
            println!("{IN_A_SALE}");
            self.go_on.notified().await;
        }
    }
}

impl From<Refusal> for Sale {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Stale => Self::Refused,
            Refusal::Failed(why) => Self::Failed(why),
        }
    }
}
