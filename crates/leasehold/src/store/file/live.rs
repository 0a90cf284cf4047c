//! P26: which sessions live, and which ones listen. Each session has two sockets beside the database:
//!
//! - the **bell**, a datagram socket that no process inherits. A session is attached if its bell accepts a connection. An
//!   empty datagram rings it. The messages are in the database.
//! - the **life**, a listening stream socket that a command started under the lock may inherit. A session is dead if its
//!   life refuses a connection: the kernel closes the socket with the last process that has it, for any cause of death.
//!   Process IDs are less reliable: they are used again, and mean something else in a container.
//!
//! A name here belongs to a live socket, or to one that is dead for good. So a new socket is bound to another name,
//! listens, and is then renamed. Names are created and removed only by a process that has the turn (P27).
//!
//! A missing name proves nothing: somebody may have cleaned up the directory. So others notice a death by the name of the
//! life, and the name stays while that matters: while the session holds anything. A session that attaches removes the names
//! of dead sessions.

use std::os::fd::OwnedFd;

use leasehold_spec::SessionId;
use leasehold_spec::mutant::{Mutant, is_on};
use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::directory::{Directory, FileKey};
use crate::error::Error;

/// The directory of sockets.
pub(super) struct Live {
    dir: OwnedFd,
    /// Rings bells.
    ringer: OwnedFd,
}

/// The two sockets of a session.
pub(super) struct Sockets {
    pub(super) bell: OwnedFd,
    pub(super) bell_key: FileKey,
    pub(super) life: OwnedFd,
    pub(super) life_key: FileKey,
}

/// The result of a connection to the life of a session.
pub(super) enum Pulse {
    Lives,
    /// It lives. The connection breaks when its life ends.
    Connected(OwnedFd),
    Dead,
    /// There is no such name: the session died and was removed, it does not exist yet, or somebody has removed its name.
    Unknown,
}

/// The number of connections that are not accepted yet. A stopped session accepts none.
const BACKLOG: i32 = 4096;
/// The number of names that one sweep checks: each session that attaches sweeps a little.
const SWEPT: usize = 64;

impl Live {
    pub(super) fn open(directory: &Directory) -> Result<Self, Error> {
        let dir = directory.inner("live")?;
        let ringer = socket(SocketType::DGRAM).map_err(|errno| directory.refused("live", errno))?;
        Ok(Self { dir, ringer })
    }

    /// Returns whether the inbox of this session is attached (P6).
    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        let name = bell(session);
        let Ok(probe) = socket(SocketType::DGRAM) else { return true };
        match self.address(&name).and_then(|to| rustix::net::connect(&probe, &to)) {
            Err(Errno::CONNREFUSED) => {
                self.bury(&name);
                false
            }
            Err(Errno::NOENT) => false,
            // An error that says nothing about the session (no descriptor is left, no permission) must not end it.
            _ => true,
        }
    }

    /// Returns whether a process lives that has the life of this session.
    pub(super) fn pulse(&self, session: SessionId) -> Pulse {
        if is_on(Mutant::P26NeverDead) {
            return Pulse::Lives;
        }
        let name = life(session);
        let Ok(probe) = socket(SocketType::STREAM) else { return Pulse::Lives };
        match self.address(&name).and_then(|to| rustix::net::connect(&probe, &to)) {
            Ok(()) => Pulse::Connected(probe),
            Err(Errno::CONNREFUSED) => Pulse::Dead,
            // Only if the name itself is missing: in another mount namespace, /proc may be missing.
            Err(Errno::NOENT) if self.is_missing(&name) => match is_on(Mutant::P26MissingIsDead) {
                true => Pulse::Dead,
                false => Pulse::Unknown,
            },
            // Also EAGAIN: its backlog of connections is full.
            Err(_) => Pulse::Lives,
        }
    }

    /// Returns whether any session of before lives, other than these. Connects to all of them: for the first opening
    /// after a boot, and before a change of the layout.
    pub(super) fn is_inhabited(&self, own: &[SessionId]) -> bool {
        let Ok(mut names) = self.names() else { return true };
        names.any(|name| {
            let Some((session, "life")) = parts(&name) else { return false };
            !own.contains(&session) && matches!(self.pulse(session), Pulse::Lives | Pulse::Connected(_))
        })
    }

    /// Notifies a session that there are messages for it. A full bell is ringing already.
    pub(super) fn ring(&self, session: SessionId) {
        if let Ok(to) = self.address(&bell(session)) {
            let _lost = rustix::net::sendto(&self.ringer, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to);
        }
    }

    /// Binds a new bell for a session, and a life if it has none yet.
    pub(super) fn bind(&self, session: SessionId, life_: Option<(OwnedFd, FileKey)>) -> Result<Sockets, Errno> {
        let (bell, bell_key) = self.born(&bell(session), SocketType::DGRAM)?;
        // Proves that a datagram to this name arrives here.
        self.ring(session);
        rustix::net::recv(&bell, &mut [0; 1], rustix::net::RecvFlags::DONTWAIT)?;
        let (life, life_key) = match life_ {
            Some(life) => life,
            None => self.born(&life(session), SocketType::STREAM)?,
        };
        Ok(Sockets { bell, bell_key, life, life_key })
    }

    fn born(&self, name: &str, kind: SocketType) -> Result<(OwnedFd, FileKey), Errno> {
        let newborn = format!("{name}.new");
        let socket = socket(kind)?;
        self.bury(&newborn);
        rustix::net::bind(&socket, &self.address(&newborn)?)?;
        if kind == SocketType::STREAM {
            rustix::net::listen(&socket, BACKLOG)?;
        }
        let stat = rustix::fs::statat(&self.dir, &newborn, AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::renameat(&self.dir, &newborn, &self.dir, name)?;
        Ok((socket, FileKey::of(&stat)))
    }

    /// Removes a name, if it still belongs to this socket.
    pub(super) fn unbind_bell(&self, session: SessionId, key: FileKey) {
        self.unbind(&bell(session), key);
    }

    pub(super) fn unbind_life(&self, session: SessionId, key: FileKey) {
        self.unbind(&life(session), key);
    }

    /// Removes the name of a dead session, if no record needs it any more.
    pub(super) fn bury_life(&self, session: SessionId) {
        self.bury(&life(session));
    }

    fn unbind(&self, name: &str, key: FileKey) {
        if self.is_at(name, key) {
            self.bury(name);
        }
    }

    fn is_at(&self, name: &str, key: FileKey) -> bool {
        let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileKey::of(&stat) == key)
    }

    fn is_missing(&self, name: &str) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
    }

    fn bury(&self, name: &str) {
        let _gone_before = rustix::fs::unlinkat(&self.dir, name, AtFlags::empty());
    }

    /// Finds sessions that died without closing, some at a time, from any position: `start` is any number. Removes
    /// their bells, and sockets that were never renamed. Returns the sessions whose lives are over.
    ///
    /// Bells are checked first. A connection to a life wakes its owner, and is only made if no bell accepts one.
    pub(super) fn sweep(&self, start: u64) -> Vec<SessionId> {
        let Ok(names) = self.names() else { return Vec::new() };
        let names: Vec<String> = names.collect();
        let begin = usize::try_from(start).unwrap_or_default().checked_rem(names.len()).unwrap_or_default();
        let mut dead = Vec::new();
        for name in names.iter().cycle().skip(begin).take(SWEPT.min(names.len())) {
            match parts(name) {
                Some((session, "bell")) => drop(self.is_attached(session)),
                Some((session, "life")) if !self.is_attached(session) && matches!(self.pulse(session), Pulse::Dead) => {
                    dead.push(session);
                }
                // No session creates its sockets now, because we have the turn.
                Some((_, "bell.new" | "life.new")) => self.bury(name),
                _ => {}
            }
        }
        dead
    }

    fn names(&self) -> Result<impl Iterator<Item = String>, Errno> {
        let entries = Dir::read_from(&self.dir)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| !name.starts_with('.')))
    }

    /// Returns a path by the descriptor of the directory: the address of a socket has at most 108 bytes, and a path may
    /// have more.
    fn address(&self, name: &str) -> Result<SocketAddrUnix, Errno> {
        use std::os::fd::AsRawFd;
        SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }
}

fn bell(session: SessionId) -> String {
    format!("{session}.bell")
}

fn life(session: SessionId) -> String {
    format!("{session}.life")
}

/// Parses a name: its session, and its kind of socket.
fn parts(name: &str) -> Option<(SessionId, &str)> {
    let (session, of) = name.split_once('.')?;
    Some((SessionId(u128::from_str_radix(session, 16).ok()?), of))
}

fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}
