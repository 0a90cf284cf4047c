//! The calls of several mutexes at once.

use std::mem::take;
use std::sync::Arc;

use leasehold_spec::{Acquire, Name, Op};
use tokio::sync::oneshot;

use super::Waiting;
use crate::error::Result;
use crate::session::hold::Hold;
use crate::session::machine::Verdict;
use crate::session::machine::together::{accept_reply, begin_all};
use crate::session::machine::waiting::Dropped;
use crate::session::shared::Shared;
use crate::session::terms::Terms;
use crate::session::transport::lane;
use crate::store::Fault;

/// Acquires these mutexes, of distinct names, by one request. Returns `None` or an error if it holds none of them
/// afterwards: the caller takes them one after the other then, and learns the reason. Their minimum holds have not begun.
///
/// If the future is dropped, all of them are given back.
pub(crate) async fn acquire_all(
    shared: &Arc<Shared>,
    members: &[(&Name, &Arc<Terms>)],
) -> Result<Option<Vec<Arc<Hold>>>> {
    shared.check_surely_usable()?;
    let (callers, verdicts): (Vec<_>, Vec<_>) = members.iter().map(|_| oneshot::channel()).unzip();
    let begun = members.iter().copied().zip(callers).collect();
    let (requests, upkeep) = shared.with(|turn| begin_all(turn, begun))?;
    lane::keep_up(shared, upkeep, None);
    let Some(link) = requests.first().map(|first| Arc::clone(&first.request.link)) else { return Ok(None) };
    let mut waiting: Vec<Waiting<'_>> = requests
        .iter()
        .zip(verdicts)
        .map(|(of, verdict)| {
            let sends = Some((of.id.counter, Dropped::Attempt));
            Waiting { shared, waiter: None, sends, verdict }
        })
        .collect();
    let requests: Vec<_> = members.iter().map(|(name, _)| (*name).clone()).zip(requests).collect();
    let asked: Vec<(Name, Acquire)> =
        requests.iter().filter_map(|(name, of)| Some((name.clone(), request(&of.op)?))).collect();
    let reply: std::result::Result<_, Fault> = link.acquire_all(&asked).await;
    shared.with(|turn| accept_reply(turn, &requests, reply));
    let mut held = Held { shared, holds: Vec::with_capacity(members.len()) };
    let mut failed = None;
    for waiting in &mut waiting {
        let verdict = (&mut waiting.verdict).await;
        waiting.sends = None;
        match verdict {
            Ok(Verdict::Granted(hold)) => held.holds.push(hold),
            Ok(Verdict::Failed(error)) => failed = Some(error),
            _ => {}
        }
    }
    if held.holds.len() < members.len() {
        return failed.map_or(Ok(None), Err);
    }
    Ok(Some(take(&mut held.holds)))
}

/// The leases that the call has so far. Dropping it releases them.
struct Held<'a> {
    shared: &'a Arc<Shared>,
    holds: Vec<Arc<Hold>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.holds.iter().for_each(|hold| self.shared.drop_hold(hold));
    }
}

fn request(op: &Op) -> Option<Acquire> {
    if let Op::Acquire(acquire) = op { Some(acquire.clone()) } else { None }
}
