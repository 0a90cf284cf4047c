//! A command that may have left its process group, as an interactive shell does. It is not a child of the minder, so the
//! minder needs a file descriptor of the process: the process ID may belong to another process later.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use super::group::{group_of, session_of, signals};
use super::timing::Act;

pub(crate) struct Strayed {
    pid: Pid,
    process: OwnedFd,
}

impl Strayed {
    /// Opens the command. Returns `None` if it has ended, also if another process has its ID now.
    pub(crate) fn of(pid: Pid, group: Pid) -> Option<Self> {
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let is_in = group_of(Some(pid)).is_some_and(|its| its == group || its == pid);
        let is_ours = is_in && session_of(Some(pid)) == session_of(None);
        is_ours.then_some(Self { pid, process })
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Sends the signals to a command that is not in the group, and so does not get those of the group.
    pub(crate) fn act(&self, due: Act, group: Pid) {
        let Some(its) = group_of(Some(self.pid)) else { return };
        if its == group || self.has_ended() {
            return;
        }
        // If it leads a group, the whole group is killed, and before the command: its ID is that of its group while it
        // lives.
        if its == self.pid && due == Act::Kill {
            let _they_have_ended = kill_process_group(its, Signal::KILL);
        }
        for signal in signals(due) {
            let _it_has_ended = pidfd_send_signal(&self.process, *signal);
        }
    }
}
