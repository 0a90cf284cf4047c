//! The votes that a node still has to give back, because it was unreachable when they ended.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_spec::node::{Request, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::sync::Notify;

/// The most votes that are remembered for a node: as many as a session remembers of its releases.
const DEBTS: usize = 1024;

/// A vote to give back at a node.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    pub(super) name: Name,
    pub(super) id: GrantId,
    /// The last token to give back. The attempt may have asked for a larger one since.
    pub(super) upto: Token,
    /// The vote has ended at the node by then.
    pub(super) until_us: u64,
    /// The end of the cool-down, on this client's clock. 0: no cool-down (P23).
    pub(super) cools_until_us: u64,
}

impl Debt {
    /// Returns the request to send to the node now. A cool-down that is over by now is a release.
    pub(super) fn request(&self, wait: Option<Wait>, now_us: u64) -> Request {
        let (id, upto, left_us) = (self.id, self.upto, self.cools_until_us.saturating_sub(now_us));
        match left_us {
            0 => Request::GiveBack { id, upto, wait },
            _ => Request::CoolDown { id, upto, for_ms: left_us.div_ceil(1000) },
        }
    }
}

/// The debts of one node.
#[derive(Default)]
pub(super) struct Debts {
    debts: Mutex<VecDeque<Debt>>,
    added: Notify,
}

impl Debts {
    /// Adds a debt. It replaces an earlier debt of the same attempt, and keeps the larger of the two tokens.
    pub(super) fn add(&self, mut debt: Debt, now_us: u64) {
        let mut debts = self.debts();
        debts.retain(|old| {
            let is_same = old.id == debt.id;
            if is_same {
                debt.upto = debt.upto.max(old.upto);
            }
            !is_same && old.until_us > now_us
        });
        if debts.len() >= DEBTS {
            debts.pop_front();
        }
        debts.push_back(debt);
        drop(debts);
        self.added.notify_one();
    }

    /// Waits until a debt is added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.debts().is_empty()
    }

    /// Removes all debts, and returns those that have not ended by themselves.
    pub(super) fn take(&self, now_us: u64) -> Vec<Debt> {
        self.debts().drain(..).filter(|debt| debt.until_us > now_us).collect()
    }

    fn debts(&self) -> MutexGuard<'_, VecDeque<Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
