//! P26: who lives, and who listens. Two sockets for each session, beside the database:
//!
//! - the **bell**, a datagram socket that nobody inherits. Attached is whose bell takes a connection; an empty datagram
//!   rings it. What there is to hear is in the database.
//! - the **life**, a listening stream socket that a command started under the lock may inherit. Dead is whose life refuses
//!   a connection: the kernel closes it with the last process that has it, whatever that died of. Process ids tell less:
//!   they are used again, and mean something else in a container.
//!
//! A name here is at a socket that lives, or at one that is dead for good. So a newborn is bound to another name, listens,
//! and is renamed; and names are given and taken back only by who has the turn (P27).
//!
//! A name that is missing says nothing: somebody may have cleaned up in here. So the name of a life is what its death is
//! told by, and stays for as long as that matters: while the session holds anything. Whoever attaches buries the rest.

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

/// What a connection to a session's life said.
pub(super) enum Pulse {
    Lives,
    /// And breaks when that ends.
    Connected(OwnedFd),
    Dead,
    /// There is no such name: dead, and buried long ago; not born yet; or somebody has removed what is its.
    Unknown,
}

/// Connections that nobody has taken yet. A session that is stopped takes none.
const BACKLOG: i32 = 4096;
/// How many of the dead are looked for at once: whoever attaches sweeps a little.
const SWEPT: usize = 64;

impl Live {
    pub(super) fn open(directory: &Directory) -> Result<Self, Error> {
        let dir = directory.inner("live")?;
        let ringer = socket(SocketType::DGRAM).map_err(|errno| directory.refused("live", errno))?;
        Ok(Self { dir, ringer })
    }

    /// Whether somebody listens to this session's inbox (P6).
    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        let name = bell(session);
        let Ok(probe) = socket(SocketType::DGRAM) else { return true };
        match self.address(&name).and_then(|to| rustix::net::connect(&probe, &to)) {
            Err(Errno::CONNREFUSED) => {
                self.bury(&name);
                false
            }
            Err(Errno::NOENT) => false,
            // What says nothing about the other (no descriptor is left, no right) must not end it.
            _ => true,
        }
    }

    /// Whether any process lives that has this session's life.
    pub(super) fn pulse(&self, session: SessionId) -> Pulse {
        if is_on(Mutant::P26NeverDead) {
            return Pulse::Lives;
        }
        let name = life(session);
        let Ok(probe) = socket(SocketType::STREAM) else { return Pulse::Lives };
        match self.address(&name).and_then(|to| rustix::net::connect(&probe, &to)) {
            Ok(()) => Pulse::Connected(probe),
            Err(Errno::CONNREFUSED) => Pulse::Dead,
            // Of the name, and not of the way to it: a process in another mount namespace may have lost its /proc.
            Err(Errno::NOENT) if self.is_missing(&name) => match is_on(Mutant::P26MissingIsDead) {
                true => Pulse::Dead,
                false => Pulse::Unknown,
            },
            // Also EAGAIN: so many have connected that it takes no more.
            Err(_) => Pulse::Lives,
        }
    }

    /// Whether anybody is left of those who were here before. Asks them all: for those who open a store after a boot.
    pub(super) fn is_inhabited(&self) -> bool {
        let Ok(mut names) = self.names() else { return true };
        names.any(|name| {
            let Some((session, "life")) = parts(&name) else { return false };
            matches!(self.pulse(session), Pulse::Lives | Pulse::Connected(_))
        })
    }

    /// Tells a session to look at what is new for it. A bell that is full rings already.
    pub(super) fn ring(&self, session: SessionId) {
        if let Ok(to) = self.address(&bell(session)) {
            let _lost = rustix::net::sendto(&self.ringer, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to);
        }
    }

    /// Binds a new bell for a session, and a life if it has none yet.
    pub(super) fn bind(&self, session: SessionId, life_: Option<(OwnedFd, FileKey)>) -> Result<Sockets, Errno> {
        let (bell, bell_key) = self.born(&bell(session), SocketType::DGRAM)?;
        // Proved: by this name, what is sent arrives here.
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

    /// Whether a session's life is found here, and is this one.
    pub(super) fn is_life(&self, session: SessionId, key: FileKey) -> bool {
        self.is_at(&life(session), key)
    }

    /// Takes back a name, if it is still at this socket.
    pub(super) fn unbind_bell(&self, session: SessionId, key: FileKey) {
        self.unbind(&bell(session), key);
    }

    pub(super) fn unbind_life(&self, session: SessionId, key: FileKey) {
        self.unbind(&life(session), key);
    }

    /// Takes the name of one that is dead away, of which nobody asks any more whether it is.
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

    /// Looks for those that died without a word, some at a time, beginning anywhere: `start` is any number. Buries their
    /// bells, and what nobody was born from; answers whose lives are over.
    ///
    /// Bells are asked first. A connection to a life wakes its owner, and is only made where no bell answers.
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
                // Nobody is being born now: we have the turn.
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

    /// By the descriptor of the directory: the address of a socket has at most 108 bytes, and a path may have more.
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

/// Whose name it is, and of what.
fn parts(name: &str) -> Option<(SessionId, &str)> {
    let (session, of) = name.split_once('.')?;
    Some((SessionId(u128::from_str_radix(session, 16).ok()?), of))
}

fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}
