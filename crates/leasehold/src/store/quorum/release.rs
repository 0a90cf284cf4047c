//! Release, leave and cool down: the attempt ends here, and all nodes give its votes back.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Name, Outcome, Token, Was};

use super::attempts::{Nodes, Traces};
use super::collect::answer;
use super::give_back;
use super::links::Links;
use super::member::Debt;
use super::runs::Pause;
use super::tally::{ReleaseResult, Tally};
use crate::store::Fault;

/// How long a majority may take for an answer. Only the caller waits for it.
const WITHIN_US: u64 = 1_000_000;

/// Releases a grant, of which `used` is the highest token that was used. If the attempt was granted again with another
/// token, that grant stays (P3).
pub(super) async fn release(
    links: Arc<Links>,
    name: Name,
    id: GrantId,
    (token, used): (Token, Token),
) -> Result<Answer, Fault> {
    if links.shared.attempts().holds_another(&id, token) {
        return Ok(answer(links.now_us(), &Tally::new(links.shared.nodes()), Outcome::NotHeld));
    }
    let outcome = |was| if was == Was::Granted { Outcome::Released } else { Outcome::NotHeld };
    let pause = links.shared.runs.begin_release(&name, id, used > token, links.now_us());
    let shared = Arc::clone(&links.shared);
    let answer = end(links, name.clone(), id, Ending { pause, cools_until_us: 0 }, outcome).await?;
    shared.note_release(&name, id, answer.contention);
    Ok(answer)
}

/// Ends an attempt in any state. Each node counts a `cool_down_ms` from when it carries the request out (P23).
pub(super) async fn leave(links: Arc<Links>, name: Name, id: GrantId, cool_down_ms: u64) -> Result<Answer, Fault> {
    let cools_until_us = if cool_down_ms > 0 { links.now_us() + cool_down_ms * 1000 } else { 0 };
    end(links, name, id, Ending { pause: None, cools_until_us }, |was| Outcome::Left { was }).await
}

/// Ends a pause after which the client has not come back: the nodes call the next waiter.
pub(super) fn end_pause(links: &Arc<Links>, name: &Name, id: GrantId) {
    if links.shared.runs.end_pause(name, &id) && !is_on(Mutant::QPausesForEver) {
        hit(Mark::PauseOver);
        give_back::at_connected(links, name, id);
    }
}

/// Ends all pauses: the client closes.
pub(super) fn end_pauses(links: &Arc<Links>) {
    for (name, id) in links.shared.runs.end_pauses() {
        give_back::at_connected(links, &name, id);
    }
}

/// How an attempt ends.
struct Ending {
    /// The client is expected to come back at once.
    pause: Option<Pause>,
    /// The end of the cool-down, on this client's clock. 0: no cool-down (P23).
    cools_until_us: u64,
}

async fn end(
    links: Arc<Links>,
    name: Name,
    id: GrantId,
    Ending { pause, cools_until_us }: Ending,
    outcome: impl FnOnce(Was) -> Outcome,
) -> Result<Answer, Fault> {
    let begun_us = links.now_us();
    let traces = {
        let mut attempts = links.shared.attempts();
        let traces = attempts.traces(&id);
        attempts.end(&id);
        Traces { wait: None, ..traces }
    };
    links.note_released(id);
    // A cool-down that is longer than a lease stays a debt until its end: the node keeps the vote until then.
    let until_us = cools_until_us.max(give_back::longest_lease_end_us(&links));
    let debt = Debt { name, id, upto: Token::HIGHEST, until_us, cools_until_us };
    let mut question = give_back::at_all(&links, &debt, traces, pause);
    let mut is_repeated = false;
    if pause.is_some() {
        let until_us = begun_us + links.shared.bare_majority_timeout_us(u64::MAX);
        let paused = question.collect(until_us, Tally::release).await;
        if !matches!(paused, Some(ReleaseResult::Done(_))) {
            // Only a majority was asked, and it has not answered: all nodes give back, and call.
            is_repeated = true;
            links.shared.runs.end_pause(&debt.name, &id);
            question.finish();
            question = give_back::at_all(&links, &debt, Traces { asked: Nodes::ALL, wait: None }, None);
        }
    }
    let result = tokio::select! {
        biased;
        result = question.count(WITHIN_US, Tally::release) => result,
        () = links.closed() => None,
    };
    let tally = question.finish();
    match result.unwrap_or(ReleaseResult::TooFew) {
        // The pause may have been carried out, and another client may have held since: then the nodes know nothing of this
        // attempt any more, and that proves nothing (P3).
        ReleaseResult::Done(_) if is_repeated => Ok(answer(begun_us, &tally, outcome(Was::Granted))),
        ReleaseResult::Done(was) => Ok(answer(begun_us, &tally, outcome(was))),
        ReleaseResult::TooFew => Err(links.shared.undecided(&tally)),
    }
}
