//! A server: the specification over records of its own. Its clock can be set, its memory can be full, and a failover
//! loses its last writes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use leasehold_spec::{
    Acquire, Answer, Delivery, Env, GrantState, Joined, Name, Op, Outcome, Renew, Resource, SessionId, Token,
    acquire_all, step,
};

use super::step_rules::{self, Seen};

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    One(Name, Op),
    /// As `One`. It may leave in one message with those beside it (P53).
    Joining(Name, Op),
    /// The requests that have left in one message, with their numbers.
    Together(Vec<(u64, Name, Op)>),
    Batch(Vec<(Name, Renew)>),
    /// Several mutexes, or none of them.
    All(Vec<(Name, Acquire)>),
    Time,
    Attach(SessionId),
    Detach(SessionId),
    Names,
    /// The client has closed the connection and sends no more requests.
    End,
}

/// A reply to a client.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Answer(Answer),
    Answers(Vec<Answer>),
    /// The reply to each request of a message, by its number.
    Each(Vec<(u64, Reply)>),
    /// The server has refused the message. The request is to be sent alone.
    SendAlone,
    All(Option<Vec<Answer>>),
    Time(u64),
    Attached,
    Names(Vec<Name>),
    NoMemory,
    /// This server is not the primary.
    NotPrimary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    /// It replies with `NotPrimary` only.
    Replica,
    /// Not running.
    Down,
}

/// How many of the last writes are remembered, for a failover to lose.
const TAIL: usize = 256;
/// The wall clock at the beginning.
const BEGAN_US: u64 = 1_795_193_818_000_000;

pub(super) struct Node {
    pub(super) run: String,
    pub(super) role: Role,
    pub(super) records: BTreeMap<Name, Resource>,
    /// The connections through which an inbox is attached.
    pub(super) inboxes: BTreeMap<SessionId, BTreeSet<u64>>,
    pub(super) clock: Clock,
    /// Until when its clock shows times that it has shown before, because it was set back. Until then a request that
    /// was too late is in time once more, also after the request that took it back.
    pub(super) relives_until_us: u64,
    /// For how many reasons it is frozen.
    pub(super) freezes: u32,
    /// The requests that arrived while it was frozen.
    pub(super) pending: VecDeque<(u64, Option<u64>, Ask)>,
    /// For how many reasons the memory is full.
    pub(super) full: u32,
    /// The record before each of the last writes.
    tail: VecDeque<(u64, Name, Option<Resource>)>,
}

/// A server's wall clock: it can be set, and its rate differs from true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) offset_us: i64,
    pub(super) rate_ppm: i64,
}

impl Clock {
    pub(super) fn at_us(self, now_us: u64) -> u64 {
        let gained = i128::from(now_us) * i128::from(self.rate_ppm) / 1_000_000;
        (i128::from(BEGAN_US) + i128::from(now_us) + gained + i128::from(self.offset_us)) as u64
    }
}

/// The effects of carrying out a request.
pub(super) struct Done {
    pub(super) said: Reply,
    pub(super) deliveries: Vec<(Name, Delivery)>,
    pub(super) steps: Vec<(Name, Op, Answer)>,
    pub(super) wrong: Vec<&'static str>,
}

impl Node {
    pub(super) fn new(run: String, clock: Clock) -> Self {
        Self {
            run,
            role: Role::Primary,
            records: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            clock,
            relives_until_us: 0,
            freezes: 0,
            pending: VecDeque::new(),
            full: 0,
            tail: VecDeque::new(),
        }
    }

    /// Carries out a request.
    pub(super) fn serve(&mut self, conn: u64, ask: &Ask, now_us: u64) -> Done {
        let mut done = Done { said: Reply::NotPrimary, deliveries: Vec::new(), steps: Vec::new(), wrong: Vec::new() };
        if self.role != Role::Primary {
            if let Ask::Together(asks) = ask {
                done.said = Reply::Each(asks.iter().map(|(number, ..)| (*number, Reply::SendAlone)).collect());
            }
            return done;
        }
        done.said = match ask {
            Ask::One(_, Op::Acquire(_)) | Ask::Joining(_, Op::Acquire(_)) if self.full > 0 => Reply::NoMemory,
            Ask::One(name, op) | Ask::Joining(name, op) => {
                Reply::Answer(self.apply(name, op.clone(), now_us, &mut done))
            }
            // The script may acquire, so a server whose memory is full refuses it before it begins.
            Ask::Together(asks) if self.full > 0 => {
                Reply::Each(asks.iter().map(|(number, ..)| (*number, Reply::SendAlone)).collect())
            }
            Ask::Together(asks) => {
                let mut one = |(number, name, op): &(u64, Name, Op)| {
                    (*number, Reply::Answer(self.apply(name, op.clone(), now_us, &mut done)))
                };
                Reply::Each(asks.iter().map(&mut one).collect())
            }
            Ask::Batch(batch) => {
                let each =
                    batch.iter().map(|(name, renew)| self.apply(name, Op::Renew(renew.clone()), now_us, &mut done));
                Reply::Answers(each.collect())
            }
            Ask::All(_) if self.full > 0 => Reply::NoMemory,
            Ask::All(members) => Reply::All(self.acquire_all(members, now_us, &mut done)),
            Ask::Time => Reply::Time(self.clock.at_us(now_us)),
            Ask::Attach(session) => {
                self.inboxes.entry(*session).or_default().insert(conn);
                Reply::Attached
            }
            Ask::Detach(session) => {
                if let Some(conns) = self.inboxes.get_mut(session) {
                    conns.remove(&conn);
                }
                self.inboxes.retain(|_, conns| !conns.is_empty());
                Reply::Attached
            }
            Ask::Names => Reply::Names(self.records.keys().cloned().collect()),
            Ask::End => Reply::Attached,
        };
        done
    }

    fn apply(&mut self, name: &Name, op: Op, now_us: u64, done: &mut Done) -> Answer {
        let clock_us = self.clock.at_us(now_us);
        let inboxes = &self.inboxes;
        let env = Env { wall_us: clock_us, lease_us: clock_us, attached: &|session| inboxes.contains_key(&session) };
        let before = self.records.get(name).cloned();
        let mut record = before.clone().unwrap_or_default();
        let (answer, deliveries) = step(&mut record, &env, &op);
        let was = before.clone().unwrap_or_default();
        let seen =
            Seen { before: &was, op: &op, now_us: clock_us, after: &record, answer: &answer, deliveries: &deliveries };
        done.wrong.extend(step_rules::wrong(&seen, |session| inboxes.contains_key(&session)));
        if before.as_ref() != Some(&record) && (before.is_some() || record != Resource::default()) {
            self.write(name, (before, record), now_us);
        }
        done.deliveries.extend(deliveries.into_iter().map(|delivery| (name.clone(), delivery)));
        done.steps.push((name.clone(), op, answer.clone()));
        answer
    }

    /// Acquires several mutexes, or none of them.
    fn acquire_all(&mut self, members: &[(Name, Acquire)], now_us: u64, done: &mut Done) -> Option<Vec<Answer>> {
        let clock_us = self.clock.at_us(now_us);
        let env = Env { wall_us: clock_us, lease_us: clock_us, attached: &|_| true };
        let before: Vec<_> = members.iter().map(|(name, _)| self.records.get(name).cloned()).collect();
        let mut records: Vec<Resource> = before.iter().cloned().map(Option::unwrap_or_default).collect();
        let mut asked: Vec<_> = records.iter_mut().zip(members.iter().map(|(_, acquire)| acquire)).collect();
        let answers = acquire_all(&mut asked, &env)?;
        let written = before.into_iter().zip(records);
        for (((name, acquire), answer), of) in members.iter().zip(&answers).zip(written) {
            self.write(name, of, now_us);
            done.steps.push((name.clone(), Op::Acquire(acquire.clone()), answer.clone()));
        }
        Some(answers)
    }

    fn write(&mut self, name: &Name, (before, record): (Option<Resource>, Resource), now_us: u64) {
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back((now_us, name.clone(), before));
        self.records.insert(name.clone(), record);
    }

    /// Ends a connection, and detaches its inbox if it has one.
    pub(super) fn detach(&mut self, conn: u64) {
        self.inboxes.retain(|_, conns| {
            conns.remove(&conn);
            !conns.is_empty()
        });
    }

    /// Returns another server with the same records, without the writes since this time.
    pub(super) fn promoted(&self, run: String, clock: Clock, since_us: u64) -> Self {
        let mut node = Self::new(run, clock);
        node.relives_until_us = self.relives_until_us;
        node.records = self.records.clone();
        for (_, name, before) in self.tail.iter().rev().take_while(|(at_us, ..)| *at_us >= since_us) {
            match before {
                Some(record) => node.records.insert(name.clone(), record.clone()),
                None => node.records.remove(name),
            };
        }
        node
    }

    /// Returns the highest token of any name.
    pub(super) fn highest(&self) -> u64 {
        self.records.values().map(|record| record.last).max().map_or(0, Token::get)
    }

    /// Returns the holders of a name, the states of their grants, and the times left of them by the clock of the server.
    pub(super) fn held(&self, name: &Name, now_us: u64) -> Vec<(SessionId, GrantState, u64)> {
        let grants = self.records.get(name).into_iter().flat_map(|record| record.grants.iter());
        grants.map(|grant| (grant.id.session, grant.state, grant.left_us(self.clock.at_us(now_us)))).collect()
    }
}

/// Returns the name that the coverage has for an answer.
pub(super) fn label(op: &Op, answer: &Answer) -> Cow<'static, str> {
    match (op.word(), &answer.outcome) {
        (op, Outcome::Settled | Outcome::Inspected(_)) => op.into(),
        (op, Outcome::Queued { joined: Joined::Before, .. }) => format!("{op}: still queued").into(),
        (op, outcome) => format!("{op}: {}", outcome.word()).into(),
    }
}
