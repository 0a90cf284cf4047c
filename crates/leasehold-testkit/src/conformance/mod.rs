//! One suite for every store: what the faces promise, whatever is behind them.
//!
//! # Why is no cell missing?
//!
//! A suite that passes proves nothing about the cells that it forgot. So the cells are not written down one by one: they
//! are the products of enums (`dimension!` makes the list of an enum's variants together with the enum), and what is
//! expected of each cell is an exhaustive `match` without a wildcard. A new call, situation, kind of lease, law or store
//! does not compile until somebody has said what it means everywhere. Where a cell has no meaning, or a store cannot give
//! what it asks for, that is an answer as well, with its reason, and is counted.
//!
//! [`run`] answers a [`Report`], with the verdict on each cell that was really run; the test compares that with
//! [`Cell::count`].
//!
//! # The parts
//!
//! | part | cells | says |
//! |---|---|---|
//! | `faces` | [`Face`] × [`Call`] × [`Situation`] | what each call does to a name in each state, by tasks and by threads |
//! | `leases` | [`Kind`] × [`Aspect`] | how long a lease lasts, and how it ends |
//! | `inputs` | [`Input`] | what is refused and what is just acceptable |
//! | `laws` | [`Law`] | what holds over many calls: order, exclusion, tokens, loss |
//! | `times` | [`timed::Call`] × [`timed::Place`] | how long each call takes, wherever it is made |
//! | `rules` | [`Rule`] | the protocol's rules at the store's own seam, under the session |
//!
//! Every cell has names and clients of its own, so that all run at once on one server. A cell ends by closing its clients,
//! which have nothing left to give back, and its name is free.

mod backend;
mod faces;
mod inputs;
mod late;
mod laws;
mod leases;
mod quorum;
mod rules;
mod stage;
mod times;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;

pub use backend::{Backend, HandOver, Running, Silence};
pub use faces::{Call, Face, Situation};
pub use inputs::Input;
pub use laws::Law;
pub use leases::{Aspect, Kind};
pub use rules::Rule;

use stage::Stage;

use crate::times as timed;

/// One cell of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// A call in a situation, by either face.
    Face(Face, Call, Situation),
    /// An aspect of a kind of lease.
    Lease(Kind, Aspect),
    /// Something that is refused, or just acceptable.
    Input(Input),
    /// What holds over many calls.
    Law(Law),
    /// How long a call takes, made somewhere.
    Time(timed::Call, timed::Place),
    /// A rule of the protocol.
    Rule(Rule),
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its assertions were made, and held.
    Passed,
    /// It means nothing: why.
    NotApplicable(&'static str),
    /// This store cannot give it, and says so: why.
    Unsupported(&'static str),
    /// It did not hold.
    Failed(String),
}

/// What became of every cell that was run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Over which store.
    pub backend: Backend,
    /// The verdicts.
    pub verdicts: BTreeMap<Cell, Verdict>,
}

/// How many cells run at once. They wait more than they compute, but each has several clients, and threads for each of
/// them, which have to answer before a claim has ended (P7): more at once make a small machine miss that.
const AT_ONCE: usize = 8;
/// How long a cell may take. The longest waits for a renewal of the default lease: 10 s, and what a slow machine adds.
const CELL_WITHIN: Duration = Duration::from_secs(240);

impl Cell {
    /// Every cell there is.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let calls = || Call::ALL.iter().flat_map(|call| Situation::ALL.iter().map(move |at| (*call, *at)));
        let faces = Face::ALL.iter().flat_map(|face| calls().map(|(call, at)| Self::Face(*face, call, at)));
        let leases = Kind::ALL.iter().flat_map(|kind| Aspect::ALL.iter().map(|aspect| Self::Lease(*kind, *aspect)));
        let inputs = Input::ALL.iter().copied().map(Self::Input);
        let laws = Law::ALL.iter().copied().map(Self::Law);
        let rules = Rule::ALL.iter().copied().map(Self::Rule);
        let places = |call| timed::Place::ALL.iter().map(move |place| Self::Time(call, *place));
        let times = timed::Call::ALL.iter().flat_map(|call| places(*call));
        leases.chain(laws).chain(faces).chain(inputs).chain(times).chain(rules).collect()
    }

    /// How many cells there are: what the enums imply, whatever was run.
    #[must_use]
    pub fn count() -> usize {
        Face::ALL.len() * Call::ALL.len() * Situation::ALL.len()
            + Kind::ALL.len() * Aspect::ALL.len()
            + Input::ALL.len()
            + Law::ALL.len()
            + timed::Call::ALL.len() * timed::Place::ALL.len()
            + Rule::ALL.len()
    }

    async fn run(self, running: Arc<Running>) -> Verdict {
        if let Some(why) = quorum::not_of_a_quorum(self).filter(|_| running.backend() == Backend::Quorum) {
            return Verdict::NotApplicable(why);
        }
        let stage = Stage::new(running, self);
        let verdict = match self {
            Self::Face(face, call, at) => faces::run(face, call, at, &stage).await,
            Self::Lease(kind, aspect) => leases::run(kind, aspect, &stage).await,
            Self::Input(input) => inputs::run(input, &stage).await,
            Self::Law(law) => laws::run(law, &stage).await,
            Self::Time(call, place) => times::run(call, place, &stage).await,
            Self::Rule(rule) => rules::run(rule, &stage).await,
        };
        stage.end().await;
        verdict
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Face(face, call, at) => write!(f, "{face:?}/{call:?}/{at:?}"),
            Self::Lease(kind, aspect) => write!(f, "{kind:?}/{aspect:?}"),
            Self::Input(input) => write!(f, "{input:?}"),
            Self::Law(law) => write!(f, "{law:?}"),
            Self::Time(call, place) => write!(f, "Time/{call:?}/{place:?}"),
            Self::Rule(rule) => write!(f, "{rule:?}"),
        }
    }
}

impl Report {
    /// How many cells ended so.
    #[must_use]
    pub fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.values().filter(|verdict| which(verdict)).count()
    }

    /// The cells that failed, and how.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failure = |(cell, verdict): (&Cell, &Verdict)| match verdict {
            Verdict::Failed(why) => Some(format!("{cell}: {why}")),
            Verdict::Passed | Verdict::NotApplicable(_) | Verdict::Unsupported(_) => None,
        };
        self.verdicts.iter().filter_map(failure).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, other) = (
            self.count(|verdict| *verdict == Verdict::Passed),
            self.count(|verdict| matches!(verdict, Verdict::NotApplicable(_))),
        );
        let unsupported = self.count(|verdict| matches!(verdict, Verdict::Unsupported(_)));
        write!(
            f,
            "{:?}: {} cells, {passed} passed, {other} not applicable, {unsupported} unsupported, {} failed",
            self.backend,
            self.verdicts.len(),
            self.failures().len()
        )
    }
}

/// Runs every cell that `wanted` takes over a store, many at once, with clients that hand on there. It blocks: each cell
/// has a runtime of its own.
///
/// # Panics
/// When the store does not start.
pub fn run(backend: Backend, hand_over: HandOver, wanted: impl Fn(&Cell) -> bool) -> Report {
    let runtime = runtime();
    let running = Arc::new(runtime.block_on(Running::start(backend, hand_over)));
    let cells: Mutex<VecDeque<Cell>> = Mutex::new(Cell::all().into_iter().filter(wanted).collect());
    let verdicts = Mutex::new(BTreeMap::new());
    let next = || cells.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(cell) = next() {
                    let verdict = play(cell, Arc::clone(&running));
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).insert(cell, verdict);
                }
            });
        }
    });
    Report { backend, verdicts: verdicts.into_inner().unwrap_or_else(PoisonError::into_inner) }
}

fn play(cell: Cell, running: Arc<Running>) -> Verdict {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let timed = async { tokio::time::timeout(CELL_WITHIN, cell.run(running)).await };
        runtime().block_on(timed)
    }));
    match played {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Verdict::Failed(format!("it took longer than {CELL_WITHIN:?}")),
        Err(panicked) => Verdict::Failed(said(&*panicked).to_owned()),
    }
}

fn said(panicked: &(dyn Any + Send)) -> &str {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panicked.downcast_ref().copied()).unwrap_or("a panic without words")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
