//! The arguments of the scripts of pools.

use leasehold_spec::limits::GRANTS_MAX;
use leasehold_spec::{Acquire, From, GrantId, Kind, Mode, Name, Op, Patience, Renew, Token};

use crate::error::Error;
use crate::store::redis::arguments::Fields;
use crate::store::redis::call::{Call, LABEL_END, LENGTH_END, TIME_END, below, queue_fields};
use crate::store::redis::keys::Keys;
use crate::store::redis::layout::{Place as At, field};
use crate::store::redis::scripts::Script;

const UNITS: At = At { offset: 0, width: field!(SHARE.units).width };

/// Returns the request for one name. `None` if no script of pools carries it out.
pub(in crate::store::redis) fn call(keys: &Keys, name: &Name, op: &Op) -> Result<Option<Call>, Error> {
    let begin = |script| Call::begin(script, 1).and(keys.record(name));
    let call = match op {
        Op::Acquire(request) => acquire(begin(Script::PoolAcquire), request)?,
        Op::Renew(request) => return renew(keys, &[(name, request)]).map(Some),
        Op::Release { id, token, .. } => begin(Script::PoolRelease).and(Fields::new().id(id)).and(digits(*token)),
        Op::Leave { id, .. } => begin(Script::PoolLeave).and(Fields::new().id(id)),
        Op::CoolDown { id, for_ms, .. } => {
            let for_ms = below(*for_ms, LENGTH_END, "cool-down")?;
            begin(Script::PoolCoolDown).and(Fields::new().id(id)).and(Fields::new().decimal(for_ms, field!(LENGTH.ms)))
        }
        Op::Lower { id, token, units } => {
            let units = Fields::new().decimal(below((*units).max(1).into(), UNITS.end(), "number of units")?, UNITS);
            begin(Script::PoolLower).and(Fields::new().id(id)).and(digits(*token)).and(units)
        }
        Op::Resize { from, to, not_after_us } => {
            let to = Fields::new().decimal(below((*to).into(), UNITS.end(), "number of permits")?, UNITS);
            begin(Script::PoolResize).and(begins(Kind::Semaphore, *from)?).and(to).and(time(*not_after_us))
        }
        Op::Revoke { holder, token, grace_ms } => {
            let seen = Fields::new().public_id(holder).decimal(token.get(), field!(SEEN.token));
            begin(Script::PoolRevoke).and(seen).and(below(*grace_ms, LENGTH_END, "grace")?.to_string())
        }
        Op::Notify { count } => begin(Script::PoolNotify).and((*count).min(GRANTS_MAX).to_string()),
        Op::Spend { id, token } => begin(Script::PoolSpend).and(Fields::new().id(id)).and(digits(*token)),
        Op::CreateLatch { limit: 0, not_after_us, .. } => begin(Script::PoolState).and(time(*not_after_us)),
        Op::CreateLatch { limit, keep_ms, not_after_us } => {
            let limit = below((*limit).into(), UNITS.end(), "number of count-downs")?;
            let keep_ms = Fields::new().decimal((*keep_ms).min(LENGTH_END - 1), field!(LENGTH.ms));
            begin(Script::PoolCreate).and(Fields::new().decimal(limit, UNITS)).and(keep_ms).and(time(*not_after_us))
        }
        Op::CountDown { id, born } => begin(Script::PoolCountDown).and(Fields::new().id(id)).and(digits(*born)),
        Op::DeleteLatch { born } => begin(Script::PoolDelete).and(digits(*born)),
        Op::Settle => begin(Script::PoolSettle),
        Op::Inspect => begin(Script::PoolInspect),
        Op::Reserve { .. } | Op::Put { .. } | Op::HandTo { .. } => return Ok(None),
    };
    Ok(Some(call))
}

/// Returns one call with renewals of many names.
pub(in crate::store::redis) fn renew(keys: &Keys, batch: &[(&Name, &Renew)]) -> Result<Call, Error> {
    let call =
        batch.iter().fold(Call::begin(Script::PoolRenew, batch.len()), |call, (name, _)| call.and(keys.record(name)));
    let call = call.and_not_after(batch.iter().map(|(_, renew)| renew.not_after_us));
    batch.iter().try_fold(call, |call, (_, renew)| {
        let start = match renew.from {
            From::Now => "H",
            From::Grant => "G",
        };
        let lease_ms = below(renew.lease_ms, LENGTH_END, "lease")?;
        let want = Fields::new().text(start).id(&renew.id).decimal(renew.token.get(), field!(WANT.token));
        Ok(call.and(want.decimal(lease_ms, field!(WANT.lease))))
    })
}

fn acquire(call: Call, acquire: &Acquire) -> Result<Call, Error> {
    let lease_ms = below(acquire.lease_ms, LENGTH_END, "lease")?;
    let units = below(acquire.take.units.into(), UNITS.end(), "number of units")?;
    below(acquire.label.len() as u64, LABEL_END, "label")?;
    let (mode, replaced) = match acquire.take.mode {
        Mode::Plain => ("P", None),
        Mode::Upgradeable => ("U", None),
        Mode::Instead { id, token } => ("I", Some(replaced_fields(&id, token))),
    };
    let (place, bounds) = match &acquire.patience {
        Patience::Try => (Fields::new(), Fields::new()),
        Patience::Queue(place) => queue_fields(place)?,
    };
    let call = call
        .and(Fields::new().id(&acquire.id))
        .and(Fields::new().decimal(lease_ms, field!(LENGTH.ms)))
        .and(begins(acquire.take.kind, acquire.take.limit)?)
        .and(Fields::new().text(mode).decimal(units, field!(SHARE.units)))
        .and(acquire.label.as_bytes())
        .and(time(acquire.not_after_us));
    let replaced = replaced.as_ref().map_or(&[][..], AsRef::as_ref);
    Ok(call.and_said([place.as_ref(), bounds.as_ref(), replaced]))
}

fn replaced_fields(id: &GrantId, token: Token) -> Fields {
    Fields::new().id(id).decimal(token.get(), field!(REPLACED.token))
}

/// Returns the beginning of a record of this kind.
fn begins(kind: Kind, limit: u32) -> Result<Fields, Error> {
    let limit = below(limit.into(), UNITS.end(), "limit")?;
    Ok(Fields::new().text("lh1").text(letter(kind)).decimal(limit, field!(POOL.limit)))
}

/// Returns the letter of a kind.
const fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "M",
        Kind::ReadWrite => "W",
        Kind::Semaphore => "S",
        Kind::Condition => "V",
        Kind::Latch => "L",
        Kind::Barrier => "B",
    }
}

/// Returns the kind with this letter.
pub(in crate::store::redis) fn kind(letter: &str) -> Option<Kind> {
    match letter {
        "M" => Some(Kind::Mutex),
        "W" => Some(Kind::ReadWrite),
        "S" => Some(Kind::Semaphore),
        "V" => Some(Kind::Condition),
        "L" => Some(Kind::Latch),
        "B" => Some(Kind::Barrier),
        _ => None,
    }
}

fn digits(token: Token) -> Fields {
    Fields::new().decimal(token.get(), field!(TOKEN.number))
}

fn time(us: u64) -> Fields {
    Fields::new().decimal(us.min(TIME_END - 1), field!(TIME.us))
}
