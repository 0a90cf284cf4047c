//! The cost of the scripts on the server: `cargo run --release -p leasehold-bench --example script_cost`.
//!
//! Measures the time per EVALSHA as the server itself counts it (`INFO commandstats`), for pairs of acquire and release
//! by one pipelined connection over many names, best of several rounds. It is compared with the least that a lock on
//! Redis can do: SET NX PX in a script, and compare-and-delete (S5). The ratio holds on other machines; the microseconds
//! do not.

mod gates;
mod pools;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use leasehold::seam::{Family, Guess, Real, RedisStore};
use leasehold_spec::limits::RANGE_MAX;
use leasehold_spec::{
    Acquire, Contention, From, GrantId, Hears, Name, Op, Order, Patience, Place, Renew, SessionId, Take, Token,
};
use leasehold_testkit::{RedisServer, Resp, Value, resp};

use gates::GATES;
use pools::{HOLDERS, POOL_WAITERS, SINGLE};

const NAMES: usize = 60_000;
const WINDOW: usize = 64;
const ROUNDS: usize = 5;
const TURNS: usize = 1_000;
/// The numbers of waiters of one name. The last one, with the holder, is the longest allowed queue.
const WAITERS: [usize; 6] = [1, 10, 15, 100, 500, 9_999];
const SESSION: SessionId = SessionId(1);
/// A deadline that is never over.
const FAR_US: u64 = 9_000_000_000_000_000;
const LEASE_MS: u64 = 30_000;
const S5_ACQUIRE: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
const S5_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

fn main() {
    let server = RedisServer::start();
    let mut bench = Bench::new(&server);
    let mut pairs = [[f64::INFINITY; 2]; 4];
    let mut queues = [[f64::INFINITY; 2]; WAITERS.len()];
    let mut renewals = [[f64::INFINITY; 2]; 2];
    let mut pools = [[f64::INFINITY; 2]; SINGLE.len() + HOLDERS.len() + POOL_WAITERS.len()];
    let mut gates = [f64::INFINITY; GATES.len()];
    let mut scans = f64::INFINITY;
    for _ in 0..ROUNDS {
        bench.command(&["FLUSHALL"]);
        keep(&mut pairs[0], bench.s5_pair());
        bench.command(&["FLUSHALL"]);
        keep(&mut pairs[1], bench.pair(1, 0));
        keep(&mut pairs[2], bench.pair(2, 0));
        keep(&mut pairs[3], bench.pair(3, 7));
        for (best, waiters) in queues.iter_mut().zip(WAITERS) {
            bench.command(&["FLUSHALL"]);
            keep(best, bench.hand_over(waiters));
        }
        bench.command(&["FLUSHALL"]);
        keep(&mut renewals[0], bench.renewals());
        for (best, measured) in pools.iter_mut().zip(bench.pools()) {
            keep(best, measured);
        }
        bench.take = Take::READ;
        bench.command(&["FLUSHALL"]);
        keep(&mut renewals[1], bench.renewals());
        bench.command(&["FLUSHALL"]);
        scans = scans.min(bench.scan());
        bench.take = Take::MUTEX;
        for (best, measured) in gates.iter_mut().zip(bench.gates()) {
            *best = best.min(measured);
        }
    }
    let s5 = pairs[0][0] + pairs[0][1];
    println!("{:<36} {:>8} {:>8} {:>8} {:>6}", "µs of server time", "acquire", "release", "pair", "x S5");
    let told = |what: &str, [acquire, release]: [f64; 2]| {
        let pair = acquire + release;
        println!("{what:<36} {acquire:>8.2} {release:>8.2} {pair:>8.2} {:>6.2}", pair / s5);
    };
    for (what, pair) in ["S5", "a new name", "a used name", "the same, handed on 7 times"].iter().zip(pairs) {
        told(what, pair);
    }
    for (waiters, pair) in WAITERS.iter().zip(queues) {
        told(&format!("{waiters} waiting: queue, hand over"), pair);
    }
    for (what, pair) in SINGLE.iter().zip(pools) {
        told(what, pair);
    }
    for (holders, pair) in HOLDERS.iter().zip(&pools[SINGLE.len()..]) {
        told(&format!("a reader beside {holders} others"), *pair);
    }
    for (waiters, pair) in POOL_WAITERS.iter().zip(&pools[SINGLE.len() + HOLDERS.len()..]) {
        told(&format!("{waiters} writers waiting: queue, hand over"), *pair);
    }
    for (what, [sixteen, one]) in ["mutex", "reader"].iter().zip(renewals) {
        println!("{:<36} {sixteen:>8.2}", format!("renew a {what}, 16 in a script: each"));
        println!("{:<36} {one:>8.2}", format!("renew a {what}, one name"));
    }
    println!("{:<36} {scans:>8.2}", "scan of 10,000 readers, in all");
    for (what, us) in GATES.iter().zip(gates) {
        println!("{what:<36} {us:>8.2}");
    }
    println!("\ncalls of each script in its usual way");
    for (what, calls) in bench.calls() {
        println!("  {what:<34} {calls}");
    }
}

fn keep(best: &mut [f64; 2], measured: [f64; 2]) {
    for (best, measured) in best.iter_mut().zip(measured) {
        *best = best.min(measured);
    }
}

struct Bench<'a> {
    server: &'a RedisServer,
    resp: Resp,
    stream: TcpStream,
    store: RedisStore,
    s5: [String; 2],
    names: Vec<Name>,
    /// The share that every acquire takes.
    take: Take,
}

impl<'a> Bench<'a> {
    fn new(server: &'a RedisServer) -> Self {
        let mut resp = server.resp();
        for script in Family::Locks.scripts().chain(Family::Pools.scripts()) {
            resp.command(&["SCRIPT", "LOAD", script.source()]);
        }
        let mut load = |source| resp.command(&["SCRIPT", "LOAD", source]).text().expect("a digest").to_owned();
        let s5 = [load(S5_ACQUIRE), load(S5_RELEASE)];
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("the server is there");
        stream.set_nodelay(true).expect("a TCP option");
        let names = (0..NAMES).map(|at| Name::new(&format!("orders/{at}")).expect("a good name")).collect();
        let store = RedisStore::new(&server.url(), Real::world()).expect("a good URL");
        Self { server, resp, stream, store, s5, names, take: Take::MUTEX }
    }

    fn command(&mut self, arguments: &[&str]) -> Value {
        self.resp.command(arguments)
    }

    /// Sends requests, `WINDOW` at a time, and returns the answers and the server's time for each EVALSHA.
    fn timed(&mut self, requests: &[Vec<u8>]) -> (Vec<Value>, f64) {
        self.command(&["CONFIG", "RESETSTAT"]);
        let answers = exchange(&mut self.stream, requests);
        let stats = self.command(&["INFO", "commandstats"]);
        let line = stats.text().and_then(|text| text.lines().find(|line| line.starts_with("cmdstat_evalsha:")));
        let usec = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next()?.parse::<f64>().ok());
        (answers, usec.expect("the server counts EVALSHA") / requests.len() as f64)
    }

    fn s5_pair(&mut self) -> [f64; 2] {
        let value = "0123456789abcdef0123456789abcdef";
        let mut measured = [0.0; 2];
        for (at, digest) in self.s5.clone().iter().enumerate() {
            let requests: Vec<_> = (0..NAMES)
                .map(|name| {
                    let key = format!("lh1:{{orders/{name}}}");
                    resp::encode(&["EVALSHA", digest, "1", &key, value, "30000"])
                })
                .collect();
            measured[at] = self.timed(&requests).1;
        }
        measured
    }

    /// The release reports that `used` tokens beside the first were used.
    fn pair(&mut self, nonce: u64, used: u64) -> [f64; 2] {
        let ids: Vec<_> = (0..NAMES as u64).map(|at| id(at, nonce)).collect();
        let acquires = self.acquires(&ids);
        let (answers, acquire) = self.timed(&acquires);
        let releases = self.releases(&ids, &answers, used);
        let (answers, release) = self.timed(&releases);
        assert!(answers.iter().all(is_usual_release), "not the usual way");
        [acquire, release]
    }

    fn guess(&self, contention: Contention) -> Guess {
        Guess { kind: self.take.kind, contention }
    }

    /// One name with a holder and `waiters` waiters. In each turn the holder releases, which hands over, and queues
    /// again.
    fn hand_over(&mut self, waiters: usize) -> [f64; 2] {
        let _subscriber = self.subscriber();
        let name = self.names[0].clone();
        let (mut order, mut token) = self.queue(&name, waiters);
        let mut spent = [0.0; 2];
        for at in 0..TURNS {
            let (id, others) = (order.pop_front().expect("somebody holds"), Contention::Others);
            let release = self
                .store
                .request(&name, &Op::Release { id, token, used: token }, self.guess(others))
                .expect("a good request");
            let (answers, release) = self.timed(&[release]);
            let words: Vec<_> = answers[0].text().expect("words").split(' ').collect();
            assert_eq!((words[0], words[5]), ("RELEASED", "00001000"), "a hand-over");
            token = Token::new(words[2].parse().expect("a number")).expect("a token");
            let again = GrantId { counter: (waiters + 1 + at) as u64, ..id };
            let queue = self.acquire(&name, again, &queues(), others);
            let (answers, queue) = self.timed(&[queue]);
            assert!(answers[0].text().is_some_and(|text| text.starts_with("QUEUED")), "a waiter");
            order.push_back(again);
            spent = [spent[0] + queue, spent[1] + release];
        }
        spent.map(|us| us / TURNS as f64)
    }

    fn subscriber(&self) -> Resp {
        let mut subscriber = self.server.resp();
        subscriber.command(&["SUBSCRIBE", &format!("lh1:inbox:{SESSION}")]);
        subscriber
    }

    /// One client holds, and `waiters` wait.
    fn queue(&mut self, name: &Name, waiters: usize) -> (VecDeque<GrantId>, Token) {
        let ids: VecDeque<_> = (0..=waiters as u64).map(|at| id(at, 9)).collect();
        let requests: Vec<_> = ids.iter().map(|&id| self.acquire(name, id, &queues(), Contention::None)).collect();
        let answers = exchange(&mut self.stream, &requests);
        (ids, granted(&answers[0]).expect("nobody held"))
    }

    /// Returns the time for each name: of sixteen names in a script, and of one.
    fn renewals(&mut self) -> [f64; 2] {
        let ids: Vec<_> = (0..NAMES as u64).map(|at| id(at, 3)).collect();
        let acquires = self.acquires(&ids);
        let (answers, _) = self.timed(&acquires);
        let renewals: Vec<_> = self
            .names
            .iter()
            .zip(&ids)
            .zip(&answers)
            .map(|((name, &id), answer)| {
                (name.clone(), renewal(id, granted(answer).expect("granted, in the usual way")))
            })
            .collect();
        [16, 1].map(|size| {
            let batches: Vec<_> = renewals
                .chunks(size)
                .map(|batch| self.store.renewal(batch, self.take.kind).expect("a good request"))
                .collect();
            self.timed(&batches).1 / size as f64
        })
    }

    /// Returns the commands that each script calls, by the server's own count.
    fn calls(&mut self) -> Vec<(&'static str, String)> {
        self.command(&["FLUSHALL"]);
        let _subscriber = self.subscriber();
        let [name, hot, pair] = [0, 1, 2].map(|at| self.names[at].clone());
        let (none, others) = (Contention::None, Contention::Others);
        let (try_once, queue) = (Patience::Try, queues());
        let mut told = Vec::new();
        let mut token = Token::NONE;
        for (what, counter, patience, guess) in [
            ("acquire, new name", 1, &try_once, none),
            ("acquire, held: busy", 2, &try_once, none),
            ("acquire, held: first waiter", 3, &queue, none),
            ("acquire, second waiter", 4, &queue, others),
            ("acquire, third waiter, wrong guess", 5, &queue, none),
            ("acquire, a re-check", 5, &queue, others),
        ] {
            let request = self.acquire(&name, id(counter, 1), patience, guess);
            let (answer, calls) = self.counted(&request);
            token = granted(&answer).unwrap_or(token);
            told.push((what, calls));
        }
        for (what, counter) in [("leave, of three", 4), ("leave, of two", 5), ("leave, the last", 3)] {
            told.push((what, self.asked(&name, &Op::Leave { id: id(counter, 1), used: Token::NONE }, others)));
        }
        let renew =
            self.store.renewal(&[(name.clone(), renewal(id(1, 1), token))], self.take.kind).expect("a good request");
        told.push(("renew", self.counted(&renew).1));
        told.push(("release", self.asked(&name, &Op::Release { id: id(1, 1), token, used: token }, none)));
        let request = self.acquire(&name, id(6, 1), &try_once, none);
        told.push(("acquire, used name", self.counted(&request).1));
        let (ids, token) = self.queue(&hot, 15);
        told.push(("release, hand-over", self.asked(&hot, &Op::Release { id: ids[0], token, used: token }, others)));
        let requests = [self.acquire(&pair, id(7, 1), &queue, none), self.acquire(&pair, id(8, 1), &queue, none)];
        let token = granted(&exchange(&mut self.stream, &requests)[0]).expect("nobody held");
        told.push((
            "release, hand-over to the last",
            self.asked(&pair, &Op::Release { id: id(7, 1), token, used: token }, others),
        ));
        told
    }

    fn asked(&mut self, name: &Name, op: &Op, guess: Contention) -> String {
        let request = self.store.request(name, op, self.guess(guess)).expect("a good request");
        self.counted(&request).1
    }

    /// Sends one request. Returns its answer, and the commands that the script called.
    fn counted(&mut self, request: &Vec<u8>) -> (Value, String) {
        self.command(&["CONFIG", "RESETSTAT"]);
        let answer = exchange(&mut self.stream, std::slice::from_ref(request)).remove(0);
        let stats = self.command(&["INFO", "commandstats"]);
        let calls = stats.text().expect("text").lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let (calls, _) = rest.split_once(',')?;
            let ours = ["evalsha", "config|resetstat", "info"].contains(&command);
            (!ours).then(|| format!("{} {calls}", command.to_uppercase()))
        });
        let calls = calls.collect::<Vec<_>>().join(", ");
        (answer, calls)
    }

    fn acquires(&self, ids: &[GrantId]) -> Vec<Vec<u8>> {
        let both = self.names.iter().zip(ids);
        both.map(|(name, &id)| self.acquire(name, id, &Patience::Try, Contention::None)).collect()
    }

    fn acquire(&self, name: &Name, id: GrantId, patience: &Patience, guess: Contention) -> Vec<u8> {
        let acquire = self.request(id, patience);
        self.store.request(name, &Op::Acquire(acquire), self.guess(guess)).expect("a good request")
    }

    fn request(&self, id: GrantId, patience: &Patience) -> Acquire {
        Acquire {
            id,
            take: self.take,
            lease_ms: LEASE_MS,
            range: if self.take.kind.is_pool() { 1 } else { RANGE_MAX },
            not_after_us: FAR_US,
            patience: patience.clone(),
            label: "host-17/worker".into(),
        }
    }

    fn releases(&self, ids: &[GrantId], answers: &[Value], used: u64) -> Vec<Vec<u8>> {
        let grants = self.names.iter().zip(ids).zip(answers);
        let release = |((name, &id), answer)| {
            let token = granted(answer).expect("granted, in the usual way");
            let op = Op::Release { id, token, used: token.plus(used) };
            self.store.request(name, &op, self.guess(Contention::None)).expect("a good request")
        };
        grants.map(release).collect()
    }
}

fn id(counter: u64, nonce: u64) -> GrantId {
    GrantId { session: SESSION, counter, nonce }
}

fn queues() -> Patience {
    let (hears, order) = (Hears::Listens, Order::Relaxed);
    Patience::Queue(Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears, order })
}

fn renewal(id: GrantId, token: Token) -> Renew {
    Renew { id, token, from: From::Now, lease_ms: LEASE_MS, not_after_us: FAR_US }
}

/// Whether a release was answered in one word: nobody waited.
fn is_usual_release(answer: &Value) -> bool {
    answer.text().is_some_and(|text| text == "RELEASED" || text.starts_with('B'))
}

fn granted(answer: &Value) -> Option<Token> {
    Token::new(answer.text()?.parse().ok()?)
}

fn exchange(stream: &mut TcpStream, requests: &[Vec<u8>]) -> Vec<Value> {
    let mut answers = Vec::with_capacity(requests.len());
    let (mut unread, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    for window in requests.chunks(WINDOW) {
        stream.write_all(&window.concat()).expect("the server reads");
        let mut missing = window.len();
        while missing > 0 {
            let len = stream.read(&mut chunk).expect("the server answers");
            assert!(len > 0, "the server went away");
            unread.extend_from_slice(&chunk[..len]);
            let mut at = 0;
            while let Some((value, len)) = Value::parse(&unread[at..]).expect("RESP") {
                assert!(!matches!(value, Value::Error(_)), "{value:?}");
                answers.push(value);
                at += len;
                missing -= 1;
            }
            unread.drain(..at);
        }
    }
    answers
}
