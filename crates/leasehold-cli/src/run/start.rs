//! The start of the command. It needs a full lease and a minder that is ready.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use leasehold::seam::descriptors_advice;
use leasehold::{AllGuard, Lost, Token};
use leasehold_spec::mutant::{Mutant, is_on};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::time::{sleep, timeout};

use super::channel::Message;
use super::end::{End, NOT_EXECUTABLE, NOT_FOUND};
use super::life::Life;
use super::minder_handle::MinderHandle;
use super::names::Names;
use super::plan::Plan;
use super::timing::{Deadline, micros};
use crate::exit::Failure;
use crate::show::plain;
use crate::store::VARIABLE;

/// How long a minder may take to become ready, which usually takes milliseconds.
const READY: Duration = Duration::from_secs(5);
/// How many minders are started if none becomes ready.
const STARTS: usize = 3;
/// The command is started if at least this part of the lease is left (one half). Otherwise the next renewal comes first.
const FULL: u64 = 2;

/// Waits for a full lease, which is usually there already. A command that could not be ended within the rest of the lease
/// must not be started.
pub(crate) async fn full(plan: &Plan, guard: &AllGuard) -> Result<(), Lost> {
    while micros(guard.remaining()) < plan.timing.lease_us / FULL && !is_on(Mutant::P29StartsOnClaim) {
        guard.check()?;
        sleep(Duration::from_millis(5)).await;
    }
    guard.check()
}

/// Starts a minder, and waits until it is ready.
pub(crate) async fn start_minder(plan: &Plan, life: &Life, deadline: &Deadline) -> io::Result<MinderHandle> {
    let mut trouble = io::ErrorKind::Other.into();
    for _ in 0..STARTS {
        let minder = MinderHandle::start(plan, life, deadline, None)?;
        match timeout(READY, minder.message()).await {
            Ok(Ok(Message::Ready)) => return Ok(minder),
            Ok(Ok(_)) => trouble = io::ErrorKind::InvalidData.into(),
            Ok(Err(error)) => trouble = error,
            Err(_) => trouble = io::ErrorKind::TimedOut.into(),
        }
        dismiss(minder.pid);
    }
    Err(trouble)
}

/// Kills a child of this process, and waits for its end.
pub(crate) fn dismiss(child: Pid) {
    let _it_has_ended = kill_process(child, Signal::KILL);
    let _it_was_waited_for = waitpid(Some(child), WaitOptions::empty());
}

/// Returns the variables that tell the command what it holds. Names have no line breaks.
fn about(names: &Names, tokens: &[Token]) -> Vec<(&'static str, String)> {
    let numbers: Vec<String> = tokens.iter().map(ToString::to_string).collect();
    let all = names.iter().collect::<Vec<_>>().join("\n");
    let mut variables = vec![("LEASEHOLD_NAMES", all), ("LEASEHOLD_TOKENS", numbers.join(" "))];
    if let (Some(name), [token]) = (names.only(), tokens) {
        variables.extend([("LEASEHOLD_NAME", name.to_owned()), ("LEASEHOLD_TOKEN", token.to_string())]);
    }
    variables
}

pub(crate) fn start_command(plan: &Plan, life: &Life, guard: &AllGuard, group: Pid) -> Result<Pid, End> {
    let program = plan.command.first().expect("clap asks for one");
    let arguments: Vec<&OsString> = plan.command.iter().skip(1).collect();
    let spawn = |program: &OsString, arguments: &[&OsString]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            // A command under several locks must not take the token of a run around it for its own.
            .env_remove("LEASEHOLD_NAME")
            .env_remove("LEASEHOLD_TOKEN")
            .envs(about(&plan.names, &guard.tokens()))
            .process_group(group.as_raw_nonzero().get());
        if !is_on(Mutant::P30TellsSecrets) {
            for secret in &plan.location.secrets {
                command.env_remove(secret);
            }
            // Last, because the variable is one of the secrets.
            if let Some(store) = plan.location.inherited() {
                command.env(VARIABLE, store);
            }
        }
        life.lend(|| command.spawn())
    };
    let spawned = match spawn(program, &arguments) {
        // A script without an interpreter line is run by the shell, as in every other program that starts commands.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            spawn(&"/bin/sh".into(), &[&[program][..], &arguments].concat())
        }
        spawned => spawned,
    };
    spawned.map(|child| Pid::from_child(&child)).map_err(|error| {
        let what = format!("cannot execute {}", plain(&program.to_string_lossy()));
        match error.kind() {
            _ if descriptors_advice(&error).is_some() => Failure::system(&what, &error).into(),
            io::ErrorKind::NotFound if is_shell_line(&plan.command) => {
                End::error(NOT_FOUND, &format!("{what}: {error}; to run a shell command, use: sh -c '...'"))
            }
            io::ErrorKind::NotFound => End::error(NOT_FOUND, &format!("{what}: {error}")),
            _ => End::error(NOT_EXECUTABLE, &format!("{what}: {error}")),
        }
    })
}

/// Returns whether the command is a single argument that looks like a line for a shell, as in `run NAME -- 'a && b'`.
fn is_shell_line(command: &[OsString]) -> bool {
    let is_of_shell = |c: char| c.is_whitespace() || "|&;<>()$`\"'*?{}=".contains(c);
    matches!(command, [line] if line.to_string_lossy().contains(is_of_shell))
}
