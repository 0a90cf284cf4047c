//! What goes to the scripts: requests as arguments of fixed width, which no script has to take apart with care.

use leasehold_spec::{Acquire, Contention, From, Hears, Name, Op, Order, Patience, Place, Renew};
use redis::Cmd;

use super::keys::Keys;
use super::scripts::{Script, Scripts};
use crate::error::Error;

/// As many digits as a field has: times in µs, and lengths in ms.
const TIME_END: u64 = 10_u64.pow(16);
const LENGTH_END: u64 = 10_u64.pow(8);
const NONE: &str = "----------------";

/// A script and what it is called with, ready to be sent, by its digest or by its source.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Call {
    /// The request for one name.
    pub(super) fn new(keys: &Keys, name: &Name, op: &Op, guess: Contention) -> Result<Self, Error> {
        let scripts = Scripts::get();
        let (script, args) = match op {
            Op::Acquire(acquire) => (&scripts.acquire, acquire_args(acquire, guess)?),
            Op::Renew(renew) => return Self::renew(keys, [(name, renew)]),
            Op::Release { id, token } => {
                let mut args = vec![format!("lh1H{:016}{}", token.get(), id.wire())];
                args.extend(guessed(guess));
                (&scripts.release, args)
            }
            Op::Leave { id } => (&scripts.leave, vec![id.wire()]),
            Op::Revoke { holder, token, grace_ms } => {
                let seen = format!("{:016}{:032x}{:016x}", token.get(), holder.session.0, holder.counter);
                (&scripts.revoke, vec![seen, below(*grace_ms, LENGTH_END, "grace")?.to_string()])
            }
            Op::Settle => (&scripts.settle, Vec::new()),
            Op::Inspect => (&scripts.inspect, Vec::new()),
        };
        Ok(Self { script, keys: vec![keys.record(name)], args })
    }

    /// Renewals of many names in one call.
    pub(super) fn renew<'a>(
        keys: &Keys,
        batch: impl IntoIterator<Item = (&'a Name, &'a Renew)>,
    ) -> Result<Self, Error> {
        let mut call = Self { script: &Scripts::get().renew, keys: Vec::new(), args: Vec::new() };
        for (name, renew) in batch {
            let from = match renew.from {
                From::Now => 'N',
                From::Grant => 'G',
            };
            call.keys.push(keys.record(name));
            call.args.push(format!(
                "{:016}{}{:08}{:016}{from}",
                renew.token.get(),
                renew.id.wire(),
                below(renew.lease_ms, LENGTH_END, "lease")?,
                renew.not_after_us.min(TIME_END - 1),
            ));
            call.args.push(keep_ms(renew.lease_ms));
        }
        Ok(call)
    }

    /// The command that runs it by its digest.
    pub(super) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha)
    }

    /// The command that runs it by its source, where the server has forgotten it.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", &self.script.source)
    }

    fn command(&self, how: &str, what: &str) -> Cmd {
        let mut command = redis::cmd(how);
        command.arg(what).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}

fn acquire_args(acquire: &Acquire, guess: Contention) -> Result<Vec<String>, Error> {
    let lease_ms = below(acquire.lease_ms, LENGTH_END, "lease")?;
    let place = match &acquire.patience {
        Patience::Try => String::new(),
        Patience::Queue(place) => queue_args(place)?,
    };
    let mut args = vec![
        format!("{}{lease_ms:08}", acquire.id.wire()),
        acquire.label.clone(),
        format!("{:016}", acquire.not_after_us.min(TIME_END - 1)),
        keep_ms(lease_ms),
    ];
    // Each argument costs the server 0.1 µs: the usual request has none that says nothing.
    match guessed(guess) {
        Some(guess) => args.extend([place, guess]),
        None if place.is_empty() => {}
        None => args.push(place),
    }
    Ok(args)
}

fn queue_args(place: &Place) -> Result<String, Error> {
    let claim_ms = below(place.claim_ms, LENGTH_END, "claim")?;
    // Longer than the clock's digits is for ever.
    let patience = place.limit_ms.filter(|&ms| ms < TIME_END / 10_000);
    let digits = |number: Option<u64>| number.map_or_else(|| NONE.to_owned(), |number| format!("{number:016}"));
    let ticket = place.ticket.map(|ticket| below(ticket, TIME_END, "ticket")).transpose()?;
    let hears = match place.hears {
        Hears::Listens => 'L',
        Hears::Polls => 'P',
    };
    let order = match place.order {
        Order::Strict => 's',
        Order::Relaxed => 'r',
    };
    Ok(format!("{claim_ms:08}{}{}{hears}{order}", digits(patience), digits(ticket)))
}

/// What tells a script to expect a queue.
fn guessed(guess: Contention) -> Option<String> {
    match guess {
        Contention::None => None,
        Contention::Others | Contention::Strict => Some("c".to_owned()),
    }
}

/// How long the record of a grant is kept that was made now.
fn keep_ms(lease_ms: u64) -> String {
    (lease_ms + leasehold_spec::limits::RETENTION_MS).to_string()
}

fn below(number: u64, end: u64, what: &str) -> Result<u64, Error> {
    if number < end { Ok(number) } else { Err(Error::invalid(format!("the {what} is too long: {number}"))) }
}
