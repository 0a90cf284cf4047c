//! Acquires a lease in rounds: propose a token, count the votes, and give them back if there are too few.
//!
//! The obvious way to wait for a majority is to ask again after a random time, as Redlock implementations do. With many
//! waiters the votes of each round are split among several of them, no waiter wins, and the one that has waited longest is
//! as likely to lose the next round as any other. Here a client that loses a round joins the queue of every node, at the
//! *same* place (its ticket) in all of them. A node that becomes free calls the first waiter, and keeps others waiting for
//! a moment. So all nodes call the same waiter, and it wins its next round. The random time is left for two cases: the
//! nodes do not agree who was first because a request was still in flight, or calls were lost.
//!
//! A call is not a grant. A called waiter asks once a majority has called it. The grant that it wins is pushed to its
//! session, like the grant of any other store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_spec::limits::TOKEN_END;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Ask, Request, Wait};
use leasehold_spec::{Acquire, Answer, GrantId, Joined, Name, Outcome, Patience, Token};

use super::attempts::{Held, Nodes, Series, Win};
use super::collect::{self, Question, answer};
use super::give_back::{self, Asks, LostRound};
use super::links::Links;
use super::schedule::{BACKOFF_MIN_US, backoff_us, schedule};
use super::tally::{Refusal, RoundResult, Tally};
use crate::store::Fault;

/// The most rounds of a series. A round is repeated at once if its token was not above one that a node knows. The nodes
/// then report that token, so a second round is rare, and a third round means that others are as fast.
const ROUNDS: u32 = 4;
/// The most series of a caller that does not wait, if no holder has a majority: another request may have been in flight.
const TRIES: u32 = 3;
/// When to re-check a holder of which nothing is known.
const UNKNOWN_US: u64 = 1_000_000;
/// The last entry of the statistics counts all grants with at least as many rounds.
const MOST_ROUNDS: usize = 64;

static GRANTS: [AtomicU64; MOST_ROUNDS] = [const { AtomicU64::new(0) }; MOST_ROUNDS];

/// Returns numbers of rounds, each with the number of grants of this process that took so many. For benchmarks: nothing
/// else shows the cost of contention.
#[must_use]
pub fn attempts() -> Vec<(u64, u64)> {
    let grants = GRANTS.iter().map(|grants| grants.load(Ordering::Relaxed));
    (1..).zip(grants).filter(|(_, grants)| *grants > 0).collect()
}

pub(super) async fn acquire(links: Arc<Links>, name: Name, acquire: Acquire) -> Result<Answer, Fault> {
    let begun_us = links.now_us();
    links.shared.profile().check_lease(acquire.lease_ms).map_err(Fault::Refused)?;
    if acquire.not_after_us < begun_us {
        return Ok(answer(begun_us, &Tally::new(links.shared.nodes()), Outcome::Late));
    }
    links.shared.note_ask(&name, &acquire, begun_us);
    match &acquire.patience {
        Patience::Try => try_acquire(links, name, acquire, begun_us).await,
        Patience::Queue(place) => {
            let ticket = place.ticket.unwrap_or_else(|| links.shared.time_us(begun_us)).min(TOKEN_END - 1);
            let wait = Wait { ticket, order: place.order };
            acquire_or_wait(links, name, acquire, wait, begun_us).await
        }
    }
}

/// Acquires without a queue. The answer is `Busy` only if there is a holder, and not if the votes are split.
async fn try_acquire(links: Arc<Links>, name: Name, acquire: Acquire, begun_us: u64) -> Result<Answer, Fault> {
    links.shared.swept_attempts(begun_us).begin(acquire.id, begun_us);
    let mut tries = 0;
    // A part of the lease, like the time that the session gives an answer.
    let until_us = acquire.not_after_us.min(begun_us + acquire.lease_ms * 1000 / 6);
    loop {
        tries += 1;
        let (result, tally) = rounds(&links, &name, &acquire, None).await;
        let left_us = |at_us: u64| at_us.saturating_sub(begun_us);
        let outcome = match result {
            RoundResult::Won { token, range, until_us } => {
                let left_us = left_us(until_us).min(acquire.lease_ms * 1000);
                Outcome::Granted { token, left_us, range }
            }
            RoundResult::Full => Outcome::Full,
            RoundResult::Refused(Refusal { is_held, free_us, .. }) if is_held || tries == TRIES => {
                links.shared.attempts().end(&acquire.id);
                Outcome::Busy { left_us: left_us(free_us) }
            }
            // A node that was only slow may answer the next time.
            RoundResult::TooFew
                if links.now_us() >= until_us
                    || !tally.has_silent()
                    || links.is_closed()
                    || !links.shared.attempts().is_live(&acquire.id) =>
            {
                return Err(links.shared.undecided(&tally));
            }
            RoundResult::Refused(_) | RoundResult::TooFew | RoundResult::Again => {
                links.shared.timers.at(links.now_us() + backoff_us(&links.shared, tries)).await;
                continue;
            }
        };
        return Ok(answer(begun_us, &tally, outcome));
    }
}

/// Acquires, or waits in the queues of the nodes.
async fn acquire_or_wait(
    links: Arc<Links>,
    name: Name,
    acquire: Acquire,
    wait: Wait,
    begun_us: u64,
) -> Result<Answer, Fault> {
    let ticket = wait.ticket;
    let Some((joined, series)) = begin_to_wait(&links, &name, &acquire, wait) else {
        // A call was faster. The result of its round is pushed.
        let outcome = Outcome::Queued { ticket, left_us: UNKNOWN_US, joined: Joined::Before };
        return Ok(answer(begun_us, &Tally::new(links.shared.nodes()), outcome));
    };
    let (result, tally) = rounds(&links, &name, &acquire, Some((wait, series))).await;
    let outcome = match result {
        RoundResult::Won { token, range, until_us } => {
            let left_us = until_us.saturating_sub(begun_us).min(acquire.lease_ms * 1000);
            Outcome::Granted { token, left_us, range }
        }
        RoundResult::Full => {
            links.shared.attempts().end(&acquire.id);
            Outcome::Full
        }
        RoundResult::Refused(refusal @ Refusal { is_held, free_us, .. }) => {
            schedule(&links.shared, &acquire.id, refusal.into());
            // The session re-checks when the lease must have ended: the nodes do nothing by themselves then.
            let left_us = if is_held { free_us.saturating_sub(begun_us).max(BACKOFF_MIN_US) } else { UNKNOWN_US };
            Outcome::Queued { ticket, left_us, joined }
        }
        RoundResult::TooFew | RoundResult::Again => return Err(links.shared.undecided(&tally)),
    };
    Ok(answer(begun_us, &tally, outcome))
}

/// Notes that an attempt waits. `None` if rounds of it are in flight.
fn begin_to_wait(links: &Links, name: &Name, acquire: &Acquire, wait: Wait) -> Option<(Joined, Series)> {
    let now_us = links.now_us();
    let until_us = now_us + series_us(links, acquire.lease_ms);
    let mut attempts = links.shared.swept_attempts(now_us);
    if attempts.waiting(&acquire.id).is_some_and(|waiting| waiting.is_asking(now_us)) {
        return None;
    }
    // A holder waits, too: its grant is confirmed, and it waits if the grant has ended.
    let is_held = attempts.held(&acquire.id).is_some();
    let (is_known, series) = attempts.wait(name, acquire, wait, (now_us, until_us), links.number);
    Some((if is_known || is_held { Joined::Before } else { Joined::Now }, series))
}

/// Returns how long the rounds of a series take at most, if the task that counts the votes is polled.
pub(super) fn series_us(links: &Links, lease_ms: u64) -> u64 {
    u64::from(ROUNDS + 1) * links.shared.timeout_us(lease_ms)
}

/// Runs rounds until one is won, or another round at once is useless. Lost votes go back, or become places in queues.
pub(super) async fn rounds(
    links: &Arc<Links>,
    name: &Name,
    acquire: &Acquire,
    wait: Option<(Wait, Series)>,
) -> (RoundResult, Tally) {
    let _in_flight = wait.map(|(_, series)| SeriesGuard { links, id: acquire.id, series });
    Rounds { links, name, acquire, wait: wait.map(|(wait, _)| wait) }.run().await
}

/// Asks the nodes that have not voted for this grant. A client in a run asks only a bare majority, so the loss of a node
/// would end its lease. A renewal does not help: by then another client may have asked the other nodes with a larger token,
/// and they vote for no smaller one.
pub(super) fn ask_others(links: &Arc<Links>, name: &Name, id: GrantId, lease_ms: u64) {
    let now_us = links.now_us();
    let held = {
        let attempts = links.shared.attempts();
        attempts.held(&id).map(|held| (held.clone(), attempts.voters(&id, held.token, now_us)))
    };
    let Some((Held { token, range, label }, voters)) = held else { return };
    // If the process stood still meanwhile, the lease may be over.
    if voters.count() < links.shared.majority() {
        return;
    }
    hit(Mark::OthersAsked);
    let ask = Ask { id, token, range, lease_ms, not_after_us: 0, wait: None, label };
    let Question { fan, .. } = ask_nodes(links, name, &ask, (voters.others(), Asks::WhileHeld), now_us);
    collect::send(links, fan);
}

/// Asks these nodes for their votes. A node refuses a request that is later than a round may take.
fn ask_nodes(links: &Arc<Links>, name: &Name, ask: &Ask, (nodes, asks): (Nodes, Asks), now_us: u64) -> Question {
    let (id, token, shared) = (ask.id, ask.token, &links.shared);
    let until_us = now_us + shared.timeout_us(ask.lease_ms);
    // If the node's clock is unknown, the node refuses the request as late. The refusal contains the time.
    let question = Question::of(links, |node| {
        if !nodes.has(node) {
            return None;
        }
        let not_after_us = shared.members[node].time_at(until_us, now_us).unwrap_or(0);
        let asking = collect::ask(links, node, name, &Request::Ask(Ask { not_after_us, ..ask.clone() }))?;
        Some(give_back::return_if_over(links, node, name, (id, token, asks), asking))
    });
    shared.attempts().note_asked(&id, question.fan.nodes());
    question
}

struct Rounds<'a> {
    links: &'a Arc<Links>,
    name: &'a Name,
    acquire: &'a Acquire,
    wait: Option<Wait>,
}

impl Rounds<'_> {
    async fn run(&self) -> (RoundResult, Tally) {
        let Self { links, acquire, .. } = *self;
        let (mut tally, mut token, mut is_held) = (Tally::new(links.shared.nodes()), Token::NONE, false);
        let mut last_voters = links.shared.runs.last_voters(self.name, &acquire.id);
        for _ in 0..ROUNDS {
            let now_us = links.now_us();
            let Some(round) = self.begin(now_us) else {
                self.stop(token, &tally);
                return (RoundResult::TooFew, tally);
            };
            let held = links.shared.attempts().held(&acquire.id).map(|held| held.token);
            // A grant is confirmed with its own token: with another token it would be another grant.
            token = held.unwrap_or_else(|| {
                let about = links.shared.propose(self.name, now_us);
                links.shared.attempts().propose(&acquire.id, about)
            });
            if let Some(voters) = last_voters.take().filter(|_| held.is_none()) {
                match self.ask_last_voters(voters, token, round, now_us).await {
                    Ok(won) => return won,
                    Err(lost) => tally = lost,
                }
                continue;
            }
            let mut question = self.ask(token, now_us, Nodes::ALL);
            let within_us = links.shared.timeout_us(acquire.lease_ms);
            let result = question.count(within_us, |tally| tally.round(token)).await.unwrap_or(RoundResult::TooFew);
            if !question.fan.is_empty() {
                hit(Mark::RoundEarly);
            }
            is_held = held.is_some() && !question.tally.has_ended();
            if held.is_some() && !is_held {
                links.shared.attempts().lapse(&acquire.id, token);
            }
            match result {
                RoundResult::Again => {
                    hit(Mark::RoundAgain);
                    tally = question.finish();
                }
                RoundResult::Won { token, range, until_us } => {
                    return self.win(question, round, (token, range), until_us);
                }
                // An unconfirmed grant is held until its validity ends: none of its votes go back.
                _ if is_held => return (RoundResult::TooFew, question.finish()),
                result => {
                    hit(result.lost_mark());
                    let wait = self.wait.filter(|_| result != RoundResult::Full);
                    let tally = LostRound { wait, ..self.lost(token) }.abandon(question);
                    return (result, tally);
                }
            }
        }
        if is_held {
            return (RoundResult::TooFew, tally);
        }
        self.lost(token).abandon_last(links, &tally);
        if tally.is_far() {
            return (RoundResult::TooFew, tally);
        }
        let refusal = Refusal { is_held: false, is_called: false, free_us: links.now_us() };
        (RoundResult::Refused(refusal), tally)
    }

    /// Asks only the nodes that voted for the client in the last round of its run. If they do not all vote in time, returns
    /// their ballots as an error. The next round replaces their votes.
    async fn ask_last_voters(
        &self,
        voters: Nodes,
        token: Token,
        round: u32,
        now_us: u64,
    ) -> Result<(RoundResult, Tally), Tally> {
        let mut question = self.ask(token, now_us, voters);
        let until_us = now_us + self.links.shared.bare_majority_timeout_us(self.acquire.lease_ms);
        match question.collect(until_us, |tally| tally.round(token)).await {
            Some(RoundResult::Won { token, range, until_us }) => {
                Ok(self.win(question, round, (token, range), until_us))
            }
            _ => {
                hit(Mark::BareMajorityMissed);
                Err(question.finish())
            }
        }
    }

    /// Begins a round, and returns its number. `None` if the attempt is over or the link is closed. After a caller's lane
    /// is closed, the session's link asks for the attempts of the lane. A round of the lane would overtake that round.
    fn begin(&self, now_us: u64) -> Option<u32> {
        let mut attempts = self.links.shared.attempts();
        if self.links.is_closed() {
            return None;
        }
        attempts.begin_round(&self.acquire.id, now_us)
    }

    fn ask(&self, token: Token, now_us: u64, nodes: Nodes) -> Question {
        let Self { links, name, acquire, wait } = *self;
        let Acquire { id, range, lease_ms, .. } = *acquire;
        let ask = Ask { id, token, range, lease_ms, not_after_us: 0, wait, label: acquire.label.to_string() };
        ask_nodes(links, name, &ask, (nodes, Asks::InRound), now_us)
    }

    /// Cleans up if no further round may begin.
    fn stop(&self, token: Token, tally: &Tally) {
        match token {
            Token::NONE => {}
            // The session's link asks for the attempt, which may wait in the queues by now.
            _ if self.links.shared.attempts().is_live(&self.acquire.id) => {
                self.lost(token).abandon_last(self.links, tally);
            }
            // The leave of this attempt was sent to all nodes, and may have overtaken the last round.
            _ => give_back::everywhere(self.links, self.name, self.acquire.id, token),
        }
    }

    /// Takes a grant that a majority has voted for. The validity ends with the votes of that majority, or earlier if a
    /// clock was set forward meanwhile. Late votes are noted after the grant.
    fn win(&self, question: Question, round: u32, (token, range): (Token, u64), until_us: u64) -> (RoundResult, Tally) {
        let Self { links, name, acquire, .. } = *self;
        let (id, held) = (acquire.id, Held { token, range, label: acquire.label.to_string() });
        let (win, until_us) = {
            let mut attempts = links.shared.attempts();
            let win = attempts.hold(&id, round, held);
            (win, attempts.bound(&id, token, links.shared.nodes(), until_us, acquire.lease_ms))
        };
        let tally = match win {
            Win::Held => {
                links.shared.note_grant(name, id, question.tally.voters(token));
                GRANTS[(round as usize).clamp(1, MOST_ROUNDS) - 1].fetch_add(1, Ordering::Relaxed);
                return (RoundResult::Won { token, range, until_us }, question.finish());
            }
            // The attempt was given up meanwhile, and its leave has overtaken this round.
            Win::Over => {
                hit(Mark::RoundWonLate);
                give_back::everywhere(links, name, id, token);
                question.finish()
            }
            // If the later round holds the lock by now, none of the votes go back.
            Win::Overtaken if links.shared.attempts().held(&id).is_some() => question.finish(),
            Win::Overtaken => self.lost(token).abandon(question),
        };
        (RoundResult::TooFew, tally)
    }

    fn lost(&self, token: Token) -> LostRound {
        LostRound { name: self.name.clone(), id: self.acquire.id, token, wait: self.wait }
    }
}

/// Marks the rounds of an attempt as in flight until it is dropped: a caller may drop its future during a round.
struct SeriesGuard<'a> {
    links: &'a Links,
    id: GrantId,
    series: Series,
}

impl Drop for SeriesGuard<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.links.shared.attempts().waiting(&self.id) {
            waiting.end(self.series);
        }
    }
}
