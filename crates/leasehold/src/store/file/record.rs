//! The record of a name: it is read before a step, and the changes are written after the step.
//!
//! A step changes little of a queue: it drops waiters at the head or one that the holder names, and removes, moves or adds
//! the waiter of the request. So the number of written rows does not grow with the queue. The number of read rows does,
//! unless nobody else has changed the name in the meantime: then its stamp is the one that is remembered with the queue.

use std::collections::HashMap;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{
    Delivery, Entry, Grant, GrantId, GrantState, Grants, Kind, Lapse, Latch, Name, Op, Resource, SessionId, Take,
};
use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::cells::{Bad, bytes, sane, state_number};
use super::dismissed;
use super::latches;
use super::plain::{Content, POOL, Plain};
use super::pool::{self, Part, Pool};
use super::rows::{OF_NAME, lapses, plain};
use super::waiters::{self, Waiters, delete};

/// A record as it was read, and as it is now.
#[derive(Default)]
pub(super) struct Record {
    /// `None`: there is no row yet.
    id: Option<i64>,
    stamp: i64,
    pub(super) resource: Resource,
    /// The pool as it is stored. Its grants are not read yet.
    pool: Option<Pool>,
    /// The stored pool is forgotten: none of its rows remains.
    pub(super) is_reset: bool,
    seqs: HashMap<GrantId, i64>,
    upgrade_seq: i64,
    before: Option<Before>,
}

/// The parts that a step may change, as they were before.
struct Before {
    plain: Plain,
    lapses: Vec<Lapse>,
    queue: Vec<(GrantId, u64)>,
    subject: Option<Entry>,
    upgrade: Option<Entry>,
    /// The grants of a pool, as far as they were read.
    grants: Grants,
    latch: Latch,
}

/// The queues that were read last, by name.
#[derive(Default)]
pub(super) struct Remembered(HashMap<Name, Record>);

/// With one more, all are dropped from memory: few programs use as many names at once.
const REMEMBERED: usize = 256;

impl Remembered {
    /// Takes the record that a step of the same transaction has left, or the one that is remembered.
    pub(super) fn take(&mut self, name: &Name, earlier: &mut Self) -> Option<Record> {
        let own = self.0.remove(name);
        let earlier = earlier.0.remove(name);
        own.or(earlier)
    }

    /// Remembers these as well.
    pub(super) fn keep_all(&mut self, others: Self) {
        others.0.into_iter().for_each(|(name, record)| self.keep(name, record));
    }

    pub(super) fn keep(&mut self, name: Name, record: Record) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(name, record);
    }
}

impl Record {
    /// Reads the record of a name, but not the grants of a pool. Nobody may remember the record while it changes: it comes
    /// back when the change is stored.
    pub(super) fn load(db: &Connection, name: &Name, remembered: Option<Self>) -> Result<Self, Bad> {
        let found = db
            .prepare_cached(OF_NAME)?
            .query_row([name.as_str()], |row| {
                let id = row.get(0)?;
                let head = (id, row.get::<_, i64>(1)?, row.get::<_, i64>(5)?, row.get::<_, i64>(6)?);
                Ok((head, plain(row, || Pool::read(db, id))))
            })
            .optional()?;
        let Some(((id, stamp, waiting, lapsed), plain)) = found else { return Ok(Self::default()) };
        let Plain { last, keep_until_us, released, content } = plain?;
        // The next stamp is larger.
        sane(stamp < 1 << 62, "a stamp is out of range")?;
        let (grant, pool) = match content {
            Content::Mutex(grant) => (grant, None),
            Content::Pool(pool) => (None, Some(pool)),
        };
        let remembered = remembered.filter(|record| record.id == Some(id) && record.stamp == stamp);
        let is_remembered = remembered.is_some();
        let mut record = Self { id: Some(id), stamp, pool, is_reset: false, ..remembered.unwrap_or_default() };
        let resource = &mut record.resource;
        (resource.kind, resource.limit) = pool.map_or(MUTEX, |pool| (pool.kind, pool.limit));
        (resource.last, resource.keep_until_us) = (last, keep_until_us);
        (resource.released, resource.grants) = (released, grant.into());
        let is_latch = resource.kind == Kind::Latch;
        resource.latch = if is_latch { latches::read(db, id, resource.limit)? } else { Latch::default() };
        if is_remembered {
            return Ok(record);
        }
        if waiting > 0 {
            let Waiters { queue, seqs, upgrade, upgrade_seq } = waiters::read(db, id, resource.kind)?;
            (resource.queue, resource.upgrade) = (queue, upgrade);
            (record.seqs, record.upgrade_seq) = (seqs, upgrade_seq);
        }
        resource.lapses = if lapsed == 0 { Vec::new() } else { lapses(db, id)? };
        let counted = (waiting_of(resource), resource.lapses.len() as i64);
        sane(counted == (waiting, lapsed), "it counts other waiters than there are")?;
        Ok(record)
    }

    /// Returns the part of a pool that is read next: nothing of it has been read yet.
    pub(super) fn part<'a>(&self, db: &'a Connection) -> Option<Part<'a>> {
        Some(Part::new(db, self.id?, self.pool?))
    }

    /// Whether one of these sessions has a grant of a pool, read or not.
    pub(super) fn has_unread(&self, db: &Connection, sessions: &[SessionId]) -> Result<bool, Bad> {
        let Some(id) = self.id.filter(|_| self.resource.kind.is_pool()) else { return Ok(false) };
        sessions.iter().try_fold(false, |any, session| Ok(any || pool::has_grant(db, id, *session)?))
    }

    /// Saves the parts that the next steps may change. Of the waiters, steps add, move or change only `subject`.
    pub(super) fn begin(&mut self, subject: Option<GrantId>) {
        let find = |id| self.resource.queue.iter().find(|entry| entry.id == id).cloned();
        self.before = Some(Before {
            plain: Plain::of(&self.resource),
            lapses: self.resource.lapses.clone(),
            queue: self.resource.queue.iter().map(|entry| (entry.id, entry.ticket)).collect(),
            subject: subject.and_then(find),
            upgrade: self.resource.upgrade.clone(),
            grants: if self.pool.is_some() { self.resource.grants.clone() } else { Grants::default() },
            latch: self.resource.latch.clone(),
        });
    }

    /// Writes the changes since [`Self::begin`]. `now_us` makes a stamp that this name never had.
    pub(super) fn save(
        &mut self,
        db: &Connection,
        name: &Name,
        subject: Option<GrantId>,
        now_us: u64,
    ) -> Result<(), Bad> {
        let Some(before) = &self.before else { return Ok(()) };
        let stamp = (self.stamp + 1).max(now_us.cast_signed());
        let plain = Plain::of(&self.resource);
        let is_queue_changed = self.is_queue_changed(before, subject);
        let is_lapsed = before.lapses != self.resource.lapses;
        let is_latch_changed = before.latch != self.resource.latch;
        let is_changed = before.plain != plain || is_queue_changed || is_lapsed || is_latch_changed || self.is_reset;
        // A renewal of a pool usually changes its grant and nothing else. A mutex has its grant in its row.
        if let (false, Some(id)) = (is_changed, self.id.filter(|_| self.pool.is_some())) {
            return pool::save(db, id, &before.grants, &self.resource.grants);
        }
        if !is_changed {
            return Ok(());
        }
        let id = self.save_plain(db, name, &plain, stamp)?;
        self.save_pool(db, id, &plain)?;
        if is_queue_changed {
            self.save_queue(db, id, subject, stamp)?;
            self.save_upgrade(db, id, stamp)?;
        }
        if is_lapsed {
            db.prepare_cached("DELETE FROM lapses WHERE name = ?1")?.execute([id])?;
            for (place, lapse) in self.resource.lapses.iter().enumerate() {
                db.prepare_cached("INSERT INTO lapses VALUES (?1, ?2, ?3, ?4)")?.execute(params![
                    id,
                    place as i64,
                    lapse.session.0.to_be_bytes(),
                    lapse.at_us.cast_signed()
                ])?;
            }
        }
        (self.id, self.stamp) = (Some(id), stamp);
        Ok(())
    }

    /// Returns whether this grant was an unclaimed push before the step.
    pub(super) fn was_pushed(&self, id: GrantId) -> bool {
        self.grants_before().any(|grant| grant.id == id && grant.state == GrantState::Pushed)
    }

    /// Returns the revoked grants that the step has ended.
    pub(super) fn revoked_and_ended(&self) -> impl Iterator<Item = &Grant> {
        let has_ended = |grant: &&Grant| self.resource.held_by(grant.id).is_none();
        self.grants_before().filter(|grant| grant.state == GrantState::Revoked).filter(has_ended)
    }

    /// Whether the step has made another waiter the first one of a condition variable, while others have notifications: it
    /// gets that of one that dies. (A waiter that asks has learned of them by this step.)
    pub(super) fn has_new_heir(&self, subject: Option<GrantId>) -> bool {
        let heir = self.resource.queue.front().map(|entry| entry.id);
        let before = self.before.iter().flat_map(|before| before.queue.first()).map(|(id, _)| *id).next();
        let has_notified = self.resource.kind == Kind::Condition && !self.resource.grants.is_empty();
        has_notified && heir != before && heir != subject && !is_on(Mutant::P42HeirIsBlind)
    }

    /// Notes the waiters whose entries were removed.
    pub(super) fn note_dismissed(&self, db: &Connection, op: &Op, deliveries: &[Delivery]) -> Result<(), Bad> {
        self.id.map_or(Ok(()), |id| dismissed::note(db, id, (&self.resource, op), deliveries))
    }

    fn grants_before(&self) -> impl Iterator<Item = &Grant> {
        self.before.iter().flat_map(|before| {
            let sole = if let Content::Mutex(sole) = &before.plain.content { sole.as_ref() } else { None };
            sole.into_iter().chain(before.grants.iter())
        })
    }

    fn is_queue_changed(&self, before: &Before, subject: Option<GrantId>) -> bool {
        let queue = &self.resource.queue;
        let same = |((id, ticket), entry): (&(GrantId, u64), &Entry)| *id == entry.id && *ticket == entry.ticket;
        let now = subject.and_then(|id| queue.iter().find(|entry| entry.id == id));
        queue.len() != before.queue.len()
            || now != before.subject.as_ref()
            || self.resource.upgrade != before.upgrade
            || !before.queue.iter().zip(queue).all(same)
    }

    fn save_plain(&self, db: &Connection, name: &Name, plain: &Plain, stamp: i64) -> Result<i64, Bad> {
        let grant = if let Content::Mutex(grant) = &plain.content { grant.as_ref() } else { None };
        let state = match &plain.content {
            Content::Mutex(grant) => grant.as_ref().map(|grant| state_number(grant.state)),
            Content::Pool(_) => Some(POOL),
        };
        let number = |of: fn(&Grant) -> u64| grant.map(|grant| of(grant).cast_signed());
        let values = named_params! {
            ":name": name.as_str(),
            ":stamp": stamp,
            ":last": plain.last.get().cast_signed(),
            ":keep": plain.keep_until_us.cast_signed(),
            ":released": plain.released.map(bytes),
            ":waiting": waiting_of(&self.resource),
            ":lapsed": self.resource.lapses.len() as i64,
            ":session": grant.map(|grant| grant.id.session.0.to_be_bytes()),
            ":counter": number(|grant| grant.id.counter),
            ":nonce": number(|grant| grant.id.nonce),
            ":token": number(|grant| grant.token.get()),
            ":range": number(|grant| grant.range),
            ":since": number(|grant| grant.since_us),
            ":length": number(|grant| grant.length_ms),
            ":state": state,
            ":label": grant.map(|grant| grant.label.as_str()),
        };
        // One statement for both would use up a number of `names.id` at each step, and read the index of names.
        let sql = match self.id {
            Some(_) => {
                "UPDATE names SET stamp = :stamp, last = :last, keep_until_us = :keep, released = :released, \
                 waiting = :waiting, lapsed = :lapsed, session = :session, counter = :counter, \
                 nonce = :nonce, token = :token, range = :range, since_us = :since, length_ms = :length, \
                 state = :state, label = :label WHERE name = :name"
            }
            None => {
                "INSERT INTO names (name, stamp, last, keep_until_us, released, waiting, lapsed, session, \
                 counter, nonce, token, range, since_us, length_ms, state, label) VALUES (:name, :stamp, :last, :keep, \
                 :released, :waiting, :lapsed, :session, :counter, :nonce, :token, :range, :since, :length, \
                 :state, :label)"
            }
        };
        db.prepare_cached(sql)?.execute(values)?;
        Ok(self.id.unwrap_or_else(|| db.last_insert_rowid()))
    }

    fn save_pool(&self, db: &Connection, id: i64, plain: &Plain) -> Result<(), Bad> {
        let Some(before) = &self.before else { return Ok(()) };
        if self.is_reset {
            pool::forget(db, id)?;
        }
        let Content::Pool(now) = plain.content else { return Ok(()) };
        if self.is_reset || plain.content != before.plain.content {
            now.save(db, id)?;
        }
        let latch = if self.is_reset { &Latch::default() } else { &before.latch };
        latches::save(db, id, latch, &self.resource.latch)?;
        pool::save(db, id, &before.grants, &self.resource.grants)
    }

    fn save_queue(&mut self, db: &Connection, id: i64, subject: Option<GrantId>, stamp: i64) -> Result<(), Bad> {
        let Some(before) = &self.before else { return Ok(()) };
        let kind = self.resource.kind;
        let others = |entry: &&Entry| Some(entry.id) != subject;
        let mut left = self.resource.queue.iter().filter(others).map(|entry| entry.id).peekable();
        for (gone, ticket) in before.queue.iter().filter(|(id, _)| Some(*id) != subject) {
            if left.next_if_eq(gone).is_some() {
                continue;
            }
            let seq = self.seqs.remove(gone).ok_or_else(|| Bad::Nonsense("a waiter has no row".into()))?;
            delete(db, id, *ticket, seq)?;
        }
        let Some(subject) = subject else { return Ok(()) };
        let at = self.resource.queue.iter().position(|entry| entry.id == subject);
        let old_seq = self.seqs.remove(&subject);
        let seq = match (at, &before.subject, old_seq) {
            (Some(at), Some(old), Some(seq)) if self.is_in_order(at, old.ticket, seq) => seq,
            _ => stamp,
        };
        if let (Some(old), Some(old_seq)) = (&before.subject, old_seq) {
            if at.is_some_and(|at| self.resource.queue[at] == *old) && seq == old_seq {
                self.seqs.insert(subject, seq);
                return Ok(());
            }
            delete(db, id, old.ticket, old_seq)?;
        }
        if let Some(at) = at {
            waiters::insert(db, id, kind, &self.resource.queue[at], seq)?;
            self.seqs.insert(subject, seq);
        }
        Ok(())
    }

    fn save_upgrade(&mut self, db: &Connection, id: i64, stamp: i64) -> Result<(), Bad> {
        let before = self.before.as_ref().and_then(|before| before.upgrade.as_ref());
        let now = self.resource.upgrade.as_ref();
        if before == now {
            return Ok(());
        }
        if let Some(old) = before {
            delete(db, id, old.ticket, self.upgrade_seq)?;
        }
        if let Some(new) = now {
            waiters::insert(db, id, self.resource.kind, new, stamp)?;
            self.upgrade_seq = stamp;
        }
        Ok(())
    }

    /// Returns whether the row of an entry may keep its number: its ticket is unchanged, and the number fits its place.
    fn is_in_order(&self, at: usize, ticket: u64, seq: i64) -> bool {
        let queue = &self.resource.queue;
        let seq_at = |at: usize| queue.get(at).filter(|e| e.ticket == ticket).and_then(|e| self.seqs.get(&e.id));
        let before = at.checked_sub(1).and_then(seq_at).is_none_or(|before| *before < seq);
        queue[at].ticket == ticket && before && seq_at(at + 1).is_none_or(|after| *after > seq)
    }
}

/// The kind and the limit of a mutex.
const MUTEX: (Kind, u32) = (Take::MUTEX.kind, Take::MUTEX.limit);

/// Returns the number of rows that the waiters have.
fn waiting_of(resource: &Resource) -> i64 {
    resource.queue.len() as i64 + i64::from(resource.upgrade.is_some())
}
