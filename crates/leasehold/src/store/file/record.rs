//! The record of a name: read before a step, and what the step changed written after it.
//!
//! A step changes little of a queue: it drops waiters at its head, and takes out, moves or puts in the one it is about.
//! So the number of rows that it writes does not grow with the queue. It also need not read the rows of the queue again if
//! nobody else has changed the name meanwhile: then the stamp equals the one that is remembered with the queue.

use std::collections::HashMap;

use leasehold_spec::{Entry, Grant, GrantId, GrantState, Lapse, Name, Resource, Token};
use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::rows::{OF_NAME, bytes, delete, insert, lapses, plain, queue, sane, state_number};

/// The errors of reading or writing a record.
#[derive(Debug)]
pub(super) enum Bad {
    Sql(rusqlite::Error),
    Nonsense(String),
}

impl From<rusqlite::Error> for Bad {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
        match error {
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) | Utf8Error(..) => {
                Self::Nonsense(error.to_string())
            }
            error => Self::Sql(error),
        }
    }
}

/// A record as it was read, and as it is.
pub(super) struct Record {
    /// `None`: there is no row yet.
    id: Option<i64>,
    stamp: i64,
    pub(super) resource: Resource,
    seqs: HashMap<GrantId, i64>,
    before: Option<Before>,
}

/// The parts of a record that a step may change, as they were before it.
struct Before {
    plain: Plain,
    lapses: Vec<Lapse>,
    queue: Vec<(GrantId, u64)>,
    subject: Option<Entry>,
}

/// The contents of a row of `names`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) last: Token,
    pub(super) keep_until_us: u64,
    pub(super) released: Option<GrantId>,
    pub(super) grant: Option<Grant>,
}

/// The queues that were read last, by name.
#[derive(Default)]
pub(super) struct Remembered(HashMap<Name, Record>);

/// One more, and all are forgotten: few programs use as many names at once.
const REMEMBERED: usize = 256;

impl Remembered {
    pub(super) fn keep(&mut self, name: Name, record: Record) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(name, record);
    }
}

impl Record {
    /// Reads a name's record. `known` is taken out of what is remembered: it comes back when the change is stored.
    pub(super) fn load(db: &Connection, name: &Name, known: &mut Remembered) -> Result<Self, Bad> {
        let found = db
            .prepare_cached(OF_NAME)?
            .query_row([name.as_str()], |row| {
                let head = (row.get(0)?, row.get(1)?, row.get::<_, i64>(5)?, row.get::<_, i64>(6)?);
                Ok((head, plain(row)))
            })
            .optional()?;
        let remembered = known.0.remove(name);
        let Some(((id, stamp, waiting, lapsed), plain)) = found else {
            let resource = Resource::default();
            return Ok(Self { id: None, stamp: 0, resource, seqs: HashMap::new(), before: None });
        };
        let Plain { last, keep_until_us, released, grant } = plain?;
        if let Some(mut record) = remembered.filter(|record| record.id == Some(id) && record.stamp == stamp) {
            let resource = &mut record.resource;
            (resource.last, resource.keep_until_us) = (last, keep_until_us);
            (resource.released, resource.grants) = (released, grant.into());
            return Ok(record);
        }
        let (queue, seqs) = if waiting == 0 { Default::default() } else { queue(db, id)? };
        let lapses = if lapsed == 0 { Vec::new() } else { lapses(db, id)? };
        let counted = (queue.len() as u64, lapses.len() as u64);
        sane(counted == (waiting.cast_unsigned(), lapsed.cast_unsigned()), "it counts other waiters than there are")?;
        let resource = Resource { last, grants: grant.into(), released, lapses, queue, keep_until_us };
        Ok(Self { id: Some(id), stamp, resource, seqs, before: None })
    }

    /// Remembers what the coming steps may change. Of those that wait, only `subject` is put in, moved or changed by them.
    pub(super) fn begin(&mut self, subject: Option<GrantId>) {
        let find = |id| self.resource.queue.iter().find(|entry| entry.id == id).cloned();
        self.before = Some(Before {
            plain: Plain::of(&self.resource),
            lapses: self.resource.lapses.clone(),
            queue: self.resource.queue.iter().map(|entry| (entry.id, entry.ticket)).collect(),
            subject: subject.and_then(find),
        });
    }

    /// Writes what has changed since [`Self::begin`]. `now_us` makes a stamp that this name never had.
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
        if before.plain == plain && !is_queue_changed && !is_lapsed {
            return Ok(());
        }
        let id = self.save_plain(db, name, &plain, stamp)?;
        if is_queue_changed {
            self.save_queue(db, id, subject, stamp)?;
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

    /// Whether the grant was an unclaimed push before the step.
    pub(super) fn was_pushed(&self) -> bool {
        let grant = self.before.as_ref().and_then(|before| before.plain.grant.as_ref());
        grant.is_some_and(|grant| grant.state == GrantState::Pushed)
    }

    fn is_queue_changed(&self, before: &Before, subject: Option<GrantId>) -> bool {
        let queue = &self.resource.queue;
        let same = |((id, ticket), entry): (&(GrantId, u64), &Entry)| *id == entry.id && *ticket == entry.ticket;
        let now = subject.and_then(|id| queue.iter().find(|entry| entry.id == id));
        queue.len() != before.queue.len() || now != before.subject.as_ref() || !before.queue.iter().zip(queue).all(same)
    }

    fn save_plain(&self, db: &Connection, name: &Name, plain: &Plain, stamp: i64) -> Result<i64, Bad> {
        let grant = plain.grant.as_ref();
        let number = |of: fn(&Grant) -> u64| grant.map(|grant| of(grant).cast_signed());
        let values = named_params! {
            ":name": name.as_str(),
            ":stamp": stamp,
            ":last": plain.last.get().cast_signed(),
            ":keep": plain.keep_until_us.cast_signed(),
            ":released": plain.released.map(bytes),
            ":waiting": self.resource.queue.len() as i64,
            ":lapsed": self.resource.lapses.len() as i64,
            ":session": grant.map(|grant| grant.id.session.0.to_be_bytes()),
            ":counter": number(|grant| grant.id.counter),
            ":nonce": number(|grant| grant.id.nonce),
            ":token": number(|grant| grant.token.get()),
            ":range": number(|grant| grant.range),
            ":since": number(|grant| grant.since_us),
            ":length": number(|grant| grant.length_ms),
            ":state": grant.map(|grant| state_number(grant.state)),
            ":label": grant.map(|grant| grant.label.as_str()),
        };
        // One statement for both would burn a number of `names.id` at each step, and read the index of names.
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

    fn save_queue(&mut self, db: &Connection, id: i64, subject: Option<GrantId>, stamp: i64) -> Result<(), Bad> {
        let Some(before) = &self.before else { return Ok(()) };
        let others = |entry: &&Entry| Some(entry.id) != subject;
        let head = self.resource.queue.iter().find(others).map(|entry| entry.id);
        let dropped = before.queue.iter().filter(|(id, _)| Some(*id) != subject);
        for (gone, ticket) in dropped.take_while(|(id, _)| Some(*id) != head) {
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
            insert(db, id, &self.resource.queue[at], seq)?;
            self.seqs.insert(subject, seq);
        }
        Ok(())
    }

    /// Whether the entry's row may keep its number: it has the ticket that it had, and stands where the number puts it.
    fn is_in_order(&self, at: usize, ticket: u64, seq: i64) -> bool {
        let queue = &self.resource.queue;
        let seq_at = |at: usize| queue.get(at).filter(|e| e.ticket == ticket).and_then(|e| self.seqs.get(&e.id));
        let before = at.checked_sub(1).and_then(seq_at).is_none_or(|before| *before < seq);
        queue[at].ticket == ticket && before && seq_at(at + 1).is_none_or(|after| *after > seq)
    }
}

impl Plain {
    fn of(resource: &Resource) -> Self {
        let Resource { last, keep_until_us, released, grants, .. } = resource;
        Self { last: *last, keep_until_us: *keep_until_us, released: *released, grant: grants.sole().cloned() }
    }
}
