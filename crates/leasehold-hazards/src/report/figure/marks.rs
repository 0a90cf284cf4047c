//! The marks of a figure: what happens at one step, in one lane.

use super::label;
use crate::client::{ServerId, ThreadId};
use crate::scene::Timeline;
use crate::world::{Action, Row};

/// The place of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Thread(ThreadId),
    Server(ServerId),
}

/// The kind of a mark, which decides its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command that the server carries out.
    Command(ServerId),
    /// A command that the server carries out, and whose reply is lost.
    LostReply(ServerId),
    /// A command that is lost.
    LostRequest(ServerId),
    /// A write to a resource that checks no token.
    Write,
    /// A write with a token.
    Fenced { token: u64, is_accepted: bool },
    /// A step that no server sees.
    Local,
    /// A message from a server, on its way.
    Notified(ServerId),
    /// A thread that has something to do, and pauses.
    Pause,
    /// A fault.
    Fault,
}

/// A mark.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) at: At,
    pub(super) kind: Kind,
    pub(super) label: String,
    /// The second line of the label.
    pub(super) reply: String,
    /// The action in full.
    pub(super) tip: String,
}

/// Returns the marks of the rows of one step.
pub(super) fn marks(timeline: &Timeline, rows: &[Row]) -> Vec<Mark> {
    let is_side = |row: &&Row| matches!(row.action, Action::Enters(_) | Action::Leaves | Action::LoseReply);
    let Some(row) = rows.iter().find(|row| !is_side(row)).or(rows.first()) else { return vec![] };
    let loses_reply = rows.iter().any(|row| row.action == Action::LoseReply);
    let thread = At::Thread(row.thread.unwrap_or_default());
    let mark = |at, kind, label: &str, reply: &str| {
        let answer = row.reply.as_ref().map(|reply| format!(": {reply}")).unwrap_or_default();
        let tip = format!("{} {}{answer}", row.actor, row.what);
        Mark { at, kind, label: label.to_owned(), reply: reply.to_owned(), tip }
    };
    match &row.action {
        Action::Command(server, command, receivers) => {
            let reply = row.reply.as_deref().map(label::reply).unwrap_or_default();
            let asked = match loses_reply {
                true => mark(thread, Kind::LostReply(*server), command.short(), "reply lost"),
                false => mark(thread, Kind::Command(*server), command.short(), &reply),
            };
            let notified = receivers.iter().filter(|receiver| At::Thread(**receiver) != thread);
            let notified = notified.map(|to| mark(At::Thread(*to), Kind::Notified(*server), "message", ""));
            std::iter::once(asked).chain(notified).collect()
        }
        Action::LoseRequest(server, command) => {
            vec![mark(thread, Kind::LostRequest(*server), command.short(), "request lost")]
        }
        Action::LoseReply => vec![mark(thread, Kind::Fault, "reply lost", "")],
        Action::LoseMessage(_) => vec![mark(thread, Kind::Fault, "message", "lost")],
        Action::Message(_) => vec![mark(thread, Kind::Local, "receives", "")],
        Action::Timeout => vec![mark(thread, Kind::Local, "re-check", "")],
        Action::Write { token: None, .. } => vec![mark(thread, Kind::Write, "write", "")],
        Action::Write { token: Some(token), is_accepted } => {
            let kind = Kind::Fenced { token: *token, is_accepted: *is_accepted };
            vec![mark(thread, kind, "write", if *is_accepted { "accepted" } else { "refused" })]
        }
        Action::Enters(_) => vec![mark(thread, Kind::Local, "enters", "")],
        Action::Leaves => vec![mark(thread, Kind::Local, "leaves", "")],
        Action::GivesUp => vec![mark(thread, Kind::Local, "gives up", "")],
        Action::Tick { paused, .. } => {
            paused.iter().map(|thread| mark(At::Thread(*thread), Kind::Pause, "pauses", "")).collect()
        }
        Action::Kill(process) => {
            let is_hit = |thread: &usize| timeline.processes[*thread].0 == *process;
            let hit = (0..timeline.names.len()).filter(is_hit);
            hit.map(|thread| mark(At::Thread(thread), Kind::Fault, "killed", "")).collect()
        }
        Action::Stop(server) => vec![mark(At::Server(*server), Kind::Fault, "stops", "")],
        Action::Restart(server) => vec![mark(At::Server(*server), Kind::Fault, "restarts", "without data")],
        Action::Jump(server, ms) => {
            vec![mark(At::Server(*server), Kind::Fault, "clock jumps", &format!("by {} s", ms / 1000))]
        }
        Action::CutReplica => vec![mark(At::Server(0), Kind::Fault, "replica", "cut off")],
        Action::FailOver => vec![mark(At::Server(0), Kind::Fault, "failover", "to the replica")],
    }
}
