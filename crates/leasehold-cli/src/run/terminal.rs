//! The terminal, which only one process group may read at a time.
//!
//! The command has a group of its own, so the terminal must be lent to it: before it starts, or it would be stopped at its
//! first look. In a pipeline that would take it away from the others (`leasehold run … | less`), so there it is lent when
//! the command asks for it: when it is stopped for having read. Where we are in the background nobody lends anything.

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
    /// As it was when it was lent first.
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
    /// Nobody has asked.
    Unasked,
    /// The command is to have it when we have it next.
    Wanted,
    /// The command has it.
    Lent,
}

impl Terminal {
    /// The one that we were started on, if any.
    ///
    /// # Errors
    /// Where it is not known whether there is one: a command that has not been lent its terminal would be stopped at its
    /// first look at it, and nobody would continue it.
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

    /// Whether our group is in the foreground.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == self.ours)
    }

    /// Before the command starts.
    pub(crate) fn begin(&mut self, group: Pid) {
        if self.lends == Lends::AtOnce {
            self.lend(group);
        }
    }

    /// Whether the command has it, and with it what is typed.
    pub(crate) fn is_lent(&self) -> bool {
        self.loan == Loan::Lent
    }

    /// Lends it to the command's group, if it is ours to lend; otherwise when it is ours next. Says whether it has it.
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

    /// We were continued: by a shell that has given us the terminal, or not.
    pub(crate) fn lend_again(&mut self, group: Pid) {
        // A shell that saw us stopped has taken it for itself, whatever we think.
        let has_it = self.loan == Loan::Lent && tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == group);
        if self.loan != Loan::Unasked && !has_it {
            self.lend(group);
        }
    }

    /// Takes it back: the command is stopped, or over.
    pub(crate) fn take_back(&mut self) {
        if self.loan == Loan::Lent {
            self.give(self.ours);
            self.loan = Loan::Wanted;
        }
    }

    /// A command that was killed had no time to leave the terminal as it was.
    pub(crate) fn restore(&mut self) {
        if let Some(before) = self.before.take().filter(|_| self.is_ours()) {
            let _as_it_is = tcsetattr(&self.file, OptionalActions::Now, &before);
        }
    }

    /// From the background this stops the caller with SIGTTOU, unless that is held back.
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

/// Whether nobody would continue us if we stopped. The system itself lets Ctrl-Z stop no group of which no member has a
/// parent in another group of the session; that we share a group with our parent is left to its shell.
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
