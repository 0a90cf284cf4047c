//! Numbers, times and harm in words.

use std::time::Duration;

use crate::judge::{Harm, Observable};
use crate::redis::seconds;
use crate::scene::{Scene, Timeline};
use crate::text::list;
use crate::world::Found;

/// Writes a number with a comma after each three digits.
pub(super) fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes how long a search took.
pub(super) fn took(took: Duration) -> String {
    let ms = took.as_secs_f64() * 1000.0;
    match ms {
        _ if ms < 1.0 => "< 1 ms".into(),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

/// Writes a time of a schedule.
pub(super) fn time(ms: u64) -> String {
    if (1..100).contains(&ms) { format!("{ms} ms") } else { format!("{} s", seconds(ms)) }
}

/// Writes the first letter as a capital.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Names the observable in one word.
pub(super) const fn kind(seeks: Observable) -> &'static str {
    match seeks {
        Observable::Overlap | Observable::Overstay => "overlap",
        Observable::Stall(_) => "stall",
        Observable::Starvation(_) => "starvation",
        Observable::Herd(_) => "herd",
        Observable::Overrun(_) => "overrun",
    }
}

/// Says which harm the schedule does, as the label of its region.
pub(super) fn harm(harm: Harm, timeline: &Timeline) -> String {
    let name = |thread| timeline.spoken(thread);
    match harm {
        Harm::Overlap(first, second) | Harm::Overstay(first, second) => {
            format!("{} and {} hold at once", name(first.min(second)), name(first.max(second)))
        }
        Harm::Idle(ms) => {
            let waiting = timeline.rows.last().map(|row| &row.waiting[..]).unwrap_or_default();
            let names: Vec<_> = waiting.iter().map(|waiter| name(waiter.thread)).collect();
            let verb = if names.len() == 1 { "waits" } else { "wait" };
            format!("nobody holds for {}, and {} {verb}", time(ms), list(&names))
        }
        Harm::Overtaken(thread, times) => format!("{} is overtaken {times} times", name(thread)),
        Harm::Woken(clients) => format!("one release wakes {clients} clients"),
        Harm::Overrun(thread, ms) => format!("{} waits {} longer than it asked for", name(thread), time(ms)),
        Harm::StaleWrite(thread) | Harm::Refused(thread) => format!("{} writes late", name(thread)),
        Harm::ShutOut(thread) => format!("the fence shuts {} out", name(thread)),
        Harm::TokenOrder(thread) => format!("{} has a token that is too small", name(thread)),
    }
}

/// Says whether a search reached all states.
pub(super) fn states(found: &Found) -> String {
    let states = number(found.states);
    if found.is_whole || found.schedule.is_some() { states } else { format!("{states}, unfinished") }
}

/// Says whether Leasehold kept exclusion.
pub(super) fn exclusion(scene: &Scene, ours: &Found) -> String {
    match (&ours.schedule, scene.ours.permits, ours.overlaps()) {
        (Some((_, harm)), ..) => format!("broken: {}", broken(*harm)),
        (None, Some(_), 1..) => "overlap, permitted".into(),
        _ if !ours.is_whole => "no overlap so far".into(),
        _ => "no overlap".into(),
    }
}

fn broken(harm: Harm) -> &'static str {
    match harm {
        Harm::Overlap(..) | Harm::Overstay(..) => "overlap",
        Harm::TokenOrder(_) => "token order",
        _ => "the harm of the scene",
    }
}

/// Says what a resource that checks tokens sees.
pub(super) fn fenced(ours: &Found) -> String {
    match ours.refused() {
        0 => "no late write".into(),
        1 => "refuses the late write".into(),
        late => format!("refuses {} late writes", number(late)),
    }
}

#[cfg(test)]
mod tests {
    use super::{capital, number, time};

    #[test]
    fn numbers_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_are_short() {
        assert_eq!([0, 1, 900, 2900, 3000].map(time), ["0 s", "1 ms", "0.9 s", "2.9 s", "3 s"]);
    }

    #[test]
    fn a_capital_begins_a_title() {
        assert_eq!(["no lock", "", "S5"].map(capital), ["No lock", "", "S5"]);
    }
}
