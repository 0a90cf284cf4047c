//! On a quorum of five servers.

use std::time::{Duration, Instant};

use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};

use crate::bench::{Ended, NAME, Run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_runs_alone_while_any_three_servers_are_there() {
    let quorum = Quorum::start(5);
    let url = quorum.url();
    leasehold::quorum::begin(&url).await.unwrap();
    let mut first = Run::start(&url, &["--holder", "first"], &["sh", "-c", "echo $LEASEHOLD_TOKEN; read line"]);
    let token: u64 = first.read_to("\n").trim().parse().unwrap();
    let busy = Run::start(&url, &["--no-wait"], &["echo", "ran"]).ends();
    assert_eq!((busy.code, busy.out.as_str()), (Some(124), ""), "{busy:?}");
    assert!(busy.err.contains(&format!("\"{NAME}\" is held by first")), "{busy:?}");
    let mut next = Run::start(&url, &[], &["sh", "-c", "echo $LEASEHOLD_TOKEN; read line"]);
    quorum.server(0).kill();
    quorum.server(4).kill();
    first.write("\n");
    assert_eq!(first.ends().code, Some(0));
    let later: u64 = next.read_to("\n").trim().parse().unwrap();
    assert!(later > token, "{later} after {token}");
    next.write("\n");
    let ended = next.ends();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    // Two of five are no quorum. That is an outage, and does not mean that another client holds the lock.
    quorum.server(2).kill();
    let ended = Run::start(&url, &["--no-wait"], &["true"]).ends();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    for at in [0, 2, 4] {
        assert!(ended.err.contains(&format!("127.0.0.1:{}", quorum.server(at).port())), "{ended:?}");
    }
}

/// If the longest lease of a quorum is shorter than 30 s, it is the default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_a_lease_fits_into_the_longest() {
    for longest in [1, 5] {
        let quorum = Quorum::builder(3).max_lease(Duration::from_secs(longest)).start();
        let url = quorum.url();
        leasehold::quorum::begin(&url).await.unwrap();
        let ended = Run::start(&url, &[], &["echo", "ran"]).ends();
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "max_lease={longest}s: {ended:?}");
        let ended = Run::start(&url, &["--lease", "30s"], &["echo", "ran"]).ends();
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "the user asked for it: {ended:?}");
        assert!(ended.err.contains("max_lease"), "{ended:?}");
    }
}

/// The nodes of a new quorum reply, and are in quarantine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_in_quarantine_are_an_unreachable_store() {
    let quorum = Quorum::builder(3).max_lease(Duration::from_secs(60)).start();
    let url = quorum.url();
    let names_all = |ended: &Ended| {
        let named = |port| {
            let (_, says) = ended.err.split_once(&format!("127.0.0.1:{port} is in quarantine for "))?;
            let (left, _) = says.split_once(" s more")?;
            left.parse::<u64>().ok()
        };
        for server in quorum.servers() {
            assert!(named(server.port()).is_some_and(|left| (30..=60).contains(&left)), "{ended:?}");
        }
    };
    for options in [&[][..], &["--no-wait"]] {
        let ended = Run::start(&url, options, &["echo", "ran"]).ends();
        assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "{options:?}: {ended:?}");
        names_all(&ended);
    }
    let begun = Instant::now();
    let ended = Run::start(&url, &["--wait", "1s"], &["echo", "ran"]).ends();
    assert_eq!((ended.code, ended.out.as_str()), (Some(125), ""), "the lock is not reported as held: {ended:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    names_all(&ended);
    let mut waiting = Run::start(&url, &["--wait", "forever"], &["echo", "ran"]);
    let first = waiting.read_error_line();
    let begin = format!("leasehold: waiting for \"{NAME}\": nodes of the quorum are in quarantine");
    assert!(first.starts_with(&begin), "{first}");
    let waits = |server: &RedisServer| server.command(&["ZCARD", &format!("lq1q:{{{NAME}}}")]) == Value::Int(1);
    wait_until("it is in every queue", Duration::from_secs(10), || quorum.servers().iter().all(waits));
    // It waits in the queues: only an operator who knows that nobody holds may begin the quorum now.
    let refused = leasehold::quorum::begin(&url).await.expect_err("somebody waits");
    assert!(refused.kind() == leasehold::ErrorKind::InUse && refused.to_string().contains(NAME), "{refused}");
    leasehold::quorum::force_begin(&url).await.expect("all are there");
    let ended = waiting.ends();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
}
