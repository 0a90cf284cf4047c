//! The supervisor's main loop: from a held lock to an empty group.
//!
//! This loop handles all events: signals, messages of the minder, ticks. Before each event it checks the lease: after a
//! stop of an hour, the first action is to end a command that works without a lock.
//!
//! The minder ends the command (`minder.rs`): TERM first, KILL later. The supervisor knows the same times. It does not
//! send a second TERM, and it kills all that is left when the KILL is due. A command outlives its lease only if both
//! are stopped.

mod events;
mod reach;

use std::io;
use std::time::Duration;

use leasehold::{AllGuard, Lost, LostReason};
use leasehold_spec::mutant::{Mutant, is_on};
use rustix::process::{Pid, Signal, WaitStatus, getpid, set_child_subreaper};
use tokio::time::sleep;

use super::channel::{Message, Order};
use super::end::{End, FAILED, LOST};
use super::group::{Members, members, now_us};
use super::interrupt::KEYS;
use super::life::Life;
use super::minder_handle::MinderHandle;
use super::plan::Plan;
use super::printer::Printer;
use super::reports::RenewalReports;
use super::signals::Signals;
use super::start::{dismiss, full, start_command, start_minder};
use super::terminal::{Lends, Terminal};
use super::timing::{Act, Deadline, Timing, micros, rounded};
use crate::exit::Failure;

/// The interval between two checks for an empty group. Members that are not children of this process end without a signal.
const CHECK_US: u64 = 500_000;
const CHECK_SOON_US: u64 = 5_000;
/// A renewal moves the end by more than this. A smaller difference comes from reading the clock twice.
const SAME_US: u64 = 5_000;

pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    guard: &'a AllGuard,
    life: &'a Life,
    signals: &'a mut Signals,
    printer: &'a mut Printer,
    terminal: Option<Terminal>,
    /// `None` if the minder is gone and no other could be started.
    minder: Option<MinderHandle>,
    /// How many minders in a row have ended before they were ready.
    false_starts: usize,
    /// The last minder, which has ended. As a zombie, it keeps the ID of the group in use.
    anchor: Option<Pid>,
    group: Pid,
    command: Pid,
    status: Option<WaitStatus>,
    rest: Remaining,
    /// Whether it was reported that the command has left processes behind.
    left_is_reported: bool,
    echo: Echo,
    /// The signals of the keyboard that came from another process, and so through this process.
    handed_on: Vec<Signal>,
    deadline: Deadline,
    renewals: RenewalReports,
    /// Why the command is ended, if it is.
    verdict: Option<Verdict>,
}

/// The state of the rest of the group, once the command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remaining {
    Unknown,
    Asked,
    Inhabited { check_us: u64 },
    Empty,
}

/// Whether the SIGTSTP that this process sends to the whole job will also reach this process. It is not forwarded then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Echo {
    Due,
    No,
}

#[derive(Clone, Debug)]
enum Verdict {
    Lost(Lost),
    /// The lease was not renewed early enough to end the command within it.
    Late,
    /// There is no minder to end the command if this process dies.
    Unminded,
}

/// Runs the command under the lock, until its group is empty.
pub(crate) async fn supervise(
    plan: &Plan,
    guard: &AllGuard,
    life: &Life,
    signals: &mut Signals,
    printer: &mut Printer,
) -> End {
    if let Err(lost) = full(plan, guard).await {
        return lost_early(&lost);
    }
    // Processes that the command leaves behind become children of this process, which notices their ends at once.
    let _the_slow_check_finds_them = set_child_subreaper(Some(getpid()));
    let deadline = Deadline::new(plan.timing.kill_us(until_us(guard)), plan.timing.kill_after_us);
    let minder = match start_minder(plan, life, &deadline).await {
        Ok(minder) => minder,
        Err(error) => {
            // The work was not done: another machine can try.
            guard.waive_min_hold();
            return Failure::system("cannot start the minder process, so the command was not started", &error).into();
        }
    };
    let group = minder.pid;
    // Again: on a busy machine a minder takes its time, and this process may have been stopped in the meantime. The minder
    // needs the renewals since then, or it would end the command because they are missing.
    if let (Err(lost), false) = (full(plan, guard).await, is_on(Mutant::P29StartsLate)) {
        dismiss(group);
        return lost_early(&lost);
    }
    let deadline = Deadline::new(plan.timing.kill_us(until_us(guard)), plan.timing.kill_after_us);
    let _it_ends_the_command_the_earlier = minder.send(Order::Until { kill_us: deadline.kill_at_us() });
    let mut terminal = match Terminal::open() {
        Ok(terminal) => terminal,
        Err(error) => {
            dismiss(group);
            guard.waive_min_hold();
            return Failure::system("cannot open the terminal, so the command was not started", &error).into();
        }
    };
    if let Some(terminal) = &mut terminal {
        terminal.begin(group);
        // While the terminal is not lent, Ctrl-Z reaches this process and not the command.
        if terminal.lends == Lends::OnDemand {
            let _ctrl_z_stops_us_alone = signals.add(Signal::TSTP);
        }
    }
    let minder = Some(minder);
    let command = match start_command(plan, life, guard, group) {
        Ok(command) => command,
        Err(end) => {
            terminal.iter_mut().for_each(Terminal::take_back);
            dismiss(group);
            guard.waive_min_hold();
            return end;
        }
    };
    let rest = Remaining::Unknown;
    let mut supervisor = Supervisor {
        plan,
        guard,
        life,
        signals,
        printer,
        terminal,
        minder,
        false_starts: 0,
        anchor: None,
        group,
        command,
        status: None,
        rest,
        left_is_reported: false,
        echo: Echo::No,
        handed_on: Vec::new(),
        deadline,
        renewals: RenewalReports::new(&plan.names.to_string(), plan.timing.lease_us, now_us()),
        verdict: None,
    };
    supervisor.send_command_id();
    supervisor.run().await;
    supervisor.end()
}

fn lost_early(lost: &Lost) -> End {
    End::error(LOST, &format!("\"{}\" was lost before the command was started: {}", lost.name(), lost.reason()))
}

fn is_revoked(lost: &Lost) -> bool {
    lost.reason() == LostReason::Revoked
}

/// Returns until when all leases are held. The clock is read first, so that a pause between the two reads makes the result
/// earlier and not later.
fn until_us(guard: &AllGuard) -> u64 {
    let read_us = now_us();
    read_us + micros(guard.remaining())
}

impl Supervisor<'_> {
    async fn run(&mut self) {
        let mut lost = self.guard.lost();
        while self.rest != Remaining::Empty {
            self.check_lease();
            self.carry_out();
            self.check_group();
            let pause = Duration::from_micros(self.next_us().saturating_sub(now_us()));
            let is_lost = self.verdict.is_some();
            tokio::select! {
                biased;
                _ = &mut lost, if !is_lost => {}
                message = message_of(self.minder.as_ref()) => self.received(&message),
                signal = self.signals.next() => self.signalled(signal),
                () = sleep(pause) => {}
            }
        }
    }

    /// Sends a renewal or a loss to the minder.
    fn check_lease(&mut self) {
        if self.verdict.is_some() {
            return;
        }
        // In this order: the lease may end between the two.
        let until_us = until_us(self.guard);
        if let Err(lost) = self.guard.check() {
            self.condemn(&Verdict::Lost(lost));
            return;
        }
        let kill_us = self.plan.timing.kill_us(until_us);
        let before_us = self.deadline.kill_at_us();
        if kill_us.abs_diff(before_us) > SAME_US {
            self.deadline.put_off(kill_us);
            self.send_order(Order::Until { kill_us });
        }
        let report = match kill_us > before_us + SAME_US {
            true => self.renewals.renewed(now_us()),
            false => self.renewals.check(now_us(), self.deadline.next_us()),
        };
        report.iter().for_each(|line| self.printer.news(line));
    }

    /// Ends the group, because the lock is lost or will be. It gets TERM, and KILL before another client can hold the
    /// lock if that time is known.
    fn condemn(&mut self, verdict: &Verdict) {
        if self.verdict.is_some() {
            return;
        }
        self.verdict = Some(verdict.clone());
        let (now_us, timing) = (now_us(), &self.plan.timing);
        let kill_us = match verdict {
            Verdict::Lost(lost) if lost.reason().is_expiry() => now_us,
            Verdict::Lost(lost) if is_revoked(lost) && is_on(Mutant::P29IgnoresGrace) => u64::MAX,
            Verdict::Lost(lost) if is_revoked(lost) => Timing::kill_within(now_us, self.guard.grace()),
            // Another client may already hold the lock; until the command ends, only fencing protects the data.
            Verdict::Lost(_) | Verdict::Late | Verdict::Unminded => self.deadline.kill_at_us(),
        };
        let kill_us = kill_us.min(now_us + timing.kill_after_us);
        self.deadline.bring_forward(kill_us);
        self.send_order(Order::End { kill_us });
        let names = &self.plan.names;
        let why = match verdict {
            Verdict::Lost(lost) if is_revoked(lost) => format!("\"{}\" was revoked", lost.name()),
            Verdict::Lost(lost) => format!("\"{}\" is lost: {}", lost.name(), lost.reason()),
            Verdict::Late => {
                let since = rounded(self.renewals.since(now_us));
                format!("{names} is lost: it could not be renewed in time (last renewed {since} ago)")
            }
            Verdict::Unminded => {
                "cannot start another minder process, which would end the command if this process died".into()
            }
        };
        let what = match self.deadline.kill_at_us().saturating_sub(now_us) {
            0 => "is killed".into(),
            within_us => format!("gets TERM, and KILL in {}", rounded(Duration::from_micros(within_us))),
        };
        self.printer.error(&format!("{why}; the command {what}"));
    }

    fn carry_out(&mut self) {
        match self.deadline.due(now_us()) {
            None => {}
            // The minder sends TERM at the same time.
            Some(Act::Term) if self.minder.is_some() => self.condemn(&Verdict::Late),
            Some(due) => {
                self.act(due);
                self.condemn(&Verdict::Late);
            }
        }
    }

    fn send_order(&self, order: Order) {
        if let Some(minder) = &self.minder {
            let _it_ends_the_command_by_itself = minder.send(order);
        }
    }

    fn next_us(&self) -> u64 {
        let check_us = match self.rest {
            Remaining::Inhabited { check_us } => check_us,
            Remaining::Unknown | Remaining::Asked | Remaining::Empty => u64::MAX,
        };
        check_us.min(self.deadline.next_us()).min(now_us() + self.plan.timing.tick_us())
    }

    /// Checks whether the group has members left, once the command has ended.
    fn check_group(&mut self) {
        let is_due = match self.rest {
            Remaining::Unknown => true,
            Remaining::Inhabited { check_us } => check_us <= now_us(),
            Remaining::Asked | Remaining::Empty => false,
        };
        if self.status.is_none() || !is_due {
            return;
        }
        match &self.minder {
            _ if is_on(Mutant::P29ReleasesEarly) => self.rest = Remaining::Empty,
            Some(minder) => {
                // If the order is not sent, there is no reply: the next tick asks again.
                self.rest = if minder.send(Order::Check).is_ok() { Remaining::Asked } else { Remaining::Unknown };
            }
            None => {
                self.reap_others();
                self.found(members(self.group));
            }
        }
    }

    fn found(&mut self, members: Members) {
        match members {
            Members::None => self.rest = Remaining::Empty,
            // Processes that got KILL are gone in a moment.
            Members::Some if self.deadline.is_killed() => {
                self.rest = Remaining::Inhabited { check_us: now_us() + CHECK_SOON_US }
            }
            Members::Some => self.rest = Remaining::Inhabited { check_us: now_us() + CHECK_US },
        }
    }

    fn received(&mut self, message: &io::Result<Message>) {
        match message {
            Ok(Message::Ready) => self.false_starts = 0,
            Ok(Message::TermSent) => self.condemn(&Verdict::Late),
            Ok(Message::Empty) => self.found(Members::None),
            Ok(Message::Inhabited) => {
                if self.verdict.is_none() && !self.left_is_reported {
                    self.left_is_reported = true;
                    self.printer.news(&format!(
                        "the command has ended and left processes behind: {} is held until they have ended, too",
                        self.plan.names
                    ));
                }
                self.found(Members::Some);
            }
            Err(_) => self.minder_ended(),
        }
    }

    /// Returns the signal of the keyboard that ended the command, and that is passed on to the script around this process.
    fn interrupt(&self) -> Option<Signal> {
        let by = self.status?.terminating_signal()?;
        let key = KEYS.into_iter().find(|key| key.as_raw() == by && !self.handed_on.contains(key));
        key.filter(|_| self.terminal.as_ref().is_some_and(Terminal::is_lent))
    }

    /// Returns the end of the run, when no process of the group is left.
    fn end(mut self) -> End {
        if let Some(minder) = self.minder.take() {
            dismiss(minder.pid);
        }
        let interrupt = self.interrupt();
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
            if self.status.is_none_or(|status| status.signaled()) {
                terminal.restore();
            }
        }
        match (&self.verdict, self.status) {
            (Some(Verdict::Unminded), _) => End::silent(FAILED),
            (Some(_), _) => End::silent(LOST),
            (None, Some(status)) => End { interrupt, ..End::status(status) },
            (None, None) => End::error(FAILED, &"cannot determine the exit status of the command"),
        }
    }
}

async fn message_of(minder: Option<&MinderHandle>) -> io::Result<Message> {
    match minder {
        Some(minder) => minder.message().await,
        None => std::future::pending().await,
    }
}
