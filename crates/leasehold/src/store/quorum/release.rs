//! Release, leave and cool down: the attempt ends here, and the client gives its votes back at all nodes.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Name, Outcome, Token, Was};

use super::attempts::{Nodes, Traces};
use super::collect::answer;
use super::give_back;
use super::links::Links;
use super::member::PendingReturn;
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
    let begun_us = links.now_us();
    if links.shared.attempts().holds_another(&id, token) {
        return Ok(answer(begun_us, &Tally::new(links.shared.nodes()), Outcome::NotHeld));
    }
    let pause = links.shared.runs.begin_release(&name, id, used > token, begun_us);
    let in_flight = InFlight::begin(&links, &name, id, 0);
    let asked = end_attempt(&links, id);
    let pending = give_back::return_of(&links, &name, id, Token::HIGHEST);
    let (was, tally) = match pause {
        None => ask_all(&links, &pending, asked).await?,
        Some(pause) => match try_pause(&links, &pending, asked, pause).await {
            Some(paused) => paused,
            None => {
                links.shared.runs.end_pause(&name, &id);
                let (_, tally) = ask_all(&links, &pending, asked).await?;
                // The nodes may have carried out the pause, and another client may have held since. So an answer that they
                // know nothing of this attempt does not prove that the lease was lost (P3).
                (Was::Granted, tally)
            }
        },
    };
    in_flight.note_answered();
    let outcome = if was == Was::Granted { Outcome::Released } else { Outcome::NotHeld };
    let answer = answer(begun_us, &tally, outcome);
    links.shared.note_release(&name, id, answer.contention);
    Ok(answer)
}

/// Ends an attempt in any state. Each node counts a `cool_down_ms` from when it carries the request out (P23).
pub(super) async fn leave(links: Arc<Links>, name: Name, id: GrantId, cool_down_ms: u64) -> Result<Answer, Fault> {
    let begun_us = links.now_us();
    let in_flight = InFlight::begin(&links, &name, id, begun_us + cool_down_ms * 1000);
    let asked = end_attempt(&links, id);
    let pending = give_back::return_of(&links, &name, id, Token::HIGHEST);
    let (was, tally) = ask_all(&links, &pending, asked).await?;
    in_flight.note_answered();
    Ok(answer(begun_us, &tally, Outcome::Left { was }))
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

/// A release in flight, until this is dropped. Other code that gives the same votes back waits for it.
struct InFlight {
    links: Arc<Links>,
    name: Name,
    id: GrantId,
    is_answered: bool,
}

impl InFlight {
    /// Begins a release. The attempt cools down until `cools_until_us`, unless that is over. The caller begins the release
    /// before it ends the attempt: other code gives the votes of an ended attempt back.
    fn begin(links: &Arc<Links>, name: &Name, id: GrantId, cools_until_us: u64) -> Self {
        links.shared.releases.begin(id, cools_until_us, links.now_us());
        Self { links: Arc::clone(links), name: name.clone(), id, is_answered: false }
    }

    fn note_answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Without an answer, the release may not have been sent.
        if !self.is_answered && !is_on(Mutant::QBelievesUnsent) {
            self.links.forget_released(&self.id);
        }
        let deferred = self.links.shared.releases.end(&self.id, self.is_answered, self.links.now_us());
        // On its own link the request follows the release. If that link is closed, the session's link is faster.
        let links = if self.links.is_closed() { self.links.home() } else { Arc::clone(&self.links) };
        for node in (0..links.shared.nodes()).filter(|node| deferred.has(*node)) {
            give_back::at_node(&links, node, &self.name, self.id, Token::HIGHEST);
        }
    }
}

/// Ends an attempt at this client. Returns the nodes that it was sent to.
fn end_attempt(links: &Links, id: GrantId) -> Nodes {
    let asked = {
        let mut attempts = links.shared.attempts();
        let asked = attempts.traces(&id).asked;
        attempts.end(&id);
        asked
    };
    links.note_released(id);
    asked
}

/// Gives the votes back in a pause, at the nodes that the attempt asked: in a run this may be a bare majority. `None`:
/// no majority has replied in time. Then the votes are given back by an ordinary release, after which the nodes call.
async fn try_pause(links: &Arc<Links>, pending: &PendingReturn, asked: Nodes, pause: Pause) -> Option<(Was, Tally)> {
    let until_us = links.now_us() + links.shared.bare_majority_timeout_us(u64::MAX);
    let mut question = give_back::pause(links, pending, asked, pause);
    let result = question.collect(until_us, Tally::release).await;
    let tally = question.finish();
    match result {
        Some(ReleaseResult::Done(was)) => Some((was, tally)),
        Some(ReleaseResult::TooFew) | None => None,
    }
}

/// Gives the votes back at all nodes. Returns what a majority had.
async fn ask_all(links: &Arc<Links>, pending: &PendingReturn, asked: Nodes) -> Result<(Was, Tally), Fault> {
    let mut question = give_back::at_all(links, pending, Traces { asked, wait: None });
    let result = tokio::select! {
        biased;
        result = question.count(WITHIN_US, Tally::release) => result,
        () = links.closed() => None,
    };
    let tally = question.finish();
    match result.unwrap_or(ReleaseResult::TooFew) {
        ReleaseResult::Done(was) => Ok((was, tally)),
        ReleaseResult::TooFew => Err(links.shared.undecided(&tally)),
    }
}
