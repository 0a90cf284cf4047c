//! An open directory, and its steps: each is a transaction of the process that has the turn.

use std::path::Path;
use std::sync::Arc;

use leasehold_spec::limits::SETTLE_STEPS;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{
    Answer, Contention, Delivery, Env, Event, Grant, GrantId, GrantState, Kind, Name, Op, Outcome, Rest, SessionId,
    Token, step,
};
use rusqlite::Connection;

use super::ballast;
use super::bury::{self, Asked, Cursors};
use super::cells::Bad;
use super::database::{self, DATABASE, Database};
use super::default;
use super::directory::Directory;
use super::fault::{self, Trouble};
use super::latches;
use super::layout;
use super::live::Live;
use super::news::{self, News};
use super::ours;
use super::record::{Record, Remembered};
use super::rows;
use super::turn::{LOCK, Taken, Turn, Waiting};
use crate::error::Error;
use crate::world::World;

/// The number of steps between two sweeps of forgotten rows, and the number of rows that a sweep reads.
const SWEEP: u32 = 256;
const SWEPT: i64 = 1024;
/// The number of names in one page.
const NAMES: usize = 256;
/// The number of revoked and ended grants of a pool that are kept for messages.
const ENDED: usize = 64;

pub(super) struct Site {
    pub(super) directory: Directory,
    pub(super) live: Arc<Live>,
    turn: Arc<Turn>,
    database: Database,
    known: Remembered,
    cursors: Cursors,
    steps: u32,
    swept: i64,
}

/// The result of a step.
pub(super) struct Done {
    pub(super) answer: Answer,
    pub(super) deliveries: Vec<Delivery>,
    /// The session of the next waiter, if this step has turned a claim into a whole lease. From now on that session
    /// watches the new holder. The next waiter of a condition variable gets the notification of one that dies.
    pub(super) next: Option<SessionId>,
    /// The holders to watch, other than sessions of ours. `None`: those that are watched already.
    pub(super) others: Option<Vec<SessionId>>,
    /// Whether a session of ours waits.
    pub(super) waits: bool,
    /// Whether the record can contain a session of ours.
    pub(super) contains_us: bool,
}

/// The parts of the world that a step uses.
pub(super) struct Ask<'a> {
    pub(super) world: &'a dyn World,
    pub(super) waiting: &'a Waiting,
    /// Whether no process has the life of a session any more.
    pub(super) is_dead: &'a dyn Fn(SessionId) -> bool,
    /// The sessions of this client.
    pub(super) own: &'a [SessionId],
}

/// The remedy that is tried when the disk is full.
#[derive(Clone, Copy)]
enum Room {
    AsItIs,
    LogCopiedBack,
    BallastDropped,
}

impl Site {
    pub(super) fn open(path: &Path, world: &dyn World, waiting: &Waiting) -> Result<Self, Error> {
        let directory = Directory::open(path, default::make_parents)?;
        ours::check(&directory)?;
        let turn = Turn::open(&directory, world)?;
        let taken = turn.take_first(&directory, waiting, world)?;
        if directory.key(LOCK) != Some(turn.key()) {
            return Err(database::moved(path));
        }
        let live = Arc::new(Live::open(&directory)?);
        let database = Database::open(&directory, &live, world)?;
        ballast::make(&directory);
        drop(taken);
        let (known, cursors) = (Remembered::default(), Cursors::default());
        Ok(Self { directory, live, turn, database, known, cursors, steps: 0, swept: 0 })
    }

    pub(super) fn run(&self) -> &str {
        &self.database.run
    }

    /// Returns whether the open directory and files are still those at their path. Two programs would not exclude each
    /// other if one of them kept a removed directory open.
    pub(super) fn check(&self) -> Result<(), Trouble> {
        let is_here = self.directory.key(LOCK) == Some(self.turn.key())
            && self.directory.key(DATABASE) == Some(self.database.key);
        match is_here || is_on(Mutant::P27StaysBehind) {
            true => Ok(()),
            false => Err(Trouble::Gone(database::moved(self.directory.path()))),
        }
    }

    /// Takes the turn, until the returned value is dropped.
    pub(super) fn take_turn(&self, world: &dyn World, waiting: &Waiting) -> Result<Taken, Trouble> {
        let taken = self.turn.take(waiting, world).map_err(Trouble::Gone)?;
        self.check()?;
        Ok(taken)
    }

    /// Carries requests out in one transaction. All of them fail, or each gets its own reply.
    pub(super) fn apply(
        &mut self,
        ask: &Ask<'_>,
        batch: &[(&Name, &Op)],
    ) -> Result<Vec<Result<Done, Trouble>>, Trouble> {
        let turn = self.take_turn(ask.world, ask.waiting)?;
        if !self.database.has_pools {
            self.database.add_pools_for(&self.live, ask.own, batch.iter().any(|(_, op)| layout::needs_pools(op)))?;
        }
        let may_wait = batch.iter().all(|(_, op)| ballast::does_without(op));
        let mut room = Room::AsItIs;
        let done = loop {
            let tried = self.attempt(ask, batch);
            room = match (tried, room) {
                (Err(Trouble::NoRoom(_)), Room::AsItIs) if !may_wait => {
                    self.copy_log_back();
                    Room::LogCopiedBack
                }
                (Err(Trouble::NoRoom(_)), Room::LogCopiedBack) => {
                    ballast::drop(&self.directory);
                    // The first copy may have failed: the database can be much shorter than its log. If the log used up the
                    // room instead, there would be none for the next copy.
                    self.copy_log_back();
                    Room::BallastDropped
                }
                (tried, _) => break tried,
            };
        };
        drop(turn);
        done
    }

    fn attempt(&mut self, ask: &Ask<'_>, batch: &[(&Name, &Op)]) -> Result<Vec<Result<Done, Trouble>>, Trouble> {
        let Self { database, known, cursors, live, .. } = self;
        let path = self.directory.path();
        let said = |error: rusqlite::Error| Trouble::of(path, error);
        let stepped = (|| {
            execute(&database.db, "BEGIN IMMEDIATE").map_err(said)?;
            // Of the steps of this transaction, a later one on the same name goes on with the record of the earlier one.
            let mut stepped = Remembered::default();
            let mut all = Vec::new();
            for (name, op) in batch {
                if layout::needs_pools(op) && !database.has_pools {
                    all.push(Err(Trouble::Refused(layout::only_mutexes(path))));
                    continue;
                }
                if ballast::refuses(&self.directory, op) {
                    all.push(Err(Trouble::NoRoom(fault::full(path))));
                    continue;
                }
                let remembered = stepped.take(name, known);
                execute(&database.db, "SAVEPOINT one").map_err(said)?;
                match one((&database.db, remembered, cursors), live, ask, name, op) {
                    Ok((done, record)) => {
                        stepped.keep((*name).clone(), record);
                        all.push(Ok(done));
                    }
                    // The rows can show that they are invalid when some of them are already written.
                    Err(Bad::Nonsense(why)) => {
                        execute(&database.db, "ROLLBACK TO one").map_err(said)?;
                        all.push(Err(Trouble::Nonsense(why)));
                    }
                    Err(Bad::Sql(error)) => return Err(said(error)),
                }
                execute(&database.db, "RELEASE one").map_err(said)?;
            }
            self.steps = self.steps.wrapping_add(1);
            if self.steps.is_multiple_of(SWEEP) {
                if let Ok(to) = rows::sweep(&database.db, self.swept, SWEPT, now(ask.world)) {
                    self.swept = to;
                }
                if database.has_pools {
                    let _later_otherwise = latches::sweep(&database.db, SWEPT);
                }
                ballast::make(&self.directory);
            }
            execute(&database.db, "COMMIT").map_err(said)?;
            known.keep_all(stepped);
            Ok(all)
        })();
        if !database.db.is_autocommit() {
            let _there_is_no_more_to_do = execute(&database.db, "ROLLBACK");
        }
        stepped
    }

    /// Returns the holder and the number of waiters after the last transaction that was finished. A reader needs no turn.
    pub(super) fn inspect(
        &mut self,
        world: &dyn World,
        name: &Name,
        is_dead: &dyn Fn(SessionId) -> bool,
    ) -> Result<Answer, Trouble> {
        self.check()?;
        // The clocks are read before the rows: the state that an answer reports is not older than its time (P9).
        let (wall_us, lease_us) = (world.wall_us(), lease_us(world));
        let Self { database, known, live, .. } = self;
        let mut read = || {
            let moment = database.db.unchecked_transaction()?;
            let mut record = Record::load(&moment, name, known.take(name, &mut Remembered::default()))?;
            let env = Env { wall_us, lease_us, attached: &|session| live.is_attached(session) };
            // An inspection changes nothing, and must not report a dead session as the holder.
            bury::hide_dead(&moment, &mut record, &Asked { name, op: &Op::Inspect, env: &env, is_dead })?;
            // The step empties a record that is forgotten. The empty record is not stored, so it must not be remembered.
            let is_forgotten = record.resource.is_forgotten(wall_us, lease_us);
            let (answer, _) = step(&mut record.resource, &env, &Op::Inspect);
            if !is_forgotten {
                known.keep(name.clone(), record);
            }
            Ok(answer)
        };
        read().map_err(|bad| match bad {
            Bad::Sql(error) => Trouble::of(self.directory.path(), error),
            Bad::Nonsense(why) => Trouble::Nonsense(why),
        })
    }

    /// Copies the log back into the database. A full disk has no room for a longer log. After this the log is written again
    /// from its beginning.
    fn copy_log_back(&self) {
        let _as_far_as_it_went = self.database.db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
    }

    /// Returns the messages for a session. A message that is read twice is the same both times.
    ///
    /// A reader needs no turn: it sees the state after the last transaction that was finished.
    pub(super) fn news(&self, world: &dyn World, session: SessionId) -> Vec<(Name, Delivery)> {
        let Ok(news) = news::news(&self.database.db, session, self.database.has_pools) else { return Vec::new() };
        let now_us = lease_us(world);
        let mut told = Vec::new();
        let mut tell = |name: &str, delivery| {
            if let Ok(name) = Name::of_store(name) {
                told.push((name, delivery));
            }
        };
        for news in news {
            let (to, rest) = (session, Rest::Done);
            match news {
                News::Ended { name, id, token, range } => {
                    let (contention, event) = (Contention::None, Event::Revoked);
                    tell(&name, Delivery { to, now_us, contention, rest, id, token, left_us: 0, range, event });
                }
                News::Ending { name, id, token, end_us, waiting: contention } => {
                    let (left_us, range, event) = (end_us.saturating_sub(now_us), 1, Event::Ending);
                    tell(&name, Delivery { to, now_us, contention, rest, id, token, left_us, range, event });
                }
                News::Stands { name, grant, waiting, rest: of_grant } => {
                    // A push has the time of its grant, however late it is read: its receiver counts from then. For a
                    // revocation the time left counts.
                    let Grant { id, token, range, .. } = grant;
                    let mut tell_of = |event, now_us, contention| {
                        let rest = if event == Event::Granted { of_grant } else { rest };
                        let left_us = grant.left_us(now_us);
                        tell(&name, Delivery { to, now_us, contention, rest, id, token, left_us, range, event });
                    };
                    match grant.state {
                        GrantState::Revoked => tell_of(Event::Revoked, now_us, Contention::None),
                        GrantState::Pushed => tell_of(Event::Granted, grant.since_us, waiting),
                        GrantState::Held | GrantState::CoolingDown => {}
                    }
                    // The contention is a level. Every reading reports it while others wait (P9).
                    if range > 1 && waiting > Contention::None {
                        tell_of(Event::Wanted, now_us, waiting);
                    }
                }
            }
        }
        told
    }

    /// Removes the sockets of some lives that died without removing them, beginning anywhere. The caller has the turn.
    ///
    /// It keeps the socket of a life whose session holds, or may come to hold. A missing socket does not prove a death, so
    /// without it nobody could take the lock before the lease ends. A waiter with an inbox needs no socket: if its inbox is
    /// dead, the waiter is passed over.
    pub(super) fn sweep(&self, start: u64, world: &dyn World) {
        let dead = self.live.sweep(start);
        if dead.is_empty() {
            return;
        }
        let has_pools = self.database.has_pools;
        let Ok(holders) = rows::holders(&self.database.db, lease_us(world), has_pools) else { return };
        let is_needed = |session| holders.contains(session) && !is_on(Mutant::P26SweepsHolders);
        dead.iter().filter(|session| !is_needed(session)).for_each(|session| self.live.bury_life(*session));
    }

    /// Returns the holders, at most 64, as far as they are known without a turn.
    pub(super) fn holders(&self, name: &Name) -> Vec<SessionId> {
        rows::holders_of(&self.database.db, name, SETTLE_STEPS).unwrap_or_default()
    }

    pub(super) fn names(&self, world: &dyn World, from: u64) -> Result<(Vec<Name>, u64), Trouble> {
        self.check()?;
        rows::names(&self.database.db, from, NAMES, now(world)).map_err(|bad| match bad {
            Bad::Sql(error) => Trouble::of(self.directory.path(), error),
            Bad::Nonsense(why) => Trouble::Nonsense(why),
        })
    }
}

fn one(
    (db, remembered, cursors): (&Connection, Option<Record>, &mut Cursors),
    live: &Live,
    ask: &Ask<'_>,
    name: &Name,
    op: &Op,
) -> Result<(Done, Record), Bad> {
    let subject = op.subject();
    let mut record = Record::load(db, name, remembered)?;
    let (wall_us, lease_us) = (ask.world.wall_us(), lease_us(ask.world));
    let env = Env { wall_us, lease_us, attached: &|session| live.is_attached(session) };
    let deaths = bury::read(db, &mut record, &Asked { name, op, env: &env, is_dead: ask.is_dead }, cursors)?;
    record.begin(subject);
    let mut deliveries = Vec::new();
    for id in deaths.grants {
        // Nobody knows which tokens the session has used.
        deliveries.extend(step(&mut record.resource, &env, &Op::Leave { id, used: Token::HIGHEST }).1);
    }
    let (mut answer, more) = step(&mut record.resource, &env, op);
    deliveries.extend(more);
    if deaths.rest == Rest::More {
        answer.rest = Rest::More;
    }
    record.save(db, name, subject, lease_us)?;
    note_ended(db, name, &record, (op, &deliveries))?;
    record.note_dismissed(db, op, &deliveries)?;
    let resource = &record.resource;
    let is_ours = |id: GrantId| ask.own.contains(&id.session);
    let waits = resource.upgrade.iter().chain(&resource.queue).any(|entry| is_ours(entry.id));
    let is_claimed = matches!((op, &answer.outcome), (Op::Renew(_), Outcome::Renewed { .. }))
        && subject.is_some_and(|id| record.was_pushed(id));
    let next = resource.upgrade.iter().chain(&resource.queue).next();
    let next = next.filter(|_| is_claimed || record.has_new_heir(subject));
    let living = match resource.kind {
        Kind::Mutex => {
            Some(resource.grants.iter().filter(|grant| grant.is_held()).map(|grant| grant.id.session).collect())
        }
        Kind::ReadWrite | Kind::Semaphore | Kind::Condition | Kind::Latch | Kind::Barrier => deaths.living,
    };
    let holds = resource.grants.iter().any(|grant| grant.is_held() && is_ours(grant.id));
    let contains_us = waits || holds || record.has_unread(db, ask.own)?;
    let others = living.map(|living: Vec<SessionId>| living.into_iter().filter(|one| !ask.own.contains(one)).collect());
    let next = next.map(|entry| entry.id.session);
    Ok((Done { answer, deliveries, next, others, waits, contains_us }, record))
}

/// Notes the grants that were revoked and that no row shows any more: their holders read about them after the bell.
fn note_ended(db: &Connection, name: &Name, record: &Record, (op, deliveries): (&Op, &[Delivery])) -> Result<(), Bad> {
    let most = if record.resource.kind.is_pool() { ENDED } else { 1 };
    for told in deliveries.iter().filter(|told| told.event == Event::Revoked) {
        if record.resource.held_by(told.id).is_none() {
            news::note_ended(db, name, (told.id, told.token, told.range), most)?;
        }
    }
    // A holder that was stopped for the whole grace has not read that its grant was revoked. A holder that gives the
    // lease back itself needs no message.
    let ends_attempt = matches!(op, Op::Release { .. } | Op::Leave { .. } | Op::CoolDown { .. } | Op::HandTo { .. });
    for Grant { id, token, range, .. } in record.revoked_and_ended() {
        if !ends_attempt || op.subject() != Some(*id) {
            news::note_ended(db, name, (*id, *token, *range), most)?;
        }
    }
    Ok(())
}

/// Returns the time on the clock of leases. Nobody sets this clock, and it runs while the machine sleeps.
pub(super) fn lease_us(world: &dyn World) -> u64 {
    if is_on(Mutant::P27LeasesOnWallTime) { world.wall_us() } else { world.now_us() }
}

fn now(world: &dyn World) -> rows::Now {
    rows::Now { wall_us: world.wall_us(), lease_us: lease_us(world) }
}

fn execute(db: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    db.prepare_cached(sql)?.execute([]).map(drop)
}
