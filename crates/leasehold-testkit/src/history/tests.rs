use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::clock::boottime_us;

const EVENTS: usize = 18;

fn one_of_each(recorder: &Recorder) {
    let mut attempt = recorder.attempt("n\n\"ä", "c").share(Share::Shared(3));
    attempt.queued();
    let held = attempt.granted((1 << 53) - 1);
    held.claims(|| true);
    held.claims(|| false);
    held.fenced(Fenced::Accepted(1));
    held.fenced(Fenced::Refused);
    held.counted(4, Answered::Unknown);
    held.counting().wrote(5, Answered::Acknowledged);
    assert_eq!((held.read(|| Some(6)), held.read(|| None)), (Some(6), None));
    held.ended(Ended::Lost("expired".into()));
    recorder.attempt("n", "c").gave_up(GaveUp::Failed("unreachable".into()));
    recorder.excuse("n", Promise::Exclusion, Duration::from_secs(1), "the clock jumps");
    recorder.injected("cut");
    recorder.healed();
    recorder.died("c");
    recorder.residue("keys", 0);
    recorder.record(Event::FinalFenced { name: "n".into(), count: 1 });
    recorder.record(Event::FinalCounted { name: "n".into(), count: 5 });
}

#[test]
fn claims_count_from_before_the_check_and_grants_from_after_the_reply() {
    let recorder = Recorder::in_memory();
    let attempt = recorder.attempt("n", "c");
    let asked = boottime_us();
    let held = attempt.granted(1);
    let mut checked = 0;
    held.claims(|| {
        thread::sleep(Duration::from_millis(2));
        checked = boottime_us();
        true
    });
    let events = recorder.history().events;
    let [
        Event::Asked { at_us: began_us, .. },
        Event::Granted { asked_us, granted_us, .. },
        Event::Claimed { at_us, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert!(began_us == asked_us && *asked_us <= asked && asked <= *granted_us, "{events:?}");
    assert!(granted_us <= at_us && *at_us < checked, "{events:?}");
}

#[test]
fn every_time_is_read_from_the_given_clock() {
    let now = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&now);
    // A clock that advances by one at each read: it shows the order in which it is read.
    let recorder = Recorder::in_memory().on_clock(move || read.fetch_add(1, Ordering::Relaxed));
    let held = recorder.attempt("n", "c").granted(1);
    held.claims(|| now.load(Ordering::Relaxed) == 3);
    let counting = held.counting();
    counting.wrote(0, Answered::Acknowledged);
    recorder.excuse("n", Promise::Tokens, Duration::from_micros(10), "");
    held.read(|| Some(now.load(Ordering::Relaxed)));
    let events = recorder.history().events;
    assert!(matches!(events[1], Event::Granted { asked_us: 0, granted_us: 1, .. }), "{events:?}");
    assert!(matches!(events[2], Event::Claimed { at_us: 2, .. }), "{events:?}");
    assert!(matches!(events[3], Event::Counted { read_us: 3, at_us: 4, .. }), "{events:?}");
    assert!(matches!(events[4], Event::Fault { from_us: 5, to_us: 15, .. }), "{events:?}");
    assert!(matches!(events[5], Event::Read { read_us: 6, number: 7, at_us: 7, .. }), "{events:?}");
}

#[test]
fn attempts_of_clones_have_different_numbers() {
    let recorder = Recorder::in_memory();
    recorder.attempt("n", "c").gave_up(GaveUp::Busy);
    recorder.clone().attempt("n", "c").gave_up(GaveUp::Cancelled);
    let events = recorder.history().events;
    let number = |event: &Event| match event {
        Event::Asked { attempt, .. } | Event::GaveUp { attempt, .. } => *attempt,
        other => panic!("{other:?}"),
    };
    assert_eq!(events.iter().map(number).collect::<Vec<_>>(), [0, 0, 1, 1]);
}

#[test]
fn a_written_history_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let memory = Recorder::in_memory();
    one_of_each(&memory);
    let history = memory.history();
    assert_eq!(history.events.len(), EVENTS);
    history.write(&path).unwrap();
    assert_eq!(History::read(&path).unwrap(), history);
}

#[test]
fn an_incomplete_last_line_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    one_of_each(&Recorder::append_to(&path).unwrap());
    let whole = History::read(&path).unwrap();
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"event\":\"gran").unwrap();
    assert_eq!(History::read(&path).unwrap(), whole);
    file.write_all(b"\n").unwrap();
    assert!(History::read(&path).is_err(), "a broken line in the middle is an error");
}

#[test]
fn parts_of_several_processes_are_one_history() {
    let (one, two) = (Recorder::in_memory(), Recorder::in_memory());
    one_of_each(&one);
    one_of_each(&two);
    let mut history = one.history();
    history.add(two.history());
    assert_eq!(history.events.len(), 2 * EVENTS);
}
