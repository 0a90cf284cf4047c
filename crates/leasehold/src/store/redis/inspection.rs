//! The reply to inspect. The scripts of every kind of name say the same sentence.
//!
//! ```text
//!   INSPECTED … kind limit units holders waiters {h since length state token public-id units mode label}
//!                                                {w limit public-id units mode label}
//! ```
//!
//! A label may have blanks in it. So it begins with its number of bytes, in three digits, as in a record. docs/PROTOCOL.md
//! has the meaning of each word.

use leasehold_spec::limits::SHOWN_MAX;
use leasehold_spec::{GrantState, Holder, Inspection, ShownMode, Waiter};

use super::pool::call::kind;
use super::words::Words;

/// Reads the words after the level, `rest` and the claim, which every reply has. Returns `None` for garbage.
pub(super) fn inspection(mut words: Words<'_>, now_us: u64) -> Option<Inspection> {
    let kind = kind(words.next()?)?;
    let (limit, units) = (small(&mut words)?, small(&mut words)?);
    let (grants, waiters) = (words.number()?, words.number()?);
    let (mut holders, mut queue) = (Vec::new(), Vec::new());
    while !words.is_at_end() {
        match words.next()? {
            "h" if queue.is_empty() => holders.push(holder(&mut words, now_us)?),
            "w" => queue.push(waiter(&mut words, now_us)?),
            _ => return None,
        }
    }
    let is_sorted = holders.is_sorted_by(|one, next| one.token < next.token);
    let is_counted = holders.len() as u64 <= grants && queue.len() as u64 <= waiters;
    let is_sound = is_sorted && is_counted && holders.len().max(queue.len()) <= SHOWN_MAX;
    is_sound.then_some(Inspection { kind, limit, units, holders, grants, queue, waiters })
}

fn holder(words: &mut Words<'_>, now_us: u64) -> Option<Holder> {
    let (left_us, length_us) = words.lease_us(now_us)?;
    let state = match words.next()? {
        "H" => GrantState::Held,
        "P" => GrantState::Pushed,
        "R" => GrantState::Revoked,
        "C" => GrantState::CoolingDown,
        _ => return None,
    };
    let (token, id) = (words.token()?, words.public_id()?);
    let (units, mode) = (small(words)?, mode(words)?);
    // If the lease begins in the future, because the server's clock was set back, its length is left.
    let left_us = left_us.min(length_us);
    Some(Holder { id, token, left_us, label: words.label()?.to_owned(), state, units, mode })
}

fn waiter(words: &mut Words<'_>, now_us: u64) -> Option<Waiter> {
    let left_us = match words.number()? {
        0 => None,
        limit_us => Some(limit_us.saturating_sub(now_us)),
    };
    let id = words.public_id()?;
    let (units, mode) = (small(words)?, mode(words)?);
    Some(Waiter { id, units, mode, left_us, label: words.label()?.to_owned() })
}

fn mode(words: &mut Words<'_>) -> Option<ShownMode> {
    match words.next()? {
        "P" => Some(ShownMode::Plain),
        "U" => Some(ShownMode::Upgradeable),
        "I" => Some(ShownMode::Upgrade),
        _ => None,
    }
}

/// Reads a number of units.
fn small(words: &mut Words<'_>) -> Option<u32> {
    words.number()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use leasehold_spec::Kind;

    use super::*;

    const SESSION: &str = "000000000000000000000000000000070000000000000001";

    fn read(text: &str) -> Option<Inspection> {
        inspection(Words::of(text), 1_000_000)
    }

    fn label(text: &str) -> Option<String> {
        read(&format!("M 1 1 1 0 h 1000000 5 H 9 {SESSION} 1 P {text}")).map(|seen| seen.holders[0].label.clone())
    }

    #[test]
    fn a_label_may_look_like_the_rest_of_the_reply() {
        let like = format!("x w 0 {SESSION} 1 P 003abc");
        assert_eq!(label(&format!("{:03}{like}", like.len())), Some(like));
        assert_eq!((label("000"), label("001 ")), (Some(String::new()), Some(" ".to_owned())));
        assert_eq!(label("002ä").as_deref(), Some("ä"));
        for bad in ["", "00", "001", "002x", "001xy", "001ä", "+01x", "001x ", "001x y"] {
            assert_eq!(label(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_pool_is_read_with_all_its_words() {
        let seen = read(&format!(
            "W 100000 2 2 3 h 1000000 5 H 7 {SESSION} 1 U 001a h 0 1001 R 9 {SESSION} 1 P 001b \
             w 1000500 {SESSION} 100000 I 001c w 0 {SESSION} 1 U 001d w 7 {SESSION} 1 P 000"
        ))
        .unwrap();
        assert_eq!((seen.kind, seen.limit, seen.units, seen.grants, seen.waiters), (Kind::ReadWrite, 100_000, 2, 2, 3));
        let holders: Vec<_> = seen.holders.iter().map(|one| (one.token.get(), one.left_us, one.mode)).collect();
        assert_eq!(holders, [(7, 5_000, ShownMode::Upgradeable), (9, 1_000, ShownMode::Plain)]);
        let queue: Vec<_> = seen.queue.iter().map(|one| (one.left_us, one.units, one.mode)).collect();
        let wanted = [
            (Some(500), 100_000, ShownMode::Upgrade),
            (None, 1, ShownMode::Upgradeable),
            (Some(0), 1, ShownMode::Plain),
        ];
        assert_eq!(queue, wanted);
    }

    #[test]
    fn a_reply_that_contradicts_itself_is_garbage() {
        let holder = |token: u64| format!(" h 1000000 5 H {token} {SESSION} 1 P 000");
        let waiter = format!(" w 0 {SESSION} 1 P 000");
        for bad in [
            format!("M 1 1 0 0{}", holder(7)),
            format!("M 1 1 1 0{}{waiter}", holder(7)),
            format!("S 9 2 2 1{}{}", holder(8), holder(7)),
            format!("S 9 2 2 1{}{}", holder(7), holder(7)),
            format!("M 1 1 1 1{waiter}{}", holder(7)),
            format!("M 1 0 0 20{}", waiter.repeat(SHOWN_MAX + 1)),
            format!("M 1 0 0 1 {waiter}"),
            "X 1 0 0 0".to_owned(),
            "M 1 0 0".to_owned(),
            "M 1 0 0 0 ".to_owned(),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
        assert!(read(&format!("M 1 0 0 20{}", waiter.repeat(SHOWN_MAX))).is_some());
    }
}
