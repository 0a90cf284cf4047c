//! The messages that the scripts publish.

use leasehold_spec::{Contention, Delivery, Event, Name, Rest};
use leasehold_testkit::differential::key;

/// Returns a message without the zeros that a script may write before the rest of a lease.
pub(crate) fn plain(text: &str) -> String {
    let mut words: Vec<_> = text.splitn(10, ' ').map(str::to_owned).collect();
    if let Some(left) = words.get_mut(4).filter(|left| left.parse::<u64>().is_ok()) {
        *left = left.parse::<u64>().unwrap().to_string();
    }
    words.join(" ")
}

/// Returns the channel and the text of a delivery.
pub(crate) fn message(name: &Name, delivery: &Delivery) -> (String, String) {
    let Delivery { to, now_us, contention, rest, id, token, left_us, range, event, .. } = delivery;
    let event = match event {
        Event::Granted => 'G',
        Event::Revoked => 'R',
        Event::Wanted => 'W',
        Event::Ending => 'E',
    };
    let contention = match contention {
        Contention::None => 'N',
        Contention::Others => 'O',
        Contention::Strict => 'S',
    };
    let rest = match rest {
        Rest::Done => 'D',
        Rest::More => 'M',
    };
    let key = key("lh1:", name.as_str());
    (
        format!("lh1:inbox:{to}"),
        format!("lh1 {event} {} {token} {left_us} {now_us} {contention} {rest} {range:08} {key}", id.wire()),
    )
}
