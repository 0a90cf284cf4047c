//! Rounds for a lease: propose a token, count the votes, and if they are not enough stand back.
//!
//! The obvious way to wait for a majority is to ask again after a random while, and it is what Redlocks do. With many who
//! wait each round is split among several, nobody wins, and the one who waits longest is as likely to lose the next as
//! anybody. Here whoever loses joins the queue of every node, at the *same* place (its ticket) in all of them; a node that
//! becomes free calls the first, and keeps others waiting for a moment. So all nodes call the same one, and its next round
//! is won. The random while is left for what that does not cover: nodes that do not agree who was first, because a request
//! was still on its way, and calls that were lost.
//!
//! A call is not a grant. Who is called asks, once a majority has called it; what it wins is pushed to its session, as
//! another store's grant is.

use std::sync::Arc;

use leasehold_spec::limits::TOKEN_END;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Ask, Request, Wait};
use leasehold_spec::{Acquire, Answer, GrantId, Joined, Name, Outcome, Patience, Token};

use super::attempts;
use super::names::{Held, Turn, Winning};
use super::places::Inner;
use super::returning::Lost;
use super::round::{Asked, Refusal, Tally};
use super::turns::{Asking, Then, WHILE_MIN_US};
use crate::store::Fault;

/// How often a round is begun anew at once, because the token was not above what a node had seen: each tells us of it, so
/// that a second one is seldom and a third one means that others are as fast.
const AT_ONCE: u32 = 4;
/// How often one who does not wait tries again, where nobody has a majority: somebody else's request was on its way.
const TRIES: u32 = 3;
/// When to look again at a holder of which nothing is known.
const UNKNOWN_US: u64 = 1_000_000;

impl Inner {
    pub(super) async fn acquire(self: Arc<Self>, name: Name, acquire: Acquire) -> Result<Answer, Fault> {
        let begun_us = self.now_us();
        let nothing = Tally::new(self.nodes());
        self.shared.profile().check_lease(acquire.lease_ms).map_err(Fault::Refused)?;
        if acquire.not_after_us < begun_us {
            return Ok(self.answer(begun_us, &nothing, Outcome::Late));
        }
        match &acquire.patience {
            Patience::Try => self.try_acquire(name, acquire, begun_us).await,
            Patience::Queue(place) => {
                let ticket = place.ticket.unwrap_or_else(|| self.shared.time_us(begun_us)).min(TOKEN_END - 1);
                let wait = Wait { ticket, order: place.order };
                let Some((joined, turn)) = self.begin_to_wait(&name, &acquire, wait) else {
                    // A call was first: what comes of its round is pushed.
                    let (left_us, joined) = (UNKNOWN_US, Joined::Before);
                    return Ok(self.answer(begun_us, &nothing, Outcome::Queued { ticket, left_us, joined }));
                };
                let asking = Asking { inner: &self, id: acquire.id, turn };
                let (asked, tally) = self.rounds(&name, &acquire, Some(wait)).await;
                drop(asking);
                self.won_or_waits(&acquire, wait, joined, begun_us, (asked, tally))
            }
        }
    }

    /// Nobody waits: the answer is whether somebody else holds. Where nobody does, and the votes are split, it is not Busy.
    async fn try_acquire(self: Arc<Self>, name: Name, acquire: Acquire, begun_us: u64) -> Result<Answer, Fault> {
        self.shared.names_at(begun_us).begin(acquire.id, begun_us);
        let mut tries = 0;
        // A part of the lease, as what its session gives an answer.
        let until_us = acquire.not_after_us.min(begun_us + acquire.lease_ms * 1000 / 6);
        loop {
            tries += 1;
            let (asked, tally) = self.rounds(&name, &acquire, None).await;
            let left_us = |at_us: u64| at_us.saturating_sub(begun_us);
            let outcome = match asked {
                Asked::Won { token, range, until_us } => {
                    let left_us = left_us(until_us).min(acquire.lease_ms * 1000);
                    Outcome::Granted { token, left_us, range }
                }
                Asked::Full => Outcome::Full,
                Asked::Refused(Refusal { is_held, free_us, .. }) if is_held || tries == TRIES => {
                    self.shared.names().end(&acquire.id);
                    Outcome::Busy { left_us: left_us(free_us) }
                }
                // Who was only slow may answer the next time.
                Asked::TooFew if self.now_us() >= until_us || !tally.has_silent() || self.is_over(&acquire.id) => {
                    return Err(self.undecided(&tally));
                }
                Asked::Refused(_) | Asked::TooFew | Asked::Again => {
                    self.shared.timers.at(self.now_us() + self.random_while_us(tries)).await;
                    continue;
                }
            };
            return Ok(self.answer(begun_us, &tally, outcome));
        }
    }

    /// Returns whether this link begins no more rounds of an attempt.
    fn is_over(&self, id: &GrantId) -> bool {
        self.is_closed() || !self.is_live(id)
    }

    pub(super) fn is_live(&self, id: &GrantId) -> bool {
        self.shared.names().is_live(id)
    }

    /// Notes that an attempt waits. `None` if rounds of it are under way.
    fn begin_to_wait(&self, name: &Name, acquire: &Acquire, wait: Wait) -> Option<(Joined, Turn)> {
        let now_us = self.now_us();
        let until_us = now_us + self.turn_us(acquire.lease_ms);
        let mut names = self.shared.names_at(now_us);
        if names.waiting(&acquire.id).is_some_and(|waiting| waiting.is_asking(now_us)) {
            return None;
        }
        // Also one that is held: it is confirmed, and waits if it has ended.
        let is_held = names.held(&acquire.id).is_some();
        let (is_known, turn) = names.wait(name, acquire, wait, (now_us, until_us), self.number);
        Some((if is_known || is_held { Joined::Before } else { Joined::Now }, turn))
    }

    /// How long rounds take, one behind the other, where whoever counts the votes is polled.
    pub(super) fn turn_us(&self, lease_ms: u64) -> u64 {
        u64::from(AT_ONCE + 1) * self.shared.patience_us(lease_ms)
    }

    fn won_or_waits(
        self: &Arc<Self>,
        acquire: &Acquire,
        wait: Wait,
        joined: Joined,
        begun_us: u64,
        (asked, tally): (Asked, Tally),
    ) -> Result<Answer, Fault> {
        let outcome = match asked {
            Asked::Won { token, range, until_us } => {
                let left_us = until_us.saturating_sub(begun_us).min(acquire.lease_ms * 1000);
                Outcome::Granted { token, left_us, range }
            }
            Asked::Full => {
                self.shared.names().end(&acquire.id);
                Outcome::Full
            }
            Asked::Refused(refusal @ Refusal { is_held, free_us, .. }) => {
                self.wait_for_turn(&acquire.id, Then::of(&refusal));
                // Looked at again when it must have ended: nothing happens at a node by itself then.
                let left_us = if is_held { free_us.saturating_sub(begun_us).max(WHILE_MIN_US) } else { UNKNOWN_US };
                Outcome::Queued { ticket: wait.ticket, left_us, joined }
            }
            Asked::TooFew | Asked::Again => return Err(self.undecided(&tally)),
        };
        Ok(self.answer(begun_us, &tally, outcome))
    }

    /// Rounds of one attempt, until one is won, or there is no use in another at once. What was voted for it in vain is
    /// given back, or waits.
    pub(super) async fn rounds(self: &Arc<Self>, name: &Name, acquire: &Acquire, wait: Option<Wait>) -> (Asked, Tally) {
        let within_us = self.shared.patience_us(acquire.lease_ms);
        let (mut tally, mut token, mut is_held) = (Tally::new(self.nodes()), Token::NONE, false);
        for _ in 0..AT_ONCE {
            let now_us = self.now_us();
            let Some(round) = self.begin_round(&acquire.id, now_us) else {
                match token {
                    Token::NONE => {}
                    // The session's link asks for the attempt, which may wait in the queues by now.
                    _ if self.is_live(&acquire.id) => {
                        self.stand_back_after(name, Lost { id: acquire.id, token, wait }, &tally);
                    }
                    // The leave of this attempt was sent to all nodes, and may have overtaken the last round.
                    _ => self.give_back_everywhere(name, acquire.id, token),
                }
                return (Asked::TooFew, tally);
            };
            let held = self.shared.names().held(&acquire.id).map(|held| held.token);
            // What is held is confirmed: with another token it would be another grant.
            token = held.unwrap_or_else(|| {
                let about = self.shared.propose(name, now_us);
                self.shared.names().propose(&acquire.id, about)
            });
            tally = Tally::new(self.nodes());
            let mut fan = self.ask_all(name, &mut tally, |node| {
                Request::Ask(Ask {
                    id: acquire.id,
                    token,
                    range: acquire.range,
                    lease_ms: acquire.lease_ms,
                    not_after_us: self.shared.not_after(node, now_us, within_us),
                    wait,
                    label: acquire.label.clone(),
                })
            });
            self.shared.names().ask_at(&acquire.id, fan.nodes());
            fan = fan.each(|node, asking| self.returned_if_over(node, name, (acquire.id, token), asking));
            let asked = self.count(&mut fan, &mut tally, within_us, |tally| tally.asked(token)).await;
            let asked = asked.unwrap_or(Asked::TooFew);
            if !fan.is_empty() {
                hit(Mark::RoundEarly);
            }
            is_held = held.is_some() && !tally.has_ended();
            if held.is_some() && !is_held {
                self.shared.names().lapse(&acquire.id, token);
            }
            match asked {
                Asked::Again => {
                    hit(Mark::RoundAgain);
                    self.finish(fan);
                }
                Asked::Won { token, range, until_us } => {
                    let (winning, until_us) = self.hold(acquire, round, (token, range), until_us);
                    // Behind that, so that late votes are taken note of.
                    match winning {
                        Winning::Held => {
                            self.finish(fan);
                            attempts::note(round);
                            return (Asked::Won { token, range, until_us }, tally);
                        }
                        // It was given up meanwhile, and its leave has overtaken this round.
                        Winning::Over => {
                            hit(Mark::RoundWonLate);
                            self.give_back_everywhere(name, acquire.id, token);
                            self.finish(fan);
                        }
                        // By this time the later round may hold: then nothing of it goes back.
                        Winning::Overtaken if self.shared.names().held(&acquire.id).is_some() => self.finish(fan),
                        Winning::Overtaken => self.lose(name, Lost { id: acquire.id, token, wait }, fan, &tally),
                    }
                    return (Asked::TooFew, tally);
                }
                // What was not confirmed is held all the same, until its validity ends: nothing of it goes back.
                _ if is_held => {
                    self.finish(fan);
                    return (Asked::TooFew, tally);
                }
                asked => {
                    hit(asked.lost_mark());
                    let lost = Lost { id: acquire.id, token, wait: wait.filter(|_| asked != Asked::Full) };
                    self.lose(name, lost, fan, &tally);
                    return (asked, tally);
                }
            }
        }
        if is_held {
            return (Asked::TooFew, tally);
        }
        self.stand_back_after(name, Lost { id: acquire.id, token, wait }, &tally);
        if tally.is_far() {
            return (Asked::TooFew, tally);
        }
        (Asked::Refused(Refusal { is_held: false, is_called: false, free_us: self.now_us() }), tally)
    }

    /// Begins a round, unless the attempt is over or the link is closed. After a lane is closed the session's link asks for
    /// its attempts, and a round of the lane would overtake the round of the session's link.
    fn begin_round(&self, id: &GrantId, now_us: u64) -> Option<u32> {
        let mut names = self.shared.names();
        if self.is_closed() {
            return None;
        }
        names.begin_round(id, now_us)
    }

    /// A round is won, and its attempt holds what a majority keeps until then, unless a clock was seen to be set meanwhile.
    fn hold(&self, acquire: &Acquire, round: u32, (token, range): (Token, u64), until_us: u64) -> (Winning, u64) {
        let held = Held { token, range, label: acquire.label.clone() };
        let mut names = self.shared.names();
        let winning = names.hold(&acquire.id, round, held);
        (winning, names.bound(&acquire.id, token, self.nodes(), until_us, acquire.lease_ms))
    }
}
