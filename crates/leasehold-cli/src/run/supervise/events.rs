//! What signals bring: those that are handed on, the ends and stops of children, and our own way back from a stop.

use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use rustix::process::{
    Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_current_process_group, kill_process, wait,
    waitid,
};

use super::super::channel::Order;
use super::super::group::{now_us, send};
use super::super::keeper::Keeper;
use super::super::start::dismiss;
use super::super::terminal::{Lends, is_orphaned};
use super::{Echo, Rest, Supervisor, Verdict};

/// How many minders in a row may end before they are ready: what ends a group can hit one that does not hold its signals
/// back yet.
const FALSE_STARTS: usize = 10;

impl Supervisor<'_> {
    pub(super) fn signalled(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => self.reap(),
            Signal::CONT => self.continued(),
            Signal::TSTP if self.echo == Echo::Due => self.echo = Echo::No,
            Signal::TSTP if is_orphaned() => {}
            signal => {
                send(self.group, signal);
                // A stopped command hears of its end when it goes on.
                if matches!(signal, Signal::TERM | Signal::HUP) {
                    send(self.group, Signal::CONT);
                }
            }
        }
    }

    /// Waits for whoever has ended: the minder, the command, and those whom it left to us.
    fn reap(&mut self) {
        // First, and without waiting for it: until then the group's number is surely not somebody else's, and another
        // minder can be started into it.
        if let Some(pid) = self.keeper.as_ref().map(|keeper| keeper.pid) {
            let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(pid), look) {
                Ok(Some(status)) if status.stopped() => drop(kill_process(pid, Signal::CONT)),
                Ok(Some(_)) | Err(_) => self.minder_ended(),
                Ok(None) => {}
            }
        }
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid == self.command && !status.stopped() {
                self.status = Some(status);
            } else if pid == self.command {
                self.stopped(status);
            } else if self.keeper.as_ref().is_some_and(|keeper| keeper.pid == pid) && !status.stopped() {
                self.minder_ended();
            }
        }
        if let Rest::Inhabited { look_us } = &mut self.rest {
            *look_us = now_us();
        }
    }

    /// Another minder takes over. Where the group is ended already there is nothing to mind.
    pub(super) fn minder_ended(&mut self) {
        self.carry_out();
        let Some(old) = self.keeper.take() else { return };
        self.false_starts += 1;
        let started = match self.sentence.is_ended() {
            true => None,
            false if is_on(Mutant::P29OneMinder) || self.false_starts == FALSE_STARTS => None,
            false => Keeper::start(self.plan, self.life, &self.sentence, Some(self.group)).ok(),
        };
        // Its number was the group's. Waited for, it no longer counts as a member.
        dismiss(old.pid);
        if self.rest == Rest::Asked {
            self.rest = Rest::Unknown;
        }
        self.keeper = started;
        match &self.keeper {
            Some(keeper) if !self.sentence.is_open() => {
                keeper.tell(Order::End { kill_us: self.sentence.kill_at_us() });
            }
            Some(_) => {}
            None if is_on(Mutant::P29OneMinder) => {}
            None if self.status.is_none() && !self.sentence.is_ended() => self.condemn(Verdict::Unminded),
            None => {}
        }
    }

    /// The command was stopped. Where that was the terminal's doing, our shell is to see a stopped job.
    fn stopped(&mut self, status: WaitStatus) {
        let signal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .into_iter()
            .find(|signal| status.stopping_signal() == Some(signal.as_raw()));
        let (Some(signal), Some(terminal)) = (signal, &mut self.terminal) else { return };
        let goes_on = match signal {
            // As the system lets no such group stop.
            Signal::TSTP => is_orphaned(),
            _ => terminal.lend(self.group),
        };
        if goes_on {
            send(self.group, Signal::CONT);
            return;
        }
        if is_orphaned() {
            return; // It reads a terminal that is somebody else's. Nobody would continue us.
        }
        terminal.take_back();
        let left = Duration::from_secs(self.guard.remaining().as_secs());
        let left = humantime::format_duration(left);
        self.teller.news_now(&format!("stopped: \"{}\" is lost in {left} unless the command goes on", self.plan.name));
        // The whole job, as the terminal would have done.
        let _stopped = kill_current_process_group(signal);
        if terminal.lends == Lends::OnDemand && signal == Signal::TSTP {
            self.echo = Echo::Due;
            let _stopped = kill_process(getpid(), Signal::STOP);
        }
    }

    fn continued(&mut self) {
        // Were the others first, one of them could write before it is ended.
        self.look_at_the_lease();
        self.carry_out();
        if self.verdict.is_some() {
            return;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.lend_again(self.group);
        }
        send(self.group, Signal::CONT);
    }
}
