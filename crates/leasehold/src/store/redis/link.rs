//! A [`Link`] to locks on one Redis, over the connection of `wire.rs`.

use std::sync::Arc;

use leasehold_spec::{Acquire, Answer, Contention, Kind, Name, Op, Renew, SessionId};

use super::batch::in_parts;
use super::batch_call::may_join;
use super::call::Call;
use super::fault;
use super::link_state::ChannelEvent;
use super::many::BatchReply;
use super::pool::encoding::Encoding;
use super::pool::request::{Request, renewals, restless};
use super::reply::{self, To};
use super::wire::{Wire, gone};
use super::words::Reply;
use crate::error::Error;
use crate::inspection::NodeView;
use crate::store::{Fault, Guess, Inbox, Link, Message, Progress, inspect_whole};
use crate::world::{Pending, World};

/// A connection whose first exchange succeeded.
pub(super) struct RedisLink {
    pub(super) wire: Wire,
    pub(super) run: String,
    /// The rights that the scripts of pools need and the user lacks.
    pub(super) lacks_for_pools: Vec<&'static str>,
    pub(super) world: Arc<dyn World>,
}

impl Link for RedisLink {
    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
        let encoding = Encoding::expected(op, guess);
        if encoding == Encoding::Mutex && guess.contention == Contention::None && may_join(op) {
            return apply_together(self.wire.clone(), name.clone(), op.clone(), guess);
        }
        let request =
            self.check(op, encoding).and_then(|()| Request::new(&self.wire.keys, (name, op), guess, encoding));
        Box::pin(apply(self.wire.clone(), (name.clone(), op.clone()), (guess, encoding), request))
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        in_parts(batch, |part| Box::pin(renew(self.wire.clone(), part, Encoding::of(kind))))
    }

    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        let call = Call::acquire_all(&self.wire.keys, members);
        Box::pin(acquire_all(self.wire.clone(), members.to_vec(), call))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(self.wire.clone().names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let keys = self.wire.keys.clone();
        let handler = move |event: ChannelEvent<'_>| {
            inbox(match event {
                ChannelEvent::Text(text) => reply::delivery(&keys, session, text)
                    .map_or(Message::RecheckAll, |(name, delivery)| Message::Delivery(name, delivery)),
                ChannelEvent::Garbled => Message::RecheckAll,
                ChannelEvent::Detached => Message::Detached,
            });
        };
        self.wire.attach(session, &*self.world, Arc::new(handler))
    }

    fn detach(&self, session: SessionId) -> Pending<Result<(), Fault>> {
        Box::pin(self.wire.clone().detach(session))
    }

    fn check_read(&self) -> Progress {
        self.wire.state.check_read()
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
        self.wire.state.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.state.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.wire.state.is_closed()
    }

    fn close(&self) {
        self.wire.state.close();
    }
}

impl RedisLink {
    /// Refuses an acquire of a pool whose scripts need rights that the user lacks. A user of mutexes needs fewer.
    fn check(&self, op: &Op, encoding: Encoding) -> Result<(), Error> {
        let begins =
            matches!(op, Op::Acquire(_) | Op::Resize { .. } | Op::CreateLatch { .. }) && encoding == Encoding::Pool;
        if begins && !self.lacks_for_pools.is_empty() {
            return Err(fault::lacking_for_pools(&self.wire.state.at, &self.lacks_for_pools));
        }
        Ok(())
    }
}

/// The number of times that a request may find the record in the other encoding. A record changes it only if it ends and
/// another client begins another one, so the second time is a rare one.
///
/// The call to the other scripts comes after the requests that were sent in the meantime, as after NOSCRIPT: see `wire.rs`.
/// Nothing of the request was carried out before.
const ENCODINGS: usize = 4;

async fn apply(
    mut wire: Wire,
    (name, op): (Name, Op),
    (guess, mut encoding): (Guess, Encoding),
    request: Result<Request, Error>,
) -> Result<Answer, Fault> {
    let mut request = request.map_err(Fault::Refused)?;
    for _ in 0..ENCODINGS {
        let text = wire.run(&request.call, Some(&name)).await?;
        let reply = reply::parse(request.to, &text);
        if !is_elsewhere(encoding, reply.as_ref()) {
            let answer = wire.read(&name, reply)?;
            if let Some(answer) = request.answer(&op, answer) {
                return Ok(answer);
            }
        }
        encoding = encoding.other();
        request = Request::new(&wire.keys, (&name, &op), guess, encoding).map_err(Fault::Refused)?;
    }
    Err(restless(&wire.keys.record(&name)))
}

/// Applies a request of a mutex together with others, if at least three are in flight.
///
/// The call to `apply` is boxed, because few requests of a batch need it. So this future stays below a kilobyte: above
/// that, glibc's allocator leaves its fast path. It is a block, because the future of a function has its arguments twice.
fn apply_together(wire: Wire, name: Name, op: Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
    Box::pin(async move {
        let reply = match wire.join(&name, &op) {
            Some((reply, _in_flight)) => reply.await.map_err(|_| gone())?,
            None => BatchReply::SendAlone,
        };
        let encoding = match reply {
            BatchReply::Short(now_us) => {
                return reply::short(To::from(&op), now_us).ok_or_else(|| wire.garbled(None));
            }
            BatchReply::Full(text) => {
                let reply = reply::parse(To::from(&op), &text);
                if !is_elsewhere(Encoding::Mutex, reply.as_ref()) {
                    return wire.read(&name, reply);
                }
                Encoding::Pool
            }
            BatchReply::SendAlone => Encoding::Mutex,
            BatchReply::Broken(error) => return Err(wire.fault(&error, None)),
            BatchReply::Garbled => return Err(wire.garbled(None)),
        };
        let call = Request::new(&wire.keys, (&name, &op), guess, encoding);
        Box::pin(apply(wire, (name, op), (guess, encoding), call)).await
    })
}

async fn acquire_all(
    mut wire: Wire,
    members: Vec<(Name, Acquire)>,
    call: Result<Call, Error>,
) -> Result<Option<Vec<Answer>>, Fault> {
    let text = wire.run(&call.map_err(Fault::Refused)?, None).await?;
    reply::of_all(&members, &text).ok_or_else(|| wire.garbled(None))
}

/// Whether the record has the other encoding.
fn is_elsewhere(encoding: Encoding, reply: Option<&Reply<Answer>>) -> bool {
    match (encoding, reply) {
        (Encoding::Mutex, Some(Reply::Foreign(kind))) => kind == "hash",
        (Encoding::Pool, Some(Reply::Other)) => true,
        _ => false,
    }
}

async fn renew(mut wire: Wire, batch: Vec<(Name, Renew)>, encoding: Encoding) -> Vec<Result<Answer, Fault>> {
    let each: Vec<_> = batch.iter().map(|(name, renew)| (name, renew)).collect();
    let text = match renewals(&wire.keys, &each, encoding) {
        Ok(call) => wire.run(&call, None).await,
        Err(error) => Err(Fault::Refused(error)),
    };
    let lines = match text.as_deref().map_err(Fault::share).and_then(|text| wire.lines(text, batch.len())) {
        Ok(lines) => lines,
        Err(fault) => return batch.iter().map(|_| Err(fault.share())).collect(),
    };
    let mut answers = Vec::with_capacity(lines.len());
    for ((name, renew), line) in batch.iter().zip(lines) {
        let reply = reply::parse(To::renewal(renew, encoding), line);
        answers.push(match is_elsewhere(encoding, reply.as_ref()) {
            false => wire.read(name, reply),
            true => renew_elsewhere(&wire, (name, renew), encoding.other()).await,
        });
    }
    answers
}

/// Renews one name whose record has another encoding than the others of its batch.
async fn renew_elsewhere(wire: &Wire, (name, renew): (&Name, &Renew), encoding: Encoding) -> Result<Answer, Fault> {
    let (op, guess) = (Op::Renew(renew.clone()), Guess::default());
    let request = Request::new(&wire.keys, (name, &op), guess, encoding);
    apply(wire.clone(), (name.clone(), op), (guess, encoding), request).await
}
