//! Giving back, at all nodes: those that refused included, and those that are away once they are back. And what is asked
//! of all nodes for operators.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::{Request, Said, Wait};
use leasehold_spec::{Answer, GrantId, Inspection, Name, Outcome, PublicId, Token, Was};

use super::fan::Fan;
use super::member::{Owed, Standing};
use super::names::Traces;
use super::places::Inner;
use super::round::{Ballot, Ended, Tally};
use crate::error::ErrorKind;
use crate::inspection::{NodeSays, NodeView};
use crate::store::Fault;
use crate::world::Pending;

/// How long a majority has to answer, where nothing depends on it but whoever asks.
const WITHIN_US: u64 = 1_000_000;

impl Inner {
    pub(super) async fn release(self: Arc<Self>, name: Name, id: GrantId, token: Token) -> Result<Answer, Fault> {
        if self.holds_another(&id, token) {
            return Ok(self.answer(self.now_us(), &Tally::new(self.nodes()), Outcome::NotHeld));
        }
        let given_back = |was| if was == Was::Granted { Outcome::Released } else { Outcome::NotHeld };
        self.give_back(name, id, 0, given_back).await
    }

    pub(super) async fn leave(self: Arc<Self>, name: Name, id: GrantId) -> Result<Answer, Fault> {
        self.give_back(name, id, 0, |was| Outcome::Left { was }).await
    }

    /// Each node counts from when it carries the request out (P23).
    pub(super) async fn cool_down(self: Arc<Self>, name: Name, id: GrantId, for_ms: u64) -> Result<Answer, Fault> {
        let cools_until_us = self.now_us() + for_ms * 1000;
        self.give_back(name, id, cools_until_us, |was| Outcome::Left { was }).await
    }

    async fn give_back(
        self: Arc<Self>,
        name: Name,
        id: GrantId,
        cools_until_us: u64,
        outcome: impl FnOnce(Was) -> Outcome,
    ) -> Result<Answer, Fault> {
        let begun_us = self.now_us();
        let traces = {
            let mut names = self.shared.names();
            let traces = names.traces(&id);
            names.end(&id);
            Traces { wait: None, ..traces }
        };
        self.note_given_back(id);
        let mut tally = Tally::new(self.nodes());
        // A debt that is longer than a lease is one: the node has it until then.
        let until_us = cools_until_us.max(self.longest_lease_ends_us());
        let owed = Owed { name, id, upto: Token::HIGHEST, until_us, cools_until_us };
        let mut fan = self.giving_back_everywhere(&owed, traces, Some(&mut tally));
        let ended = tokio::select! {
            biased;
            ended = self.count(&mut fan, &mut tally, WITHIN_US, Tally::ended) => ended,
            () = self.closed() => None,
        };
        self.finish(fan);
        match ended.unwrap_or(Ended::TooFew) {
            Ended::Done(was) => Ok(self.answer(begun_us, &tally, outcome(was))),
            Ended::TooFew => Err(self.undecided(&tally)),
        }
    }

    /// Whether the attempt was granted anew since, with another token (P3).
    pub(super) fn holds_another(&self, id: &GrantId, token: Token) -> bool {
        self.shared.names().held(id).is_some_and(|held| held.token != token)
    }

    /// Gives back what is left of a grant, and waits for nobody.
    pub(super) fn give_back_everywhere(self: &Arc<Self>, name: &Name, id: GrantId, upto: Token) {
        let traces = self.shared.names().traces(&id);
        let mut fan = self.giving_back_everywhere(&self.vote_of(name, id, upto), traces, None);
        fan.poll();
        self.finish(fan);
    }

    /// Gives back what is left of an attempt at one node.
    pub(super) fn give_back_at(self: &Arc<Self>, node: usize, name: &Name, id: GrantId, upto: Token) {
        let traces = self.shared.names().traces(&id);
        let owed = self.vote_of(name, id, upto);
        let mut fan = Fan::of(self.giving_back(node, &owed, traces).map(|giving_back| (node, giving_back)));
        fan.poll();
        match self.attached.get() {
            Some(_) => self.finish_at_home(fan),
            None => self.finish(fan),
        }
    }

    fn giving_back_everywhere(
        self: &Arc<Self>,
        owed: &Owed,
        traces: Traces,
        mut tally: Option<&mut Tally>,
    ) -> Fan<Ballot> {
        let mut asking: Vec<(usize, Pending<Ballot>)> = Vec::new();
        for node in 0..self.nodes() {
            match self.giving_back(node, owed, traces) {
                Some(giving_back) => asking.push((node, giving_back)),
                None => {
                    if let Some(tally) = tally.as_deref_mut() {
                        tally.hear(node, Ballot::Silent);
                    }
                }
            }
        }
        Fan::of(asking)
    }

    /// Gives back what an attempt has at a node, up to the vote for this token: the attempt may be asked for anew. A node
    /// that cannot be told is told when it is back. One that was never asked has nothing of it, and is owed nothing: what
    /// can be owed to it has a limit.
    fn giving_back(self: &Arc<Self>, node: usize, owed: &Owed, traces: Traces) -> Option<Pending<Ballot>> {
        if !traces.asked.has(node) && self.link(node).is_none() {
            return None;
        }
        self.paying(node, owed.clone(), traces.wait)
    }

    /// The votes of an attempt, up to the one for this token.
    fn vote_of(&self, name: &Name, id: GrantId, upto: Token) -> Owed {
        let until_us = self.longest_lease_ends_us();
        Owed { name: name.clone(), id, upto, until_us, cools_until_us: 0 }
    }

    /// By then a lease has ended by itself that was given before this.
    fn longest_lease_ends_us(&self) -> u64 {
        self.now_us() + self.shared.charter.max_lease_ms * 1000
    }

    /// Gives back what is owed. The debt belongs to an earlier round: if the attempt waits again, it keeps its place in the
    /// queue.
    ///
    /// The link may be closed because its runtime stands still. Then nobody reads the answer, and the node must be told
    /// again. Closing the link does not wake this future: its caller waits for that, too.
    fn paying(self: &Arc<Self>, node: usize, owed: Owed, wait: Option<Wait>) -> Option<Pending<Ballot>> {
        let request = owed.request(wait, self.now_us());
        let Some(mut giving_back) = self.ask(node, &owed.name, &request) else {
            self.owe(node, owed);
            return None;
        };
        let inner = Arc::clone(self);
        Some(Box::pin(async move {
            let closed = || Ballot::Failed(ErrorKind::Unreachable, "the connection was closed".into());
            let ballot = poll_fn(|context| match giving_back.as_mut().poll(context) {
                Poll::Pending if inner.is_closed() => Poll::Ready(closed()),
                polled => polled,
            })
            .await;
            match ballot {
                Ballot::Cast { .. } if wait.is_none() || inner.is_live(&owed.id) => {}
                // The leave of the attempt may have overtaken this request on another connection.
                Ballot::Cast { .. } => inner.give_back_at(node, &owed.name, owed.id, owed.upto),
                _ => inner.owe(node, owed),
            }
            // The link broke, and another one may be there by now: whoever connected it has paid before this was owed.
            if matches!(ballot, Ballot::Failed(ErrorKind::Unreachable, _)) {
                inner.pay(node);
            }
            ballot
        }))
    }

    fn owe(&self, node: usize, owed: Owed) {
        hit(Mark::Owed);
        self.shared.members[node].owe(owed, self.now_us());
        // Whoever keeps the node connected tells it again, where it is there and refused.
        self.look_at(node);
    }

    /// Tells a node that is back, or that has refused, what it was to be told.
    pub(super) fn pay(self: &Arc<Self>, node: usize) {
        if self.link(node).is_none() {
            return; // Gone again, or this link was given up meanwhile: another one pays.
        }
        for owed in self.shared.members[node].take_owed(self.now_us()) {
            hit(Mark::OwedPaid);
            let wait = self.shared.names().traces(&owed.id).wait;
            let mut fan = Fan::of(self.paying(node, owed, wait).map(|paying| (node, paying)));
            fan.poll();
            self.finish(fan);
        }
    }

    /// No more tokens than were granted: to reserve more is a round, and so is a grant, which comes with as many. No node
    /// was asked, so this is from no moment: what was heard of those who wait stays, and no way was measured.
    pub(super) fn reserve(&self, id: &GrantId, token: Token) -> Answer {
        let held = self.shared.names().held(id).filter(|held| held.token == token).map(|held| held.range);
        let outcome = Outcome::Reserved { range: held.unwrap_or(1) };
        Answer { now_us: 0, ..self.answer(self.now_us(), &Tally::new(self.nodes()), outcome) }
    }

    pub(super) async fn revoke(
        self: Arc<Self>,
        name: Name,
        holder: PublicId,
        token: Token,
        grace_ms: u64,
    ) -> Result<Answer, Fault> {
        let begun_us = self.now_us();
        let request = Request::Revoke { holder, token, grace_ms };
        let tally = self.hear_all(&name, &request).await;
        let outcome = tally.revoked().ok_or_else(|| self.undecided(&tally))?;
        Ok(self.answer(begun_us, &tally, outcome))
    }

    pub(super) async fn settle(self: Arc<Self>, name: Name) -> Result<Answer, Fault> {
        let begun_us = self.now_us();
        let tally = self.hear_all(&name, &Request::Settle).await;
        Ok(self.answer(begun_us, &tally, Outcome::Settled))
    }

    pub(super) async fn inspect(self: Arc<Self>, name: Name) -> Result<(Answer, Vec<NodeView>), Fault> {
        let begun_us = self.now_us();
        let tally = self.hear_all(&name, &Request::Inspect).await;
        let seen = |said: &Said| if let Said::Inspected(seen) = said { Some(seen.clone()) } else { None };
        let views: Vec<Option<Inspection>> = tally.votes().map(|vote| seen(&vote?.1.said)).collect();
        if views.iter().flatten().count() < tally.majority() {
            return Err(self.undecided(&tally));
        }
        let holder = tally.shown().cloned();
        let waiters = views.iter().flatten().map(|view| view.waiters).max().unwrap_or(0);
        let nodes = views.iter().enumerate().map(|(node, view)| self.view(node, view.as_ref())).collect();
        Ok((self.answer(begun_us, &tally, Outcome::Inspected(Inspection { holder, waiters })), nodes))
    }

    /// What one node says of a name by itself.
    fn view(&self, node: usize, seen: Option<&Inspection>) -> NodeView {
        let (member, now_us) = (&self.shared.members[node], self.now_us());
        let standing = member.standing();
        let says = match (seen, standing.rests_us(now_us)) {
            (_, Some(left_us)) => NodeSays::Resting { left: Duration::from_micros(left_us) },
            (Some(Inspection { holder: Some(holder), .. }), None) => NodeSays::Voted(holder.clone().into()),
            (Some(Inspection { holder: None, .. }), None) => NodeSays::Free,
            // It was not connected yet when it would have been asked.
            (None, None) if matches!(standing, Standing::Votes) => {
                NodeSays::Nothing { why: "is connected just now".into() }
            }
            (None, None) => NodeSays::Nothing { why: member.told(now_us) },
        };
        NodeView::new(member.node.at(), says)
    }

    /// What all nodes say to this: a majority, and of the others who answers in time.
    async fn hear_all(self: &Arc<Self>, name: &Name, request: &Request) -> Tally {
        let mut tally = Tally::new(self.nodes());
        let mut fan = self.ask_all(name, &mut tally, |_| request.clone());
        let all = |tally: &Tally| tally.pending_nodes().is_empty().then_some(());
        let enough = |tally: &Tally| if tally.shows_enough() { Some(()) } else { all(tally) };
        let now_us = self.now_us();
        if self.hear(&mut fan, &mut tally, now_us + self.shared.patience_us(u64::MAX), all).await.is_none() {
            self.hear(&mut fan, &mut tally, now_us + WITHIN_US, enough).await;
        }
        self.wait_no_longer(&mut tally);
        self.finish(fan);
        tally
    }
}
