//! Whom a signal of ours reaches, and whom it must not.
//!
//! A group's number is somebody else's as soon as the group is empty: a KILL that is sent once more then hits a stranger.
//! So nothing is sent to the group unless somebody holds its number for us: a minder that is there, one that has ended and
//! was not waited for, or the command. And the command need not be in its group: an interactive shell makes one of its
//! own. It is our child, so that its own number is ours until we have waited for it.

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

    /// Where the group's own signal does not reach it.
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
        // Only the first one leads it. Another one is out of it for a moment when it looks.
        minder.is_some_and(|pid| pid == self.group || self.is_member(pid))
            || (self.status.is_none() && self.is_member(self.command))
    }

    fn is_member(&self, child: Pid) -> bool {
        group_of(Some(child)) == Some(self.group)
    }

    /// Lets the number go. From here on nothing is sent to the group.
    pub(super) fn let_go(&mut self) {
        if let Some(anchor) = self.anchor.take() {
            let _it_was_waited_for = waitpid(Some(anchor), WaitOptions::empty());
        }
    }
}
