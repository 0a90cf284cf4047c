//! A [`Link`] to locks on one Redis, over the connection of `wire.rs`.

use std::sync::Arc;

use leasehold_spec::{Answer, Name, Op, Renew, SessionId};

use super::batch::in_parts;
use super::call::Call;
use super::reply::{self, To};
use super::wire::{Heard, Wire};
use crate::error::Error;
use crate::inspection::NodeView;
use crate::store::{Fault, Guess, Inbox, Link, Message, Progress, inspect_whole};
use crate::world::{Pending, World};

/// A connection whose first exchange succeeded.
pub(super) struct RedisLink {
    pub(super) wire: Wire,
    pub(super) run: String,
    pub(super) world: Arc<dyn World>,
}

impl Link for RedisLink {
    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
        let call = Call::new(&self.wire.keys, name, op, guess);
        Box::pin(apply(self.wire.clone(), name.clone(), To::from(op), call))
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        in_parts(batch, |part| Box::pin(renew(self.wire.clone(), part)))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let keys = self.wire.keys.clone();
        let ear = move |heard: Heard<'_>| {
            inbox(match heard {
                Heard::Text(text) => reply::delivery(&keys, session, text)
                    .map_or(Message::LookAtAll, |(name, delivery)| Message::Delivery(name, delivery)),
                Heard::Garbled => Message::LookAtAll,
                Heard::Detached => Message::Detached,
            });
        };
        self.wire.attach(session, &*self.world, Arc::new(ear))
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
    wire.read(&name, reply::parse(to, &text))
}

async fn renew(mut wire: Wire, batch: Vec<(Name, Renew)>) -> Vec<Result<Answer, Fault>> {
    let each: Vec<_> = batch.iter().map(|(name, renew)| (name, renew)).collect();
    let text = match Call::renew(&wire.keys, &each) {
        Ok(call) => wire.run(&call, None).await,
        Err(error) => Err(Fault::Refused(error)),
    };
    match text.as_deref().map_err(Fault::share).and_then(|text| wire.lines(text, batch.len())) {
        Ok(lines) => {
            let each = batch.iter().zip(lines);
            each.map(|((name, renew), line)| wire.read(name, reply::parse(To::from(renew), line))).collect()
        }
        Err(fault) => batch.iter().map(|_| Err(fault.share())).collect(),
    }
}
