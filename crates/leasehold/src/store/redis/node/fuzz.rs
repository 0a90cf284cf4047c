//! Random input for the parsers of a node's client: see `redis/fuzz.rs`.

use leasehold_spec::limits::RANGE_END;
use leasehold_spec::node::{Bell, Rings, Said, Vote};
use leasehold_spec::{GrantState, Holder, Inspection, LostHow, Name, SessionId, ShownMode, Was};
use proptest::prelude::{Just, Strategy, any, prop_oneof};

use super::reply::{To, bell, greeting, parse};
use crate::store::redis::fuzz::{bent, contention, fuzz, id, letter, text, token};
use crate::store::redis::keys::Keys;
use crate::store::redis::words::Reply;

/// Returns a vote, and the reply of the script. No lease ends before the time of the reply.
fn answer() -> impl Strategy<Value = (Vote, String)> {
    let said = (0..16_u8, token(), id(), 0..10_u64.pow(7), 1..=RANGE_END, text());
    let parts = (0..10_u64.pow(15), token(), contention(), any::<bool>(), said);
    parts.prop_map(|(now_us, highest, contention, has_called, (which, token, id, length_ms, range, label))| {
        let left_us = length_ms * 1000;
        let lease = format!(" {now_us:016} {length_ms:08}");
        let public = id.public();
        let (word, said, tail) = match which {
            0 => {
                let granted = Said::Granted { token, range, left_us };
                ("GRANTED", granted, format!(" {:016} {range:08}{lease}", token.get()))
            }
            1 => {
                let refused = Said::Refused { holder: Some(public), left_us };
                ("REFUSED", refused, format!(" {}{lease}", public.wire()))
            }
            2 => ("REFUSED", Said::Refused { holder: None, left_us }, format!(" -{lease}")),
            3 => ("BELOW", Said::Below, String::new()),
            4 => ("FAR", Said::Far, String::new()),
            5 => ("LATE", Said::Late, String::new()),
            6 => ("FULL", Said::Full, String::new()),
            7 => ("RENEWED", Said::Renewed { left_us }, lease),
            8 => ("FILLED", Said::Filled { left_us }, lease),
            9 => ("LOST", Said::Lost { how: LostHow::Revoked }, " revoked".to_owned()),
            10 => ("GIVEN", Said::GivenBack { was: Was::Queued }, " queued".to_owned()),
            11 => ("REVOKING", Said::Revoking { left_us }, format!(" {left_us}")),
            12 => ("NOTHELD", Said::NotHeld, String::new()),
            13 => ("SETTLED", Said::Settled, String::new()),
            14 => ("INSPECTED", Said::Inspected(Inspection::of_mutex(None, length_ms)), format!(" {length_ms}")),
            _ => {
                let tail = format!(" {range}{lease} H {:016} {} {label}", token.get(), public.wire());
                let (state, mode) = (GrantState::Held, ShownMode::Plain);
                let holder = Holder { id: public, token, left_us, label, state, units: 1, mode };
                ("INSPECTED", Said::Inspected(Inspection::of_mutex(Some(holder), range)), tail)
            }
        };
        let called = if has_called { "C" } else { "-" };
        let told = format!("{word} {now_us:016} {:016} {} {called}{tail}", highest.get(), letter(contention));
        (Vote { now_us, highest, contention, has_called, said }, told)
    })
}

fn to() -> impl Strategy<Value = To> {
    prop_oneof![
        (token(), 1..=RANGE_END, 0..10_u64.pow(8)).prop_map(|(token, range, lease_ms)| To::Ask {
            token,
            range,
            lease_ms
        }),
        (0..10_u64.pow(8)).prop_map(|lease_ms| To::Renew { lease_ms }),
        Just(To::GiveBack),
        Just(To::Other),
    ]
}

#[test]
fn an_answer_reads_as_it_was_written() {
    fuzz((to(), answer()), |(to, (vote, told))| match parse(to, &told) {
        Some(Reply::Sound(Ok(read))) => assert_eq!(read, vote, "{told}"),
        other => panic!("{told}: {other:?}"),
    });
}

#[test]
fn a_bent_answer_is_no_panic() {
    let quiet = (prop_oneof![Just('G'), Just('R'), Just('B')], "[0-9]{14,34}").prop_map(|(word, digits)| {
        let mut told = digits;
        told.insert(0, word);
        told
    });
    let told = prop_oneof![answer().prop_map(|(_, told)| told), quiet];
    fuzz((to(), bent(told)), |(to, told)| drop(parse(to, &told)));
}

#[test]
fn a_greeting_that_is_bent_is_no_panic_and_no_other_run() {
    let told = prop_oneof![
        Just("MARKED 1795371563820781 lq1m0000000000000000000300060000KNa1b2".to_owned()),
        Just("UNLIKE 1795371563820781 000300060000".to_owned()),
        Just("FOREIGN list".to_owned()),
    ];
    fuzz(bent(told), |told| {
        assert!(greeting(&told, "another").is_none_or(|greeting| !format!("{greeting:?}").contains("KNa1b2")));
    });
}

fn message() -> impl Strategy<Value = (Name, Bell, String)> {
    let name = text().prop_filter_map("no name", |text| Name::new(&text).ok());
    let parts = (name, id(), token(), any::<u64>(), contention(), (0..4_u8, token(), any::<u64>()));
    parts.prop_map(|(name, id, highest, now_us, contention, (which, token, left_us))| {
        let number = token.get();
        let (event, rings, tail) = match which {
            0 => ("C", Rings::Call, "- -".to_owned()),
            1 => ("W", Rings::Wanted { token }, format!("{number:016} -")),
            2 => ("E", Rings::Ending { token, left_us }, format!("{number:016} {left_us}")),
            _ => ("R", Rings::Revoked { token, left_us }, format!("{number:016} {left_us}")),
        };
        let (key, who) = (Keys::of_node("p:").record(&name), letter(contention));
        let told = format!("lq1 {event} {} {:016} {now_us} {who} {tail} {key}", id.wire(), highest.get());
        (name, Bell { to: id.session, now_us, highest, contention, id, rings }, told)
    })
}

#[test]
fn a_bell_reads_as_it_was_written_and_for_its_session_alone() {
    fuzz(message(), |(name, rung, told)| {
        let keys = Keys::of_node("p:");
        assert_eq!(bell(&keys, rung.to, &told), Some((name, rung.clone())), "{told}");
        assert_eq!(bell(&keys, SessionId(rung.to.0 ^ 1), &told), None, "{told}");
        assert_eq!(bell(&Keys::new("p:"), rung.to, &told), None, "of locks on one Redis");
    });
}

#[test]
fn a_bent_bell_is_no_panic() {
    fuzz((bent(message().prop_map(|(_, _, told)| told)), any::<u128>()), |(told, session)| {
        drop(bell(&Keys::of_node("p:"), SessionId(session), &told));
    });
}
