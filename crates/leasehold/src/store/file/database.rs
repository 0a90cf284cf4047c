//! Opens the database, checks that it is ours, and prepares it for this boot.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_spec::SessionId;
use leasehold_spec::limits::RETENTION_US;
use leasehold_spec::mutant::{Mutant, is_on};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::directory::{Directory, FileKey};
use super::fault::Trouble;
use super::layout::{self, LAYOUT, MUTEXES, index_of_ending};
use super::live::Live;
use super::news::ending;
use super::plain::POOL;
use crate::descriptors;
use crate::error::{Error, ErrorKind};
use crate::world::World;

pub(super) const DATABASE: &str = "leasehold.db";
/// "LHF1": marks a database as ours.
const APPLICATION: i64 = 0x4c48_4631;
/// Only for programs that take no turn: a backup, a person with a shell. Our processes never wait here.
const BUSY: Duration = Duration::from_millis(500);

/// The number of statements that stay prepared: more than there are.
const STATEMENTS: usize = 128;

/// An open database.
pub(super) struct Database {
    pub(super) db: Connection,
    pub(super) key: FileKey,
    /// The ID of the database and of the boot.
    pub(super) run: String,
    /// Whether the database has layout 3. Otherwise programs of an earlier version use it, and it has mutexes only.
    pub(super) has_pools: bool,
    path: PathBuf,
}

impl Database {
    /// Opens the database, or creates it. The caller must have the turn.
    pub(super) fn open(directory: &Directory, live: &Live, world: &dyn World) -> Result<Self, Error> {
        // We create it, to set its permissions. (We never open it otherwise: to close a file ends the locks of SQLite
        // on it.)
        match directory.file(DATABASE, OFlags::EXCL) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(directory.refused(DATABASE, errno)),
        }
        let key = directory.key(DATABASE).ok_or_else(|| directory.refused(DATABASE, Errno::NOENT))?;
        let said = |error| Trouble::of(directory.path(), error).at_open(directory.path());
        let path = directory.path().join(DATABASE);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags).map_err(said)?;
        db.busy_timeout(BUSY).map_err(said)?;
        // To copy the log back costs a flush of the disk. Every short command would do it at its end.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(said)?;
        db.set_prepared_statement_cache_capacity(STATEMENTS);
        let (run, path) = (String::new(), directory.path().to_owned());
        let mut database = Self { db, key, run, has_pools: true, path };
        database.greet(live, world)?;
        if directory.key(DATABASE) != Some(key) {
            return Err(moved(directory.path()));
        }
        Ok(database)
    }

    fn greet(&mut self, live: &Live, world: &dyn World) -> Result<(), Error> {
        let path = self.path.clone();
        let said = |error| Trouble::of(&path, error).at_open(&path);
        let number = |sql: &str| self.db.query_row(sql, [], |row| row.get::<_, i64>(0));
        let application = number("PRAGMA application_id").map_err(said)?;
        let layout = number("PRAGMA user_version").map_err(said)?;
        let tables = number("SELECT count(*) FROM sqlite_schema").map_err(said)?;
        let is_new = (application, layout, tables) == (0, 0, 0);
        if !is_new {
            check_ours(&path, application, layout)?;
        }
        let mode: String = self.db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(said)?;
        if mode != "wal" {
            let message = format!("the file system of {} cannot share memory between processes", path.display());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.db.execute_batch("PRAGMA synchronous = NORMAL").map_err(said)?;
        let now = Boot::now()?;
        if is_new {
            self.make(&now, world).map_err(said)?;
        } else {
            // If there is no room for it, bells read more rows.
            let _as_good_without = self.db.execute_batch(index_of_ending!());
            self.has_pools = layout == LAYOUT;
        }
        self.meet(&now, live, world)
    }

    fn make(&mut self, now: &Boot, world: &dyn World) -> Result<(), rusqlite::Error> {
        let mut id = [0; 16];
        world.random(&mut id);
        let made = self.db.transaction()?;
        layout::create(&made)?;
        let values = [("id", format!("{:032x}", u128::from_ne_bytes(id))), ("boot", now.id.clone())];
        for (key, value) in values.into_iter().chain([("time", now.time_namespace.clone())]) {
            made.execute("INSERT INTO meta VALUES (?1, ?2)", params![key, value])?;
        }
        made.pragma_update(None, "application_id", APPLICATION)?;
        made.commit()
    }

    /// Changes a database of layout 2 to layout 3, if no session of another client lives: a program that knows only
    /// layout 2 has one. Programs of an earlier version exclude programs of this version until then, but have no pools.
    /// The caller has the turn.
    ///
    /// The change is tried when somebody needs it. Before, another process may have made it.
    pub(super) fn add_pools_for(&mut self, live: &Live, own: &[SessionId], is_needed: bool) -> Result<(), Trouble> {
        let path = self.path.clone();
        let said = |error| Trouble::of(&path, error);
        self.has_pools = layout::read(&self.db).map_err(said)? == LAYOUT;
        let others_live = || live.is_inhabited(own) && !is_on(Mutant::P27ChangesUnderOthers);
        if self.has_pools || !is_needed || others_live() {
            return Ok(());
        }
        let change = self.db.transaction().map_err(said)?;
        layout::add_pools(&change).and_then(|()| change.commit()).map_err(said)?;
        self.has_pools = true;
        Ok(())
    }

    /// Prepares the database if the host was restarted since its last use: all holders and waiters are dead, and the
    /// clock of leases has begun again. The tokens stay, so that they keep growing. It is unknown how much of its range
    /// a holder had used, so all of it is burnt (P19).
    ///
    /// Does nothing if one of them lives: a container can have its own boot ID (systemd-nspawn and LXC set one),
    /// although the kernel is the same.
    fn meet(&mut self, now: &Boot, live: &Live, world: &dyn World) -> Result<(), Error> {
        let path = self.path.clone();
        let said = |error| Trouble::of(&path, error).at_open(&path);
        let value = |key: &str| -> Result<String, Error> {
            let found = self.db.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional();
            found
                .map_err(said)?
                .ok_or_else(|| Trouble::Nonsense(format!("the {key} of the store is missing")).at_open(&path))
        };
        let (id, boot, time) = (value("id")?, value("boot")?, value("time")?);
        if boot == now.id && time != now.time_namespace {
            let message = format!(
                "{} was created in another time namespace (for example in a container with its own clock), so leases \
                 would count on two clocks: use another directory",
                path.display()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if boot != now.id && live.is_inhabited(&[]) && !is_on(Mutant::P27BelievesBootIds) {
            let message = format!(
                "{} is used by programs with another boot ID (for example in a container), so their death cannot be \
                 detected: use another directory, or bind-mount /proc/sys/kernel/random/boot_id of the host",
                path.display()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if boot != now.id && !is_on(Mutant::P27KeepsOldBoot) {
            let void = self.db.transaction().map_err(said)?;
            let keep = (world.now_us() + RETENTION_US).cast_signed();
            let sql = "UPDATE names SET stamp = stamp + 1, last = max(last, coalesce(token + range - 1, 0)), \
                       keep_until_us = ?1, released = NULL, waiting = 0, lapsed = 0, session = NULL, counter = NULL, \
                       nonce = NULL, token = NULL, range = NULL, since_us = NULL, length_ms = NULL, \
                       state = CASE state WHEN ?2 THEN ?2 END, label = NULL";
            void.execute(sql, [keep, POOL]).map_err(said)?;
            if self.has_pools {
                void.execute_batch(layout::VOID_POOLS).map_err(said)?;
            }
            void.execute_batch("DELETE FROM waiters; DELETE FROM lapses; DELETE FROM ended").map_err(said)?;
            let set = "UPDATE meta SET value = ?2 WHERE key = ?1";
            void.execute(set, ["boot", &now.id]).map_err(said)?;
            void.execute(set, ["time", &now.time_namespace]).map_err(said)?;
            void.commit().map_err(said)?;
        }
        self.run = format!("{id}:{}", now.id);
        Ok(())
    }
}

fn check_ours(path: &Path, application: i64, layout: i64) -> Result<(), Error> {
    let place = path.display();
    let message = match (application, layout) {
        (APPLICATION, MUTEXES | LAYOUT) => return Ok(()),
        (APPLICATION, newer) if newer > LAYOUT => format!(
            "the database in {place} has layout {newer} of a newer Leasehold, but this program knows layout {LAYOUT}: \
             update all programs, or use another directory"
        ),
        (APPLICATION, older) => format!(
            "the database in {place} has layout {older} of a Leasehold before its first release, but this program \
             knows layout {LAYOUT}: delete the directory when no program uses it any more"
        ),
        _ => format!(
            "{DATABASE} in {place} is the database of another program, and was not changed: use another directory"
        ),
    };
    Err(Error::new(ErrorKind::Foreign, message))
}

/// The directory, or a file in it, was replaced.
pub(super) fn moved(path: &Path) -> Error {
    let message = format!(
        "the store in {} was removed or replaced while in use, and its leases are lost: do not clean up this directory \
         while programs run",
        path.display()
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// The file with the boot ID.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The begin of the clock of leases.
struct Boot {
    id: String,
    time_namespace: String,
}

impl Boot {
    fn now() -> Result<Self, Error> {
        let id = std::fs::read_to_string(BOOT_ID).map_err(|error| match descriptors::advice(&error) {
            Some(advice) => {
                Error::new(ErrorKind::Store, format!("cannot read {BOOT_ID} ({error}): {advice}")).because(error)
            }
            None => {
                let message = "file: needs /proc, to detect a restart of this host";
                Error::new(ErrorKind::Unsupported, message).because(error)
            }
        })?;
        // A kernel without time namespaces has one clock.
        let time = rustix::fs::readlink("/proc/self/ns/time", Vec::new()).ok();
        let time_namespace = time.and_then(|link| link.into_string().ok()).unwrap_or_default();
        Ok(Self { id: id.trim().to_owned(), time_namespace })
    }
}
