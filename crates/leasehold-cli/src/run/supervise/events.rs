//! Signals: they are forwarded, or report the end or stop of a child, or the continuation of this process.

use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use nix::sys::wait::{Id, WaitPidFlag};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process,
    waitid, waitpid,
};

use super::super::channel::Order;
use super::super::group::now_us;
use super::super::interrupt::KEYS;
use super::super::minder_handle::MinderHandle;
use super::super::start::dismiss;
use super::super::terminal::{Lends, is_orphaned};
use super::super::timing::rounded;
use super::{Echo, Remaining, Supervisor, Verdict};

/// How many minders in a row may end before they are ready: a signal that ends the group also ends a minder that has not
/// blocked it yet.
const FALSE_STARTS: usize = 10;

/// Returns a child that is a zombie.
fn ended_child() -> Option<Pid> {
    let options = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let ended = nix::sys::wait::waitid(Id::All, options).ok()?.pid()?;
    Pid::from_raw(ended.as_raw())
}

impl Supervisor<'_> {
    pub(super) fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => self.reap(),
            Signal::CONT => self.continued(),
            Signal::TSTP if self.echo == Echo::Due => self.echo = Echo::No,
            Signal::TSTP if is_orphaned() => {}
            signal => {
                if KEYS.contains(&signal) && !self.handed_on.contains(&signal) {
                    self.handed_on.push(signal);
                }
                self.send(signal);
                // A stopped command handles the signal when it is continued.
                if matches!(signal, Signal::TERM | Signal::HUP) {
                    self.send(Signal::CONT);
                }
            }
        }
    }

    /// Waits for the children that have ended: the minder, the command, and processes that the command left behind.
    fn reap(&mut self) {
        // The minder first, and it stays a zombie: so no other group can have the ID yet, and another minder can be started
        // in the group.
        if let Some(pid) = self.minder.as_ref().map(|minder| minder.pid) {
            let options =
                WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(pid), options) {
                Ok(Some(status)) if status.stopped() => drop(kill_process(pid, Signal::CONT)),
                Ok(Some(_)) | Err(_) => self.minder_ended(),
                Ok(None) => {}
            }
        }
        self.reap_command();
        self.reap_others();
        if let Remaining::Inhabited { check_us } = &mut self.rest {
            *check_us = now_us();
        }
    }

    pub(super) fn reap_others(&mut self) {
        // No more signals are sent, so the ID is not needed; and a zombie counts as a member.
        if self.status.is_some() && (self.deadline.is_killed() || self.verdict.is_none()) {
            self.let_go();
        }
        // Processes that the command left behind. Not the minder, if it ends just now: the ID would become free.
        let minder = self.minder.as_ref().map(|minder| minder.pid).or(self.anchor);
        while let Some(ended) = ended_child().filter(|ended| Some(*ended) != minder && *ended != self.command) {
            let _it_was_waited_for = waitpid(Some(ended), WaitOptions::NOHANG);
        }
    }

    fn reap_command(&mut self) {
        while self.status.is_none() {
            match waitpid(Some(self.command), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => self.stopped(status),
                Ok(Some((_, status))) => self.status = Some(status),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Starts another minder, unless the group has already got KILL.
    pub(super) fn minder_ended(&mut self) {
        self.carry_out();
        let Some(old) = self.minder.take() else { return };
        self.false_starts += 1;
        let started = match self.deadline.is_killed() {
            true => None,
            false if is_on(Mutant::P29OneMinder) || self.false_starts == FALSE_STARTS => None,
            false => MinderHandle::start(self.plan, self.life, &self.deadline, Some(self.group)).ok(),
        };
        match started {
            Some(_) => dismiss(old.pid),
            // As a zombie, it keeps the ID of the group in use until no more signals are sent.
            None => {
                let _it_has_ended = kill_process(old.pid, Signal::KILL);
                self.anchor = Some(old.pid);
            }
        }
        if self.rest == Remaining::Asked {
            self.rest = Remaining::Unknown;
        }
        self.minder = started;
        if !is_on(Mutant::P29TellsNoNewMinder) {
            self.send_command_id();
        }
        match &self.minder {
            Some(minder) if !self.deadline.is_open() => {
                let _it_ends_the_command_by_itself = minder.send(Order::End { kill_us: self.deadline.kill_at_us() });
            }
            Some(_) => {}
            None if is_on(Mutant::P29OneMinder) => {}
            None if !self.deadline.is_killed() => self.condemn(&Verdict::Unminded),
            None => {}
        }
    }

    /// Sends the command's ID to the minder, which ends the command even if it has left the group.
    pub(super) fn send_command_id(&self) {
        if let (Some(minder), None) = (&self.minder, self.status) {
            let _it_knows_the_group = minder.send(Order::Command { pid: self.command });
        }
    }

    /// Handles a stop of the command. If the terminal caused it, the whole job stops, so that the shell sees a stopped job.
    fn stopped(&mut self, status: WaitStatus) {
        let signal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .into_iter()
            .find(|signal| status.stopping_signal() == Some(signal.as_raw()));
        let (Some(signal), Some(terminal)) = (signal, &mut self.terminal) else { return };
        let goes_on = match signal {
            // The system does not let such a group stop either.
            Signal::TSTP => is_orphaned(),
            _ => terminal.lend(self.group),
        };
        if goes_on {
            self.send(Signal::CONT);
            return;
        }
        if is_orphaned() {
            return; // It reads a terminal of another group. Nobody would continue this process.
        }
        terminal.take_back();
        let left = Duration::from_secs(self.guard.remaining().as_secs());
        let left = rounded(left);
        self.printer
            .news_now(&format!("stopped: {} is lost in {left} unless the command is continued", self.plan.names));
        // This stops the whole job, as the terminal would have done.
        let _stopped = kill_current_process_group(signal);
        if terminal.lends == Lends::OnDemand && signal == Signal::TSTP {
            self.echo = Echo::Due;
            let _stopped = kill_process(getpid(), Signal::STOP);
        }
    }

    fn continued(&mut self) {
        // If the command were continued first, it could write before it is ended.
        self.check_lease();
        self.carry_out();
        if self.verdict.is_some() {
            return;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.lend_again(self.group);
        }
        self.send(Signal::CONT);
    }
}
