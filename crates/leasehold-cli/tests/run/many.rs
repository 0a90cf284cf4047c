//! Several names as one lock: all or none.

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold, Released};
use leasehold_testkit::proxy::Way;
use leasehold_testkit::{Quorum, boottime_us, wait_until};
use rustix::process::Signal;

use crate::bench::{Bench, LONG, NAME, Run, TAKEOVER_SLACK, leasehold};

/// The name beside [`NAME`]. It comes before it in the order in which names are taken.
const OTHER: &str = "a {side}";
const LEASE: Duration = Duration::from_secs(2);
const OPTIONS: [&str; 3] = [OTHER, "--lease", "2s"];

/// Waits for a lock, and returns when it was granted.
async fn next(client: &Leasehold, name: &str) -> (Guard, u64) {
    let mutex = client.mutex(name);
    let guard = tokio::time::timeout(Duration::from_secs(60), mutex.lock()).await.expect("the lock").unwrap();
    (guard, boottime_us())
}

async fn holders(client: &Leasehold, names: [&str; 2]) -> [usize; 2] {
    let mut counts = [0; 2];
    for (count, name) in counts.iter_mut().zip(names) {
        *count = client.mutex(name).inspect().await.unwrap().holder_count;
    }
    counts
}

async fn waits_for(client: &Leasehold, name: &str) {
    let begun = Instant::now();
    while client.mutex(name).inspect().await.unwrap().waiters == 0 {
        assert!(begun.elapsed() < LONG, "nobody waits for {name}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// On every store, all names are held while the command runs, and free afterward.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_names_are_held_while_the_command_runs() {
    let (bench, quorum) = (Bench::new(), Quorum::start(3));
    leasehold::quorum::begin(&quorum.url()).await.unwrap();
    let directory = format!("file:{}", bench.dir.path().join("store").display());
    for url in [bench.server.url(), directory, quorum.url()] {
        let client = Leasehold::connect(&url).await.unwrap();
        let mut run = Run::start(&url, &[OTHER, "third"], &["sh", "-c", "echo ready; read line; exit 7"]);
        run.read_to("ready\n");
        assert_eq!(holders(&client, [NAME, "third"]).await, [1, 1], "{url}");
        let busy = Run::start(&url, &["--no-wait"], &["true"]).ends();
        assert_eq!(busy.code, Some(124), "{busy:?}");
        run.write("\n");
        let ended = run.ends();
        assert_eq!((ended.code, ended.err.as_str()), (Some(7), ""), "{url}");
        for name in [NAME, OTHER, "third"] {
            assert!(client.mutex(name).try_lock().await.unwrap().is_some(), "{name} is free: {url}");
        }
    }
}

/// A command under several locks must not take the token of the run around it for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_finds_all_names_and_tokens() {
    let bench = Bench::new();
    // Two free names may be granted at the same moment, with equal tokens. So one of them is not free.
    let client = Leasehold::connect(&bench.server.url()).await.unwrap();
    let (held, _) = next(&client, NAME).await;
    let shows =
        "echo \"$LEASEHOLD_NAMES\"; echo $LEASEHOLD_TOKENS; echo ${LEASEHOLD_NAME-none} ${LEASEHOLD_TOKEN-none}";
    let tokens = |line: &str| line.split(' ').map(|token| token.parse().unwrap()).collect::<Vec<u64>>();
    let mut run = leasehold();
    run.args(["run", "--store", &bench.server.url(), NAME, OTHER, "--", "sh", "-c", shows]);
    run.env("LEASEHOLD_NAME", "outer").env("LEASEHOLD_TOKEN", "1");
    let run = Run::of(&mut run);
    waits_for(&client, NAME).await;
    assert_eq!(held.release().await.unwrap(), Released::Released);
    let ended = run.ends();
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!((lines[..2].to_vec(), lines[3]), (vec![NAME, OTHER], "none none"), "{ended:?}");
    let [first, second] = tokens(lines[2])[..] else { panic!("two tokens: {ended:?}") };
    assert!(second < first, "tokens have the order of the names, which are taken in another order: {ended:?}");
    let alone = bench.run(&[], &["sh", "-c", shows]).ends();
    let lines: Vec<&str> = alone.out.lines().collect();
    assert_eq!((lines[0], lines[2]), (NAME, &*format!("{NAME} {}", lines[1])), "{alone:?}");
}

/// One of two locks is revoked: the command is ended before anybody else holds either of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p47_one_lost_name_ends_the_command() {
    for name in [NAME, OTHER] {
        let bench = Bench::new();
        let (client, life) = (bench.client().await, bench.life());
        let run = bench.run(&[OTHER, "--lease", "30s", "--kill-after", "1s"], &life.stubborn());
        life.has_begun();
        let mutex = client.mutex(name);
        let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it holds");
        mutex.revoke(&holder, Duration::from_secs(5)).await.unwrap();
        for name in [NAME, OTHER] {
            let (guard, granted_us) = next(&client, name).await;
            life.has_ended_before(granted_us, guard.token().get());
        }
        let ended = run.ends();
        assert_eq!(ended.code, Some(123), "{ended:?}");
        assert!(ended.err.contains(&format!("\"{name}\" was revoked; the command gets TERM")), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_killed_supervisor_of_two_locks() {
    let (bench, dir) = (Bench::new(), tempfile::tempdir().unwrap());
    let life = bench.life();
    for url in [bench.server.url(), format!("file:{}", dir.path().join("store").display())] {
        let client = Leasehold::connect(&url).await.unwrap();
        let run = Run::start(&url, &OPTIONS, &life.stubborn());
        life.has_begun();
        let killed_us = boottime_us();
        run.signal(Signal::KILL);
        for name in [NAME, OTHER] {
            let (guard, granted_us) = next(&client, name).await;
            life.has_ended_before(granted_us, guard.token().get());
            let waited = Duration::from_micros(granted_us - killed_us);
            assert!(waited < LEASE + TAKEOVER_SLACK, "{name}: {waited:?}");
        }
        life.touch();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_silent_store_of_two_locks() {
    let bench = Bench::new();
    let (client, life) = (bench.client().await, bench.life());
    let run = bench.run_through(&OPTIONS, &life.stubborn());
    life.has_begun();
    bench.proxy.stall(Way::Both);
    for name in [NAME, OTHER] {
        let (guard, granted_us) = next(&client, name).await;
        life.has_ended_before(granted_us, guard.token().get());
    }
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    let lost = format!("the multi-lock of \"{NAME}\" and \"{OTHER}\" is lost: it could not be renewed in time");
    assert!(ended.err.contains(&lost), "{ended:?}");
}

/// A run holds one name and waits for the other. A signal ends the wait, and both names are free of the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_while_waiting_leaves_the_queue_and_gives_back() {
    let bench = Bench::new();
    let client = Leasehold::builder(&bench.server.url()).holder("host/backup").connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let mut run = bench.run(&OPTIONS, &["true"]);
    waits_for(&client, NAME).await;
    assert_eq!(holders(&client, [OTHER, NAME]).await, [1, 1], "it holds the first one");
    let line = run.read_error_line();
    let waits = format!(
        "leasehold: waiting for the multi-lock of \"{NAME}\" and \"{OTHER}\": \"{NAME}\" is held by host/backup\n"
    );
    assert_eq!(line, waits);
    run.signal(Signal::TERM);
    assert_eq!(run.ends().code, Some(128 + 15));
    assert_eq!(holders(&client, [OTHER, NAME]).await, [0, 1]);
    assert_eq!(client.mutex(NAME).inspect().await.unwrap().waiters, 0);
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_held_makes_the_run_busy() {
    let bench = Bench::new();
    let client = Leasehold::builder(&bench.server.url()).holder("host/backup").connect().await.unwrap();
    for name in [NAME, OTHER] {
        let guard = client.mutex(name).lock().await.unwrap();
        for options in [&[OTHER, "--no-wait"][..], &[OTHER, "--wait", "100ms"]] {
            let ended = bench.run(options, &["echo", "ran"]).ends();
            assert_eq!((ended.code, ended.out.as_str()), (Some(124), ""), "{ended:?}");
            assert!(ended.err.contains(&format!("\"{name}\" is held by host/backup")), "{ended:?}");
        }
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert_eq!(holders(&client, [NAME, OTHER]).await, [0, 0], "the other one was given back");
    }
}

/// Runs name the same locks in different orders. They wait for each other in queues, and never in a circle.
#[test]
fn p45_runs_with_another_order_of_names_do_not_wait_in_a_circle() {
    let bench = Bench::new();
    let url = format!("file:{}", bench.dir.path().join("store").display());
    let runs: Vec<Run> = (0..12)
        .map(|number| {
            let names = if number % 2 == 0 { [NAME, OTHER] } else { [OTHER, NAME] };
            let mut run = leasehold();
            run.args(["run", "--store", &url, "-q", "--wait", "50s"]).args(names).args(["--", "sleep", "0.02"]);
            Run::of(&mut run)
        })
        .collect();
    for run in runs {
        let ended = run.ends();
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    }
}

/// The members of a run that waits are held: a second run with one of these names waits in the queue behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_for_one_name_keeps_its_place_in_both() {
    let bench = Bench::new();
    let client = bench.client().await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    let both = bench.run(&[OTHER], &["sh", "-c", "echo $LEASEHOLD_TOKENS"]);
    waits_for(&client, NAME).await;
    let mut behind = leasehold();
    behind.args(["run", "--store", &bench.server.url(), OTHER, "--", "sh", "-c", "echo $LEASEHOLD_TOKENS"]);
    let behind = Run::of(&mut behind);
    waits_for(&client, OTHER).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let (first, second) = (both.ends(), behind.ends());
    let of_other: u64 = first.out.trim().split(' ').next_back().unwrap().parse().unwrap();
    assert!(second.out.trim().parse::<u64>().unwrap() > of_other, "{first:?} {second:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_minimum_hold_is_for_all_names() {
    let bench = Bench::new();
    let client = bench.client().await;
    let failed = bench.run(&[OTHER, "--min-hold", "60s"], &["/nowhere/to/be/found"]).ends();
    assert_eq!((failed.code, holders(&client, [NAME, OTHER]).await), (Some(127), [0, 0]), "{failed:?}");
    let ended = bench.run(&[OTHER, "--min-hold", "60s"], &["true"]).ends();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for name in [NAME, OTHER] {
        let holder = client.mutex(name).inspect().await.unwrap().holder().cloned();
        assert!(holder.is_some_and(|holder| holder.is_cooling_down), "{name}");
    }
}

#[test]
fn names_that_cannot_be_held_together_are_refused() {
    let bench = Bench::new();
    let twice = bench.run(&[NAME], &["true"]).ends();
    assert!(twice.code == Some(2) && twice.err.contains("\"job\" is named twice"), "{twice:?}");
    let names: Vec<String> = (0..16).map(|number| format!("name {number}")).collect();
    let many: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = bench.run(&many, &["true"]).ends();
    assert!(many.code == Some(2) && many.err.contains("1 to 16 members"), "{many:?}");
    let most: Vec<&str> = names[1..].iter().map(String::as_str).collect();
    assert_eq!(bench.run(&most, &["true"]).ends().code, Some(0));
    let none = leasehold().args(["run", "--store", &bench.server.url(), NAME, "true"]).output().unwrap();
    let errors = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(2) && errors.contains("put -- before the command"), "{errors}");
}

/// A store that is gone for a moment is reported once, for all names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_renewal_of_all_names_is_reported_once() {
    let bench = Bench::new();
    let life = bench.life();
    let mut run = bench.run_through(&[OTHER, "--lease", "8s"], &life.command());
    life.has_begun();
    bench.proxy.stall(Way::Both);
    let line = run.read_error_line();
    let overdue =
        format!("leasehold: the store is unreachable: the multi-lock of \"{NAME}\" and \"{OTHER}\" was last renewed ");
    assert!(line.starts_with(&overdue), "{line}");
    bench.proxy.resume();
    let line = run.read_error_line();
    assert!(line.contains("is renewed, after"), "{line}");
    wait_until("the command runs", LONG, || life.last().is_some());
    run.signal(Signal::TERM);
    assert_eq!(run.ends().code, Some(128 + 15));
}
