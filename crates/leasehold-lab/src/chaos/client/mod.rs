//! A client process: several runtimes with tasks that lock, work and release, by orders on standard input.
//!
//! | order | effect | output |
//! |---|---|---|
//! | `round NUMBER EPOCH SEED FILE` | works, and writes its history to the file | |
//! | `block RUNTIME MS` | blocks a runtime for this time | `struck BlockRuntime` when it is blocked |
//! | `end RUNTIME` | ends a runtime in the background, and starts another with new tasks | `struck EndRuntime` when it has dropped a task that waited or held |
//! | `probe RUNTIME MS` | calls from all other runtimes for this time, and notes each call | |
//! | `hold NAME LEASE_MS MS` | acquires a lock, and holds it for this time | |
//! | `line NAME LEASE_MS MS` | the same, in strict order | |
//! | `drain MS` | ends its work, and waits for all pending calls, for this time at most | `stuck …` for each that did not end; `drained {tally}` |
//!
//! It connects when its first round begins, from one of its runtimes, and retries while the server is away. It dies with
//! its parent: by the signal that the kernel then sends, which reaches a stopped process too, and at the end of its
//! standard input.

mod acts;
mod call;
mod fate;
mod ordered;
mod runtimes;
mod section;
mod shift;
mod turn;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::kind::Kind;
use super::names::Names;
use super::notes::Notes;
use super::options::Store;
pub(super) use acts::{limit_of, take_all};
use fate::{Fate, Reported};
use leasehold_testkit::Random;
use leasehold_testkit::Recorder;
pub(super) use runtimes::RUNTIMES;
use runtimes::Runtimes;
use shift::{Doing, Shift};

/// How many tasks each runtime has.
const TASKS: u64 = 2;

/// The arguments of a client.
#[derive(Debug)]
struct Settings {
    url: String,
    registers: u16,
    label: String,
}

/// `chaos-client URL REGISTERS_PORT LABEL`
pub(crate) fn run(mut args: impl Iterator<Item = String>) -> ExitCode {
    let parsed = (|| {
        let (url, registers, label) = (args.next()?, args.next()?.parse().ok()?, args.next()?);
        Some(Settings { url, registers, label })
    })();
    let Some(settings) = parsed else {
        eprintln!("chaos-client is started by `leasehold-lab chaos`");
        return ExitCode::from(2);
    };
    super::process::die_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be started").block_on(obey(settings));
    ExitCode::SUCCESS
}

async fn obey(settings: Settings) {
    let (sender, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _gone = sender.send(line);
        }
        // The lab is gone, so there is no need to release the locks.
        std::process::exit(0);
    });
    let settings = Arc::new(settings);
    let runtimes = Runtimes::start();
    let (keep, client) = watch::channel(None);
    let mut work: Option<Work> = None;
    while let Some(line) = orders.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        match (&words[..], &mut work) {
            (["round", round, epoch, seed, file], _) => {
                let names = Names { round: number(round), epoch: number(epoch) };
                let file = PathBuf::from(file);
                let ours = (Arc::clone(&settings), Arc::clone(&runtimes));
                work = Some(Work::begin(ours, (names, number(seed), &file), keep.clone(), client.clone()));
            }
            (["drain", within], _) => {
                if let Some(work) = work.take() {
                    work.drain(ms(within)).await;
                }
            }
            (["block", at, time], _) => {
                let begun = || println!("struck {:?}", Kind::BlockRuntime);
                runtimes.block(index(at), ms(time), begun);
            }
            (["end", at], Some(work)) => work.replace(index(at)),
            (["probe", at, time], Some(work)) => work.probe(index(at), ms(time)),
            ([order @ ("hold" | "line"), name, lease, time], Some(work)) => {
                work.hold(name, *order == "line", (ms(lease), ms(time)));
            }
            (["end" | "probe" | "hold" | "line", ..], None) => {}
            _ => panic!("not an order: {line}"),
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().expect("the lab writes numbers")
}

fn ms(word: &str) -> Duration {
    Duration::from_millis(number(word))
}

fn index(word: &str) -> usize {
    word.parse().expect("the lab writes numbers")
}

/// The tasks of one round.
struct Work {
    settings: Arc<Settings>,
    shift: Arc<Shift>,
    tasks: JoinSet<()>,
    end: watch::Sender<bool>,
    client: watch::Receiver<Client>,
    random: Random,
    /// How many tasks have been started.
    started: u64,
}

type Client = Option<Leasehold>;

impl Work {
    fn begin(
        (settings, runtimes): (Arc<Settings>, Arc<Runtimes>),
        (names, seed, file): (Names, u64, &PathBuf),
        keep: watch::Sender<Client>,
        client: watch::Receiver<Client>,
    ) -> Self {
        let recorder = Recorder::append_to(file).expect("the lab's directory can be written");
        let notes = Notes::append_to(file).expect("the lab's directory can be written");
        let (end, is_over) = watch::channel(false);
        let store = Store::of(&settings.url);
        let shift = Arc::new(Shift::new((names, store, runtimes), recorder, notes, is_over));
        let (mut tasks, mut random) = (JoinSet::new(), Random::new(seed));
        if client.borrow().is_none() {
            let home = random.index(RUNTIMES);
            tasks.spawn(connect(Arc::clone(&settings), (Arc::clone(&shift.runtimes), home), keep));
        }
        let mut work = Self { settings, shift, tasks, end, client, random, started: 0 };
        (0..RUNTIMES).for_each(|at| work.employ(at));
        work
    }

    /// Starts the tasks of a runtime.
    fn employ(&mut self, at: usize) {
        let reported = Arc::new(Reported::default());
        for _ in 0..TASKS {
            let (registers, seed) = (self.settings.registers, self.random.number());
            self.spawn(at, Some(Arc::clone(&reported)), move |shift, client, me| async move {
                acts::work(&shift, &client, (&me, at, registers), seed).await;
            });
        }
    }

    /// Ends a runtime, and starts another one with new tasks.
    fn replace(&mut self, at: usize) {
        self.shift.runtimes.replace(at);
        self.employ(at);
    }

    fn probe(&mut self, but: usize, time: Duration) {
        for at in (0..RUNTIMES).filter(|at| *at != but) {
            let name = self.shift.names.own(&self.settings.label, at);
            self.spawn(at, None, move |shift, client, me| async move {
                ordered::probe(&shift, &client, (&me, at), &name, time).await;
            });
        }
    }

    fn hold(&mut self, name: &str, is_strict: bool, (lease, time): (Duration, Duration)) {
        let (at, name) = (self.random.index(RUNTIMES), name.to_owned());
        self.spawn(at, None, move |shift, client, me| async move {
            let mutex = client.mutex(&name).lease(lease);
            let mutex = if is_strict { mutex.fair() } else { mutex };
            ordered::hold(&shift, &mutex, &me, (&name, time)).await;
        });
    }

    /// Starts a task on this runtime, once the client is connected.
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        at: usize,
        reported: Option<Arc<Reported>>,
        work: impl FnOnce(Arc<Shift>, Leasehold, String) -> F + Send + 'static,
    ) {
        self.started += 1;
        let me = format!("{}/t{}.{}", self.settings.label, self.started, self.shift.names.round);
        let (shift, mut client) = (Arc::clone(&self.shift), self.client.clone());
        let handle: Handle = self.shift.runtimes.handle(at);
        let fate = Fate::new(Arc::clone(&self.shift), me.clone(), reported);
        self.tasks.spawn_on(
            async move {
                let fate = fate;
                let mut is_over = shift.is_over.clone();
                let connected = tokio::select! {
                    biased;
                    client = client.wait_for(Option::is_some) => client.ok().and_then(|client| client.clone()),
                    _ = is_over.wait_for(|over| *over) => None,
                };
                if let Some(client) = connected {
                    work(shift, client, me).await;
                }
                fate.fulfilled();
            },
            &handle,
        );
    }

    async fn drain(mut self, within: Duration) {
        self.end.send_replace(true);
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                if ended.is_err_and(|error| error.is_panic()) {
                    println!("a task panicked");
                }
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            if self.client.borrow().is_none() {
                println!("stuck {}: cannot connect", self.settings.label);
            }
            for Doing { client, what, name, since_us } in self.shift.doings() {
                println!("stuck {client} {what} {name} {since_us}");
            }
        }
        self.shift.shut();
        self.tasks.shutdown().await;
        println!("drained {}", self.shift.tally());
    }
}

/// Connects, and retries for as long as it takes: `connect` itself fails fast. The end of a round waits for it. The
/// client belongs to one of the runtimes, which may end meanwhile, and later.
async fn connect(settings: Arc<Settings>, (runtimes, home): (Arc<Runtimes>, usize), keep: watch::Sender<Client>) {
    loop {
        let settings = Arc::clone(&settings);
        let connecting = async move { Leasehold::builder(&settings.url).holder(&settings.label).connect().await };
        if let Ok(Ok(client)) = runtimes.handle(home).spawn(connecting).await {
            keep.send_replace(Some(client));
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
