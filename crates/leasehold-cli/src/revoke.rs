//! `leasehold revoke`: takes a lock away from its holder.

use std::time::Duration;

use leasehold::{Holder, Inspection, Mutex, Revoked};
use serde::Serialize;

use crate::args::Revoke;
use crate::exit::{Exit, Failure};
use crate::json::HeldBy;
use crate::show;
use crate::store::{self, Location};

/// The result, as `--json` prints it.
#[derive(Serialize)]
struct Outcome<'a> {
    name: &'a str,
    is_revoked: bool,
    /// The time until the next client can hold the lock, at most.
    ends_within_ms: Option<u64>,
    holder: Option<HeldBy<'a>>,
}

pub(crate) fn run(args: &Revoke) -> Result<Exit, Failure> {
    let location = Location::of(&args.store)?;
    if let Some(notice) = location.notice().filter(|_| !args.store.quiet) {
        show::warn(&notice);
    }
    let (holder, left) = crate::block_on(async {
        let client = store::connect_to(&location).await?;
        let mutex = client.mutex(&args.name);
        let seen = mutex.inspect().await?;
        if !seen.is_known() {
            // The lines of the nodes give the reasons.
            return Err(Failure::own(show::lines(&args.name, &seen).join("\n")));
        }
        let holder = meant(args, &seen)?.cloned();
        let left = match &holder {
            Some(holder) if is_meant(args, holder) => revoke(args, &mutex, holder).await?,
            _ => None,
        };
        Ok((holder, left))
    })?;
    let line = match args.form.json {
        true => show::json(&Outcome {
            name: &args.name,
            is_revoked: left.is_some(),
            ends_within_ms: left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            holder: holder.as_ref().map(HeldBy::new),
        })?,
        false => sentence(args, holder.as_ref(), left),
    };
    show::print(&[line])?;
    Ok(if left.is_some() { Exit::Done } else { Exit::Nothing })
}

/// Returns the holder that the user means. Without such a holder, it is the first one.
///
/// # Errors
/// If there are several, and the user names none.
fn meant<'a>(args: &Revoke, seen: &'a Inspection) -> Result<Option<&'a Holder>, Failure> {
    if args.token.is_none() && seen.holder_count > 1 {
        return Err(Failure::usage(format!(
            "\"{}\" has {} holders: name one with --token N; 'leasehold inspect' shows the tokens",
            args.name, seen.holder_count
        )));
    }
    Ok(seen.holders.iter().find(|holder| is_meant(args, holder)).or(seen.holder()))
}

fn is_meant(args: &Revoke, holder: &Holder) -> bool {
    args.token.is_none_or(|token| token == holder.token.get())
}

/// Revokes the lease of this holder. Returns for how long it may still hold the lock, or `None` if it no longer does. A
/// later holder is not affected.
async fn revoke(args: &Revoke, mutex: &Mutex, holder: &Holder) -> Result<Option<Duration>, Failure> {
    let grace = if args.now { Duration::ZERO } else { args.grace };
    match mutex.revoke(holder, grace).await? {
        Revoked::Within(left) => Ok(Some(left)),
        Revoked::NotHeld => Ok(None),
    }
}

fn sentence(args: &Revoke, holder: Option<&Holder>, left: Option<Duration>) -> String {
    let name = &args.name;
    match (holder, left) {
        (Some(holder), Some(left)) if left.is_zero() => {
            format!("{name}: revoked; taken from {} (token {}) at once", show::plain(&holder.label), holder.token)
        }
        (Some(holder), Some(left)) => {
            let (label, left) = (show::plain(&holder.label), left.as_secs_f64());
            format!("{name}: revoked; {label} (token {}) holds it for at most another {left:.1} s", holder.token)
        }
        (Some(holder), None) if !is_meant(args, holder) => {
            format!("{name}: not revoked: it is held with token {}", holder.token)
        }
        (Some(_), None) => format!("{name}: not revoked: it was released in the meantime"),
        (None, _) => format!("{name}: free; nothing to revoke"),
    }
}
