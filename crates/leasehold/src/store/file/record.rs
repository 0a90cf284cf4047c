//! The record of a name: it is read before a step, and the changes are written after the step.
//!
//! A step changes little of a queue: it drops waiters at the head, and removes, moves or adds the waiter of the request. So
//! the number of written rows does not grow with the queue. The number of read rows does, unless nobody else has
//! changed the name in the meantime: then its stamp is the one that is remembered with the queue.

use std::collections::HashMap;

use leasehold_spec::{Entry, Grant, GrantId, GrantState, Lapse, Name, Resource};
use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::plain::{Bad, Plain};
use super::rows::{OF_NAME, bytes, delete, insert, lapses, plain, queue, sane, state_number};

/// A record as it was read, and as it is now.
pub(super) struct Record {
    /// `None`: there is no row yet.
    id: Option<i64>,
    stamp: i64,
    pub(super) resource: Resource,
    seqs: HashMap<GrantId, i64>,
    before: Option<Before>,
}

/// The parts that a step may change, as they were before.
struct Before {
    plain: Plain,
    lapses: Vec<Lapse>,
    queue: Vec<(GrantId, u64)>,
    subject: Option<Entry>,
}

/// The queues that were read last, by name.
#[derive(Default)]
pub(super) struct Remembered(HashMap<Name, Record>);

/// With one more, all are dropped from memory: few programs use as many names at once.
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
    /// Reads the record of a name. Its queue is taken out of `known`, and comes back when the change is stored.
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
        let grants = grant.into();
        let resource = Resource { last, grants, released, lapses, queue, keep_until_us, ..Resource::default() };
        Ok(Self { id: Some(id), stamp, resource, seqs, before: None })
    }

    /// Saves the parts that the next steps may change. Of the waiters, steps add, move or change only `subject`.
    pub(super) fn begin(&mut self, subject: Option<GrantId>) {
        let find = |id| self.resource.queue.iter().find(|entry| entry.id == id).cloned();
        self.before = Some(Before {
            plain: Plain::of(&self.resource),
            lapses: self.resource.lapses.clone(),
            queue: self.resource.queue.iter().map(|entry| (entry.id, entry.ticket)).collect(),
            subject: subject.and_then(find),
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

    /// Returns whether the grant was an unclaimed push before the step.
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

    /// Returns whether the row of an entry may keep its number: its ticket is unchanged, and the number fits its place.
    fn is_in_order(&self, at: usize, ticket: u64, seq: i64) -> bool {
        let queue = &self.resource.queue;
        let seq_at = |at: usize| queue.get(at).filter(|e| e.ticket == ticket).and_then(|e| self.seqs.get(&e.id));
        let before = at.checked_sub(1).and_then(seq_at).is_none_or(|before| *before < seq);
        queue[at].ticket == ticket && before && seq_at(at + 1).is_none_or(|after| *after > seq)
    }
}
