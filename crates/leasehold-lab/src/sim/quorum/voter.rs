//! A node: the specification over records of its own. Its clock can be set, and it can lose its memory and restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use leasehold_spec::node::{Abstention, Bell, Charter, Marker, Record, Renewal, Request, Said, Vote};
use leasehold_spec::node::{begin, enter, vote};
use leasehold_spec::{Env, LostHow, Name, SessionId, Was};

use super::super::node::Clock;
use super::step_rules::{self, Seen};

/// A request of a client.
#[derive(Clone, Debug)]
pub(in super::super) enum Query {
    Greet(Charter),
    One(Name, Request, Arc<Marker>),
    Batch(Vec<(Name, Renewal)>, Arc<Marker>),
    Time,
    Attach(SessionId),
    Names,
    /// The client has closed the connection and sends no more requests.
    End,
}

/// A reply to a client.
#[derive(Clone, Debug)]
pub(in super::super) enum Reply {
    Greeted(Marker),
    Vote(Result<Vote, Abstention>),
    Votes(Vec<Result<Vote, Abstention>>),
    Time(u64),
    Attached,
    Names(Vec<Name>),
    NoMemory,
    Unlike,
}

/// How many of the last writes are remembered, for a restart to lose.
const TAIL: usize = 256;

pub(super) struct Voter {
    pub(super) at: String,
    pub(super) runs: u64,
    /// For how many reasons it does not run.
    pub(super) downs: u32,
    /// For how many reasons it refuses new connections.
    pub(super) refuses: u32,
    /// For how many reasons it is frozen.
    pub(super) freezes: u32,
    /// For how many reasons the memory is full.
    pub(super) full: u32,
    /// The requests that arrived while it was frozen.
    pub(super) pending: VecDeque<(u64, Option<u64>, Query)>,
    pub(super) records: BTreeMap<Name, Record>,
    pub(super) marker: Option<Marker>,
    /// Whether it loses acknowledged writes in a restart.
    pub(super) forgets: bool,
    /// Whether it has lost its last acknowledged writes: votes and places that were given back exist again.
    pub(super) fell_back: bool,
    pub(super) clock: Clock,
    /// Until when its clock shows times that it has shown before, because it was set back. Until then a request that
    /// was too late is in time once more, also after the request that took it back.
    pub(super) relives_until_us: u64,
    /// The connections through which an inbox is attached.
    pub(super) inboxes: BTreeMap<SessionId, BTreeSet<u64>>,
    /// The record before each of the last writes.
    tail: VecDeque<(u64, Name, Option<Record>)>,
}

/// The effects of carrying out a request.
pub(super) struct Done {
    pub(super) said: Reply,
    pub(super) bells: Vec<(Name, Bell)>,
    pub(super) steps: Vec<(Name, Request, Result<Vote, Abstention>)>,
    /// The rules that it has broken.
    pub(super) wrong: Vec<&'static str>,
}

impl Voter {
    pub(super) fn new(number: usize, forgets: bool, clock: Clock, charter: Charter) -> Self {
        let mut voter = Self {
            at: format!("node {}", number + 1),
            runs: 1,
            downs: 0,
            refuses: 0,
            freezes: 0,
            full: 0,
            pending: VecDeque::new(),
            records: BTreeMap::new(),
            marker: None,
            forgets,
            fell_back: false,
            clock,
            relives_until_us: 0,
            inboxes: BTreeMap::new(),
            tail: VecDeque::new(),
        };
        // No client has used it before.
        voter.marker = Some(begin(charter, &voter.run(), forgets));
        voter
    }

    pub(super) fn run(&self) -> String {
        format!("{} run {}", self.at, self.runs)
    }

    /// Returns whether it has no vote whatever the request is.
    pub(super) fn is_out(&self, now_us: u64) -> bool {
        self.downs > 0 || self.freezes > 0 || self.quarantine_us(now_us) > 0
    }

    /// Returns how much of its quarantine is left by its clock, or 0. Before a run that may have forgotten something is
    /// greeted, this is the whole quarantine as far as it is known.
    pub(super) fn quarantine_us(&self, now_us: u64) -> u64 {
        let run = self.run();
        let is_known = |marker: &&Marker| marker.run == run || !marker.forgets && !self.forgets;
        let known = self.marker.as_ref().filter(is_known);
        known.map_or(u64::MAX, |marker| marker.rests_until_us.saturating_sub(self.clock.at_us(now_us)))
    }

    /// Carries out a request.
    pub(super) fn serve(&mut self, conn: u64, ask: &Query, now_us: u64) -> Done {
        let mut done = Done { said: Reply::Unlike, bells: Vec::new(), steps: Vec::new(), wrong: Vec::new() };
        done.said = match ask {
            Query::Greet(charter) => {
                let entered =
                    enter(self.marker.as_ref(), *charter, &self.run(), self.forgets, self.clock.at_us(now_us));
                match entered {
                    Ok(marker) => {
                        self.marker = Some(marker.clone());
                        Reply::Greeted(marker)
                    }
                    Err(_) => Reply::Unlike,
                }
            }
            Query::One(_, Request::Ask(_), _) if self.full > 0 => Reply::NoMemory,
            Query::One(name, request, seen) => Reply::Vote(self.apply(name, request.clone(), seen, now_us, &mut done)),
            Query::Batch(batch, seen) => {
                let each = batch.iter();
                let said = each
                    .map(|(name, renewal)| self.apply(name, Request::Renew(renewal.clone()), seen, now_us, &mut done));
                Reply::Votes(said.collect())
            }
            Query::Time => Reply::Time(self.clock.at_us(now_us)),
            Query::Attach(session) => {
                self.inboxes.entry(*session).or_default().insert(conn);
                Reply::Attached
            }
            Query::Names => Reply::Names(self.records.keys().cloned().collect()),
            Query::End => Reply::Attached,
        };
        done
    }

    fn apply(
        &mut self,
        name: &Name,
        request: Request,
        seen: &Marker,
        now_us: u64,
        done: &mut Done,
    ) -> Result<Vote, Abstention> {
        let clock_us = self.clock.at_us(now_us);
        if matches!(request, Request::Ask(_) | Request::Renew(_))
            && let Some(abstention) = seen.abstains(self.marker.as_ref(), clock_us)
        {
            done.steps.push((name.clone(), request, Err(abstention)));
            return Err(abstention);
        }
        let inboxes = &self.inboxes;
        let env = Env { wall_us: clock_us, lease_us: clock_us, attached: &|session| inboxes.contains_key(&session) };
        let before = self.records.get(name).cloned();
        let mut record = before.clone().unwrap_or_default();
        let (said, bells) = vote(&mut record, &env, &request);
        let known = before.clone().unwrap_or_default();
        let seen = Seen { before: &known, request: &request, now_us: clock_us, after: &record, said: &said.said };
        done.wrong.extend(step_rules::wrong(&seen));
        if before.as_ref() != Some(&record) && (before.is_some() || record != Record::default()) {
            if self.tail.len() == TAIL {
                self.tail.pop_front();
            }
            self.tail.push_back((now_us, name.clone(), before));
            self.records.insert(name.clone(), record);
        }
        done.bells.extend(bells.into_iter().map(|bell| (name.clone(), bell)));
        done.steps.push((name.clone(), request, Ok(said.clone())));
        Ok(said)
    }

    /// Ends a connection, and detaches its inbox if it has one.
    pub(super) fn detach(&mut self, conn: u64) {
        self.inboxes.retain(|_, conns| {
            conns.remove(&conn);
            !conns.is_empty()
        });
    }

    /// Starts another run of it.
    pub(super) fn restarts(&mut self) {
        self.runs += 1;
        self.pending.clear();
        self.inboxes.clear();
    }

    /// Deletes everything.
    pub(super) fn is_emptied(&mut self) {
        self.records.clear();
        self.tail.clear();
        self.marker = None;
    }

    /// Restores its records of that moment, as far back as is remembered. The marker stays: it is older than that.
    pub(super) fn falls_back(&mut self, since_us: u64) {
        while self.tail.back().is_some_and(|(at_us, ..)| *at_us >= since_us)
            && let Some((_, name, before)) = self.tail.pop_back()
        {
            match before {
                Some(record) => self.records.insert(name, record),
                None => self.records.remove(&name),
            };
        }
        self.tail.clear();
        self.fell_back = true;
    }
}

/// Returns the name that the coverage has for an answer.
pub(super) fn label(request: &Request, said: &Result<Vote, Abstention>) -> &'static str {
    let said = match said {
        Ok(vote) => &vote.said,
        Err(Abstention::Resting { .. }) => return "no vote: quarantined",
        Err(Abstention::Unmarked) => return "no vote: unmarked",
    };
    match (request, said) {
        (_, Said::Granted { .. }) => "ask: granted",
        (_, Said::Refused { holder: Some(_), .. }) => "ask: refused",
        (_, Said::Refused { holder: None, .. }) => "ask: called before",
        (_, Said::Below) => "ask: below",
        (_, Said::Far) => "ask: far",
        (Request::Ask(_), Said::Late) => "ask: late",
        (_, Said::Full) => "ask: full",
        (_, Said::Late) => "renew: late",
        (_, Said::Renewed { .. }) => "renew: renewed",
        (_, Said::Filled { .. }) => "renew: filled",
        (_, Said::Lost { how: LostHow::Revoked }) => "renew: revoked",
        (_, Said::Lost { how: LostHow::NotHeld }) => "renew: lost",
        (Request::GiveBack { wait: Some(_), .. }, _) => "stand back",
        (Request::Pause { .. }, _) => "pause",
        (_, Said::GivenBack { was: Was::Granted }) => "give back: held",
        (_, Said::GivenBack { was: Was::Queued }) => "give back: waited",
        (_, Said::GivenBack { was: Was::Absent }) => "give back: absent",
        (_, Said::Revoking { .. }) => "revoke: marked",
        (_, Said::NotHeld) => "revoke: not held",
        (_, Said::Settled) => "settle",
        (_, Said::Inspected(_)) => "inspect",
    }
}
