//! Several mutexes by one request (P46): all of them, or none.
//!
//! Each mutex has an attempt of its own, like that of a caller that only tries. The request is sent once, by the caller.
//! If its reply is lost, each attempt ends as such a try does: its ID is given back until the store has confirmed that.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Contention, Name};
use tokio::sync::oneshot;

use super::acquire::{self, Outgoing, begin};
use super::attempt::Requester;
use super::close;
use super::effects::Verdict;
use super::lane::Upkeep;
use super::release::finish;
use super::turn::Turn;
use crate::error::Result;
use crate::session::terms::{Terms, Wait};
use crate::store::Fault;

/// A mutex, and the caller that wants it.
type Wanted<'a> = ((&'a Name, &'a Arc<Terms>), oneshot::Sender<Verdict>);

/// Begins an attempt for each of these mutexes. Returns what their caller sends together: nothing if it has to take them
/// one after the other. That is so if the store has no such request, if somebody is known to wait for one of them, or if
/// this client has to do with one of them: a request for several passes over callers that wait here.
pub(crate) fn begin_all(turn: &mut Turn<'_>, members: Vec<Wanted<'_>>) -> Result<(Vec<Outgoing>, Upkeep)> {
    close::check_open(turn)?;
    let is_busy = |name: &Name| {
        let attempts = turn.ledger.names.get(name).map_or(0, |state| state.attempts);
        attempts > 0 || turn.ledger.names.guess(name).contention != Contention::None
    };
    if !turn.server.links.profile().takes_together || members.iter().any(|((name, _), _)| is_busy(name)) {
        return Ok((Vec::new(), Upkeep::Fine));
    }
    let (route, upkeep) = turn.route();
    let Some(link) = route.lane.clone().or_else(|| turn.server.links.home().cloned()) else {
        return Ok((Vec::new(), upkeep));
    };
    let requests = members.into_iter().filter_map(|(of, caller)| {
        let begun = begin(turn, of, (Requester::Caller(caller), Wait::No), (Some(Arc::clone(&link)), &route));
        begun.1.map(|outgoing| *outgoing)
    });
    Ok((requests.collect(), upkeep))
}

/// Accepts the reply to a request for several mutexes.
pub(crate) fn accept_reply(
    turn: &mut Turn<'_>,
    requests: &[(Name, Outgoing)],
    reply: std::result::Result<Option<Vec<Answer>>, Fault>,
) {
    match reply {
        Ok(Some(answers)) => {
            hit(Mark::TogetherGranted);
            for ((name, of), answer) in requests.iter().zip(answers) {
                acquire::accept_reply(turn, (name, of.id), &of.request, Ok(answer));
            }
        }
        Ok(None) => {
            hit(Mark::TogetherRefused);
            requests.iter().for_each(|(_, of)| refuse(turn, of));
        }
        Err(fault) => {
            let count = if is_on(Mutant::P46GivesOneBack) { 1 } else { requests.len() };
            for (name, of) in &requests[..count] {
                acquire::accept_reply(turn, (name, of.id), &of.request, Err(fault.share()));
            }
        }
    }
}

/// The store has not carried the request out, and will not: it was sent once.
fn refuse(turn: &mut Turn<'_>, of: &Outgoing) {
    let last_serial = turn.ledger.ids.last_serial();
    let counter = of.id.counter;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.id == of.id) else { return };
    attempt.end_wait(&of.request);
    attempt.order.note_fate(of.request.serial, last_serial);
    attempt.order.answered(of.request.serial);
    finish(turn, counter, Verdict::Busy);
}
