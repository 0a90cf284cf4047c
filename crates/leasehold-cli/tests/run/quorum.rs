//! On a quorum of five servers.

use leasehold_testkit::Quorum;

use crate::bench::{NAME, Run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_runs_alone_while_any_three_servers_are_there() {
    let quorum = Quorum::start(5);
    let url = quorum.url();
    leasehold::quorum::begin(&url).await.unwrap();
    let mut first = Run::start(&url, &["--holder", "first"], &["sh", "-c", "echo $LEASEHOLD_TOKEN; read line"]);
    let token: u64 = first.hears("\n").trim().parse().unwrap();
    let busy = Run::start(&url, &["--no-wait"], &["echo", "ran"]).ends();
    assert_eq!((busy.code, busy.out.as_str()), (Some(124), ""), "{busy:?}");
    assert!(busy.err.contains(&format!("\"{NAME}\" is held by first")), "{busy:?}");
    let mut next = Run::start(&url, &[], &["sh", "-c", "echo $LEASEHOLD_TOKEN; read line"]);
    quorum.server(0).kill();
    quorum.server(4).kill();
    first.say("\n");
    assert_eq!(first.ends().code, Some(0));
    let later: u64 = next.hears("\n").trim().parse().unwrap();
    assert!(later > token, "{later} after {token}");
    next.say("\n");
    let ended = next.ends();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    // Two of five are no quorum, and that is not that somebody has it.
    quorum.server(2).kill();
    let ended = Run::start(&url, &["--no-wait"], &["true"]).ends();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    for at in [0, 2, 4] {
        assert!(ended.err.contains(&format!("127.0.0.1:{}", quorum.server(at).port())), "{ended:?}");
    }
}
