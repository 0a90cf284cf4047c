//! Operations of supervisor and minder on a process group.

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

/// Sends the signals that are due. Processes that have ended are ignored.
pub(crate) fn act(group: Pid, act: Act) {
    for signal in signals(act) {
        send(group, *signal);
    }
}

/// Returns the signals of an action, in order.
pub(crate) fn signals(act: Act) -> &'static [Signal] {
    match act {
        // A stopped process handles TERM when it is continued.
        Act::Term => &[Signal::TERM, Signal::CONT],
        Act::Kill => &[Signal::KILL],
    }
}

pub(crate) fn send(group: Pid, signal: Signal) {
    let _nobody_is_there = kill_process_group(group, signal);
}

/// Returns the group of a process, or of this one. It is `None` if the process is gone, or if the leader of its group is
/// outside of this PID namespace, where the group has no ID. (rustix assumes that this cannot happen.)
pub(crate) fn group_of(process: Option<Pid>) -> Option<Pid> {
    let process = process.map(|pid| nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
    nix::unistd::getpgid(process).ok().and_then(|group| Pid::from_raw(group.as_raw()))
}

/// Returns the ID of the session of a process, or of this one. It is 0 if the leader is outside of this PID namespace.
pub(crate) fn session_of(process: Option<Pid>) -> Option<i32> {
    let process = process.map(|pid| nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()));
    nix::unistd::getsid(process).ok().map(nix::unistd::Pid::as_raw)
}

/// Returns the group of this process. If it has no ID in this PID namespace, the process makes a new group.
pub(crate) fn our_group() -> io::Result<Pid> {
    if let Some(group) = group_of(None) {
        return Ok(group);
    }
    setpgid(None, None)?;
    group_of(None).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Returns whether the group has members. The caller must not be a member. A zombie counts as a member.
pub(crate) fn members(group: Pid) -> Members {
    match test_kill_process_group(group) {
        Err(Errno::SRCH) => Members::None,
        // EPERM also means that there is a member: a command can change its user.
        Ok(()) | Err(_) => Members::Some,
    }
}

/// Returns whether the group has members other than this process, which is a member. It moves to another group of the same
/// session, checks, and moves back. No other check is complete: a scan of /proc can miss a process that forks behind the
/// scan and ends before it. It is `None` if the other group is gone.
pub(crate) fn other_members(group: Pid, aside: Pid) -> Option<Members> {
    setpgid(None, Some(aside)).ok()?;
    let members = members(group);
    // This fails if this process is not the leader and the last other member has ended in the meantime.
    let back = setpgid(None, Some(group));
    Some(if back.is_ok() { members } else { Members::None })
}

/// Returns whether all other members of the group are zombies. If their parent was the supervisor, and is gone, their new
/// parent is process 1: in a container it may never wait for them, and elsewhere it may be slow. The scan can miss a
/// process that forks behind it: a caller that relies on the result must send a KILL first.
pub(crate) fn is_only_dead(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let us = std::process::id().to_string();
    for process in processes {
        let Ok(process) = process else { return false };
        let stat = match fs::read(process.path().join("stat")) {
            // The name of a process need not be UTF-8.
            Ok(stat) => String::from_utf8_lossy(&stat).into_owned(),
            // The process may be alive: no file descriptor is left to read its state.
            Err(error) if descriptors_advice(&error).is_some() => return false,
            // This is not a process, or it has ended in the meantime.
            Err(_) => continue,
        };
        let is_another = stat.split(' ').next() != Some(&us);
        if is_another && lives_in(&stat, group).unwrap_or(false) {
            return false;
        }
    }
    true
}

/// Parses a line of /proc/PID/stat: the ID, the name in parentheses (which may contain parentheses), the state, the parent,
/// and the group. Returns whether the process is alive and in the group.
fn lives_in(stat: &str, group: Pid) -> Option<bool> {
    let mut behind_the_name = stat.rsplit_once(") ")?.1.split(' ');
    let (state, _parent, its_group) = (behind_the_name.next()?, behind_the_name.next()?, behind_the_name.next()?);
    Some(its_group.parse() == Ok(group.as_raw_nonzero().get()) && !matches!(state, "Z" | "X"))
}

/// Returns the time of the lease clock in microseconds. Nobody sets this clock. It runs while the machine sleeps, and it is
/// the same in every process.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000 + now.tv_nsec.cast_unsigned() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_and_members_of_other_groups_are_not_alive_in_the_group() {
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
