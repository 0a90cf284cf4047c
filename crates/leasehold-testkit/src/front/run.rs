//! The scripts: runs [`step`] on a record, and formats its answer like the Lua.

use leasehold::seam::Script;
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Env, Event, From, Grant, GrantState, Holder, Inspection, Joined, LostHow,
    Op, Outcome, Resource, Rest, SessionId, ShownMode, Waiter, Was, acquire_all, step,
};

use super::{Front, Sent, What, decode, pool};

/// A name's record.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) resource: Resource,
    shape: Shape,
}

/// The encoding of a record. A record with a queue becomes a hash, and stays one until it is free. The scripts answer a
/// string in fewer words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    #[default]
    Text,
    Hash,
}

/// The encoding that a script tries first, by the guess of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    Text,
    Hash,
    /// It was read as a text, and the short path was not taken.
    Read,
}

impl Front {
    /// Runs a script with the number of keys, the keys and the arguments. Returns `None` if it does not take these.
    pub(super) fn run_script(
        &mut self,
        script: Script,
        now_us: u64,
        rest: &[&str],
        sent: &mut Vec<Sent>,
    ) -> Option<String> {
        let (count, rest) = rest.split_first()?;
        let (keys, argv) = rest.split_at_checked(count.parse().ok()?)?;
        if !script.takes(keys.len(), argv.len()) {
            return None;
        }
        if pool::is_of_pools(script) {
            return self.run_pool_script(script, now_us, (keys, argv), sent);
        }
        if script == Script::Renew {
            let renews = decode::renew(keys.len(), argv)?.into_iter().map(Op::Renew);
            let each = keys.iter().zip(renews).map(|(key, op)| self.apply(key, now_us, &op, Guess::Text, sent));
            return Some(each.collect::<Vec<_>>().join("\n"));
        }
        if script == Script::AcquireAll {
            return Some(self.acquire_all(keys, now_us, &decode::acquire_all(keys.len(), argv)?));
        }
        if script == Script::Many {
            let (earliest_us, ops) = decode::many(keys, argv)?;
            return Some(self.many(keys, now_us, (earliest_us, &ops), sent));
        }
        let [key] = keys else { return None };
        let guess = match script {
            Script::Acquire if argv.get(7).is_some() => Guess::Hash,
            Script::Release if argv.get(1).is_some_and(|inboxes| !inboxes.is_empty()) => Guess::Hash,
            _ => Guess::Text,
        };
        let op = match (script, argv) {
            (Script::Acquire, _) => decode::acquire(argv)?,
            (Script::Release, [held, ..]) => decode::release(held, argv.get(2).copied())?,
            (Script::Reserve, [wanted]) => decode::reserve(wanted)?,
            (Script::Put, [held, label]) => decode::put(held, label)?,
            (Script::HandTo, [held, label]) => decode::hand_to(held, label)?,
            (Script::Leave, [id, ..]) => decode::leave(id, argv.get(1).copied())?,
            (Script::CoolDown, [id, ms, ..]) => decode::cool_down(id, ms, argv.get(2).copied())?,
            (Script::Revoke, [seen, grace]) => decode::revoke(seen, grace)?,
            (Script::Settle, _) => Op::Settle,
            (Script::Inspect, _) => Op::Inspect,
            _ => return None,
        };
        Some(self.apply(key, now_us, &op, guess, sent))
    }

    fn acquire_all(&mut self, keys: &[&str], now_us: u64, asked: &[Acquire]) -> String {
        let known = |key: &&str| self.records.get(*key).map(|record| record.resource.clone()).unwrap_or_default();
        let mut resources: Vec<Resource> = keys.iter().map(known).collect();
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &|_| true };
        let mut members: Vec<_> = resources.iter_mut().zip(asked).collect();
        if acquire_all(&mut members, &env).is_none() {
            return "BUSY".to_owned();
        }
        for (key, resource) in keys.iter().zip(resources) {
            self.records.insert((*key).to_owned(), Record { resource, shape: Shape::Text });
        }
        format!("{now_us:016}")
    }

    fn many(&mut self, keys: &[&str], now_us: u64, (earliest_us, ops): (u64, &[Op]), sent: &mut Vec<Sent>) -> String {
        let mut text = format!("{now_us:016}");
        for (number, (key, op)) in (1..).zip(keys.iter().zip(ops)) {
            let is_early = now_us <= earliest_us || !matches!(op, Op::Acquire(_));
            let said = self.apply(key, now_us, op, if is_early { Guess::Text } else { Guess::Read }, sent);
            if said != "RELEASED" && !said.starts_with(|c: char| c.is_ascii_digit()) {
                text += &format!("\n{number:02}{said}");
            }
        }
        text
    }

    fn apply(&mut self, key: &str, now_us: u64, op: &Op, guess: Guess, sent: &mut Vec<Sent>) -> String {
        let known = self.records.remove(key).filter(|record| !record.resource.is_forgotten(now_us, now_us));
        let mut record = known.unwrap_or_default();
        if record.resource.kind.is_pool() {
            self.records.insert(key.to_owned(), record);
            return "FOREIGN hash".to_owned();
        }
        if record.resource == Resource::default() && guess == Guess::Hash {
            // Looked up as a hash, a missing record is an empty hash.
            record.shape = Shape::Hash;
        }
        // As in `part/open.lua`: the prefix of a session's channel, before the session ID.
        let inboxes = format!("{}inbox:", key.split('{').next().unwrap_or_default());
        let attached = |session: SessionId| self.is_listened_to(&format!("{inboxes}{session}"));
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &attached };
        let is_short = is_short(&record, now_us, op, guess);
        let before = record.resource.clone();
        let (answer, deliveries) = step(&mut record.resource, &env, op);
        let text = match (&answer.outcome, is_short) {
            (Outcome::Renewed { .. }, _) if is_usual(op, &answer) => format!("R{now_us:016}"),
            (Outcome::Granted { token, .. }, true) => format!("{:016}", token.get()),
            (Outcome::Released, true) => "RELEASED".to_owned(),
            _ => sentence(op, &answer, &before, &record.resource),
        };
        if !matches!(op, Op::Inspect) {
            let is_hash = record.shape == Shape::Hash && record.resource.grants.sole().is_some();
            record.shape = if is_hash || !record.resource.queue.is_empty() { Shape::Hash } else { Shape::Text };
        }
        if record.resource != Resource::default() {
            self.records.insert(key.to_owned(), record);
        }
        for delivery in deliveries {
            self.publish(&format!("{inboxes}{}", delivery.to), &message(key, &delivery), What::Push, sent);
        }
        text
    }
}

/// Whether the first lines of the script answer this with one word.
fn is_short(record: &Record, now_us: u64, op: &Op, guess: Guess) -> bool {
    let resource = &record.resource;
    match op {
        _ if guess != Guess::Text => false,
        Op::Acquire(acquire) if now_us <= acquire.not_after_us => {
            let is_new = *resource == Resource::default();
            let is_free = record.shape == Shape::Text && resource.grants.is_empty() && resource.last.get() < now_us;
            is_new || is_free && resource.released != Some(acquire.id)
        }
        Op::Release { id, token, used } => resource.grants.sole().is_some_and(|grant| {
            record.shape == Shape::Text
                && grant.state == GrantState::Held
                && (grant.id, grant.token) == (*id, *token)
                && (grant.token..=grant.reserved()).contains(used)
                && grant.length_ms <= leasehold_spec::limits::RETENTION_MS
        }),
        _ => false,
    }
}

/// Whether a renewal is answered in one word: it counts from now, and there is nothing to add.
fn is_usual(op: &Op, answer: &Answer) -> bool {
    let is_quiet = answer.contention == Contention::None && answer.rest == Rest::Done;
    matches!(op, Op::Renew(renew) if renew.from == From::Now) && is_quiet && answer.handed_claim_ms.is_none()
}

fn sentence(op: &Op, answer: &Answer, before: &Resource, after: &Resource) -> String {
    let Answer { now_us, highest, contention, rest, handed_claim_ms, outcome } = answer;
    let claim = handed_claim_ms.map_or("-".to_owned(), |claim_ms| format!("{claim_ms:08}"));
    let text =
        format!("{now_us:016} {:016} {} {} {claim}", highest.get(), contention_letter(*contention), rest_letter(*rest));
    let lease = || lease(after.grants.sole());
    match outcome {
        Outcome::Granted { token, range, .. } => {
            format!("GRANTED {text} {:016} {range:08} {}", token.get(), lease())
        }
        Outcome::Queued { ticket, joined, .. } => {
            let joined = match joined {
                Joined::Now => "now",
                Joined::Before => "before",
            };
            format!("QUEUED {text} {ticket:016} {} {joined}", lease())
        }
        Outcome::Busy { .. } => format!("BUSY {text} {}", lease()),
        Outcome::Gone => format!("GONE {text}"),
        Outcome::Late => format!("LATE {text}"),
        Outcome::Full => format!("FULL {text}"),
        Outcome::Renewed { .. } => format!("RENEWED {text} {}", lease()),
        Outcome::Lost { how: LostHow::Revoked } => format!("LOST {text} revoked"),
        Outcome::Lost { how: LostHow::NotHeld } => format!("LOST {text} notheld"),
        Outcome::Released => format!("RELEASED {text}"),
        Outcome::NotHeld => format!("NOTHELD {text}"),
        Outcome::Left { was: Was::Queued } => format!("LEFT {text} queued"),
        Outcome::Left { was: Was::Granted } => format!("LEFT {text} granted"),
        Outcome::Left { was: Was::Absent } => format!("LEFT {text} absent"),
        Outcome::Revoking { left_us } => format!("REVOKING {text} {}", marked(op, *now_us, *left_us, before, after)),
        Outcome::Reserved { range } => format!("RESERVED {text} {range:08}"),
        Outcome::Put => format!("PUT {text}"),
        Outcome::NoWaiter => format!("NOWAITER {text}"),
        Outcome::Settled => format!("SETTLED {text}"),
        Outcome::Inspected(inspection) => format!("INSPECTED {text} {}", inspected(inspection, after)),
        other => unreachable!("no script of a mutex says {}", other.word()),
    }
}

/// Formats the start and the length of a lease.
fn lease(grant: Option<&Grant>) -> String {
    grant.map_or("0 0".to_owned(), |grant| format!("{:016} {:08}", grant.since_us, grant.length_ms))
}

/// Formats the start and the length of a lease that was just marked, whose name may have another holder by now. If it is
/// not the grant before this step, the step's own settling made it: then it is still there, or its claim began now.
fn marked(op: &Op, now_us: u64, left_us: u64, before: &Resource, after: &Resource) -> String {
    let Op::Revoke { token, grace_ms, .. } = op else { return String::new() };
    if let Some(grant) = after.grants.sole().filter(|grant| grant.token == *token) {
        return lease(Some(grant));
    }
    let ours = before.grants.sole().filter(|grant| grant.token == *token);
    let since_us = ours.map_or(now_us, |grant| grant.since_us.min(now_us));
    let end_us = ours.map_or(now_us + left_us, |grant| grant.end_us().min(now_us + grace_ms * 1000));
    format!("{since_us:016} {:08}", end_us.saturating_sub(since_us) / 1000)
}

/// Formats what `store/redis/inspection.rs` reads.
pub(super) fn inspected(inspection: &Inspection, after: &Resource) -> String {
    let Inspection { kind, limit, units, holders, grants, queue, waiters } = inspection;
    let kind = pool::letter(*kind);
    let mut text = format!("{kind} {limit} {units} {grants} {waiters}");
    for Holder { id, token, label, state, units, mode, .. } in holders {
        let state = match state {
            GrantState::Held => "H",
            GrantState::Pushed => "P",
            GrantState::Revoked => "R",
            GrantState::CoolingDown => "C",
        };
        let lease = lease(after.grants.iter().find(|grant| grant.id.public() == *id));
        let (mode, token, bytes) = (mode_letter(*mode), token.get(), label.len());
        text += &format!(" h {lease} {state} {token:016} {} {units} {mode} {bytes:03}{label}", id.wire());
    }
    for Waiter { id, units, mode, label, .. } in queue {
        let entry = after.upgrade.iter().chain(&after.queue).find(|entry| entry.id.public() == *id);
        let limit_us = entry.and_then(|entry| entry.limit_us).unwrap_or(0);
        let (mode, bytes) = (mode_letter(*mode), label.len());
        text += &format!(" w {limit_us:016} {} {units} {mode} {bytes:03}{label}", id.wire());
    }
    text
}

fn mode_letter(mode: ShownMode) -> &'static str {
    match mode {
        ShownMode::Plain => "P",
        ShownMode::Upgradeable => "U",
        ShownMode::Upgrade => "I",
    }
}

/// Returns the text of a message to the inbox of a session.
pub(super) fn message(key: &str, delivery: &Delivery) -> String {
    let Delivery { now_us, contention, rest, id, token, left_us, range, event, .. } = delivery;
    let (word, left) = match event {
        // The eight digits of a claim, and the zeros that make µs of them.
        Event::Granted => ("G", format!("{left_us:011}")),
        Event::Revoked => ("R", left_us.to_string()),
        Event::Wanted => ("W", left_us.to_string()),
        Event::Ending => ("E", left_us.to_string()),
    };
    let (id, token) = (id.wire(), token.get());
    let (contention, rest) = (contention_letter(*contention), rest_letter(*rest));
    format!("lh1 {word} {id} {token:016} {left} {now_us:016} {contention} {rest} {range:08} {key}")
}

pub(super) fn contention_letter(contention: Contention) -> &'static str {
    match contention {
        Contention::None => "N",
        Contention::Others => "O",
        Contention::Strict => "S",
    }
}

pub(super) fn rest_letter(rest: Rest) -> &'static str {
    match rest {
        Rest::Done => "D",
        Rest::More => "M",
    }
}
