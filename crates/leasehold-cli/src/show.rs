//! What a lock looks like, for people and for programs.

use std::borrow::Cow;
use std::io::{self, Write as _};

use leasehold::{Holder, Inspection};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// A lock, as `--json` prints it.
#[derive(Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    state: &'static str,
    holder: Option<HeldBy<'a>>,
    waiters: usize,
}

/// Its holder.
#[derive(Serialize)]
pub(crate) struct HeldBy<'a> {
    label: &'a str,
    grant: String,
    token: u64,
    remaining_ms: u64,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(name: &'a str, inspection: &'a Inspection) -> Self {
        let holder = inspection.holder.as_ref();
        let state = match holder {
            None => "free",
            Some(holder) if holder.is_revoked => "revoked",
            Some(_) => "held",
        };
        Self { name, state, holder: holder.map(HeldBy::new), waiters: inspection.waiters }
    }
}

impl<'a> HeldBy<'a> {
    pub(crate) fn new(holder: &'a Holder) -> Self {
        Self {
            label: &holder.label,
            grant: holder.id(),
            token: holder.token.get(),
            remaining_ms: u64::try_from(holder.remaining.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A lock in a sentence.
pub(crate) fn sentence(name: &str, inspection: &Inspection) -> String {
    let waiting = match inspection.waiters {
        0 => "nobody waits".to_owned(),
        1 => "1 waits".to_owned(),
        many => format!("{many} wait"),
    };
    let Some(holder) = &inspection.holder else { return format!("{name}: free; {waiting}") };
    let told = if holder.is_revoked { ", told to stop" } else { "" };
    format!(
        "{name}: held by {} (grant {}){told}; token {}; {:.1} s left; {waiting}",
        plain(&holder.label),
        holder.id(),
        holder.token,
        holder.remaining.as_secs_f64(),
    )
}

/// Text of somebody else's, without what a terminal would obey. Our clients write no such label; whoever writes to the
/// store by hand can.
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

/// Writes to standard output. Who reads it through a pipe may have gone: that is no error, and no success, as not
/// everything was told.
pub(crate) fn write(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unread()),
        Err(error) => Err(Failure::own(format!("what there is to tell could not be written: {error}"))),
    }
}

/// A line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::own(format!("it could not be written as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_gives_no_orders_to_the_terminal() {
        assert_eq!(plain("host/job: Ä"), "host/job: Ä");
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
