//! The terminal, which only one process group may read at a time.
//!
//! The command has its own process group, so the terminal must be lent to that group. This happens before the command
//! starts: otherwise the system would stop it when it first reads. In a pipeline (`leasehold run … | less`), that would
//! take the terminal away from the other programs. There it is lent on demand: when the system has stopped the command
//! because it read. In the background, nothing is lent.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use leasehold::seam::descriptors_advice;
use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::fs::{FileType, OFlags};
use rustix::process::{Pid, getppid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::group::{group_of, our_group, session_of};

pub(crate) struct Terminal {
    file: File,
    ours: Pid,
    /// The settings when the terminal was first lent.
    before: Option<Termios>,
    loan: Loan,
    pub(crate) lends: Lends,
}

/// When the terminal is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lends {
    AtOnce,
    OnDemand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loan {
    /// The command has not asked for the terminal.
    Unasked,
    /// The command gets the terminal when this process has it next.
    Wanted,
    /// The command has the terminal.
    Lent,
}

impl Terminal {
    /// Opens the controlling terminal, if there is one.
    ///
    /// # Errors
    /// If it is unknown whether there is one. A command without its terminal would be stopped when it first reads, and
    /// nobody would continue it.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        let flags = OFlags::NOCTTY.bits().cast_signed();
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty") {
            Ok(file) => file,
            Err(error) if descriptors_advice(&error).is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        let is_pipeline = is_pipe(io::stdin().as_fd()) || is_pipe(io::stdout().as_fd());
        let lends = if is_pipeline { Lends::OnDemand } else { Lends::AtOnce };
        let Ok(ours) = our_group() else { return Ok(None) };
        Ok(Some(Self { file, ours, before: None, loan: Loan::Unasked, lends }))
    }

    /// Returns whether the group of this process is in the foreground.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == self.ours)
    }

    /// Lends the terminal before the command starts, unless it is lent on demand.
    pub(crate) fn begin(&mut self, group: Pid) {
        if self.lends == Lends::AtOnce {
            self.lend(group);
        }
    }

    /// Returns whether the command has the terminal, and so gets the keys.
    pub(crate) fn is_lent(&self) -> bool {
        self.loan == Loan::Lent
    }

    /// Lends the terminal to the group of the command, or notes that it is to be lent when this process has it next.
    /// Returns whether the group has it now.
    pub(crate) fn lend(&mut self, group: Pid) -> bool {
        self.loan = Loan::Wanted;
        if !self.is_ours() {
            return false;
        }
        if self.before.is_none() {
            self.before = tcgetattr(&self.file).ok();
        }
        let is_lent = self.give(group);
        if is_lent {
            self.loan = Loan::Lent;
        }
        is_lent
    }

    /// Lends the terminal again after this process was continued. The shell may have given it the terminal, or not.
    pub(crate) fn lend_again(&mut self, group: Pid) {
        // A shell that saw this process stopped has taken the terminal, whatever `loan` says.
        let has_it = self.loan == Loan::Lent && tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == group);
        if self.loan != Loan::Unasked && !has_it {
            self.lend(group);
        }
    }

    /// Takes the terminal back: the command is stopped or has ended.
    pub(crate) fn take_back(&mut self) {
        if self.loan == Loan::Lent {
            self.give(self.ours);
            self.loan = Loan::Wanted;
        }
    }

    /// Restores the settings: a command that was killed could not do so.
    pub(crate) fn restore(&mut self) {
        if let Some(before) = self.before.take().filter(|_| self.is_ours()) {
            let _as_it_is = tcsetattr(&self.file, OptionalActions::Now, &before);
        }
    }

    /// Sets the foreground group. From the background, this would stop the caller with SIGTTOU, so that signal is blocked.
    fn give(&self, group: Pid) -> bool {
        let mut output = SigSet::empty();
        output.add(NixSignal::SIGTTOU);
        let is_held_back = output.thread_block().is_ok();
        let is_given = is_held_back && tcsetpgrp(&self.file, group).is_ok();
        if is_held_back {
            let _ = output.thread_unblock();
        }
        is_given
    }
}

/// Returns whether nobody would continue this process if it stopped. The system does not let Ctrl-Z stop a group in
/// which no member has a parent in another group of the session. If the parent is in the same group, its shell takes
/// care of both.
pub(crate) fn is_orphaned() -> bool {
    let Some(parent) = getppid() else { return true };
    match session_of(Some(parent)) {
        Some(session) if group_of(Some(parent)) != group_of(None) => Some(session) != session_of(None),
        Some(_) => false,
        None => true,
    }
}

fn is_pipe(stream: std::os::fd::BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}
