//! P26: the leases of dead sessions, and the grants that a step reads.
//!
//! A step that could serve somebody first gives the leases of dead holders back on their behalf. For that it connects to
//! the lives of the holders. A mutex has one holder. A pool can have thousands, so a step checks at most 64 of their
//! sessions and gives back at most 64 grants. If more are left, its reply says MORE, and the next step of this client
//! goes on behind them. A step of a pool that serves everybody who asks checks nobody.

use std::collections::HashMap;

use leasehold_spec::limits::SETTLE_STEPS;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Env, Grant, GrantId, Kind, Mode, Name, Op, Resource, Rest, SessionId};
use rusqlite::Connection;

use super::cells::Bad;
use super::latches;
use super::pool::Part;
use super::record::Record;

/// The leases to give back, and the holders that live.
#[derive(Default)]
pub(super) struct Deaths {
    pub(super) grants: Vec<GrantId>,
    /// The holders to watch, if this step has found them: the first 64 of a pool.
    pub(super) living: Option<Vec<SessionId>>,
    pub(super) rest: Rest,
}

/// For each pool: the session behind which the next step goes on.
#[derive(Default)]
pub(super) struct Cursors(HashMap<Name, SessionId>);

/// With one more, all are dropped from memory: each check begins anew then.
const CURSORS: usize = 256;

impl Cursors {
    fn set(&mut self, name: &Name, to: Option<SessionId>) {
        let Some(to) = to else {
            self.0.remove(name);
            return;
        };
        if self.0.len() >= CURSORS {
            self.0.clear();
        }
        self.0.insert(name.clone(), to);
    }
}

/// A request about one name, at one time.
pub(super) struct Asked<'a> {
    pub(super) name: &'a Name,
    pub(super) op: &'a Op,
    pub(super) env: &'a Env<'a>,
    pub(super) is_dead: &'a dyn Fn(SessionId) -> bool,
}

/// Reads the grants that a step needs into the record, and finds the dead among their holders.
pub(super) fn read(
    db: &Connection,
    record: &mut Record,
    asked: &Asked<'_>,
    cursors: &mut Cursors,
) -> Result<Deaths, Bad> {
    let Some(mut part) = record.part(db) else { return Ok(deaths_of_mutex(&record.resource, asked)) };
    let now_us = asked.env.lease_us;
    if record.resource.is_forgotten(asked.env.wall_us, now_us) {
        record.is_reset = true;
        return Ok(Deaths::default());
    }
    let resource = &mut record.resource;
    read_named(&mut part, resource, asked.op)?;
    latches::read_named(db, part.name, &mut resource.latch, asked.op)?;
    let deaths = deaths_of_pool(&mut part, resource, asked, cursors)?;
    let mut first_end_us = None;
    if !leaves_others_alone(resource, &part, asked.op) {
        if !is_on(Mutant::P33ReadsNoEnded) {
            part.read_ended(now_us)?;
        }
        if !resource.is_idle() {
            part.read_ending()?;
        }
        first_end_us = part.first_end_us(now_us)?;
    }
    resource.grants = part.grants(first_end_us)?;
    Ok(deaths)
}

/// Reads the grants that the request names, or a waiter.
fn read_named(part: &mut Part<'_>, resource: &Resource, op: &Op) -> Result<(), Bad> {
    if let Some(id) = op.subject() {
        part.read_named(id.public())?;
    }
    if let Op::Revoke { holder, .. } = op {
        part.read_named(*holder)?;
    }
    let asked = if let Op::Acquire(acquire) = op { Some(acquire.take.mode) } else { None };
    for mode in asked.into_iter().chain(resource.upgrade.as_ref().map(|entry| entry.mode)) {
        if let Mode::Instead { id, .. } = mode {
            part.read_named(id.public())?;
        }
    }
    if part.pool.kind == Kind::ReadWrite {
        part.read_upgradeable()?;
    }
    Ok(())
}

/// Whether the request gives back a grant that it holds, and nobody waits. Its step concerns no other grant (P33): the
/// usual release reads one of perhaps thousands that have ended.
fn leaves_others_alone(resource: &Resource, part: &Part<'_>, op: &Op) -> bool {
    let holds = |id: &GrantId| part.get(*id).filter(|grant| grant.is_held());
    let gives_back = match op {
        Op::Release { id, token, .. } => holds(id).is_some_and(|grant| grant.token == *token),
        Op::Leave { id, .. } => holds(id).is_some(),
        _ => false,
    };
    gives_back && resource.is_idle()
}

/// Whether a session is dead that has a grant of this name. A grant that cools down was given back: the death of its
/// session changes nothing.
fn is_of_the_dead(grant: &Grant, asked: &Asked<'_>) -> bool {
    grant.is_held() && grant.end_us() > asked.env.lease_us && (asked.is_dead)(grant.id.session)
}

/// A request of the holder itself cannot be served by its death: it shows that the holder lives.
fn deaths_of_mutex(resource: &Resource, asked: &Asked<'_>) -> Deaths {
    let sole = resource.grants.sole();
    let can_be_served = matches!(asked.op, Op::Acquire(_) | Op::Settle);
    let dead = sole.filter(|grant| can_be_served && is_of_the_dead(grant, asked)).map(|grant| grant.id);
    Deaths { grants: dead.into_iter().collect(), ..Deaths::default() }
}

/// Removes the dead from what an inspection shows. It reads the oldest grants of a pool, and checks at most
/// 64 sessions.
pub(super) fn hide_dead(db: &Connection, record: &mut Record, asked: &Asked<'_>) -> Result<(), Bad> {
    let Some(mut part) = record.part(db) else {
        record.resource.grants.take_sole_if(|grant| is_of_the_dead(grant, asked));
        return Ok(());
    };
    let mut checked = HashMap::new();
    part.read_shown(asked.env.lease_us, |grant| {
        let is_last = checked.len() == SETTLE_STEPS;
        let is_dead = checked.entry(grant.id.session).or_insert_with(|| !is_last && (asked.is_dead)(grant.id.session));
        !grant.is_held() || !*is_dead
    })?;
    record.resource.grants = part.grants(None)?;
    Ok(())
}

/// Whether the request, or a waiter, cannot be served with the units that are free.
fn is_short(resource: &Resource, part: &Part<'_>, op: &Op) -> bool {
    if matches!(resource.kind, Kind::Latch | Kind::Barrier) {
        // No grant of a latch or a barrier keeps anybody out.
        return false;
    }
    let fits = |units: u32| part.pool.taken.saturating_add(units) <= part.pool.limit;
    match op {
        Op::Settle => !resource.is_idle(),
        Op::Acquire(acquire) if resource.is_idle() => match acquire.take.mode {
            Mode::Plain => !fits(acquire.take.units),
            Mode::Upgradeable => !fits(acquire.take.units) || part.has_upgradeable(),
            Mode::Instead { .. } => part.pool.granted > 1,
        },
        Op::Acquire(_) => true,
        _ => false,
    }
}

fn deaths_of_pool(
    part: &mut Part<'_>,
    resource: &Resource,
    asked: &Asked<'_>,
    cursors: &mut Cursors,
) -> Result<Deaths, Bad> {
    let mut deaths = Deaths::default();
    if !is_short(resource, part, asked.op) {
        return Ok(deaths);
    }
    let begin = cursors.0.get(asked.name).copied();
    let (mut at, mut living) = (begin, Vec::new());
    for checked in 0.. {
        let Some(next) = part.next_session(at)? else {
            at = None;
            break;
        };
        if checked == SETTLE_STEPS {
            deaths.rest = if is_on(Mutant::P26ForgetsTheRest) { Rest::Done } else { Rest::More };
            break;
        }
        if (asked.is_dead)(next) {
            let most = SETTLE_STEPS - deaths.grants.len();
            let held = part.read_held(next, asked.env.lease_us, most)?;
            deaths.grants.extend(&held);
            if held.len() == most {
                // It may have more grants: the next step begins with it.
                deaths.rest = Rest::More;
                break;
            }
        } else {
            living.push(next);
        }
        at = Some(next);
    }
    cursors.set(asked.name, at);
    if begin.is_none() {
        deaths.living = Some(living);
    }
    Ok(deaths)
}
