//! A client process: several tasks that lock, work and give back, as they are told on standard input.
//!
//! | order | what it does | what it says |
//! |---|---|---|
//! | `round NUMBER EPOCH SEED FILE` | works, and writes its history to the file | |
//! | `drain MS` | ends what it does, waits for all that it waits for, at most so long | `stuck …` for each that did not end; `drained {tally}` |
//!
//! It connects when its first round begins, and goes on trying while the server is away. It dies with its parent: by the
//! signal that the kernel sends then, which reaches a stopped process too, and at the end of its standard input.

mod section;
mod shift;

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::names::Names;
use super::notes::Notes;
use super::options::Store;
use leasehold_testkit::Random;
use leasehold_testkit::Recorder;
use shift::{Doing, Shift};

/// How many tasks a client has.
const TASKS: u64 = 6;

/// What a client is started with.
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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be started").block_on(obey(settings));
    ExitCode::SUCCESS
}

async fn obey(settings: Settings) {
    let (tell, mut orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _gone = tell.send(line);
        }
        // The lab is gone: nobody is left to release to.
        std::process::exit(0);
    });
    let settings = Arc::new(settings);
    let (keep, client) = watch::channel(None);
    let mut work: Option<Work> = None;
    while let Some(line) = orders.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["round", round, epoch, seed, file] => {
                let number = |word: &str| word.parse().expect("the lab writes numbers");
                let names = Names { round: number(round), epoch: number(epoch) };
                let file = PathBuf::from(file);
                work = Some(Work::begin(&settings, (names, number(seed), &file), keep.clone(), client.clone()));
            }
            ["drain", ms] => {
                let within = Duration::from_millis(ms.parse().expect("the lab writes numbers"));
                if let Some(work) = work.take() {
                    work.drain(within).await;
                }
            }
            _ => panic!("no order: {line}"),
        }
    }
}

/// The tasks of one round.
struct Work {
    shift: Arc<Shift>,
    tasks: JoinSet<()>,
    end: watch::Sender<bool>,
    label: String,
    is_connected: watch::Receiver<Client>,
}

type Client = Option<Leasehold>;

impl Work {
    fn begin(
        settings: &Arc<Settings>,
        (names, seed, file): (Names, u64, &PathBuf),
        keep: watch::Sender<Client>,
        client: watch::Receiver<Client>,
    ) -> Self {
        let recorder = Recorder::append_to(file).expect("the lab's directory can be written");
        let notes = Notes::append_to(file).expect("the lab's directory can be written");
        let (end, is_over) = watch::channel(false);
        let shift = Arc::new(Shift::new((names, Store::of(&settings.url)), recorder, notes, is_over));
        let mut tasks = JoinSet::new();
        if client.borrow().is_none() {
            tasks.spawn(connect(Arc::clone(settings), keep));
        }
        let mut random = Random::new(seed);
        for task in 1..=TASKS {
            let me = format!("{}/t{task}.{}", settings.label, names.round);
            let (shift, settings, mut client) = (Arc::clone(&shift), Arc::clone(settings), client.clone());
            let seed = random.number();
            tasks.spawn(async move {
                let mut is_over = shift.is_over.clone();
                let connected = tokio::select! {
                    biased;
                    client = client.wait_for(Option::is_some) => client.ok().and_then(|client| client.clone()),
                    _ = is_over.wait_for(|over| *over) => None,
                };
                if let Some(client) = connected {
                    shift.work(&client, (&me, settings.registers), seed).await;
                }
            });
        }
        Self { shift, tasks, end, label: settings.label.clone(), is_connected: client }
    }

    async fn drain(mut self, within: Duration) {
        self.end.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all).await.is_err() {
            if self.is_connected.borrow().is_none() {
                println!("stuck {}: it cannot connect", self.label);
            }
            for Doing { client, what, name, since_us } in self.shift.doings() {
                println!("stuck {client} {what} {name} {since_us}");
            }
        }
        self.tasks.shutdown().await;
        println!("drained {}", self.shift.tally());
    }
}

/// Connects, however long that takes: `connect` itself fails fast. A round's end waits for it.
async fn connect(settings: Arc<Settings>, keep: watch::Sender<Client>) {
    loop {
        match Leasehold::builder(&settings.url).holder(&settings.label).connect().await {
            Ok(client) => {
                keep.send_replace(Some(client));
                return;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
