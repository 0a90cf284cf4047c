//! A process group, and what supervisor and minder do to it.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, setpgid, test_kill_process_group};
use rustix::time::{ClockId, clock_gettime};

use super::timing::Act;

/// Whether a group has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    None,
    Some,
}

/// Does what is due. Whoever is not there any more needs nothing.
pub(crate) fn act(group: Pid, act: Act) {
    for signal in signals(act) {
        send(group, *signal);
    }
}

/// The signals that do it, in this order.
pub(crate) fn signals(act: Act) -> &'static [Signal] {
    match act {
        // A stopped process hears a TERM when it goes on.
        Act::Term => &[Signal::TERM, Signal::CONT],
        Act::Kill => &[Signal::KILL],
    }
}

pub(crate) fn send(group: Pid, signal: Signal) {
    let _nobody_is_there = kill_process_group(group, signal);
}

/// Whether the group has members, for somebody who is none. A member that has ended and was not yet waited for counts.
pub(crate) fn members(group: Pid) -> Members {
    match test_kill_process_group(group) {
        Err(Errno::SRCH) => Members::None,
        // EPERM is somebody, too: a command can take another user's rights.
        Ok(()) | Err(_) => Members::Some,
    }
}

/// The same for a member: it steps aside, into another group of the same session, looks, and steps back. There is no
/// other look that cannot miss anybody: reading one process after the other out of /proc misses one that forks behind
/// us and ends before us. `None`: the other group is gone.
pub(crate) fn other_members(group: Pid, aside: Pid) -> Option<Members> {
    setpgid(None, Some(aside)).ok()?;
    let members = members(group);
    // Refused where we are not its leader and the last other member has gone meanwhile.
    let back = setpgid(None, Some(group));
    Some(if back.is_ok() { members } else { Members::None })
}

/// Our lease clock, in microseconds: set by nobody, running while the machine sleeps, and the same in every process.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}
