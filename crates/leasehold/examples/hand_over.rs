//! How fast a hot lock changes hands: `cargo run --release -p leasehold --example hand_over [PROCESSES WORKERS SECONDS]`.
//!
//! Every worker takes one lock, reads and writes a counter, and gives the lock back, through the link alone: the floor is
//! the same by two scripts without any rule (no check of who is attached, no claim, no deadline), a string and a list.
//! Both are run in turn, three times, on a server of this program's own.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::seam::{Address, Link, Message, Pending, RedisStore, Socket, Store, World};
use leasehold_spec::{
    Acquire, Contention, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Token,
};
use leasehold_testkit::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;

const ROUNDS: usize = 3;
const BARE_ACQUIRE: &str = "local v = redis.call('get', KEYS[1])
if not v then
  local t = redis.call('time')
  redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return t[1] * 1000000 + t[2]
end
redis.call('rpush', KEYS[2], ARGV[1])
return 0";
const BARE_RELEASE: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
while true do
  local w = redis.call('lpop', KEYS[2])
  if not w then redis.call('del', KEYS[1]) return 1 end
  local t = redis.call('time')
  redis.call('set', KEYS[1], w, 'PX', ARGV[2])
  if redis.call('publish', string.match(w, '^(%S+)'), w .. ' ' .. t[1] .. t[2]) > 0 then return 2 end
end";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let [_, child, url, number, workers, seconds] = arguments.as_slice() {
        let number = number.parse().expect("a number");
        let workers = workers.parse().expect("a number");
        let end = Instant::now() + Duration::from_secs(seconds.parse().expect("a number"));
        let done = match child.as_str() {
            "bare" => runtime.block_on(bare(url, number, workers, end)),
            _ => runtime.block_on(leasehold(url, number, workers, end)),
        };
        let cpu = std::fs::read_to_string("/proc/self/schedstat").unwrap();
        eprintln!(
            "  child cpu us {}",
            cpu.split(' ').next().unwrap().parse::<u64>().unwrap()
                / 1000
                / done.iter().map(|(count, _)| count).sum::<u64>()
        );
        println!(
            "{} {}",
            done.iter().map(|(count, _)| count).sum::<u64>(),
            done.iter().map(|(_, us)| us).max().expect("workers")
        );
        return;
    }
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let (processes, workers, seconds) = (number(1, 2), number(2, 8), number(3, 4));
    let server = RedisServer::start();
    let mut best = [0, 0];
    for _ in 0..ROUNDS {
        for (at, what) in ["bare", "leasehold"].into_iter().enumerate() {
            server.command(&["FLUSHALL"]);
            let cpu = || {
                std::fs::read_to_string(format!("/proc/{}/schedstat", server.pid()))
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            };
            let before = cpu();
            let (rate, longest_us) = run(&arguments[0], what, &server, processes, workers, seconds);
            println!("{what:<10} {rate:>6} hand-overs/s, longest wait {:.1} ms", longest_us as f64 / 1000.0);
            eprintln!("  server cpu us per hand-over {}", (cpu() - before) / 1000 / (rate * seconds));
            best[at] = best[at].max(rate);
        }
    }
    println!("leasehold / bare, best of {ROUNDS}: {:.2}", best[1] as f64 / best[0] as f64);
}

fn run(program: &str, what: &str, server: &RedisServer, processes: u64, workers: u64, seconds: u64) -> (u64, u64) {
    let arguments = |at: u64| [what.to_owned(), server.url(), at.to_string(), workers.to_string(), seconds.to_string()];
    let children: Vec<_> = (0..processes)
        .map(|at| {
            Command::new(program).args(arguments(at)).stdout(Stdio::piped()).spawn().expect("this program starts")
        })
        .collect();
    let mut total = (0, 0);
    for mut child in children {
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert!(child.wait().expect("our child").success());
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
        total.0 += numbers.next().expect("a count");
        total.1 = total.1.max(numbers.next().expect("a wait"));
    }
    let counted = server.command(&["GET", "counter"]).int().expect("a counter");
    assert_eq!(u64::try_from(counted), Ok(total.0), "nobody wrote over another's count");
    (total.0 / seconds, total.1)
}

/// The section: what a lock protects.
async fn count(connection: &mut MultiplexedConnection) {
    let count: Option<u64> = redis::cmd("GET").arg("counter").query_async(connection).await.expect("an answer");
    let mut set = redis::cmd("SET");
    set.arg("counter").arg(count.unwrap_or(0) + 1).query_async::<()>(connection).await.expect("an answer");
}

async fn bare(url: &str, process: u64, workers: u64, end: Instant) -> Vec<(u64, u64)> {
    let client = redis::Client::open(format!("{url}/?protocol=resp3")).expect("a good URL");
    let waiting: Arc<Mutex<HashMap<String, oneshot::Sender<()>>>> = Arc::default();
    let woken = Arc::clone(&waiting);
    let hear = move |push: redis::PushInfo| -> Result<(), redis::aio::SendError> {
        if let [_, redis::Value::BulkString(text)] = push.data.as_slice() {
            let text = String::from_utf8_lossy(text);
            let id = text.rsplit_once(' ').map_or("", |(id, _)| id);
            if let Some(waiter) = woken.lock().expect("no panic").remove(id) {
                let _ = waiter.send(());
            }
        }
        Ok(())
    };
    let config = redis::AsyncConnectionConfig::new().set_push_sender(hear);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
    let mut first = connection.clone();
    let inbox = format!("in{process}");
    first.subscribe(&inbox).await.expect("an inbox");
    let load = |source| redis::cmd("SCRIPT").arg("LOAD").arg(source).clone();
    let acquire: String = load(BARE_ACQUIRE).query_async(&mut first).await.expect("a script");
    let release: String = load(BARE_RELEASE).query_async(&mut first).await.expect("a script");
    let counting = client.get_multiplexed_async_connection().await.expect("a connection");
    let worker = |worker: u64| {
        let (mut connection, waiting, inbox) = (connection.clone(), Arc::clone(&waiting), inbox.clone());
        let mut counting = counting.clone();
        let (acquire, release) = (acquire.clone(), release.clone());
        async move {
            let (mut turns, mut longest) = (0, 0);
            while Instant::now() < end {
                let id = format!("{inbox} {worker}.{turns}");
                let started = Instant::now();
                let (wake, woken) = oneshot::channel();
                waiting.lock().expect("no panic").insert(id.clone(), wake);
                let call = |digest: &str| {
                    redis::cmd("EVALSHA").arg(digest).arg(2).arg("lk").arg("lk:q").arg(&id).arg(30_000).clone()
                };
                let token: u64 = call(&acquire).query_async(&mut connection).await.expect("an answer");
                match token {
                    0 => woken.await.expect("a push"),
                    _ => drop(waiting.lock().expect("no panic").remove(&id)),
                }
                longest = longest.max(started.elapsed().as_micros() as u64);
                count(&mut counting).await;
                let released: u64 = call(&release).query_async(&mut connection).await.expect("an answer");
                assert!(released > 0, "it was held");
                turns += 1;
            }
            (turns, longest)
        }
    };
    all((0..workers).map(|at| tokio::spawn(worker(at)))).await
}

async fn leasehold(url: &str, process: u64, workers: u64, end: Instant) -> Vec<(u64, u64)> {
    let store = RedisStore::new(url, Arc::new(Tokio)).expect("a good URL");
    let link = store.open().await.expect("a link");
    let session = SessionId(u128::from(process) + 1);
    let waiting: Arc<Mutex<HashMap<GrantId, oneshot::Sender<Token>>>> = Arc::default();
    let woken = Arc::clone(&waiting);
    let hear = Arc::new(move |message| {
        if let Message::Delivery(_, delivery) = message {
            if let Some(waiter) = woken.lock().expect("no panic").remove(&delivery.id) {
                let _ = waiter.send(delivery.token);
            }
        }
    });
    link.attach(session, hear).await.expect("an inbox");
    let client = redis::Client::open(url).expect("a good URL");
    let connection = client.get_multiplexed_async_connection().await.expect("a connection");
    let worker = |worker: u64| {
        let (mut connection, waiting, link) = (connection.clone(), Arc::clone(&waiting), Arc::clone(&link));
        async move {
            let name = Name::new("hot").expect("a good name");
            let (mut turns, mut longest) = (0, 0);
            while Instant::now() < end {
                let id = GrantId { session, counter: turns << 16 | worker, nonce: 1 };
                let started = Instant::now();
                let token = take(&link, &name, id, &waiting).await;
                longest = longest.max(started.elapsed().as_micros() as u64);
                count(&mut connection).await;
                let release = link.apply(&name, &Op::Release { id, token }, Contention::Others).await;
                assert_eq!(release.expect("an answer").outcome, Outcome::Released);
                turns += 1;
            }
            (turns, longest)
        }
    };
    all((0..workers).map(|at| tokio::spawn(worker(at)))).await
}

async fn take(
    link: &Arc<dyn Link>,
    name: &Name,
    id: GrantId,
    waiting: &Mutex<HashMap<GrantId, oneshot::Sender<Token>>>,
) -> Token {
    let (wake, woken) = oneshot::channel();
    waiting.lock().expect("no panic").insert(id, wake);
    let (hears, order) = (Hears::Listens, Order::Strict);
    // Nothing is renewed here: a busy machine can keep a worker from its turn for more than the usual second.
    let place = Place { claim_ms: 30_000, limit_ms: None, ticket: None, hears, order };
    let acquire = Acquire {
        id,
        lease_ms: 30_000,
        not_after_us: 9_000_000_000_000_000,
        patience: Patience::Queue(place),
        label: "host-17/worker".into(),
    };
    let answer = link.apply(name, &Op::Acquire(acquire), Contention::Others).await.expect("an answer");
    match answer.outcome {
        Outcome::Granted { token, .. } => {
            waiting.lock().expect("no panic").remove(&id);
            token
        }
        Outcome::Queued { .. } => woken.await.expect("a push"),
        other => panic!("{other:?}"),
    }
}

async fn all(workers: impl Iterator<Item = tokio::task::JoinHandle<(u64, u64)>>) -> Vec<(u64, u64)> {
    let mut done = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        done.push(worker.await.expect("no panic"));
    }
    done
}

struct Tokio;

impl World for Tokio {
    fn now_us(&self) -> u64 {
        leasehold_testkit::boottime_us()
    }
    fn wall_us(&self) -> u64 {
        0
    }
    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the machine has random bytes");
    }
    fn process(&self) -> u32 {
        std::process::id()
    }
    fn sleep(&self, duration: Duration) -> Pending<()> {
        Box::pin(tokio::time::sleep(duration))
    }
    fn connect(&self, to: &Address) -> Pending<std::io::Result<Box<dyn Socket>>> {
        let to = to.clone();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect((to.host, to.port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }
    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        tokio::spawn(task);
        Ok(())
    }
    fn spawn_session(&self, _: Pending<()>) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
