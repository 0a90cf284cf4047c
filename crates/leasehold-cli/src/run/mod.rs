//! `leasehold run`: runs a command under a lock.
//!
//! The holder of a lease can lose it, and an ordinary program does not notice that. So another process must notice it, and
//! end the command before its lease ends (P29). This process must not fail together with the command. Hence there are three
//! processes:
//!
//! ```text
//!   supervisor (the caller's child)      holds the lock, renews it, forwards signals, waits, releases the lock
//!     ├── minder (`minder.rs`)           leads the process group of the command; ends the group before the lease ends
//!     └── the command and its children
//! ```
//!
//! | event | the command is ended by | when |
//! |---|---|---|
//! | the store or the network is down | the minder | TERM and then KILL, before the lease ends |
//! | the lock is revoked | the minder, by order of the supervisor | within the grace |
//! | the store has forgotten the lock | the minder, by order of the supervisor | TERM at once, KILL after `--kill-after` |
//! | the supervisor is killed | the minder, which reads the end of the channel | TERM at once, KILL after `--kill-after` |
//! | the supervisor is stopped, or hangs | the minder, which gets no message of a renewal | before the lease ends |
//! | the minder is killed | nobody: the supervisor starts another | |
//! | the minder is stopped | nobody: the supervisor continues it | |
//! | the machine sleeps | both | at once when it wakes up |
//! | supervisor and minder are both killed | nobody | |
//! | supervisor and minder are both stopped | the first of them that is continued | at once |
//!
//! `plan.rs` interprets the arguments, `take.rs` takes the lock, `supervise.rs` is the main loop, and `timing.rs` has the
//! arithmetic that supervisor and minder share. `reports.rs` decides when a wait or an outage is reported.

mod channel;
mod elect;
mod end;
mod group;
mod help;
mod interrupt;
mod life;
mod minder;
mod minder_handle;
mod names;
mod plan;
mod printer;
mod reports;
mod signals;
mod start;
mod strayed;
mod supervise;
mod take;
mod terminal;
mod timing;

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::Released;
use tokio::time::{Instant, timeout};

pub(crate) use self::elect::{ElectArgs, elect};
use self::end::{End, LOST, Why};
pub(crate) use self::interrupt::{InterruptArgs, run as interrupt};
use self::life::Life;
pub(crate) use self::minder::{MinderArgs, hold_place, run as mind};
use self::plan::Plan;
pub(crate) use self::plan::RunArgs;
use self::printer::Printer;
use self::signals::Signals;
use self::take::{LEAVE, Taken, take};
use self::timing::rounded;
use crate::exit::Failure;

/// How long to wait for the store to confirm the release. The command has ended, and the caller waits for this process.
const RELEASE: Duration = Duration::from_secs(5);

/// Runs the command, and returns the exit status for the caller.
pub(crate) fn run(args: RunArgs) -> ExitCode {
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(why) => return refuse(&why),
    };
    let mut printer = Printer::new(plan.is_quiet);
    if let Some(notice) = plan.location.notice() {
        printer.news(&notice);
    }
    let end = match crate::runtime() {
        Ok(runtime) => runtime.block_on(once(&plan, &mut printer)),
        Err(failure) => failure.into(),
    };
    finish(&end, printer)
}

/// Reports arguments that are invalid.
fn refuse(why: &Failure) -> ExitCode {
    let mut printer = Printer::new(false);
    printer.error(&why.to_string());
    printer.finish();
    why.exit.into()
}

fn report(end: &End, printer: &mut Printer) {
    match &end.why {
        Why::Silent => {}
        Why::News(what) => printer.news(what),
        Why::Error(what) => printer.error(what),
    }
}

fn finish(end: &End, mut printer: Printer) -> ExitCode {
    report(end, &mut printer);
    printer.finish();
    if let Some(signal) = end.interrupt {
        interrupt::pass_on(signal);
    }
    ExitCode::from(end.code)
}

async fn once(plan: &Plan, printer: &mut Printer) -> End {
    match Signals::listen() {
        Ok(mut signals) => under_lock(plan, &mut signals, printer).await,
        Err(error) => Failure::system("cannot listen for signals", &error).into(),
    }
}

/// Takes the lock, runs the command, and releases the lock.
async fn under_lock(plan: &Plan, signals: &mut Signals, printer: &mut Printer) -> End {
    let Taken { client, guard } = match take(plan, signals, printer).await {
        Ok(taken) => taken,
        Err(end) => return end,
    };
    plan.names.announce(&client).await;
    let life = Life::of(&client);
    let end = supervise::supervise(plan, &guard, &life, signals, printer).await;
    // The store may have begun the minimum hold although its reply was lost. Of several leases, another may end last.
    let left = if plan.names.only().is_some() { guard.remaining() } else { plan.lease };
    let ends = Instant::now() + left.max(plan.min_hold);
    let more = guard.remaining().saturating_sub(RELEASE);
    let mut release = pin!(guard.release());
    let mut released = timeout(RELEASE, &mut release).await;
    if released.is_err() && !plan.min_hold.is_zero() {
        // A minimum hold lasts only if the release reaches the store before the lease ends. A signal ends this wait.
        tokio::select! {
            again = timeout(more, &mut release) => released = again,
            _ = signals.leave() => {}
        }
    }
    plan.names.announce(&client).await;
    // A quorum confirms the release with a majority. If the process ended at once, the release to the other nodes might
    // not be written, and their votes would stay until the lease ends. A signal ends this wait, too.
    if matches!(released, Ok(Ok(_))) {
        tokio::select! {
            _closed_or_late = timeout(LEAVE, client.close()) => {}
            _ = signals.leave() => {}
        }
    }
    match released {
        // The lease was lost before the command ended: another client may have held the lock in the meantime.
        Ok(Ok(Released::NotHeld)) if end.code != LOST => End::error(
            LOST,
            &format!("{} was lost while the command ran: the store no longer had the lease at the release", plan.names),
        ),
        Ok(Ok(_)) => end,
        Ok(Err(_)) | Err(_) => {
            let (store, left) = (plan.location.shown(), ends.saturating_duration_since(Instant::now()));
            let until = match left.as_secs() + 1 {
                _ if left.is_zero() => "its lease has ended by now".to_owned(),
                seconds => format!("the lock stays held for up to {}", rounded(Duration::from_secs(seconds))),
            };
            let broken = if plan.min_hold.is_zero() { "" } else { ", and its minimum hold may not be kept" };
            printer.news(&format!("cannot release {}: {store} does not reply; {until}{broken}", plan.names));
            end
        }
    }
}
