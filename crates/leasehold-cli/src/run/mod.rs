//! `leasehold run`: a command under a lock.
//!
//! A lock that its holder can lose is no use to a program that does not know about it. So somebody else has to know, and
//! to act: the command is ended before its lease is (P29). That somebody must not be able to fail together with what it
//! watches over. There are three processes:
//!
//! ```text
//!   supervisor (the caller's child)      holds the lock, renews it, hands signals on, waits, gives the lock back
//!     ├── minder (`minder.rs`)           leads the command's process group, knows when the lease ends, ends the group
//!     └── the command, and whom it starts
//! ```
//!
//! | what happens | who ends the command | when |
//! |---|---|---|
//! | the store is away, the network is cut | the minder | TERM, and KILL behind it, before the lease ends |
//! | the lock is revoked | the minder, told by the supervisor | within the grace |
//! | the store has forgotten the lock | the minder, told by the supervisor | TERM at once, KILL after `--kill-after` |
//! | the supervisor is killed | the minder, which reads the end of their channel | TERM at once, KILL after `--kill-after` |
//! | the supervisor is stopped, or hangs | the minder, which hears of no renewal | before the lease ends |
//! | the minder is killed | nobody: the supervisor starts another | |
//! | the minder is stopped | nobody: the supervisor lets it go on | |
//! | the machine sleeps | both, at its waking | at once |
//! | supervisor and minder are both killed | nobody | |
//! | supervisor and minder are both stopped | the first of them to go on | at once |
//!
//! `plan.rs` says what the user said means, `take.rs` takes the lock, `supervise.rs` is the main loop, `timing.rs` the
//! arithmetic that supervisor and minder share.

mod channel;
mod end;
mod group;
mod help;
mod interrupt;
mod life;
mod minder;
mod minder_handle;
mod plan;
mod reports;
mod signals;
mod start;
mod strayed;
mod supervise;
mod take;
mod teller;
mod terminal;
mod timing;

use std::process::ExitCode;
use std::time::Duration;

use leasehold::Released;
use tokio::time::timeout;

use self::end::{End, LOST, Why};
pub(crate) use self::interrupt::{InterruptArgs, run as interrupt};
use self::life::Life;
pub(crate) use self::minder::{MinderArgs, hold_place, run as mind};
use self::plan::Plan;
pub(crate) use self::plan::RunArgs;
use self::signals::Signals;
use self::take::{Taken, take};
use self::teller::Teller;
use self::timing::rounded;
use crate::exit::Failure;

/// How long the store's word on the release is waited for. The command has ended, and its caller waits for us.
const RELEASE: Duration = Duration::from_secs(5);

/// Runs the command, and answers what the caller is told.
pub(crate) fn run(said: RunArgs) -> ExitCode {
    let plan = match said.plan() {
        Ok(plan) => plan,
        Err(why) => {
            let mut teller = Teller::new(false);
            teller.error(&why.to_string());
            teller.finish();
            return why.exit.into();
        }
    };
    let mut teller = Teller::new(plan.is_quiet);
    if let Some(notice) = plan.location.notice() {
        teller.news(&notice);
    }
    let end = match crate::runtime() {
        Ok(runtime) => runtime.block_on(under_lock(&plan, &mut teller)),
        Err(failure) => failure.into(),
    };
    match &end.why {
        Why::Silent => {}
        Why::News(what) => teller.news(what),
        Why::Error(what) => teller.error(what),
    }
    teller.finish();
    if let Some(signal) = end.interrupt {
        interrupt::pass_on(signal);
    }
    ExitCode::from(end.code)
}

async fn under_lock(plan: &Plan, teller: &mut Teller) -> End {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return Failure::system("signals cannot be heard", &error).into(),
    };
    let Taken { client, guard } = match take(plan, &mut signals, teller).await {
        Ok(taken) => taken,
        Err(end) => return end,
    };
    let life = Life::of(&client);
    let end = supervise::supervise(plan, &guard, &life, &mut signals, teller).await;
    let left = guard.remaining();
    let released = timeout(RELEASE, guard.release()).await;
    drop(client);
    match released {
        // It was gone before the command was: somebody else may have held meanwhile.
        Ok(Ok(Released::NotHeld)) if end.code != LOST => End::error(
            LOST,
            &format!(
                "\"{}\" was lost while the command ran: the store no longer had it when it was given back",
                plan.name
            ),
        ),
        Ok(Ok(_)) => end,
        Ok(Err(_)) | Err(_) => {
            let (store, left) = (plan.location.shown(), rounded(Duration::from_secs(left.as_secs() + 1)));
            teller.news(&format!("{store} does not answer: \"{}\" stays locked there for up to {left}", plan.name));
            end
        }
    }
}
