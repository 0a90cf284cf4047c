//! The processes that a signal reaches, and those that it must not reach.
//!
//! As soon as a group is empty, another group can get its ID: another KILL would then hit a stranger. So a signal is
//! sent to the group only if a process keeps its ID in use: a running minder, a minder that is a zombie, or the
//! command. The command need not be in the group: an interactive shell makes its own. It is a child of this process, so
//! that its process ID stays in use until this process has waited for it.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};

use super::super::group::{act, group_of, send, signals};
use super::super::timing::Act;
use super::Supervisor;

impl Supervisor<'_> {
    pub(super) fn send(&self, signal: Signal) {
        self.send_to_command(signal);
        if self.owns_group() {
            send(self.group, signal);
        }
    }

    pub(super) fn act(&self, due: Act) {
        for signal in signals(due) {
            self.send_to_command(*signal);
        }
        if self.owns_group() {
            act(self.group, due);
        }
    }

    /// Sends the signal to a command that is not in the group.
    fn send_to_command(&self, signal: Signal) {
        if self.status.is_some() || self.is_member(self.command) {
            return;
        }
        let _it_has_ended = match group_of(Some(self.command)) {
            Some(group) if group == self.command => kill_process_group(group, signal),
            Some(_) | None => kill_process(self.command, signal),
        };
    }

    fn owns_group(&self) -> bool {
        let minder = self.minder.as_ref().map(|minder| minder.pid).or(self.anchor);
        // Only the first minder leads the group. A later one leaves it for a moment while it checks the group.
        minder.is_some_and(|pid| pid == self.group || self.is_member(pid))
            || (self.status.is_none() && self.is_member(self.command))
    }

    fn is_member(&self, child: Pid) -> bool {
        group_of(Some(child)) == Some(self.group)
    }

    /// Releases the ID of the group. From now on no signal is sent to it.
    pub(super) fn let_go(&mut self) {
        if let Some(anchor) = self.anchor.take() {
            let _it_was_waited_for = waitpid(Some(anchor), WaitOptions::empty());
        }
    }
}
