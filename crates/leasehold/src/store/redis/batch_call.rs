//! The call of a batch: acquires and releases of many names in one script.

use leasehold_spec::{Acquire, GrantId, Name, Op, Patience, Token};

use super::arguments::Fields;
use super::call::{Call, TIME_END, Terms, held, keep_ms};
use super::keys::Keys;
use super::layout::field;
use super::scripts::Script;
use crate::error::Error;

/// The fields of a request that are not those of its whole batch.
pub(super) struct Part {
    name: Name,
    id: GrantId,
    ask: Ask,
}

enum Ask {
    Acquire { not_after_us: u64 },
    Release { token: Token },
}

/// Whether a request may join a batch: an acquire without an earlier place, or a release of a grant that used no other
/// token than its own.
pub(super) fn may_join(op: &Op) -> bool {
    ask_of(op).is_some()
}

fn ask_of(op: &Op) -> Option<(GrantId, Ask)> {
    match op {
        Op::Acquire(Acquire { patience: Patience::Queue(place), .. }) if place.ticket.is_some() => None,
        Op::Acquire(acquire) => Some((acquire.id, Ask::Acquire { not_after_us: acquire.not_after_us })),
        Op::Release { id, token, used } if used <= token => Some((*id, Ask::Release { token: *token })),
        _ => None,
    }
}

impl Part {
    /// Returns the part of a request that may join a batch.
    pub(super) fn of(name: &Name, op: &Op) -> Option<Self> {
        ask_of(op).map(|(id, ask)| Self { name: name.clone(), id, ask })
    }
}

/// Returns one call with acquires and releases of many names. The acquires share the terms of `acquire`.
pub(super) fn batch_call<'a>(
    keys: &Keys,
    acquire: Option<&Acquire>,
    parts: impl ExactSizeIterator<Item = &'a Part> + Clone,
) -> Result<Call, Error> {
    let names = parts.clone().map(|part| &part.name);
    let not_after_us = parts.clone().map(|part| match part.ask {
        Ask::Acquire { not_after_us } => not_after_us,
        Ask::Release { .. } => TIME_END - 1, // It is never late.
    });
    let call = Call::begin(Script::Many, parts.len()).and_keys(keys, names.clone()).and_not_after(not_after_us);
    let call = call.and(numbers_of_repeats(&names));
    let call = match acquire {
        None => (0..5).fold(call, |call, _| call.and("")),
        Some(acquire) => {
            let Terms { lease_ms, tail, place, bounds } = Terms::of(acquire)?;
            let common = Fields::new().session(acquire.id.session).decimal(lease_ms, field!(COMMON.lease));
            call.and(common).and(keep_ms(lease_ms)).and(tail).and(place).and(bounds)
        }
    };
    Ok(parts.fold(call, |call, part| {
        call.and(match part.ask {
            Ask::Acquire { .. } => Fields::new().counter_and_nonce(&part.id),
            Ask::Release { token } => held(&part.id, token),
        })
    }))
}

/// Returns the numbers of the names that occur earlier in the batch, too: two digits each, counted from 1.
fn numbers_of_repeats<'a>(names: &(impl Iterator<Item = &'a Name> + Clone)) -> Vec<u8> {
    let is_repeat = |&(at, name): &(usize, &Name)| names.clone().take(at).any(|earlier| earlier == name);
    let repeats = names.clone().enumerate().filter(is_repeat);
    repeats.flat_map(|(at, _)| format!("{:02}", at + 1).into_bytes()).collect()
}
