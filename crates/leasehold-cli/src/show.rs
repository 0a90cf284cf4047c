//! Output: locks as text for people. `json.rs` has them for programs.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use humantime::{format_duration, format_rfc3339_seconds};
use leasehold::{Holder, Inspection, Kind, Mode, NodeSays, NodeView, Waiter};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Returns since when a lock is held, by the clock of the store, as `2026-11-24 23:43:04`.
pub(crate) fn since(holder: &Holder) -> String {
    format_rfc3339_seconds(holder.held_since()).to_string().replace('T', " ").replace('Z', "")
}

/// Returns for how long a lock is held. This machine's clock may be behind that of the store: then it is no time.
fn held_for(holder: &Holder, now: SystemTime) -> String {
    let held = now.duration_since(holder.held_since()).unwrap_or_default();
    format_duration(Duration::from_secs(held.as_secs())).to_string()
}

/// Returns a lock as text: a sentence, and then a line for each holder of a pool, each waiter and each node of a quorum.
pub(crate) fn lines(name: &str, inspection: &Inspection) -> Vec<String> {
    let mut lines = vec![sentence(name, inspection)];
    if inspection.kind != Kind::Mutex {
        let holds = |holder: &Holder| format!("  {}: {}", holds(holder.mode, holder.units), held_by(holder));
        lines.extend(inspection.holders.iter().map(holds));
        lines.extend(more(inspection.holder_count, inspection.holders.len(), "holders"));
    }
    lines.extend(inspection.queue.iter().map(waits));
    // A quorum shows no waiters, and counts them in the first line.
    if !inspection.queue.is_empty() {
        lines.extend(more(inspection.waiters, inspection.queue.len(), "waiters"));
    }
    lines.extend(nodes(inspection));
    lines
}

fn more(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("  and {} more {what}", all - shown))
}

/// Returns a lock as a sentence.
pub(crate) fn sentence(name: &str, inspection: &Inspection) -> String {
    let waiting = match (inspection.waiters, inspection.is_known()) {
        (0, true) => "nobody waits".to_owned(),
        (0, false) => "no waiter is known".to_owned(),
        (1, true) => "1 waiter".to_owned(),
        (many, true) => format!("{many} waiters"),
        (many, false) => format!("at least {many} waiters"),
    };
    if inspection.kind != Kind::Mutex {
        return format!("{name}: {}; {waiting}", pool(inspection));
    }
    match inspection.holder() {
        None if inspection.is_known() => format!("{name}: free; {waiting}"),
        None => format!("{name}: unknown: too few nodes vote to tell whether it is held; {waiting}"),
        Some(holder) if holder.is_cooling_down => format!(
            "{name}: released by {} (grant {}), and kept for its minimum hold; token {}; {:.1} s left; {waiting}",
            plain(&holder.label),
            holder.id(),
            holder.token,
            holder.remaining.as_secs_f64(),
        ),
        Some(holder) => format!("{name}: held by {}; {waiting}", held_by(holder)),
    }
}

/// Returns what a name with several holders is, and how much of it is taken.
fn pool(inspection: &Inspection) -> String {
    let Inspection { kind, limit, units, holder_count, .. } = inspection;
    let writes = inspection.holder().is_some_and(|holder| holder.mode == Mode::Write);
    match (kind, holder_count) {
        (Kind::Semaphore, _) => format!("semaphore, {units} of {limit} permits taken"),
        (_, 0) => format!("{kind}, free"),
        (_, 1) if writes => format!("{kind}, 1 writer"),
        (_, 1) => format!("{kind}, 1 reader"),
        (_, readers) => format!("{kind}, {readers} readers"),
    }
}

fn held_by(holder: &Holder) -> String {
    format!(
        "{} (grant {}){}; held since {} UTC ({}); token {}; {:.1} s left",
        plain(&holder.label),
        holder.id(),
        if holder.is_revoked { ", revoked" } else { "" },
        since(holder),
        held_for(holder, SystemTime::now()),
        holder.token,
        holder.remaining.as_secs_f64(),
    )
}

fn holds(mode: Mode, units: u32) -> String {
    match mode {
        Mode::Lock => "holds".to_owned(),
        Mode::Read => "reads".to_owned(),
        Mode::UpgradeableRead => "reads, and may be upgraded".to_owned(),
        Mode::Write => "writes".to_owned(),
        Mode::Permits => format!("holds {}", permits(units)),
        _ => format!("holds {units}"),
    }
}

fn waits(waiter: &Waiter) -> String {
    let what = match waiter.mode {
        Mode::Lock => "waits".to_owned(),
        Mode::Read => "waits to read".to_owned(),
        Mode::UpgradeableRead => "waits to read, with the right to an upgrade".to_owned(),
        Mode::Write => "waits to write".to_owned(),
        Mode::Upgrade => "reads, and waits to write".to_owned(),
        Mode::Permits => format!("waits for {}", permits(waiter.units)),
        _ => format!("waits for {}", waiter.units),
    };
    let left = match waiter.remaining {
        None => String::new(),
        Some(Duration::ZERO) => "; has stopped waiting".to_owned(),
        Some(left) => format!("; for another {:.1} s", left.as_secs_f64()),
    };
    format!("  {what}: {} (grant {}){left}", plain(&waiter.label), waiter.id())
}

fn permits(units: u32) -> String {
    if units == 1 { "1 permit".to_owned() } else { format!("{units} permits") }
}

/// Returns the exit status for an inspection.
pub(crate) fn exit(inspection: &Inspection) -> Exit {
    if inspection.is_known() { Exit::Done } else { Exit::Failed }
}

/// Returns a line for the reply of each node of a quorum. The lines follow the sentence about the lock.
fn nodes(inspection: &Inspection) -> Vec<String> {
    let width = inspection.nodes.iter().map(|node| node.at.chars().count()).max().unwrap_or_default();
    let line = |node: &NodeView| format!("  {:<width$}  {}", node.at, node_says(&node.says, inspection.holder()));
    inspection.nodes.iter().map(line).collect()
}

fn node_says(says: &NodeSays, holder: Option<&Holder>) -> String {
    match says {
        NodeSays::Voted(voted) => {
            let (left, revoked) = (voted.remaining.as_secs_f64(), if voted.is_revoked { ", revoked" } else { "" });
            let is_holder = holder.is_some_and(|holder| holder.id() == voted.id() && holder.token == voted.token);
            match is_holder {
                true => format!("voted for the holder{revoked}; {left:.1} s left"),
                false => {
                    let (label, id, token) = (plain(&voted.label), voted.id(), voted.token);
                    format!("voted for {label} (grant {id}){revoked}; token {token}; {left:.1} s left")
                }
            }
        }
        NodeSays::Free => "free".to_owned(),
        // Rounded up: the node does not vote before the quarantine is over.
        NodeSays::Resting { left } => {
            format!(
                "no vote: in quarantine for another {} s, because it may have forgotten votes",
                left.as_millis().div_ceil(1000)
            )
        }
        NodeSays::Nothing { why } => format!("no reply: {}", plain(why)),
        _ => "reply that this version does not know".to_owned(),
    }
}

/// Escapes the control characters of a text from the store, so that a terminal does not obey them. Labels of this library
/// have none, but anyone with access to the store can write one.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return text.into();
    }
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect::<String>().into()
}

/// Prints lines of data.
pub(crate) fn print(lines: &[String]) -> Result<Exit, Failure> {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    write(text.as_bytes())
}

/// Writes to standard output. A reader that has closed the pipe is not an error. The status is not 0 either, because the
/// output is not complete.
pub(crate) fn write(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes a line to standard error. A failure is ignored: the exit status tells the result.
pub(crate) fn warn(line: &str) {
    let _nobody_reads_it = writeln!(io::stderr(), "leasehold: {line}");
}

/// Turns the result of a write to standard output into the exit of the command.
pub(crate) fn written(result: io::Result<()>) -> Result<Exit, Failure> {
    match result {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unread()),
        Err(error) => Err(Failure::own(format!("cannot write to standard output: {error}"))),
    }
}

/// Returns a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::own(format!("cannot write JSON: {error}")))
}

#[cfg(test)]
#[path = "show_tests.rs"]
mod tests;
