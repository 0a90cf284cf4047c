//! Every fault of the proxy against a real server, with the proof that the fault is counted.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::proxy::{Fault, FaultProxy, Latency, Requests, Way};
use leasehold_testkit::{RedisServer, Resp, Value, free_port, wait_until};

const LONG: Duration = Duration::from_secs(10);
/// How long a client waits for an answer that never comes.
const SHORT: Duration = Duration::from_millis(60);

struct Bench {
    server: RedisServer,
    proxy: FaultProxy,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.port());
        Self { server, proxy }
    }

    fn client(&self) -> Resp {
        Resp::connect(self.proxy.port())
    }

    /// Returns the value that the server itself has under a key.
    fn stored(&self, key: &str) -> Value {
        self.server.command(&["GET", key])
    }
}

fn ok() -> Value {
    Value::Status("OK".into())
}

fn hello3(client: &mut Resp) {
    assert!(matches!(client.command(&["HELLO", "3"]), Value::Array(_)));
}

#[track_caller]
fn no_answer(client: &mut Resp, command: &[&str]) {
    client.set_patience(SHORT).expect("an open socket");
    let kind = client.try_command(command).expect_err("this was to have no answer").kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind:?}");
    client.set_patience(LONG).expect("an open socket");
}

#[track_caller]
fn broken(client: &mut Resp, command: &[&str]) {
    let kind = client.try_command(command).expect_err("this connection was to break").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
}

#[test]
fn everything_passes_in_order_without_faults() {
    let bench = Bench::new();
    let big = "x".repeat(3 << 20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = bench.client();
                for i in 0..200 {
                    client.send(&["ECHO", &i.to_string()]).unwrap();
                }
                for i in 0..200 {
                    assert_eq!(client.receive().unwrap(), Value::from(i.to_string().as_str()));
                }
                assert_eq!(client.command(&["ECHO", &big]), Value::from(big.as_str()));
            });
        }
    });
    let seen = bench.proxy.seen();
    assert_eq!((seen.accepted, seen.count("echo")), (4, 804));
    bench.proxy.wait_seen("all have hung up", LONG, |seen| seen.open == 0);
    assert_eq!(bench.proxy.seen().cut, 0);
}

#[test]
fn the_nth_reply_is_lost_and_its_request_carried_out() {
    let bench = Bench::new();
    let lost = bench.proxy.inject(Fault::drop_reply(Requests::named("incr")).after(1).once());
    let mut client = bench.client();
    assert_eq!(client.command(&["INCR", "n"]), Value::Int(1));
    assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    no_answer(&mut client, &["INCR", "n"]);
    lost.wait(1, LONG);
    assert_eq!(bench.stored("n"), Value::from("2"));
    assert_eq!(client.command(&["INCR", "n"]), Value::Int(3), "the connection stays open, and replies stay in step");
    assert_eq!(lost.hits(), 1);
}

#[test]
fn a_connection_is_mute_from_a_reply_on() {
    let bench = Bench::new();
    let lost = bench.proxy.inject(Fault::mute_at_reply(Requests::named("INCR")).once());
    let mut client = bench.client();
    assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    no_answer(&mut client, &["INCR", "n"]);
    no_answer(&mut client, &["INCR", "n"]);
    assert_eq!((lost.hits(), bench.proxy.seen().cut), (1, 0));
    assert_eq!(bench.stored("n"), Value::from("2"), "the server carries out what the client sends");
    assert_eq!(bench.client().command(&["INCR", "n"]), Value::Int(3), "other connections work");
}

#[test]
fn a_reply_is_lost_with_its_connection() {
    let bench = Bench::new();
    let lost = bench.proxy.inject(Fault::cut_at_reply(Requests::named("INCR")).once());
    let mut client = bench.client();
    broken(&mut client, &["INCR", "n"]);
    assert_eq!((lost.hits(), bench.proxy.seen().cut), (1, 1));
    assert_eq!(bench.stored("n"), Value::from("1"));
    assert_eq!(bench.client().command(&["INCR", "n"]), Value::Int(2));
}

#[test]
fn the_replies_of_one_script_are_lost() {
    let bench = Bench::new();
    let script = |body: &str| bench.server.command(&["SCRIPT", "LOAD", body]).text().unwrap().to_owned();
    let (one, two) = (script("return redis.call('INCR', 'one')"), script("return redis.call('INCR', 'two')"));
    let lost = bench.proxy.inject(Fault::drop_reply(Requests::script(&one.to_uppercase())));
    let mut client = bench.client();
    assert_eq!(client.command(&["EVALSHA", &two, "0"]), Value::Int(1));
    no_answer(&mut client, &["EVALSHA", &one, "0"]);
    assert_eq!(client.command(&["EVALSHA", &two, "0"]), Value::Int(2));
    assert_eq!(lost.hits(), 1);
    lost.lift();
    assert_eq!(client.command(&["EVALSHA", &one, "0"]), Value::Int(2));
    assert_eq!(lost.hits(), 1);
}

#[test]
fn a_predicate_sees_the_arguments() {
    let bench = Bench::new();
    let lost = bench.proxy.inject(Fault::drop_reply(Requests::matching(|c| c.argument(0) == Some("b"))));
    let mut client = bench.client();
    assert_eq!(client.command(&["SET", "a", "1"]), ok());
    no_answer(&mut client, &["SET", "b", "1"]);
    lost.wait(1, LONG);
    let commands = bench.proxy.commands();
    assert_eq!(commands.len(), 2);
    assert_eq!((commands[1].name.as_str(), commands[1].argument(1)), ("SET", Some("1")));
    assert!(commands[0].at_us <= commands[1].at_us);
}

#[test]
fn messages_are_lost_and_replies_are_not() {
    for version in ["2", "3"] {
        let bench = Bench::new();
        let mut client = bench.client();
        assert!(matches!(client.command(&["HELLO", version]), Value::Array(_)));
        client.send(&["SUBSCRIBE", "a", "b"]).unwrap();
        for _ in 0..2 {
            let confirmed = client.receive().unwrap();
            assert_eq!(confirmed.items().unwrap()[0], Value::from("subscribe"));
        }
        let lost = bench.proxy.inject(Fault::drop_push().after(1).times(2));
        for i in 0..5 {
            assert_eq!(bench.server.command(&["PUBLISH", "b", &i.to_string()]), Value::Int(1));
        }
        let mut received = || client.receive().unwrap().items().unwrap()[2].clone();
        assert_eq!([received(), received(), received()], ["0", "3", "4"].map(Value::from));
        assert_eq!((lost.hits(), bench.proxy.seen().pushes), (2, 5));
        client.send(&["UNSUBSCRIBE"]).unwrap();
        for _ in 0..2 {
            assert_eq!(client.receive().unwrap().items().unwrap()[0], Value::from("unsubscribe"));
        }
        assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    }
}

#[test]
fn the_right_reply_among_messages_is_lost() {
    let bench = Bench::new();
    let mut client = bench.client();
    hello3(&mut client);
    assert!(matches!(client.command(&["SUBSCRIBE", "a"]), Value::Push(_)));
    let lost = bench.proxy.inject(Fault::drop_reply(Requests::named("INCR")).once());
    // Its own messages come before the reply of each PUBLISH, and between the two INCRs.
    for command in [["PUBLISH", "a", "x"].as_slice(), &["INCR", "n"], &["PUBLISH", "a", "y"], &["INCR", "n"]] {
        client.send(command).unwrap();
    }
    let mut arrived: Vec<Value> = (0..5).map(|_| client.receive().unwrap()).collect();
    arrived.retain(|value| !matches!(value, Value::Push(_)));
    assert_eq!(arrived, [Value::Int(1), Value::Int(1), Value::Int(2)]);
    assert_eq!(lost.hits(), 1);
}

#[test]
fn a_stall_keeps_connections_open_and_delivers_later() {
    for way in [Way::Requests, Way::Replies, Way::Both] {
        let bench = Bench::new();
        let mut client = bench.client();
        assert_eq!(client.command(&["SET", "n", "0"]), ok());
        bench.proxy.stall(way);
        no_answer(&mut client, &["INCR", "n"]);
        let mut late = bench.client();
        no_answer(&mut late, &["INCR", "n"]);
        let (requests, replies, stored) = if way == Way::Replies { (0, 2, "2") } else { (2, 0, "0") };
        bench.proxy.wait_seen("both are held up", LONG, |seen| seen.stalled_requests + seen.stalled_replies == 2);
        let seen = bench.proxy.seen();
        assert_eq!((seen.stalled_requests, seen.stalled_replies), (requests, replies));
        assert_eq!(bench.stored("n"), Value::from(stored), "the server's value");
        bench.proxy.resume();
        let mut answers = [client.receive().unwrap().int(), late.receive().unwrap().int()];
        answers.sort_unstable();
        assert_eq!(answers, [Some(1), Some(2)]);
        assert_eq!(bench.proxy.seen().cut, 0);
    }
}

#[test]
fn a_stalled_request_of_a_client_that_left_is_carried_out() {
    let bench = Bench::new();
    bench.proxy.stall(Way::Both);
    let mut client = bench.client();
    client.send(&["SET", "k", "v"]).unwrap();
    bench.proxy.wait_seen("the request is stalled", LONG, |seen| seen.stalled_requests == 1);
    drop(client);
    assert_eq!(bench.stored("k"), Value::Nil);
    bench.proxy.resume();
    wait_until("the server has it", LONG, || bench.stored("k") == Value::from("v"));
}

#[test]
fn cutting_resets_every_connection() {
    let bench = Bench::new();
    let mut clients = [bench.client(), bench.client(), bench.client()];
    for client in &mut clients {
        assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    }
    assert_eq!(bench.proxy.cut_all(), 3);
    for client in &mut clients {
        broken(client, &["PING"]);
    }
    assert_eq!((bench.proxy.seen().cut, bench.proxy.seen().open), (3, 0));
    assert_eq!(bench.proxy.cut_all(), 0);
    assert_eq!(bench.client().command(&["PING"]), Value::Status("PONG".into()));
}

#[test]
fn a_client_that_waits_sees_the_cut() {
    let bench = Bench::new();
    let mut client = bench.client();
    let (ready, is_ready) = mpsc::channel();
    let waiting = thread::spawn(move || {
        client.send(&["BLPOP", "nothing", "0"]).unwrap();
        ready.send(()).unwrap();
        client.receive().unwrap_err().kind()
    });
    is_ready.recv().unwrap();
    bench.proxy.wait_seen("BLPOP", LONG, |seen| seen.count("BLPOP") == 1);
    assert_eq!(bench.proxy.cut_all(), 1);
    assert_eq!(waiting.join().unwrap(), ErrorKind::ConnectionReset);
}

#[test]
fn new_connections_are_refused_and_old_ones_stay() {
    let bench = Bench::new();
    let mut old = bench.client();
    assert_eq!(old.command(&["PING"]), Value::Status("PONG".into()));
    bench.proxy.refuse_connections();
    let refused = Resp::try_connect(bench.proxy.port(), LONG).and_then(|mut new| new.try_command(&["PING"]));
    assert!(refused.is_err(), "{refused:?}");
    bench.proxy.wait_seen("the refusal", LONG, |seen| seen.refused == 1);
    assert_eq!(old.command(&["PING"]), Value::Status("PONG".into()));
    bench.proxy.accept_connections();
    assert_eq!(bench.client().command(&["PING"]), Value::Status("PONG".into()));
}

#[test]
fn latency_delays_every_reply() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    let each_way = Duration::from_millis(20);
    bench.proxy.set_latency(Some(Latency { fixed: each_way, jitter: Duration::from_millis(5), seed: 1 }));
    let started = Instant::now();
    // A hundred requests at once take the time of one: a latency is not a bandwidth.
    for i in 0..100 {
        client.send(&["ECHO", &i.to_string()]).unwrap();
    }
    for i in 0..100 {
        assert_eq!(client.receive().unwrap(), Value::from(i.to_string().as_str()), "jitter keeps the order");
    }
    let took = started.elapsed();
    assert!(took >= 2 * each_way, "{took:?}");
    assert!(took < 100 * each_way, "{took:?}: the latencies were added up");
    assert_eq!(bench.proxy.seen().delayed, 200);
    bench.proxy.set_latency(None);
    assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    assert_eq!(bench.proxy.seen().delayed, 200);
}

#[test]
fn the_next_subscribe_is_refused_in_its_turn() {
    let bench = Bench::new();
    let refused = bench.proxy.inject(Fault::refuse(Requests::named("SUBSCRIBE"), "NOPERM not today").once());
    let mut client = bench.client();
    hello3(&mut client);
    // The refusal has to wait for the reply of a slow request before it.
    for command in [["INCR", "n"].as_slice(), &["SUBSCRIBE", "a"], &["SUBSCRIBE", "a"], &["INCR", "n"]] {
        client.send(command).unwrap();
    }
    assert_eq!(client.receive().unwrap(), Value::Int(1));
    assert_eq!(client.receive().unwrap(), Value::Error("NOPERM not today".into()));
    assert!(matches!(client.receive().unwrap(), Value::Push(_)));
    assert_eq!(client.receive().unwrap(), Value::Int(2));
    assert_eq!(refused.hits(), 1);
    let counts = bench.server.command(&["PUBSUB", "NUMSUB", "a"]);
    assert_eq!(counts.items().unwrap()[1], Value::Int(1));
}

#[test]
fn a_reply_is_garbled_or_replaced() {
    let bench = Bench::new();
    let garbled = bench.proxy.inject(Fault::garble_reply(Requests::all()).once());
    let mut client = bench.client();
    assert_eq!(client.try_command(&["INCR", "n"]).unwrap_err().kind(), ErrorKind::Other);
    assert_eq!((garbled.hits(), bench.stored("n")), (1, Value::from("1")));
    let replaced = bench.proxy.inject(Fault::replace_reply(Requests::named("INCR"), "-LOADING soon\r\n").once());
    let mut client = bench.client();
    assert_eq!(client.command(&["INCR", "n"]), Value::Error("LOADING soon".into()));
    assert_eq!((replaced.hits(), bench.stored("n")), (1, Value::from("2")));
}

#[test]
fn a_held_request_is_carried_out_after_its_client_has_gone() {
    let bench = Bench::new();
    let held = bench.proxy.inject(Fault::hold(Requests::named("SET")).once());
    let mut other = bench.client();
    let mut client = bench.client();
    no_answer(&mut client, &["SET", "k", "v"]);
    held.wait(1, LONG);
    drop(client);
    assert_eq!(other.command(&["GET", "k"]), Value::Nil, "other connections are not held");
    assert_eq!(other.command(&["SET", "other", "v"]), ok(), "once is once");
    held.lift();
    wait_until("the server has it", LONG, || bench.stored("k") == Value::from("v"));
    assert_eq!(held.hits(), 1);
}

#[test]
fn messages_to_a_client_that_left_do_not_lose_its_last_request() {
    let bench = Bench::new();
    let mut client = bench.client();
    hello3(&mut client);
    assert!(matches!(client.command(&["SUBSCRIBE", "a"]), Value::Push(_)));
    let held = bench.proxy.inject(Fault::hold(Requests::named("SET")));
    client.send(&["SET", "k", "v"]).unwrap();
    held.wait(1, LONG);
    drop(client);
    // The first message is answered with a reset; the second one can no longer be written.
    for n in 1..=20 {
        assert_eq!(bench.server.command(&["PUBLISH", "a", "x"]), Value::Int(1));
        bench.proxy.wait_seen("the message", LONG, |seen| seen.pushes == n);
    }
    held.lift();
    wait_until("the server has it", LONG, || bench.stored("k") == Value::from("v"));
}

#[test]
fn a_delayed_request_arrives_late() {
    let bench = Bench::new();
    let by = Duration::from_millis(80);
    let delayed = bench.proxy.inject(Fault::delay(Requests::named("SET"), by));
    let started = Instant::now();
    assert_eq!(bench.client().command(&["SET", "k", "v"]), ok());
    assert!(started.elapsed() >= by);
    assert_eq!(delayed.hits(), 1);
}

#[test]
fn a_connection_breaks_before_the_request() {
    let bench = Bench::new();
    let cut = bench.proxy.inject(Fault::cut_before(Requests::named("INCR")).once());
    let mut client = bench.client();
    assert_eq!(client.command(&["SET", "n", "0"]), ok());
    broken(&mut client, &["INCR", "n"]);
    assert_eq!((cut.hits(), bench.stored("n")), (1, Value::from("0")));
}

#[test]
fn new_connections_go_to_the_new_target() {
    let bench = Bench::new();
    let second = RedisServer::start();
    let mut client = bench.client();
    assert_eq!(client.command(&["SET", "who", "first"]), ok());
    bench.proxy.set_target(second.port());
    assert_eq!(client.command(&["GET", "who"]), Value::from("first"));
    assert_eq!(bench.client().command(&["GET", "who"]), Value::Nil);
    let nobody = free_port();
    bench.proxy.set_target(nobody.number());
    let unreachable = Resp::try_connect(bench.proxy.port(), LONG).and_then(|mut new| new.try_command(&["PING"]));
    assert!(unreachable.is_err());
    bench.proxy.wait_seen("that", LONG, |seen| seen.unreachable == 1);
}

#[test]
fn a_server_that_dies_ends_its_connections() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(client.command(&["SET", "k", "v"]), ok());
    bench.server.kill();
    assert!(client.try_command(&["GET", "k"]).is_err());
    bench.server.restart();
    assert_eq!(bench.client().command(&["GET", "k"]), Value::Nil);
}

#[test]
fn bytes_that_are_not_resp_end_the_connection() {
    use std::io::{Read, Write};
    let bench = Bench::new();
    let mut raw = std::net::TcpStream::connect(("127.0.0.1", bench.proxy.port())).unwrap();
    raw.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    raw.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(raw.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(bench.proxy.seen().garbled, 1);
}

#[test]
fn a_dropped_proxy_leaves_no_connection() {
    let bench = Bench::new();
    let mut client = bench.client();
    assert_eq!(client.command(&["PING"]), Value::Status("PONG".into()));
    drop(bench.proxy);
    broken(&mut client, &["PING"]);
}

/// Faults come and go while eight clients count: whatever a proxy does to a connection, the replies that arrive must
/// belong to their requests.
#[test]
fn replies_stay_in_step_under_changing_faults() {
    let bench = Bench::new();
    let done = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let counters: Vec<_> = (0..8)
            .map(|n| {
                let bench = &bench;
                scope.spawn(move || {
                    let mut answered = 0;
                    // A connection may be cut while it is being opened.
                    let connect = || Resp::try_connect(bench.proxy.port(), LONG);
                    let mut client = connect();
                    for i in 0..300 {
                        let word = format!("{n}-{i}");
                        match client.as_mut().ok().and_then(|client| client.try_command(&["ECHO", &word]).ok()) {
                            Some(echo) => {
                                assert_eq!(echo, Value::from(word.as_str()));
                                answered += 1;
                            }
                            None => client = connect(),
                        }
                    }
                    answered
                })
            })
            .collect();
        let faults = scope.spawn(|| {
            let mut cuts = 0;
            while !done.load(Ordering::Relaxed) {
                bench.proxy.stall(Way::Replies);
                thread::sleep(Duration::from_millis(2));
                bench.proxy.resume();
                let cut = bench.proxy.inject(Fault::cut_at_reply(Requests::all()).once());
                cut.wait(1, LONG);
                cuts += 1;
                cuts += bench.proxy.cut_all();
                if cuts > 100 {
                    break;
                }
            }
            cuts
        });
        let answered: usize = counters.into_iter().map(|counter| counter.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        // The last fault may wait for a reply although no counter sends requests any more.
        while !faults.is_finished() {
            let _ = Resp::try_connect(bench.proxy.port(), LONG).and_then(|mut client| client.try_command(&["PING"]));
        }
        let cuts = faults.join().unwrap();
        assert!(answered > 1_000 && cuts > 20, "{answered} answers, {cuts} cuts");
    });
}
