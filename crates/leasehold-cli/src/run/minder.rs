//! The minder: a second process that keeps the promise of P29 if the supervisor cannot.
//!
//! It leads the process group of the command, so that no other group gets the ID while the minder lives. It knows when the
//! lease ends, and ends the group before that. (Why neither a parent-death signal nor a thread of the supervisor would do:
//! docs/design/command.md, "Why does `run` need three processes?")
//!
//! Signals to the group also reach the minder: Ctrl-C, Ctrl-Z, its own TERM. It blocks all signals; only KILL and STOP
//! remain. After a KILL, the supervisor notices the end of its child and starts another minder. After a STOP, it continues
//! the minder. The KILL that the minder sends to the group ends the minder too, and that is right: nobody is left to mind.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Args;
use leasehold_spec::mutant::{Mutant, is_on};
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::channel::{Message, ORDER, Order};
use super::group::{Members, act, group_of, is_only_dead, now_us, other_members};
use super::strayed::Strayed;
use super::timing::{Act, Deadline};

/// The interval between two checks of the group when the supervisor is gone, at first and at most. It is short because the
/// next client may wait for the end of this process.
const CHECK_FIRST_US: u64 = 5_000;
const CHECK_LAST_US: u64 = 200_000;

/// The arguments of a minder. Only `leasehold run` starts one.
#[derive(Debug, Args)]
pub(crate) struct MinderArgs {
    /// When the group gets KILL, on CLOCK_BOOTTIME
    #[arg(long, value_name = "US")]
    kill_at: u64,
    /// How much earlier the group gets TERM
    #[arg(long, value_name = "US")]
    kill_after: u64,
    /// The process group of the supervisor
    #[arg(long, value_name = "PGID")]
    aside: i32,
    /// Print no notices
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &MinderArgs) -> ExitCode {
    SigSet::all().thread_block().expect("there is such a set of signals");
    // Otherwise its name would be "exe", because of /proc/self/exe.
    let _as_it_is = nix::sys::prctl::set_name(c"leasehold");
    let stdin = rustix::stdio::stdin();
    let Ok(supervisor) = stdin.try_clone_to_owned() else { return ExitCode::FAILURE };
    let supervisor = UnixStream::from(supervisor);
    let Some(aside) = Pid::from_raw(args.aside) else { return ExitCode::FAILURE };
    let Some(group) = group_of(None) else { return ExitCode::FAILURE };
    let deadline = Deadline::new(args.kill_at, args.kill_after);
    let mut minder = Minder {
        group,
        aside,
        place: None,
        command: None,
        deadline,
        kill_after_us: args.kill_after,
        is_quiet: args.quiet,
        check_us: CHECK_FIRST_US,
    };
    match minder.watch(supervisor) {
        Ok(()) => ExitCode::SUCCESS,
        // The supervisor starts another one, or takes over.
        Err(_) => ExitCode::FAILURE,
    }
}

struct Minder {
    group: Pid,
    /// The group that this process moves to for a check.
    aside: Pid,
    /// A process that leads such a group when that of the supervisor is gone.
    place: Option<Child>,
    command: Option<Strayed>,
    deadline: Deadline,
    kill_after_us: u64,
    is_quiet: bool,
    check_us: u64,
}

impl Minder {
    /// Watches until the supervisor is gone, and then until the group is gone.
    fn watch(&mut self, mut supervisor: UnixStream) -> io::Result<()> {
        supervisor.set_nonblocking(true)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        report(&mut supervisor, Message::Ready);
        loop {
            if let Some(due) = self.deadline.due(now_us()) {
                if due == Act::Term {
                    report(&mut supervisor, Message::TermSent);
                }
                if !is_on(Mutant::P29NoMinder) {
                    self.act(due);
                }
            }
            ring_at(timer.as_fd(), self.deadline.next_us())?;
            wait_for(&[supervisor.as_fd(), timer.as_fd()])?;
            if self.obey(&mut supervisor)? == Supervisor::Gone {
                break;
            }
        }
        self.end_alone(timer.as_fd())
    }

    /// Carries out all orders that have arrived.
    fn obey(&mut self, supervisor: &mut UnixStream) -> io::Result<Supervisor> {
        let mut bytes = [0; ORDER];
        loop {
            match supervisor.read(&mut bytes) {
                Ok(0) => return Ok(Supervisor::Gone),
                // Orders are written whole, and a local socket does not split so few bytes.
                Ok(ORDER) => match Order::read(bytes)? {
                    Order::Until { kill_us } => self.deadline.put_off(kill_us),
                    Order::End { kill_us } => self.deadline.bring_forward(kill_us),
                    Order::Command { pid } => self.command = Strayed::of(pid, self.group),
                    Order::Check => {
                        let message = match self.members() {
                            Members::None => Message::Empty,
                            Members::Some => Message::Inhabited,
                        };
                        report(supervisor, message);
                    }
                },
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Supervisor::There),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(Supervisor::Gone),
            }
        }
    }

    /// Ends the group after the supervisor was killed. Nobody renews the lease any more: the group gets TERM now and KILL
    /// later, and then this process ends.
    fn end_alone(&mut self, timer: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_over() || is_on(Mutant::P29NoMinder) {
            return Ok(());
        }
        if !self.is_quiet {
            let _nobody_reads_it =
                writeln!(io::stderr(), "leasehold: the supervisor process has died: its command is ended");
        }
        self.deadline.bring_forward(now_us() + self.kill_after_us);
        while !self.is_over() {
            let is_only_dead = || is_only_dead(self.group) && !is_on(Mutant::P29WaitsForZombies);
            if self.command.as_ref().is_none_or(Strayed::has_ended) && is_only_dead() {
                // Nobody may ever wait for the zombies. The KILL is for processes that the scan has missed; it also ends
                // this process.
                self.act(Act::Kill);
            }
            if let Some(due) = self.deadline.due(now_us()) {
                self.act(due);
            }
            ring_at(timer, self.deadline.next_us().min(now_us() + self.check_us))?;
            self.check_us = (2 * self.check_us).min(CHECK_LAST_US);
            wait_for(&[timer])?;
        }
        Ok(())
    }

    fn act(&self, due: Act) {
        // Before the group, and so before this process.
        if let Some(command) = &self.command {
            command.act(due, self.group);
        }
        act(self.group, due);
    }

    fn is_over(&mut self) -> bool {
        self.command.as_ref().is_none_or(Strayed::has_ended) && self.members() == Members::None
    }

    fn members(&mut self) -> Members {
        other_members(self.group, self.aside).unwrap_or_else(|| {
            // The group of the supervisor is gone. A child of this process leads another one.
            self.place = place().ok();
            let Some(place) = &self.place else { return Members::Some };
            self.aside = Pid::from_child(place);
            other_members(self.group, self.aside).unwrap_or(Members::Some)
        })
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        if let Some(mut place) = self.place.take() {
            drop(place.stdin.take());
            let _it_ends_with_its_input = place.wait();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supervisor {
    There,
    Gone,
}

/// Sends a message. It is lost if the supervisor is gone, or is stopped with a full buffer.
fn report(supervisor: &mut UnixStream, message: Message) {
    let _lost = supervisor.write(&[message.to_byte()]);
}

fn place() -> io::Result<Child> {
    Command::new(OURSELVES)
        .arg0("leasehold")
        .arg("place")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// The program of this process, even if its file was replaced or removed in the meantime.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// Leads a process group until the minder that started it is gone.
pub(crate) fn hold_place() -> ExitCode {
    let _ended = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}

/// Sets the timer. It fires at once if the time has passed.
fn ring_at(timer: BorrowedFd<'_>, at_us: u64) -> io::Result<()> {
    // Zero would disarm the timer.
    let at_us = at_us.clamp(1, LATEST_US);
    let at = Timespec { tv_sec: (at_us / 1_000_000).cast_signed(), tv_nsec: (at_us % 1_000_000 * 1000).cast_signed() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
    Ok(())
}

/// The latest time of the timer: a thousand years of uptime.
const LATEST_US: u64 = 1_000 * 366 * 86_400 * 1_000_000;

fn wait_for(sources: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
    poll(&mut polled, None)?;
    Ok(())
}

const _: () = assert!(ORDER == 1 + size_of::<u64>());
