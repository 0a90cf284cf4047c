//! A [`Link`] to locks on one Redis, over a connection that `wire.rs` has.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};

use super::call::Call;
use super::fault;
use super::reply::{self, Said, To};
use super::wire::{Heard, Wire};
use crate::error::Error;
use crate::inspection::NodeView;
use crate::store::{Fault, Inbox, Link, Message, Progress, inspect_whole};
use crate::world::{Pending, World};

/// A connection whose first exchange went well.
pub(super) struct RedisLink {
    pub(super) wire: Wire,
    pub(super) run: String,
    pub(super) world: Arc<dyn World>,
}

impl Link for RedisLink {
    fn apply(&self, name: &Name, op: &Op, guess: Contention) -> Pending<Result<Answer, Fault>> {
        let call = Call::new(&self.wire.keys, name, op, guess);
        Box::pin(apply(self.wire.clone(), name.clone(), To::from(op), call))
    }

    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let mut parts: Vec<Pending<Vec<_>>> = Vec::new();
        for part in batch.chunks(RENEW_BATCH) {
            parts.push(Box::pin(renew(self.wire.clone(), part.to_vec())));
        }
        Box::pin(all(parts))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let mut random = [0; 16];
        self.world.random(&mut random);
        let probe = format!("lh1 probe {:032x}", u128::from_le_bytes(random));
        let keys = self.wire.keys.clone();
        let ear = move |heard: Heard<'_>| {
            inbox(match heard {
                Heard::Text(text) => reply::delivery(&keys, session, text)
                    .map_or(Message::LookAtAll, |(name, delivery)| Message::Delivery(name, delivery)),
                Heard::Garbled => Message::LookAtAll,
                Heard::Detached => Message::Detached,
            });
        };
        Box::pin(self.wire.clone().attach(session, probe, Arc::new(ear)))
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(self.wire.clone().ping())
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn check_driven(&self) -> Progress {
        self.wire.line.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.line.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.wire.line.is_closed()
    }

    fn close(&self) {
        self.wire.line.close();
    }
}

async fn apply(mut wire: Wire, name: Name, to: To, call: Result<Call, Error>) -> Result<Answer, Fault> {
    let text = wire.run(&call.map_err(Fault::Refused)?, Some(&name)).await?;
    answer(&wire, &name, to, &text)
}

async fn renew(mut wire: Wire, batch: Vec<(Name, Renew)>) -> Vec<Result<Answer, Fault>> {
    let each: Vec<_> = batch.iter().map(|(name, renew)| (name, renew)).collect();
    let call = Call::renew(&wire.keys, &each);
    let said = match call {
        Ok(call) => wire.run(&call, None).await,
        Err(error) => Err(Fault::Refused(error)),
    };
    let said = said.and_then(|text| {
        let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
        if lines == batch.len() { Ok(text) } else { Err(wire.garbled(None)) }
    });
    match said {
        Ok(text) => {
            let each = batch.iter().zip(text.split('\n'));
            each.map(|((name, renew), text)| answer(&wire, name, To::from(renew), text)).collect()
        }
        Err(fault) => batch.iter().map(|_| Err(fault.share())).collect(),
    }
}

fn answer(wire: &Wire, name: &Name, to: To, text: &str) -> Result<Answer, Fault> {
    let key = || wire.keys.record(name);
    match reply::parse(to, text) {
        Some(Said::Answer(answer)) => Ok(answer),
        Some(Said::Foreign(kind)) => Err(fault::foreign(&key(), &kind)),
        Some(Said::Newer(version)) => Err(fault::newer(&key(), &version)),
        Some(Said::Error(text)) => Err(fault::of_one(&text, &wire.line.at, wire.line.asker, &key())),
        Some(Said::Damaged) => Err(fault::damaged(&wire.line.at, &key())),
        None => Err(wire.garbled(Some(name))),
    }
}

/// Runs all of them at once, so that they leave in one write, and joins what they give.
pub(super) async fn all<T>(mut parts: Vec<Pending<Vec<T>>>) -> Vec<T> {
    let mut done: Vec<Option<Vec<T>>> = parts.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (part, done) in parts.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(answers) = Pin::new(part).poll(context) {
                *done = Some(answers);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().flatten().collect()
}
