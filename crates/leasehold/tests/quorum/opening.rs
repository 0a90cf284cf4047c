//! Connections to nodes that take them, and then say nothing; and who closes what nobody wants any more.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::Real;
use leasehold_spec::SessionId;
use leasehold_testkit::voters::Mood;
use leasehold_testkit::wait_until;
use tokio::time::timeout;

use crate::bench::voters;
use crate::shy::{Hasty, Shy, Silent};

const SOON: Duration = Duration::from_secs(5);

/// Everything that a try waits for has an end: the ping and the inbox as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_greets_and_says_nothing_is_given_up_and_tried_again() {
    for silent in [Silent::Ping, Silent::Attach] {
        let voters = voters(3);
        let (nodes, store) = Shy::each(&voters, Hasty::world());
        nodes[1].be(silent);
        let link = timeout(SOON, store.open()).await.expect("two of three are there").unwrap();
        timeout(SOON, link.attach(SessionId(7), Arc::new(|_| {}))).await.expect("two of three attach").unwrap();
        wait_until(&format!("{silent:?}: it is opened anew"), SOON, || nodes[1].opened() >= 2);
        assert!(nodes[1].closed() >= 1, "{silent:?}: nobody wants the first one");
        nodes[1].be(Silent::Never);
        let (opened, closed) = (|| nodes[1].opened(), || nodes[1].closed());
        wait_until(&format!("{silent:?}: it is taken in"), SOON, || opened() == closed() + 1);
        link.close();
        wait_until(&format!("{silent:?}: all are closed"), SOON, || {
            nodes.iter().all(|node| node.opened() == node.closed())
        });
    }
}

/// Whoever keeps the nodes of a link connected needs nobody else's time, and ends with the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_left_of_a_link_that_is_dropped() {
    let voters = voters(3);
    let (world, tasks) = Hasty::counting();
    let (nodes, store) = Shy::each(&voters, world);
    voters.nodes[1].be(Mood::Dead);
    // A second connection's: no inbox is attached to it, with which somebody would keep the time of rounds.
    let link = timeout(SOON, store.open()).await.expect("two of three are there").unwrap();
    wait_until("it is tried again and again", SOON, || nodes[1].tried() >= 3);
    voters.nodes[1].be(Mood::Answers);
    wait_until("it is connected again", SOON, || nodes[1].opened() == 1);
    voters.nodes[1].be(Mood::Dead);
    assert!(tasks.load(Ordering::SeqCst) >= 3, "one for each node");
    drop(link);
    wait_until("they have ended", SOON, || tasks.load(Ordering::SeqCst) == 0);
    assert!(nodes.iter().all(|node| node.opened() == node.closed()));
}

/// A client's future is dropped while its nodes are silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_dropped_while_it_connects_closes_what_it_has_opened() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Real::world());
    nodes.iter().for_each(|node| node.be(Silent::Ping));
    let opened = timeout(Duration::from_millis(20), store.open()).await;
    assert!(opened.is_err(), "nobody answers");
    for node in nodes {
        assert_eq!((node.opened(), node.closed()), (1, 1));
    }
}

/// The same on a socket: the server takes what is written, and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_dropped_while_it_greets_hangs_up() {
    let servers: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let node = |server: &TcpListener| format!("node=redis://{}", server.local_addr().unwrap());
    let url = format!("quorum:?{}", servers.iter().map(node).collect::<Vec<_>>().join("&"));
    let connecting = tokio::spawn(async move { Leasehold::connect(&url).await });
    let greeted = tokio::task::spawn_blocking(move || servers.iter().map(greeted).collect::<Vec<_>>());
    let streams = timeout(SOON, greeted).await.expect("all are greeted").unwrap();
    connecting.abort();
    assert!(connecting.await.is_err_and(|error| error.is_cancelled()));
    for mut stream in streams {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let rest = io::copy(&mut stream, &mut io::sink());
        assert!(rest.is_ok(), "it hangs up: {rest:?}");
    }
}

/// A connection on which something was said.
fn greeted(server: &TcpListener) -> TcpStream {
    let (mut stream, _) = server.accept().unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}
