//! The supervisor's handle of the minder process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Pid;
use tokio::net::UnixStream;

use super::channel::{Message, Order};
use super::group::our_group;
use super::life::Life;
use super::minder::OURSELVES;
use super::plan::Plan;
use super::timing::Deadline;

/// A running minder.
pub(crate) struct MinderHandle {
    pub(crate) pid: Pid,
    channel: UnixStream,
}

impl MinderHandle {
    /// Starts a minder as the leader of a new group, or in the group of the previous minder.
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
            // It needs no environment, and so gets no password and no preloaded library.
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

    /// Sends an order. A minder that is stopped with a full buffer does not get it, and ends the group when it is
    /// continued: that is safe.
    ///
    /// # Errors
    /// If the order is not sent: the minder is gone, or was stopped for so long that its buffer is full.
    pub(crate) fn send(&self, order: Order) -> io::Result<()> {
        // Not with tokio, which assumes that a new socket is full until it has polled it.
        rustix::io::write(&self.channel, &order.to_bytes())?;
        Ok(())
    }

    /// Waits for the next message.
    ///
    /// # Cancel safety
    /// No message is lost.
    ///
    /// # Errors
    /// If the minder is gone.
    pub(crate) async fn message(&self) -> io::Result<Message> {
        loop {
            self.channel.readable().await?;
            let mut byte = [0];
            match self.channel.try_read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Message::read(byte[0]).ok_or_else(|| io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the flaw that a test has switched on, so that the minder has it too.
#[cfg(leasehold_lab)]
fn flaw() -> Option<(&'static str, &'static str)> {
    leasehold_spec::mutant::named().map(|name| ("LEASEHOLD_MUTANT", name))
}

#[cfg(not(leasehold_lab))]
fn flaw() -> Option<(&'static str, &'static str)> {
    None
}
