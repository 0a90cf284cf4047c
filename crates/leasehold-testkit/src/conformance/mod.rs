//! One suite for every store: it tests the promises of the faces over each of them.
//!
//! # Why is no cell missing?
//!
//! A suite that passes proves nothing about the cells that it lacks. So the cells are not written down one by one: they
//! are the products of enums (`dimension!` declares an enum together with the list of its variants), and the expectation
//! of each cell is an exhaustive `match` without a wildcard. A new call, situation, kind of lease, law or store does not
//! compile until its meaning is given everywhere. If a cell has no meaning, or a store does not support it, that is a
//! verdict as well, with its reason, and is counted.
//!
//! [`run`] returns a [`Report`] with the verdict on each cell that was really run. The test compares it with
//! [`Cell::count`].
//!
//! # The parts
//!
//! | part | cells | content |
//! |---|---|---|
//! | `faces` | [`Primitive`] × [`Face`] × [`Call`] × [`Situation`] | what each call does to a name in each state, from tasks and from threads |
//! | `leases` | [`Kind`] × [`Aspect`] | how long a lease lasts, and how it ends |
//! | `inputs` | [`Input`] | inputs that are refused, and inputs that are just accepted |
//! | `laws` | [`Law`] | properties over many calls: order, exclusion, tokens, loss |
//! | `times` | [`timed::Call`] × [`timed::Place`] | how long each call takes, wherever it is made |
//! | `rules` | [`Rule`] | the protocol's rules at the interface of the store, below the session |
//!
//! Every cell has names and clients of its own, so that all run at once on one server. A cell ends by closing its
//! clients, which have no grant left to release, and its name is free.

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
pub use faces::{Call, Face, Primitive, Situation};
pub use inputs::Input;
pub use laws::Law;
pub use leases::{Aspect, Kind};
pub use rules::Rule;

use stage::Stage;

use crate::times as timed;

/// One cell of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// A call in a situation, by one face of a primitive.
    Face(Primitive, Face, Call, Situation),
    /// An aspect of a kind of lease.
    Lease(Kind, Aspect),
    /// An input that is refused, or just accepted.
    Input(Input),
    /// A property over many calls.
    Law(Law),
    /// How long a call takes in some place.
    Time(timed::Call, timed::Place),
    /// A rule of the protocol.
    Rule(Rule),
}

/// The result of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its assertions were made, and held.
    Passed,
    /// It has no meaning, for this reason.
    NotApplicable(&'static str),
    /// This store does not support it, and reports that, for this reason.
    Unsupported(&'static str),
    /// An assertion failed.
    Failed(String),
}

/// The result of every cell that was run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The store.
    pub backend: Backend,
    /// The verdicts.
    pub verdicts: BTreeMap<Cell, Verdict>,
}

/// How many cells run at once. They wait more than they compute. But each has several clients with threads of their own,
/// which have to answer before a claim has ended (P7): with more cells at once a small machine misses that.
const AT_ONCE: usize = 8;
/// How long a cell may take. The slowest waits for a renewal of the default lease: 10 s, and the delay of a slow machine.
const CELL_WITHIN: Duration = Duration::from_secs(240);

impl Cell {
    /// Whether the cell has a thousand waiters.
    const fn has_a_crowd(&self) -> bool {
        matches!(self, Self::Law(Law::WideWake | Law::CrowdHoldsNobodyUp))
    }

    /// Whether the cell times a call that reads the whole store.
    const fn times_names(&self) -> bool {
        matches!(self, Self::Time(timed::Call::Names, _))
    }

    /// Returns every cell.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let calls = || Call::ALL.iter().flat_map(|call| Situation::ALL.iter().map(move |at| (*call, *at)));
        let faces = Primitive::ALL.iter().flat_map(|of| Face::ALL.iter().map(move |face| (*of, *face)));
        let faces = faces.flat_map(|(of, face)| calls().map(move |(call, at)| Self::Face(of, face, call, at)));
        let leases = Kind::ALL.iter().flat_map(|kind| Aspect::ALL.iter().map(|aspect| Self::Lease(*kind, *aspect)));
        let inputs = Input::ALL.iter().copied().map(Self::Input);
        let laws = Law::ALL.iter().copied().map(Self::Law);
        let rules = Rule::ALL.iter().copied().map(Self::Rule);
        let places = |call| timed::Place::ALL.iter().map(move |place| Self::Time(call, *place));
        let times = timed::Call::ALL.iter().flat_map(|call| places(*call));
        leases.chain(laws).chain(faces).chain(inputs).chain(times).chain(rules).collect()
    }

    /// Returns how many cells exist according to the enums, whichever were run.
    #[must_use]
    pub fn count() -> usize {
        Primitive::ALL.len() * Face::ALL.len() * Call::ALL.len() * Situation::ALL.len()
            + Kind::ALL.len() * Aspect::ALL.len()
            + Input::ALL.len()
            + Law::ALL.len()
            + timed::Call::ALL.len() * timed::Place::ALL.len()
            + Rule::ALL.len()
    }

    /// Returns the primitive of the cell's name.
    const fn primitive(self) -> Primitive {
        match self {
            Self::Face(primitive, ..) => primitive,
            Self::Lease(..) | Self::Input(_) | Self::Law(_) | Self::Time(..) | Self::Rule(_) => Primitive::Mutex,
        }
    }

    async fn run(self, running: Arc<Running>) -> Verdict {
        if let Some(why) = quorum::not_of_a_quorum(self).filter(|_| running.backend() == Backend::Quorum) {
            return Verdict::NotApplicable(why);
        }
        let stage = Stage::new(running, self);
        let verdict = match self {
            Self::Face(primitive, face, call, at) => faces::run(primitive, face, call, at, &stage).await,
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
            Self::Face(primitive, face, call, at) => write!(f, "{primitive:?}/{face:?}/{call:?}/{at:?}"),
            Self::Lease(kind, aspect) => write!(f, "{kind:?}/{aspect:?}"),
            Self::Input(input) => write!(f, "{input:?}"),
            Self::Law(law) => write!(f, "{law:?}"),
            Self::Time(call, place) => write!(f, "Time/{call:?}/{place:?}"),
            Self::Rule(rule) => write!(f, "{rule:?}"),
        }
    }
}

impl Report {
    /// Returns how many cells have such a verdict.
    #[must_use]
    pub fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        self.verdicts.values().filter(|verdict| which(verdict)).count()
    }

    /// Returns the cells that failed, with their failures.
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

/// Runs every cell that `wanted` accepts over a store, many at once, with clients that hand over in this way. It blocks:
/// each cell has a runtime of its own. The cells that time `names` come first: the call takes longer with each name of the
/// other cells. The cells with a crowd come last, one after the other: a thousand waiters keep a
/// small machine so busy that other cells would miss their deadlines.
///
/// # Panics
/// If the store does not start.
pub fn run(backend: Backend, hand_over: HandOver, wanted: impl Fn(&Cell) -> bool) -> Report {
    let runtime = runtime();
    let running = Arc::new(runtime.block_on(Running::start(backend, hand_over)));
    let (crowds, mut cells): (VecDeque<Cell>, VecDeque<Cell>) =
        Cell::all().into_iter().filter(wanted).partition(|cell| cell.has_a_crowd());
    cells.make_contiguous().sort_by_key(|cell| !cell.times_names());
    let cells: Mutex<VecDeque<Cell>> = Mutex::new(cells);
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
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    verdicts.extend(crowds.into_iter().map(|cell| (cell, play(cell, Arc::clone(&running)))));
    Report { backend, verdicts }
}

fn play(cell: Cell, running: Arc<Running>) -> Verdict {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let timed = async { tokio::time::timeout(CELL_WITHIN, cell.run(running)).await };
        runtime().block_on(timed)
    }));
    match played {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Verdict::Failed(format!("it took longer than {CELL_WITHIN:?}")),
        Err(panicked) => Verdict::Failed(panic_message(&*panicked).to_owned()),
    }
}

fn panic_message(panicked: &(dyn Any + Send)) -> &str {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panicked.downcast_ref().copied()).unwrap_or("a panic without a message")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
