//! One request to one node, carried out.

use crate::answer::{LostHow, Was};
use crate::env::Env;
use crate::grant::GrantState;
use crate::id::{GrantId, PublicId, Token, allowed_range};
use crate::inspection::{Holder, Inspection, ShownMode};
use crate::limits::{CALL_MS, QUEUE_MAX, RETENTION_SPARE_US, RETENTION_US, TOKEN_WINDOW_MS};
use crate::mutant::{Mutant, is_on};
use crate::node::record::{Granted, Record};
use crate::node::request::{Ask, Bell, Renewal, Request, Rings, Said, Vote, Wait};
use crate::op::From;

/// Carries out one request. Changes the record, and returns the answer and the messages. The caller sends the messages
/// once the record is stored.
///
/// The node has one clock, the wall clock: `env.wall_us`. Whether it has a vote at all depends on its marker: see
/// [`Marker::abstains`](super::Marker::abstains). A node that abstains only carries out requests that give back, and
/// inspections.
pub fn vote(record: &mut Record, env: &Env<'_>, request: &Request) -> (Vote, Vec<Bell>) {
    if record.keep_until_us <= env.wall_us {
        *record = Record::default();
    }
    let mut node = Node { record, env, bells: Vec::new(), has_called: false };
    let said = match request {
        Request::Inspect => node.inspect(),
        Request::Ask(ask) => node.ask(ask),
        Request::Renew(renewal) => node.renew(renewal),
        Request::GiveBack { id, upto, wait } => node.give_back(*id, *upto, *wait),
        Request::Pause { id, upto, notice_ms } => node.pause(*id, *upto, *notice_ms),
        Request::CoolDown { id, upto, for_ms } => node.cool_down(*id, *upto, *for_ms),
        Request::Revoke { holder, token, grace_ms } => node.revoke(*holder, *token, *grace_ms),
        Request::Settle => Said::Settled,
    };
    let calls_nobody = match request {
        Request::Inspect => true,
        Request::Pause { .. } => node.may_pause(),
        _ => false,
    };
    if !calls_nobody {
        node.settle();
    }
    let Node { record, bells, has_called, .. } = node;
    let vote = Vote { now_us: env.wall_us, highest: record.highest, contention: record.contention(), has_called, said };
    (vote, bells)
}

pub(super) struct Node<'a, 'e> {
    pub(super) record: &'a mut Record,
    pub(super) env: &'a Env<'e>,
    pub(super) bells: Vec<Bell>,
    pub(super) has_called: bool,
}

impl Node<'_, '_> {
    fn ask(&mut self, ask: &Ask) -> Said {
        if self.env.wall_us > ask.not_after_us {
            return Said::Late;
        }
        self.end_expired();
        let now_us = self.env.wall_us;
        let is_above = ask.token > self.record.highest || is_on(Mutant::QVotesBelow);
        let is_near = ask.token.get().abs_diff(now_us) <= TOKEN_WINDOW_MS * 1000;
        match &self.record.grant {
            // A later round of the attempt that has the vote. It gives the vote back and asks again, in one request.
            Some(granted) if granted.is_for(ask.id) && ask.token > granted.token && is_above && is_near => {}
            Some(granted) if granted.is_for(ask.id) => {
                let left_us = granted.left_us(now_us);
                return Said::Granted { token: granted.token, range: granted.range, left_us };
            }
            Some(granted) => {
                let (holder, left_us) = (Some(granted.id.public()), granted.left_us(now_us));
                return self.refuse(ask, holder, left_us);
            }
            None if self.is_called_before(ask) => {
                let left_us = self.record.called.map_or(0, |called| called.until_us.saturating_sub(now_us));
                return self.refuse(ask, None, left_us);
            }
            None if !is_near => return Said::Far,
            None if !is_above => return Said::Below,
            None => {}
        }
        let range = allowed_range(ask.range, ask.token, now_us);
        let length_ms = ask.lease_ms;
        self.record.highest = self.record.highest.max(ask.token.plus(range - 1));
        self.leave_queue(ask.id);
        match is_on(Mutant::QCallsAgain) {
            true => self.record.called = None,
            false => self.end_call(),
        }
        let spare_us = if self.record.keep_until_us == 0 { 0 } else { RETENTION_SPARE_US };
        let granted = Granted {
            id: ask.id,
            token: ask.token,
            range,
            since_us: now_us,
            length_ms,
            state: GrantState::Held,
            label: ask.label.clone(),
        };
        self.give_vote(granted, spare_us);
        Said::Granted { token: ask.token, range, left_us: length_ms * 1000 }
    }

    fn renew(&mut self, renewal: &Renewal) -> Said {
        let now_us = self.env.wall_us;
        if now_us > renewal.not_after_us {
            return Said::Late;
        }
        self.end_expired();
        let end_us = now_us + renewal.lease_ms * 1000;
        match &mut self.record.grant {
            Some(granted) if granted.is_kept_by(renewal) => {
                if granted.state == GrantState::Revoked {
                    return Said::Lost { how: LostHow::Revoked };
                }
                // A fixed lease has had its whole length from the beginning: it is only confirmed.
                if renewal.from == From::Now {
                    (granted.since_us, granted.length_ms, granted.state) = (now_us, renewal.lease_ms, GrantState::Held);
                    self.record.keep_until_us = self.record.keep_until_us.max(end_us + RETENTION_US);
                }
                let left_us = self.record.grant.as_ref().map_or(0, |granted| granted.left_us(now_us));
                Said::Renewed { left_us }
            }
            // Another attempt has the vote, or another round of this attempt, which has another token.
            Some(_) => Said::Lost { how: LostHow::NotHeld },
            None => match &renewal.fill {
                Some(label) if self.may_fill(renewal) => {
                    self.record.highest = self.record.highest.max(renewal.last());
                    // If a call lapsed while this grant has the vote, the waiter would lose its place. And the attempt
                    // does not wait for itself at a node that refused it before.
                    self.end_call();
                    self.leave_queue(renewal.id);
                    let granted = Granted {
                        id: renewal.id,
                        token: renewal.token,
                        range: renewal.range,
                        since_us: now_us,
                        length_ms: renewal.lease_ms,
                        state: GrantState::Held,
                        label: label.clone(),
                    };
                    self.give_vote(granted, 0);
                    let left_us = renewal.lease_ms * 1000;
                    if is_on(Mutant::QFillCounts) { Said::Renewed { left_us } } else { Said::Filled { left_us } }
                }
                _ => Said::Lost { how: LostHow::NotHeld },
            },
        }
    }

    /// Whether a free node may give its vote to a grant that it does not know. If the node has voted for a larger
    /// token, another client may have held by that vote since, and have released. So the grant with the smaller token
    /// must not go on by the vote of this node.
    fn may_fill(&self, renewal: &Renewal) -> bool {
        let is_behind = renewal.last() < self.record.highest && !is_on(Mutant::QFillsBehind);
        renewal.from == From::Now && self.record.released != Some(renewal.id) && !is_behind
    }

    fn give_back(&mut self, id: GrantId, upto: Token, wait: Option<Wait>) -> Said {
        self.end_expired();
        if self.has_later_vote(id, upto) {
            return Said::GivenBack { was: Was::Absent };
        }
        let was_queued = self.leave_queue(id);
        let ends = |granted: &mut Granted| granted.id == id && (granted.is_held() || is_on(Mutant::P23LeaveEnds));
        let was = match self.record.grant.take_if(ends) {
            Some(_) => Was::Granted,
            // The reply to the first request was lost.
            None if self.record.released == Some(id) => Was::Granted,
            None if was_queued => Was::Queued,
            None => Was::Absent,
        };
        match wait {
            Some(wait) if self.record.queue.len() < QUEUE_MAX => self.enqueue(id, wait),
            Some(_) => {}
            None => {
                // The next waiter does not wait for an attempt that is over.
                self.record.called.take_if(|called| called.id == id);
                if was == Was::Granted {
                    self.record.released = Some(id);
                }
                if was_queued && !is_on(Mutant::P10TellsOnce) {
                    self.notify_next_waiters();
                }
            }
        }
        Said::GivenBack { was }
    }

    /// Gives the vote back in a run. The waiters must not depend on the client alone, which may die in the pause: the next
    /// ones ask by themselves after the notice.
    fn pause(&mut self, id: GrantId, upto: Token, notice_ms: u64) -> Said {
        self.end_expired();
        let token = self.record.grant.as_ref().map(|granted| granted.token);
        let said = self.give_back(id, upto, None);
        let ended = token.filter(|_| self.record.grant.is_none() && said == Said::GivenBack { was: Was::Granted });
        if let Some(token) = ended.filter(|_| notice_ms > 0 && self.may_pause() && !is_on(Mutant::QPausesSilently)) {
            self.notify_waiters(token, notice_ms * 1000);
        }
        said
    }

    /// Whether the attempt has the vote for a later round than the one that is given back.
    fn has_later_vote(&self, id: GrantId, upto: Token) -> bool {
        let is_later = |granted: &Granted| granted.id == id && granted.token > upto;
        self.record.grant.as_ref().is_some_and(is_later) && !is_on(Mutant::QTakesLaterVotes)
    }

    /// P23: makes the vote cool down. The attempt has given it back, so a late renewal does not get it again, and does
    /// not fill the node.
    fn cool_down(&mut self, id: GrantId, upto: Token, for_ms: u64) -> Said {
        self.end_expired();
        let now_us = self.env.wall_us;
        let begins = |state| match state {
            GrantState::Held | GrantState::Pushed => true,
            GrantState::CoolingDown => is_on(Mutant::P23RepeatExtends),
            GrantState::Revoked => false,
        };
        let its = self.record.grant.as_mut().filter(|granted| granted.id == id && granted.token <= upto);
        let Some(granted) = its.filter(|granted| begins(granted.state)) else {
            return self.give_back(id, upto, None);
        };
        (granted.since_us, granted.length_ms, granted.state) = (now_us, for_ms, GrantState::CoolingDown);
        let keep_until_us = granted.end_us() + RETENTION_US;
        self.record.keep_until_us = self.record.keep_until_us.max(keep_until_us);
        self.record.released = Some(id);
        self.leave_queue(id);
        self.record.called.take_if(|called| called.id == id);
        self.notify_next_waiters();
        Said::GivenBack { was: Was::Granted }
    }

    fn revoke(&mut self, holder: PublicId, token: Token, grace_ms: u64) -> Said {
        self.end_expired();
        let now_us = self.env.wall_us;
        let (highest, contention) = (self.record.highest, self.record.contention());
        let Some(granted) = self.record.grant.as_mut().filter(|g| g.id.public() == holder && g.token == token) else {
            return Said::NotHeld;
        };
        // Nobody works under a vote that cools down, so nobody needs the grace.
        let grace_ms = if granted.is_held() { grace_ms } else { 0 };
        let left_us = granted.left_us(now_us).min(grace_ms * 1000);
        let id = granted.id;
        // The message to the holder can be lost. If the holder then renews, it must not fill the node.
        self.record.released = Some(id);
        if left_us == 0 {
            self.record.grant = None;
        } else {
            // The end is exact to the microsecond. If the length were rounded up from now, each revocation would move
            // the end to a later time.
            let (end_us, length_ms) = (now_us + left_us, left_us.div_ceil(1000));
            (granted.since_us, granted.length_ms, granted.state) =
                (end_us - length_ms * 1000, length_ms, GrantState::Revoked);
        }
        let rings = Rings::Revoked { token, left_us };
        self.bells.push(Bell { to: id.session, now_us, highest, contention, id, rings });
        self.notify_next_waiters();
        Said::Revoking { left_us }
    }

    fn inspect(&self) -> Said {
        let now_us = self.env.wall_us;
        let live = self.record.grant.as_ref().filter(|granted| granted.end_us() > now_us);
        let holder = live.map(|granted| Holder {
            id: granted.id.public(),
            token: granted.token,
            left_us: granted.left_us(now_us),
            label: granted.label.clone(),
            state: granted.state,
            units: 1,
            mode: ShownMode::Plain,
        });
        Said::Inspected(Inspection::of_mutex(holder, self.record.queue.len() as u64))
    }

    /// Whether the node has called an attempt of another session that came earlier, and that attempt has time left to
    /// ask.
    fn is_called_before(&self, ask: &Ask) -> bool {
        self.record.called.is_some_and(|called| {
            called.until_us > self.env.wall_us
                && called.id.session != ask.id.session
                && ask.wait.is_none_or(|wait| wait.ticket > called.ticket)
        })
    }

    fn refuse(&mut self, ask: &Ask, holder: Option<PublicId>, left_us: u64) -> Said {
        if let Some(wait) = ask.wait {
            let is_known = self.record.queue.contains_key(&(wait.ticket, ask.id));
            if !is_known && self.record.queue.len() >= QUEUE_MAX {
                return Said::Full;
            }
            if !is_known {
                self.leave_queue(ask.id);
                self.enqueue(ask.id, wait);
            }
        }
        Said::Refused { holder, left_us }
    }

    /// Ends the vote if its time is over. Times in the future are there because the clock was set back: they become
    /// now.
    pub(super) fn end_expired(&mut self) {
        let now_us = self.env.wall_us;
        if let Some(granted) = self.record.grant.as_mut().filter(|_| !is_on(Mutant::P1FutureStays)) {
            granted.since_us = granted.since_us.min(now_us);
        }
        if let Some(called) = self.record.called.as_mut().filter(|_| !is_on(Mutant::QCallsIntoTheFuture)) {
            called.until_us = called.until_us.min(now_us + CALL_MS * 1000);
        }
        self.record.grant.take_if(|granted| granted.end_us() <= now_us);
    }

    /// Gives the vote. The record outlives the vote by R. If the record must be kept for longer than before, it is kept
    /// for `spare_us` more.
    fn give_vote(&mut self, granted: Granted, spare_us: u64) {
        let keep_until_us = granted.end_us() + RETENTION_US;
        if self.record.keep_until_us < keep_until_us {
            self.record.keep_until_us = keep_until_us + spare_us;
        }
        self.record.grant = Some(granted);
    }
}
