//! `leasehold ls`: lists the locks of a store.

use std::collections::BTreeMap;

use leasehold::{Error, Inspection, Kind, Leasehold, Mode};
use tokio::task::JoinSet;

use crate::args::Ls;
use crate::exit::{Exit, Failure, is_away};
use crate::json::Lock;
use crate::show;
use crate::store;

/// How many locks are inspected at once: enough for a connection with a latency of some milliseconds, and no burden for a
/// busy store.
const AT_ONCE: usize = 64;

pub(crate) fn run(args: &Ls) -> Result<Exit, Failure> {
    let found = crate::block_on(async {
        let client = store::connect(&args.store).await?;
        inspect_all(&client, names(&client, args).await?).await
    })?;
    let seen = found.iter().filter_map(|(name, is)| Some((name.as_str(), is.as_ref().ok()?)));
    let locks: Vec<Seen<'_>> =
        seen.filter(|(_, is)| args.all || is.holder().is_some() || is.waiters > 0 || !is.is_known()).collect();
    let lines = match args.form.json {
        true => locks.iter().map(|(name, is)| show::json(&Lock::new(name, is))).collect::<Result<_, _>>()?,
        false => table(&locks),
    };
    show::print(&lines)?;
    let all_known = locks.iter().all(|(_, is)| is.is_known());
    let mut exit = if all_known { Exit::Done } else { Exit::Failed };
    if lines.is_empty() && found.values().all(Result::is_ok) && !args.store.quiet && !args.form.json {
        show::warn(&nothing(args));
    }
    for error in found.values().filter_map(|is| is.as_ref().err()) {
        show::warn(&error.to_string());
        exit = Exit::Failed;
    }
    Ok(exit)
}

/// Returns the message for an empty table.
fn nothing(args: &Ls) -> String {
    let which = args
        .beginning
        .as_ref()
        .map_or_else(String::new, |beginning| format!(" with a name that starts with \"{}\"", show::plain(beginning)));
    match args.all {
        true => format!("there is no lock{which}"),
        false => format!("no lock{which} is held or waited for"),
    }
}

/// A lock: its name and its state.
type Seen<'a> = (&'a str, &'a Inspection);

async fn names(client: &Leasehold, args: &Ls) -> Result<Vec<String>, Failure> {
    let mut names = client.names().await?;
    if let Some(beginning) = &args.beginning {
        names.retain(|name| name.starts_with(beginning));
    }
    Ok(names)
}

/// Inspects the locks, many at a time, and returns them in the order of their names. An error of one lock is returned with
/// its name: the key of another program must not hide all other locks.
async fn inspect_all(
    client: &Leasehold,
    names: Vec<String>,
) -> Result<BTreeMap<String, Result<Inspection, Error>>, Failure> {
    let mut found = BTreeMap::new();
    let mut asked = JoinSet::new();
    let mut names = names.into_iter();
    loop {
        while asked.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            let mutex = client.mutex(&name);
            asked.spawn(async move { (name, mutex.inspect().await) });
        }
        match asked.join_next().await {
            // The store is unreachable: every other lock would wait as long for the same error.
            Some(Ok((_, Err(error)))) if is_away(&error) => return Err(error.into()),
            Some(Ok((name, inspection))) => drop(found.insert(name, inspection)),
            Some(Err(broken)) => return Err(Failure::own(format!("cannot inspect a lock: {broken}"))),
            None => return Ok(found),
        }
    }
}

/// Returns the lines of the table. The names come last: they may be long, and in any script.
fn table(locks: &[Seen<'_>]) -> Vec<String> {
    const HEAD: [&str; 6] = ["TOKEN", "SINCE (UTC)", "LEFT", "KIND", "WAITING", "HOLDER"];
    if locks.is_empty() {
        return vec![];
    }
    let rows: Vec<([String; 6], &str)> = locks.iter().map(|(name, is)| (cells(is), *name)).collect();
    let width = |at: usize| rows.iter().map(|(cells, _)| cells[at].chars().count()).chain([HEAD[at].len()]).max();
    let widths: Vec<usize> = (0..HEAD.len()).filter_map(width).collect();
    let line = |cells: &[String; 6], name: &str| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.chain([name.to_owned()]).collect::<Vec<_>>().join("  ")
    };
    let head = line(&HEAD.map(str::to_owned), "NAME");
    [head].into_iter().chain(rows.iter().map(|(cells, name)| line(cells, name))).collect()
}

fn cells(is: &Inspection) -> [String; 6] {
    let kind = match is.kind {
        Kind::Semaphore => format!("semaphore {}/{}", is.units, is.limit),
        Kind::ReadWrite if is.holder().is_some_and(|holder| holder.mode == Mode::Write) => "rwlock, written".to_owned(),
        Kind::ReadWrite if is.holder_count > 0 => "rwlock, read".to_owned(),
        Kind::ReadWrite => "rwlock".to_owned(),
        kind => kind.to_string(),
    };
    let waiting = is.waiters.to_string();
    let Some(holder) = is.holder() else {
        let free = if is.is_known() { "(free)" } else { "(unknown)" };
        let none = || "-".to_owned();
        return [none(), none(), none(), kind, waiting, free.to_owned()];
    };
    let revoked = match holder {
        _ if holder.is_revoked => " (revoked)",
        _ if holder.is_cooling_down => " (released, minimum hold)",
        _ => "",
    };
    let left = format!("{:.1} s", holder.remaining.as_secs_f64());
    let more = match is.holder_count {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let by = format!("{}{revoked}{more}", show::plain(&holder.label));
    [holder.token.to_string(), show::since(holder), left, kind, waiting, by]
}
