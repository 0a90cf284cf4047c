//! `leasehold elect`: runs a command while this candidate leads, again and again.
//!
//! A leader is the holder of a mutex whose label is its value. So each term of office is a `leasehold run`, with the same
//! processes and the same promises. This file adds what comes between two terms: whether to campaign again.
//!
//! | end of a term | what follows |
//! |---|---|
//! | the command has ended, whatever its status | the next campaign, after a pause |
//! | the leadership is lost | the same |
//! | a signal has asked this process to end | the end, with the status of the command |
//! | the command cannot be started, or the store refuses | the end, with an error |

mod help;
mod observe;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use leasehold_spec::limits::LABEL_MAX;
use tokio::time::sleep;

use super::end::{End, FAILED, LOST, Why};
use super::names::{Names, Share};
use super::plan::{Patience, Plan, Waiting, label};
use super::printer::Printer;
use super::signals::Signals;
use super::timing::Timing;
use super::{finish, refuse, report, under_lock};
use crate::args;
use crate::exit::Failure;
use crate::store::Location;

/// The pause between two campaigns. Other candidates lead meanwhile, and a command that fails at once is not started more
/// often.
const PAUSE: Duration = Duration::from_secs(1);

/// Run a command while this candidate leads, and end it before the leadership is lost
#[derive(Debug, Args)]
#[command(long_about = help::ABOUT, after_long_help = help::MORE, after_help = help::SHORT)]
pub(crate) struct ElectArgs {
    /// The election: all candidates of one election use the same name
    #[arg(value_name = "NAME", value_parser = args::name)]
    name: String,

    /// The command and its arguments; they are not read by a shell
    #[arg(last = true, required_unless_present = "observe", value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    store: args::Store,

    /// What others see of this leader [default: USER@HOST/PID CMD]
    ///
    /// For example an address: 1 to 256 bytes without control characters.
    #[arg(long, value_name = "TEXT", verbatim_doc_comment, value_parser = value)]
    value: Option<String>,

    /// End when CMD ends or the leadership is lost
    ///
    /// Without this option, the candidate campaigns again, behind the
    /// candidates that wait, until a signal ends it.
    #[arg(long, verbatim_doc_comment)]
    once: bool,

    /// Time a dead leader keeps the leadership [default: 30s]
    ///
    /// From 1s to 24h. All candidates of an election use the same time.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = args::duration)]
    lease: Option<Duration>,

    /// Time between TERM and KILL for the command
    ///
    /// As in `leasehold run`.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = args::duration)]
    kill_after: Option<Duration>,

    /// Print each leader, and run nothing
    #[arg(long, conflicts_with_all = ["command", "value", "once", "kill_after"])]
    observe: bool,

    /// With --observe: print one line of JSON for each leader
    #[arg(long, requires = "observe", conflicts_with = "command")]
    json: bool,
}

fn value(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > LABEL_MAX || text.chars().any(char::is_control) {
        return Err(format!("expected a text of 1 to {LABEL_MAX} bytes without control characters"));
    }
    Ok(text.to_owned())
}

impl ElectArgs {
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let location = Location::of(&self.store)?;
        let lease = match self.lease {
            Some(lease) => lease,
            None => leasehold::seam::default_lease(&location.url)?,
        };
        Ok(Plan {
            timing: Timing::new(lease, self.kill_after).map_err(Failure::usage)?,
            location,
            holder: self.value.unwrap_or_else(|| label(&self.command)),
            names: Names::new(vec![self.name], Share::Leader).map_err(Failure::usage)?,
            command: self.command,
            patience: Patience::Both(Waiting::ForEver),
            lease,
            min_hold: Duration::ZERO,
            busy_code: super::end::BUSY,
            is_quiet: self.store.quiet,
        })
    }
}

/// Campaigns, or observes, and returns the exit status for the caller.
pub(crate) fn elect(args: ElectArgs) -> ExitCode {
    if args.observe {
        return observe::run(&args);
    }
    let is_once = args.once;
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(why) => return refuse(&why),
    };
    let mut printer = Printer::new(plan.is_quiet);
    if let Some(notice) = plan.location.notice() {
        printer.news(&notice);
    }
    let end = match crate::runtime() {
        Ok(runtime) => runtime.block_on(campaign(&plan, is_once, &mut printer)),
        Err(failure) => failure.into(),
    };
    finish(&end, printer)
}

/// Campaigns until a term of office is the last one.
async fn campaign(plan: &Plan, is_once: bool, printer: &mut Printer) -> End {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return Failure::system("cannot listen for signals", &error).into(),
    };
    loop {
        let end = under_lock(plan, &mut signals, printer).await;
        if is_once || !may_go_on(&end) || signals.has_asked_to_end(end.code) {
            return end;
        }
        report(&end, printer);
        tokio::select! {
            biased;
            signal = signals.leave() => return End::signal(signal),
            () = sleep(PAUSE) => {}
        }
    }
}

/// Whether another term may follow: the command was started, or the leadership was lost before.
fn may_go_on(end: &End) -> bool {
    match end.why {
        _ if end.interrupt.is_some() => false,
        Why::Silent => end.code != FAILED,
        Why::News(_) | Why::Error(_) => end.code == LOST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    #[test]
    fn a_term_that_has_begun_is_followed_by_another() {
        let refused = Failure::usage("no such store");
        let ends = [
            (End::silent(0), true),
            (End::silent(1), true),
            (End::silent(LOST), true),
            (End::error(LOST, &"lost before the command was started"), true),
            (End { interrupt: Some(Signal::INT), ..End::silent(130) }, false),
            (End::error(super::super::end::NOT_FOUND, &"no such command"), false),
            (refused.into(), false),
        ];
        for (end, goes_on) in ends {
            assert_eq!(may_go_on(&end), goes_on, "{end:?}");
        }
    }

    #[test]
    fn a_value_is_short_and_printable() {
        assert_eq!(value("10.0.0.3:7000").unwrap(), "10.0.0.3:7000");
        for bad in ["", "two\nlines", &"x".repeat(LABEL_MAX + 1)] {
            assert!(value(bad).unwrap_err().starts_with("expected a text of 1 to 256 bytes"));
        }
    }
}
