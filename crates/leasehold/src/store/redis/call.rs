//! The arguments of the scripts: requests as fields of fixed width, which a script can cut by position.

use leasehold_spec::limits::{RANGE_END, RANGE_MAX};
use leasehold_spec::{Acquire, Contention, From, GrantId, Hears, Name, Op, Order, Patience, Place, Renew, Token};
use redis::{Arg, Cmd};

use super::arguments::Fields;
use super::keys::Keys;
use super::layout::{Place as At, field};
use super::scripts::Script;
use crate::error::Error;

/// The limits of fields: times in µs have 16 digits, lengths in ms have 8, and the length of a label has 3.
pub(super) const TIME_END: u64 = field!(TIME.us).end();
pub(super) const LENGTH_END: u64 = field!(LENGTH.ms).end();
pub(super) const LABEL_END: u64 = field!(TAIL.label_length).end();
/// The length of a label that begins an argument.
const LABEL_LENGTH: At = At { offset: 0, width: field!(TAIL.label_length).width };

/// A script, and the command that runs it by its digest.
#[derive(Clone)]
pub(super) struct Call {
    script: Script,
    command: Cmd,
}

impl Call {
    /// Returns the request for one name, for the scripts of a mutex. `None` if none of them carries it out.
    pub(super) fn new(keys: &Keys, name: &Name, op: &Op, contention: Contention) -> Result<Option<Self>, Error> {
        let begin = |script| Self::begin(script, 1).and(keys.record(name));
        let call = match op {
            Op::Acquire(acquire) => acquire_args(begin(Script::Acquire), acquire, contention)?,
            Op::Renew(renew) => return Self::renew(keys, &[(name, renew)]).map(Some),
            Op::Release { id, token, used } => {
                let used = (used > token).then(|| Fields::new().decimal(used.get(), field!(TOKEN.number)));
                let inboxes = if is_contended(contention) { keys.inboxes() } else { String::new() };
                begin(Script::Release).and(held(id, *token)).and_said([inboxes.as_bytes(), said(&used)])
            }
            Op::Leave { id, used } => {
                let used = (*used > Token::NONE).then(|| Fields::new().decimal(used.get(), field!(TOKEN.number)));
                begin(Script::Leave).and(Fields::new().id(id)).and_said([said(&used)])
            }
            Op::CoolDown { id, used, for_ms } => {
                let used = (*used > Token::NONE).then(|| Fields::new().decimal(used.get(), field!(TOKEN.number)));
                let for_ms = Fields::new().decimal(below(*for_ms, LENGTH_END, "cool-down")?, field!(LENGTH.ms));
                begin(Script::CoolDown).and(Fields::new().id(id)).and(for_ms).and_said([said(&used)])
            }
            Op::Reserve { id, token, range } => {
                let wanted = Fields::new().decimal(token.get(), field!(RESERVE.token)).id(id);
                begin(Script::Reserve).and(wanted.decimal((*range).clamp(1, RANGE_END), field!(RESERVE.range)))
            }
            Op::Revoke { holder, token, grace_ms } => {
                let seen = Fields::new().decimal(token.get(), field!(TOKEN.number)).public_id(holder);
                let grace_ms = below(*grace_ms, LENGTH_END, "grace")?;
                begin(Script::Revoke).and(seen).and(grace_ms.to_string())
            }
            Op::Put { id, token, label } => begin(Script::Put)
                .and(Fields::new().decimal(token.get(), field!(TOKEN.number)).id(id))
                .and(label_of(label)?),
            Op::HandTo { id, token, label } => {
                let held = Fields::new().decimal(token.get(), field!(TOKEN.number)).id(id);
                begin(Script::HandTo).and(held).and(label_of(label)?)
            }
            Op::Settle => begin(Script::Settle),
            Op::Inspect => begin(Script::Inspect),
            Op::Lower { .. }
            | Op::Resize { .. }
            | Op::Notify { .. }
            | Op::Spend { .. }
            | Op::CreateLatch { .. }
            | Op::CountDown { .. }
            | Op::DeleteLatch { .. } => return Ok(None),
        };
        Ok(Some(call))
    }

    /// Returns one call that acquires several mutexes, or none of them.
    pub(super) fn acquire_all(keys: &Keys, members: &[(Name, Acquire)]) -> Result<Self, Error> {
        let call = members
            .iter()
            .fold(Self::begin(Script::AcquireAll, members.len()), |call, (name, _)| call.and(keys.record(name)));
        let not_after_us = members.iter().map(|(_, acquire)| acquire.not_after_us).min().unwrap_or(0);
        let call = call.and(Fields::new().decimal(not_after_us.min(TIME_END - 1), field!(TIME.us)));
        members.iter().try_fold(call, |call, (_, acquire)| {
            let lease_ms = below(acquire.lease_ms, LENGTH_END, "lease")?;
            Ok(call
                .and(Fields::new().id(&acquire.id))
                .and(Fields::new().decimal(lease_ms, field!(LENGTH.ms)))
                .and(tail(acquire.range.clamp(1, RANGE_MAX), &acquire.label)?)
                .and(keep_ms(lease_ms)))
        })
    }

    /// Returns one call with renewals of many names.
    pub(super) fn renew(keys: &Keys, batch: &[(&Name, &Renew)]) -> Result<Self, Error> {
        let mut call = Self::begin(Script::Renew, batch.len()).and_keys(keys, batch.iter().map(|(name, _)| *name));
        call = call.and_not_after(batch.iter().map(|(_, renew)| renew.not_after_us));
        for (_, renew) in batch {
            let from = match renew.from {
                From::Now => "lh1H",
                From::Grant => "lh1G",
            };
            let held = Fields::new().text(from).decimal(renew.token.get(), field!(RECORD.token)).id(&renew.id);
            call = call.and(held.decimal(below(renew.lease_ms, LENGTH_END, "lease")?, field!(RECORD.length)));
        }
        Ok(call)
    }

    pub(super) fn script(&self) -> Script {
        self.script
    }

    /// Returns the command that runs the script by its digest.
    pub(super) fn by_digest(&self) -> &Cmd {
        &self.command
    }

    /// Returns the command that runs the script by its digest, and nothing else.
    pub(super) fn into_command(self) -> Cmd {
        self.command
    }

    /// Returns the command that runs the script by its source, if the server has forgotten it.
    pub(super) fn by_source(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.source());
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }

    pub(super) fn begin(script: Script, keys: usize) -> Self {
        // Room for all arguments: to grow the buffers argument by argument costs more than to fill them.
        let mut command = Cmd::with_capacity(4 + 8 * keys, 256 + 192 * keys);
        command.arg("EVALSHA").arg(script.sha()).arg(keys);
        Self { script, command }
    }

    pub(super) fn and_keys<'a>(mut self, keys: &Keys, names: impl Iterator<Item = &'a Name>) -> Self {
        let mut key = String::new();
        for name in names {
            key.clear();
            keys.write(name, &mut key);
            self.command.arg(&key);
        }
        self
    }

    pub(super) fn and(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.command.arg(argument.as_ref());
        self
    }

    /// Adds the earliest `not_after` of a batch, and then all of them.
    pub(super) fn and_not_after(self, each_us: impl Iterator<Item = u64> + Clone) -> Self {
        let field = |us: u64| Fields::new().decimal(us.min(TIME_END - 1), field!(TIME.us));
        let mut all = Vec::with_capacity(field!(TIME.us).width * each_us.size_hint().0);
        each_us.clone().for_each(|us| all.extend_from_slice(field(us).as_ref()));
        self.and(field(each_us.min().unwrap_or(0))).and(all)
    }

    /// Returns the number of arguments behind the keys.
    #[cfg(test)]
    pub(super) fn arguments(&self) -> usize {
        let mut words = self.command.args_iter().skip(2);
        let Some(Arg::Simple(keys)) = words.next() else { panic!("a call has a number of keys") };
        words.count() - str::from_utf8(keys).unwrap().parse::<usize>().unwrap()
    }

    /// Adds optional arguments, without the empty ones at the end: each argument costs the server 0.1 µs.
    pub(super) fn and_said<const N: usize>(self, optional: [&[u8]; N]) -> Self {
        let said = optional.iter().rposition(|argument| !argument.is_empty()).map_or(0, |last| last + 1);
        optional[..said].iter().fold(self, |call, argument| call.and(argument))
    }
}

/// Returns the bytes of an optional field.
fn said(field: &Option<Fields>) -> &[u8] {
    field.as_ref().map_or(&[], |field| field.as_ref())
}

/// Returns how a record begins whose grant is held while nobody waits.
pub(super) fn held(id: &GrantId, token: Token) -> Fields {
    Fields::new().text("lh1H").decimal(token.get(), field!(RECORD.token)).id(id)
}

/// The arguments of an acquire that do not tell it from another one with the same terms.
pub(super) struct Terms {
    pub(super) lease_ms: u64,
    /// Number of tokens and label.
    pub(super) tail: Vec<u8>,
    pub(super) place: Fields,
    pub(super) bounds: Fields,
}

impl Terms {
    pub(super) fn of(acquire: &Acquire) -> Result<Self, Error> {
        let (place, bounds) = match &acquire.patience {
            Patience::Try => (Fields::new(), Fields::new()),
            Patience::Queue(place) => queue_fields(place)?,
        };
        let lease_ms = below(acquire.lease_ms, LENGTH_END, "lease")?;
        Ok(Self { lease_ms, tail: tail(acquire.range.clamp(1, RANGE_MAX), &acquire.label)?, place, bounds })
    }
}

fn acquire_args(call: Call, acquire: &Acquire, contention: Contention) -> Result<Call, Error> {
    let Terms { lease_ms, tail, place, bounds } = Terms::of(acquire)?;
    let hint: &[u8] = if is_contended(contention) { b"c" } else { b"" };
    let call = call
        .and(Fields::new().id(&acquire.id))
        .and(Fields::new().decimal(lease_ms, field!(LENGTH.ms)))
        .and(tail)
        .and(Fields::new().decimal(acquire.not_after_us.min(TIME_END - 1), field!(TIME.us)))
        .and(keep_ms(lease_ms));
    Ok(call.and_said([place.as_ref(), bounds.as_ref(), hint]))
}

/// Returns the fields of a waiter, and those of its longest wait and ticket if it has either.
pub(super) fn queue_fields(place: &Place) -> Result<(Fields, Fields), Error> {
    // Longer than the clock's digits is for ever.
    let patience = place.limit_ms.filter(|&ms| ms < TIME_END / 10_000);
    let ticket = place.ticket.map(|ticket| below(ticket, TIME_END, "ticket")).transpose()?;
    let hears = match place.hears {
        Hears::Listens => "L",
        Hears::Polls => "P",
    };
    let order = match place.order {
        Order::Strict => "s",
        Order::Relaxed => "r",
    };
    let who =
        Fields::new().decimal(below(place.claim_ms, LENGTH_END, "claim")?, field!(PLACE.claim)).text(hears).text(order);
    let bounds = match (patience, ticket) {
        (None, None) => Fields::new(),
        (patience, ticket) => Fields::new()
            .decimal_or_none(patience, field!(BOUNDS.patience))
            .decimal_or_none(ticket, field!(BOUNDS.ticket)),
    };
    Ok((who, bounds))
}

/// Returns a label as an argument of its own.
fn label_of(label: &str) -> Result<Vec<u8>, Error> {
    let length = below(label.len() as u64, LABEL_END, "label")?;
    Ok([Fields::new().decimal(length, LABEL_LENGTH).as_ref(), label.as_bytes()].concat())
}

/// Returns the end of a record: number of tokens and label.
pub(super) fn tail(range: u64, label: &str) -> Result<Vec<u8>, Error> {
    let label_len = below(label.len() as u64, LABEL_END, "label")?;
    let front = Fields::new().decimal(range, field!(TAIL.range)).decimal(label_len, field!(TAIL.label_length));
    Ok([front.as_ref(), label.as_bytes()].concat())
}

/// Returns whether a script should expect a queue.
fn is_contended(contention: Contention) -> bool {
    match contention {
        Contention::None => false,
        Contention::Others | Contention::Strict => true,
    }
}

/// Returns for how long the record of a new grant is kept.
pub(super) fn keep_ms(lease_ms: u64) -> String {
    (lease_ms + leasehold_spec::limits::RETENTION_MS).to_string()
}

pub(super) fn below(number: u64, end: u64, what: &str) -> Result<u64, Error> {
    if number < end { Ok(number) } else { Err(Error::invalid(format!("the {what} is too long: {number}"))) }
}

#[cfg(test)]
mod tests {
    use leasehold_spec::{SessionId, Take};

    use super::*;

    /// The scripts read arguments by their number. A call has as many as its row in the table says.
    #[test]
    fn a_call_has_as_many_arguments_as_its_script_takes() {
        let id = GrantId { session: SessionId(1), counter: 2, nonce: 3 };
        let (name, token, used) = (Name::new("a").unwrap(), Token::new(4).unwrap(), Token::new(5).unwrap());
        let place = Place { claim_ms: 1, limit_ms: None, ticket: None, hears: Hears::Polls, order: Order::Strict };
        let acquire = |patience| {
            let (lease_ms, not_after_us, label, range) = (1_000, 1, "".into(), 1);
            Op::Acquire(Acquire { id, take: Take::MUTEX, lease_ms, not_after_us, patience, label, range })
        };
        let renew = Renew { id, token, from: From::Now, lease_ms: 1_000, not_after_us: 1 };
        let ops = [
            (acquire(Patience::Try), 5),
            (acquire(Patience::Queue(place.clone())), 6),
            (acquire(Patience::Queue(Place { ticket: Some(1), ..place })), 7),
            (Op::Renew(renew.clone()), 3),
            (Op::Release { id, token, used: token }, 1),
            (Op::Release { id, token, used }, 3),
            (Op::Reserve { id, token, range: 2 }, 1),
            (Op::Leave { id, used: Token::NONE }, 1),
            (Op::Leave { id, used }, 2),
            (Op::CoolDown { id, used: Token::NONE, for_ms: 1 }, 2),
            (Op::CoolDown { id, used, for_ms: 1 }, 3),
            (Op::Revoke { holder: id.public(), token, grace_ms: 1 }, 2),
            (Op::Put { id, token, label: "ä".to_owned() }, 2),
            (Op::HandTo { id, token, label: "ä".to_owned() }, 2),
            (Op::Settle, 0),
            (Op::Inspect, 0),
        ];
        let keys = Keys::new("");
        for (op, count) in ops {
            let call = Call::new(&keys, &name, &op, Contention::None).unwrap().unwrap();
            assert_eq!((call.arguments(), call.script.takes(1, count)), (count, true), "{op:?}");
            let call = Call::new(&keys, &name, &op, Contention::Strict).unwrap().unwrap();
            assert!(call.script.takes(1, call.arguments()), "{op:?}");
        }
        let call = Call::renew(&keys, &[(&name, &renew), (&name, &renew)]).unwrap();
        assert!(call.script.takes(2, call.arguments()));
    }

    #[test]
    fn by_source_it_is_the_same_call() {
        let name = Name::new("a b").unwrap();
        let call = Call::new(&Keys::new("p:"), &name, &Op::Settle, Contention::None).unwrap().unwrap();
        let arguments = |command: &Cmd| -> Vec<Vec<u8>> {
            let simple =
                |argument| if let Arg::Simple(bytes) = argument { Vec::from(bytes as &[u8]) } else { panic!() };
            command.args_iter().map(simple).collect()
        };
        let (digest, source) = (arguments(call.by_digest()), arguments(&call.by_source()));
        assert_eq!((&digest[0][..], &source[0][..]), (&b"EVALSHA"[..], &b"EVAL"[..]));
        assert_eq!((&digest[1][..], &source[1][..]), (call.script.sha().as_bytes(), call.script.source().as_bytes()));
        assert_eq!(digest[2..], source[2..]);
        assert_eq!(digest[2..], [&b"1"[..], b"p:lh1:{a b}"]);
    }
}
