//! The messages and markers of a node.

use leasehold_spec::node::{Bell, Marker, Rings};
use leasehold_spec::{Contention, Name};
use leasehold_testkit::differential::key;

/// Returns the message of a bell, as channel and text.
pub(crate) fn message(name: &Name, bell: &Bell) -> (String, String) {
    let Bell { to, now_us, highest, contention, id, rings } = bell;
    let (event, of, left) = match rings {
        Rings::Call => ('C', "-".to_owned(), "-".to_owned()),
        Rings::Wanted { token } => ('W', format!("{:016}", token.get()), "-".to_owned()),
        Rings::Revoked { token, left_us } => ('R', format!("{:016}", token.get()), left_us.to_string()),
        Rings::Ending { token, left_us } => ('E', format!("{:016}", token.get()), left_us.to_string()),
    };
    let contention = match contention {
        Contention::None => 'N',
        Contention::Others => 'O',
        Contention::Strict => 'S',
    };
    let key = key("lq1:", name.as_str());
    let text = format!("lq1 {event} {} {:016} {now_us} {contention} {of} {left} {key}", id.wire(), highest.get());
    (format!("lq1:inbox:{to}"), text)
}

/// Returns a marker in its stored form.
pub(crate) fn written(marker: &Marker) -> String {
    let Marker { charter, run, forgets, rests_until_us, was_used } = marker;
    let (memory, past) = (if *forgets { "F" } else { "K" }, if *was_used { "U" } else { "N" });
    format!("lq1m{rests_until_us:016}{:04}{:08}{memory}{past}{run}", charter.nodes, charter.max_lease_ms)
}
