//! `leasehold elect`: candidates, their commands, and observers.

use std::time::Duration;

use leasehold_testkit::{boottime_us, wait_until};
use rustix::process::{Signal, kill_process};

use crate::bench::{Bench, Ended, LONG, NAME, Run, TAKEOVER_SLACK, leasehold};
use crate::worker::Life;

const LEASE: Duration = Duration::from_secs(2);

fn candidate(bench: &Bench, options: &[&str], command: &[impl AsRef<str>]) -> Run {
    let mut elect = leasehold();
    elect.args(["elect", NAME, "--store", &bench.server.url(), "--lease", "2s"]).args(options);
    Run::of(elect.arg("--").args(command.iter().map(AsRef::as_ref)))
}

fn observer(bench: &Bench, options: &[&str]) -> Run {
    Run::of(
        leasehold().args(["elect", NAME, "--observe", "--lease", "2s", "--store", &bench.server.url()]).args(options),
    )
}

/// A command that prints its token and waits for a line.
const WAITS: [&str; 3] = ["sh", "-c", "echo leads $LEASEHOLD_TOKEN; read line; exit 3"];

/// A command that prints its token and does not end by itself.
const LEADS: [&str; 3] = ["sh", "-c", "echo leads $LEASEHOLD_TOKEN; exec sleep 60"];

fn ended_by(run: Run, signal: Signal) -> Ended {
    run.signal(signal);
    run.ends()
}

/// A killed leader takes its command with it before the next candidate leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_killed_leader_is_replaced() {
    let bench = Bench::new();
    let life = Life::new(bench.dir.path());
    let first = candidate(&bench, &["--value", "first"], &life.stubborn());
    life.has_begun();
    let mut second = candidate(&bench, &["--value", "second"], &LEADS);
    bench.waiters(1).await;
    let killed_us = boottime_us();
    first.signal(Signal::KILL);
    second.read_to("leads ");
    let leads_us = boottime_us();
    // The start of a command takes its time, too.
    let waited = Duration::from_micros(leads_us - killed_us);
    assert!(waited < LEASE + TAKEOVER_SLACK + LONG, "{waited:?}");
    let token = second.read_to("\n").trim().parse().unwrap();
    life.has_ended_before(leads_us, token);
    assert_eq!(ended_by(second, Signal::TERM).code, Some(143));
}

/// The command of a leader fails again and again. The candidates take turns, and never lead at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_take_turns() {
    let bench = Bench::new();
    let [lock, log] = ["lock", "log"].map(|name| bench.dir.path().join(name).display().to_string());
    // mkdir fails if another command runs.
    let command =
        |who: &str| format!("mkdir {lock} || echo both >>{log}; echo {who} >>{log}; sleep 0.05; rmdir {lock}; exit 7");
    let candidates = ["a", "b"].map(|who| candidate(&bench, &["-q", "--value", who], &["sh", "-c", &command(who)]));
    let terms = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("each led twice", LONG, || ["a\n", "b\n"].iter().all(|who| terms().matches(who).count() >= 2));
    assert!(!terms().contains("both"), "{}", terms());
    for candidate in candidates {
        let ended = ended_by(candidate, Signal::TERM);
        assert!(matches!(ended.code, Some(143 | 7)), "{ended:?}");
    }
}

/// A leader whose leadership is revoked ends its command, and leads again later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_lost_campaigns_again() {
    let bench = Bench::new();
    let mut leader = candidate(&bench, &["--value", "one"], &LEADS);
    leader.read_to("leads ");
    let first: u64 = leader.read_to("\n").trim().parse().unwrap();
    let client = bench.client().await;
    let (mutex, election) = (client.mutex(NAME), client.election(NAME));
    let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it leads");
    assert_eq!((holder.label.as_str(), holder.token.get()), ("one", first));
    let _revoked = mutex.revoke(&holder, Duration::from_secs(1)).await.unwrap();
    leader.read_to("leads ");
    let second: u64 = leader.read_to("\n").trim().parse().unwrap();
    assert!(second > first);
    assert_eq!(election.leader().await.unwrap().expect("it leads").value, "one");
    let ended = ended_by(leader, Signal::INT);
    assert!(ended.code == Some(130) && ended.err.contains("was revoked"), "{ended:?}");
}

#[test]
fn with_once_a_candidate_ends_with_its_command() {
    let bench = Bench::new();
    let mut once = candidate(&bench, &["--once"], &WAITS);
    once.read_to("leads ");
    once.write("\n");
    assert_eq!(once.ends().code, Some(3));
    let unknown = candidate(&bench, &[], &["/no/such/command"]).ends();
    assert_eq!(unknown.code, Some(127), "it is not started again and again: {unknown:?}");
}

/// Programs read their settings again at a HUP. It ends the candidate only if it ends the command.
#[test]
fn a_hup_ends_a_candidate_whose_command_dies_of_it() {
    let bench = Bench::new();
    let mut reads =
        candidate(&bench, &[], &["sh", "-c", "trap 'echo again' HUP; echo begun; while :; do sleep 0.02; done"]);
    reads.read_to("begun\n");
    reads.signal(Signal::HUP);
    reads.read_to("again\n");
    kill_process(reads.pid(), Signal::TERM).unwrap();
    assert_eq!(reads.ends().code, Some(143));
    let mut dies = candidate(&bench, &[], &LEADS);
    dies.read_to("leads ");
    assert_eq!(ended_by(dies, Signal::HUP).code, Some(129));
}

#[test]
fn observers_print_each_leader() {
    let bench = Bench::new();
    let (mut text, mut json) = (observer(&bench, &[]), observer(&bench, &["--json"]));
    assert_eq!(text.read_to("\n"), "job: nobody leads\n");
    assert_eq!(json.read_to("\n"), "{\"name\":\"job\",\"leader\":null}\n");
    let mut leader = candidate(&bench, &["--value", "10.0.0.3:7000"], &LEADS);
    leader.read_to("leads ");
    let token = leader.read_to("\n");
    let token = token.trim();
    assert_eq!(text.read_to("\n"), format!("job: 10.0.0.3:7000 leads; token {token}\n"));
    let line: serde_json::Value = serde_json::from_str(&json.read_to("\n")).unwrap();
    let seen = (line["leader"]["value"].as_str(), line["leader"]["token"].as_u64());
    assert_eq!(seen, (Some("10.0.0.3:7000"), token.parse().ok()), "{line}");
    assert_eq!(ended_by(leader, Signal::TERM).code, Some(143));
    assert_eq!(text.read_to("\n"), "job: nobody leads\n");
    assert_eq!(ended_by(text, Signal::TERM).code, Some(143));
    assert_eq!(ended_by(json, Signal::INT).code, Some(130));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (arguments, says) in [
        (&[][..], "<CMD>"),
        (&["--json", "--", "true"], "cannot be used with"),
        (&["--observe", "--", "true"], "cannot be used with"),
        (&["--observe", "--value", "x"], "cannot be used with"),
        (&["--value", "a\nb", "--", "true"], "expected a text of 1 to 256 bytes"),
        (&["--lease", "10ms", "--", "true"], "lease"),
    ] {
        let mut elect = leasehold();
        let ended = Run::of(elect.args(["elect", NAME, "--store", "redis://127.0.0.1:1"]).args(arguments)).ends();
        assert!(ended.code == Some(2) && ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
}
