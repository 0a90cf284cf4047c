//! The minder, as its supervisor sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Pid;
use tokio::net::UnixStream;

use super::channel::{Order, Word};
use super::group::our_group;
use super::life::Life;
use super::minder::OURSELVES;
use super::plan::Plan;
use super::timing::Deadline;

/// A minder that runs.
pub(crate) struct MinderHandle {
    pub(crate) pid: Pid,
    channel: UnixStream,
}

impl MinderHandle {
    /// Starts a minder: as the leader of a new group, or into the one of the minder before it.
    pub(crate) fn start(plan: &Plan, life: &Life, deadline: &Deadline, group: Option<Pid>) -> io::Result<Self> {
        let (ours, its) = Socket::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(OURSELVES);
        command
            .arg0("leasehold")
            .arg("minder")
            .arg(format!("--kill-at={}", deadline.kill_at_us()))
            .arg(format!("--kill-after={}", plan.timing.kill_after_us))
            .arg(format!("--aside={}", our_group()?.as_raw_nonzero()))
            // What it does not need it cannot tell: no password, no preloaded library.
            .env_clear()
            .envs(flaw())
            .current_dir("/")
            .process_group(group.map_or(0, |group| group.as_raw_nonzero().get()))
            .stdin(Stdio::from(OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        if plan.is_quiet {
            command.arg("--quiet");
        }
        let child = life.lend(|| command.spawn())?;
        Ok(Self { pid: Pid::from_child(&child), channel: UnixStream::from_std(ours)? })
    }

    /// Tells it something. One that is stopped with a full buffer is not told, and ends the group when it goes on: that is
    /// safe.
    ///
    /// # Errors
    /// Where it does not get through: it is gone, or has been stopped for long and has not read what it was told before.
    pub(crate) fn tell(&self, order: Order) -> io::Result<()> {
        // Not by tokio: before its first look at a new socket it takes that for full.
        rustix::io::write(&self.channel, &order.to_bytes())?;
        Ok(())
    }

    /// What it says next.
    ///
    /// # Cancel safety
    /// No word is lost.
    ///
    /// # Errors
    /// Where it says nothing any more: it is gone.
    pub(crate) async fn word(&self) -> io::Result<Word> {
        loop {
            self.channel.readable().await?;
            let mut byte = [0];
            match self.channel.try_read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Word::read(byte[0]).ok_or_else(|| io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The flaw that a test has switched on, for the minder to have it, too.
#[cfg(feature = "mutants")]
fn flaw() -> Option<(&'static str, &'static str)> {
    leasehold_spec::mutant::named().map(|name| ("LEASEHOLD_MUTANT", name))
}

#[cfg(not(feature = "mutants"))]
fn flaw() -> Option<(&'static str, &'static str)> {
    None
}
