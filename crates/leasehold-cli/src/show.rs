//! Output: locks as text for people and as JSON for programs.

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use humantime::{format_duration, format_rfc3339_micros, format_rfc3339_seconds};
use leasehold::{Holder, Inspection, NodeSays, NodeView};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// A lock, as `--json` prints it.
#[derive(Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    state: &'static str,
    holder: Option<HeldBy<'a>>,
    waiters: usize,
    /// Empty if the store is not a quorum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Node<'a>>,
}

/// The reply of a node of a quorum, as `--json` prints it.
#[derive(Serialize)]
struct Node<'a> {
    at: &'a str,
    state: &'static str,
    holder: Option<HeldBy<'a>>,
    rests_ms: Option<u64>,
    why: Option<&'a str>,
}

/// The holder of a lock, as `--json` prints it.
#[derive(Serialize)]
pub(crate) struct HeldBy<'a> {
    label: &'a str,
    grant: String,
    token: u64,
    /// RFC 3339, by the clock of the store.
    held_since: String,
    remaining_ms: u64,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(name: &'a str, inspection: &'a Inspection) -> Self {
        let holder = inspection.holder();
        let state = match holder {
            None if inspection.is_known() => "free",
            None => "unknown",
            Some(holder) if holder.is_revoked => "revoked",
            Some(holder) if holder.is_cooling_down => "cooling_down",
            Some(_) => "held",
        };
        let nodes = inspection.nodes.iter().map(Node::new).collect();
        Self { name, state, holder: holder.map(HeldBy::new), waiters: inspection.waiters, nodes }
    }
}

impl<'a> Node<'a> {
    fn new(node: &'a NodeView) -> Self {
        let silent = Self { at: &node.at, state: "unknown", holder: None, rests_ms: None, why: None };
        match &node.says {
            NodeSays::Voted(holder) => Self { state: "voted", holder: Some(HeldBy::new(holder)), ..silent },
            NodeSays::Free => Self { state: "free", ..silent },
            NodeSays::Resting { left } => Self { state: "resting", rests_ms: Some(ms(*left)), ..silent },
            NodeSays::Nothing { why } => Self { why: Some(why), ..silent },
            _ => silent,
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> HeldBy<'a> {
    pub(crate) fn new(holder: &'a Holder) -> Self {
        Self {
            label: &holder.label,
            grant: holder.id(),
            token: holder.token.get(),
            held_since: format_rfc3339_micros(holder.held_since()).to_string(),
            remaining_ms: ms(holder.remaining),
        }
    }
}

/// Returns since when a lock is held, by the clock of the store, as `2026-11-24 23:43:04`.
pub(crate) fn since(holder: &Holder) -> String {
    format_rfc3339_seconds(holder.held_since()).to_string().replace('T', " ").replace('Z', "")
}

/// Returns for how long a lock is held. This machine's clock may be behind that of the store: then it is no time.
fn held_for(holder: &Holder, now: SystemTime) -> String {
    let held = now.duration_since(holder.held_since()).unwrap_or_default();
    format_duration(Duration::from_secs(held.as_secs())).to_string()
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
    let Some(holder) = inspection.holder() else {
        return match inspection.is_known() {
            true => format!("{name}: free; {waiting}"),
            false => format!("{name}: unknown: too few nodes vote to tell whether it is held; {waiting}"),
        };
    };
    let revoked = if holder.is_revoked { ", revoked" } else { "" };
    if holder.is_cooling_down {
        return format!(
            "{name}: released by {} (grant {}), and kept for its minimum hold; token {}; {:.1} s left; {waiting}",
            plain(&holder.label),
            holder.id(),
            holder.token,
            holder.remaining.as_secs_f64(),
        );
    }
    format!(
        "{name}: held by {} (grant {}){revoked}; held since {} UTC ({}); token {}; {:.1} s left; {waiting}",
        plain(&holder.label),
        holder.id(),
        since(holder),
        held_for(holder, SystemTime::now()),
        holder.token,
        holder.remaining.as_secs_f64(),
    )
}

/// Returns the exit status for an inspection.
pub(crate) fn exit(inspection: &Inspection) -> Exit {
    if inspection.is_known() { Exit::Done } else { Exit::Failed }
}

/// Returns a line for the reply of each node of a quorum. The lines follow the sentence about the lock.
pub(crate) fn nodes(inspection: &Inspection) -> Vec<String> {
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
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_label_are_escaped() {
        assert_eq!(plain("host/job: Ä"), "host/job: Ä");
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }

    async fn held(label: &str) -> (leasehold::Guard, Inspection) {
        let client = leasehold::Leasehold::builder("memory:").holder(label).connect().await.unwrap();
        let guard = client.mutex("a").fixed_lease(Duration::from_secs(60)).lock().await.unwrap();
        let mut inspection = client.mutex("a").inspect().await.unwrap();
        inspection.holders.first_mut().unwrap().remaining = Duration::from_millis(24_100);
        (guard, inspection)
    }

    #[tokio::test]
    async fn each_node_of_a_quorum_has_its_line() {
        let (guard, mut inspection) = held("host/job").await;
        let (_other, other) = held("host/other").await;
        assert_eq!(nodes(&inspection), Vec::<String>::new(), "no quorum");
        let (holder, other) = (inspection.holder().cloned().unwrap(), other.holder().cloned().unwrap());
        let mut revoked = holder.clone();
        (revoked.is_revoked, revoked.remaining) = (true, Duration::from_millis(4_900));
        let (id, token) = (other.id(), other.token);
        inspection.nodes = vec![
            NodeView::new("a:6379", NodeSays::Voted(holder)),
            NodeView::new("b.example:7000", NodeSays::Voted(revoked)),
            NodeView::new("c:6379", NodeSays::Voted(other)),
            NodeView::new("d:6379", NodeSays::Free),
            NodeView::new("e:6379", NodeSays::Resting { left: Duration::from_millis(41_001) }),
            NodeView::new("f:6379", NodeSays::Nothing { why: "cannot\u{7}reach".to_owned() }),
        ];
        let lines = [
            "  a:6379          voted for the holder; 24.1 s left".to_owned(),
            "  b.example:7000  voted for the holder, revoked; 4.9 s left".to_owned(),
            format!("  c:6379          voted for host/other (grant {id}); token {token}; 24.1 s left"),
            "  d:6379          free".to_owned(),
            "  e:6379          no vote: in quarantine for another 42 s, because it may have forgotten votes".to_owned(),
            "  f:6379          no reply: cannot\\u{7}reach".to_owned(),
        ];
        assert_eq!(nodes(&inspection), lines);
        // Without a majority, each line names the holder that the node voted for.
        inspection.holders.clear();
        assert_eq!((sentence("a", &inspection), exit(&inspection)), (unknown(), Exit::Failed), "two, and two more may");
        assert!(nodes(&inspection)[0].contains("voted for host/job (grant "), "{:?}", nodes(&inspection));
        assert!(guard.is_valid());
    }

    #[tokio::test]
    async fn the_time_of_the_grant_is_shown_in_utc() {
        let (_guard, mut inspection) = held("host/job").await;
        let holder = inspection.holders.first_mut().unwrap();
        holder.token = leasehold::Token::new(1_795_563_784_123_456).unwrap();
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(held_for(holder, at(1_795_563_784 + 193)), "3m 12s");
        assert_eq!(held_for(holder, at(1_795_563_000)), "0s", "the clock of the store is ahead");
        let id = holder.id();
        let shown = sentence("a", &inspection);
        let wanted = format!("a: held by host/job (grant {id}); held since 2026-11-24 23:43:04 UTC (");
        assert!(shown.starts_with(&wanted), "{shown}");
        assert!(shown.ends_with("); token 1795563784123456; 24.1 s left; nobody waits"), "{shown}");
        let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
        assert_eq!(told["holder"]["held_since"], "2026-11-24T23:43:04.123456Z");
    }

    fn unknown() -> String {
        "a: unknown: too few nodes vote to tell whether it is held; no waiter is known".to_owned()
    }

    #[tokio::test]
    async fn a_lock_without_a_known_majority_is_not_shown_as_free() {
        let (guard, inspection) = held("host/job").await;
        let voted = || NodeSays::Voted(inspection.holder().cloned().unwrap());
        let rests = || NodeSays::Resting { left: Duration::from_secs(9) };
        let silent = || NodeSays::Nothing { why: "silent".to_owned() };
        let free = || NodeSays::Free;
        for (says, is_known) in [
            (vec![], true),
            (vec![free(), free(), free()], true),
            (vec![free(), free(), rests()], true),
            (vec![free(), rests(), rests()], false),
            (vec![rests(), rests(), rests()], false),
            (vec![free(), silent(), rests()], false),
            // The node that does not reply may have one more vote.
            (vec![free(), free(), silent(), silent(), voted()], false),
            (vec![free(), free(), free(), silent(), voted()], true),
        ] {
            let (case, mut inspection) = (format!("{says:?}"), inspection.clone());
            inspection.holders.clear();
            inspection.nodes = says.into_iter().map(|says| NodeView::new("a:1", says)).collect();
            let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
            let shown = (sentence("a", &inspection), exit(&inspection), told["state"].as_str().unwrap().to_owned());
            let wanted = match is_known {
                true => ("a: free; nobody waits".to_owned(), Exit::Done, "free".to_owned()),
                false => (unknown(), Exit::Failed, "unknown".to_owned()),
            };
            assert_eq!(shown, wanted, "{case}");
        }
        assert!(guard.is_valid());
    }

    #[tokio::test]
    async fn json_has_the_nodes_too() {
        let (_guard, mut inspection) = held("host/job").await;
        let alone = json(&Lock::new("a", &inspection)).unwrap();
        assert!(!alone.contains("nodes"), "{alone}");
        inspection.nodes = vec![
            NodeView::new("a:1", NodeSays::Voted(inspection.holder().cloned().unwrap())),
            NodeView::new("b:2", NodeSays::Resting { left: Duration::from_millis(1_500) }),
            NodeView::new("c:3", NodeSays::Nothing { why: "silent".to_owned() }),
            NodeView::new("d:4", NodeSays::Free),
        ];
        let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
        let states: Vec<_> = told["nodes"].as_array().unwrap().iter().map(|node| node["state"].clone()).collect();
        assert_eq!(states, ["voted", "resting", "unknown", "free"]);
        assert_eq!((&told["nodes"][0]["at"], &told["nodes"][0]["holder"]), (&"a:1".into(), &told["holder"]));
        assert_eq!((&told["nodes"][1]["rests_ms"], &told["nodes"][2]["why"]), (&1_500.into(), &"silent".into()));
    }
}
