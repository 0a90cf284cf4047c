//! A process group, and what supervisor and minder do to it.

use std::fs;
use std::io;

use leasehold::seam::descriptors_advice;
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

/// The group of a process, or our own. `None`: the process is gone, or its group is led from outside of our pid namespace
/// and has no number here. (rustix takes that for impossible.)
pub(crate) fn group_of(process: Option<Pid>) -> Option<Pid> {
    let process = process.map(|pid| nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
    nix::unistd::getpgid(process).ok().and_then(|group| Pid::from_raw(group.as_raw()))
}

/// The number of its session, or of our own: 0 for one that is led from outside.
pub(crate) fn session_of(process: Option<Pid>) -> Option<i32> {
    let process = process.map(|pid| nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
    nix::unistd::getsid(process).ok().map(nix::unistd::Pid::as_raw)
}

/// Our own group. Where that has no number here we make one, and lead it.
pub(crate) fn our_group() -> io::Result<Pid> {
    if let Some(group) = group_of(None) {
        return Ok(group);
    }
    setpgid(None, None)?;
    group_of(None).ok_or_else(|| io::ErrorKind::Unsupported.into())
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

/// Whether all that is left of the group, but for ourselves, has ended and waits for its parent to hear of that. Where the
/// parent was our supervisor and is gone, that is whatever runs as process 1: in a container it may never look, and
/// elsewhere it takes its time. What forks behind this reader is missed: whoever goes by this sends a KILL first.
pub(crate) fn is_only_dead(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let us = std::process::id().to_string();
    for process in processes {
        let Ok(process) = process else { return false };
        let stat = match fs::read(process.path().join("stat")) {
            // The name of a process need not be text.
            Ok(stat) => String::from_utf8_lossy(&stat).into_owned(),
            // It may live: no descriptor is left to look with.
            Err(error) if descriptors_advice(&error).is_some() => return false,
            // This is no process, or it has gone meanwhile.
            Err(_) => continue,
        };
        let is_another = stat.split(' ').next() != Some(&us);
        if is_another && lives_in(&stat, group).unwrap_or(false) {
            return false;
        }
    }
    true
}

/// By its line in /proc: its number, its name in brackets (which can have any in it), its state, its parent, its group.
fn lives_in(stat: &str, group: Pid) -> Option<bool> {
    let mut behind_the_name = stat.rsplit_once(") ")?.1.split(' ');
    let (state, _parent, its_group) = (behind_the_name.next()?, behind_the_name.next()?, behind_the_name.next()?);
    Some(its_group.parse() == Ok(group.as_raw_nonzero().get()) && !matches!(state, "Z" | "X"))
}

/// Our lease clock, in microseconds: set by nobody, running while the machine sleeps, and the same in every process.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_and_the_members_of_other_groups_do_not_live_in_it() {
        let group = Pid::from_raw(42).unwrap();
        for (stat, lives) in [
            ("7 (sh) S 1 42 42 0", Some(true)),
            ("7 (a) Z 1 99 (b) T 1 42 42 0", Some(true)),
            ("7 (sh) Z 1 42 42 0", Some(false)),
            ("7 (sh) S 1 421 42 0", Some(false)),
            ("7 (sh", None),
        ] {
            assert_eq!(lives_in(stat, group), lives, "{stat}");
        }
    }
}
