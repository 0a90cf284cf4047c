//! The scenes: each is small enough to be searched to its end, and each covers one part of the protocol.

use leasehold_spec::Order::{self, Relaxed, Strict};

pub(crate) use super::cooling::{COOLED, COOLING};
use super::scene::{Budget, Renewal, Scene, Wall};

pub(super) const ONE: &[Order] = &[Relaxed];
const TWO: &[Order] = &[Relaxed, Relaxed];
const THREE: &[Order] = &[Relaxed, Relaxed, Relaxed];
const THREE_STRICT: &[Order] = &[Strict, Strict, Strict];
const ONE_STRICT: &[Order] = &[Strict];
const TWO_STRICT: &[Order] = &[Strict, Strict];

const NONE: Budget = Budget::NONE;
const BASE: Scene = Scene::BASE;

pub(crate) const HAND_OVER: Scene = Scene {
    name: "hand-over",
    about: "three sessions hand the lease over; pushes are slow or lost, a waiter gives up",
    sessions: &[ONE, ONE, ONE],
    budget: Budget { slow: 1, lost_pushes: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const ORDER: Scene = Scene {
    name: "order",
    about: "a waiter's only connection breaks, and the waiter comes back to its place",
    sessions: &[ONE, TWO, ONE],
    until: 2,
    start_by: 0,
    budget: Budget { cuts: 1, ..NONE },
    ..BASE
};

pub(crate) const DEATH: Scene = Scene {
    name: "death",
    about: "a process with two waiters of its own dies, half-open or not",
    sessions: &[TWO_STRICT, TWO],
    claim: 1,
    start_by: 0,
    budget: Budget { crashes: 1, ..NONE },
    ..BASE
};

pub(crate) const LAST_WORDS: Scene = Scene {
    name: "last words",
    about: "the same, with requests that are carried out after the death",
    sessions: &[TWO_STRICT, ONE],
    links: 2,
    until: 4,
    claim: 1,
    start_by: 0,
    renewal: Renewal::Thirds,
    budget: Budget { crashes: 1, ..NONE },
    ..BASE
};

pub(crate) const CLAIMS: Scene = Scene {
    name: "claims",
    about: "a push is lost or its receiver dies, between two re-checks of all others",
    sessions: &[ONE, ONE, ONE],
    lease: 6,
    claim: 1,
    budget: Budget { lost_pushes: 1, crashes: 1, ..NONE },
    ..BASE
};

pub(crate) const GHOSTS: Scene = Scene {
    name: "ghosts",
    about: "two connections, one breaks: its requests may still run, its replies are lost",
    links: 2,
    until: 4,
    budget: Budget { slow: 2, cuts: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const OUTAGE: Scene = Scene {
    name: "outage",
    about: "a session with one connection is cut off for longer than a lease",
    sessions: &[ONE, TWO],
    budget: Budget { cuts: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const RETRIES: Scene = Scene {
    name: "retries",
    about: "a slow reply: the request is retried on the other connection",
    links: 2,
    budget: Budget { slow: 2, retries: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const CROSSED: Scene = Scene {
    name: "crossed",
    about: "two connections, whole but slow: a reply and a push, a leave and an acquire cross",
    sessions: &[TWO, TWO],
    links: 2,
    until: 2,
    start_by: 0,
    budget: Budget { slow: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const SLOT: Scene = Scene {
    name: "slot",
    about: "local waiters share one entry, and drop their futures",
    sessions: &[TWO, ONE],
    until: 4,
    budget: Budget { cuts: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const RUNS: Scene = Scene {
    name: "runs",
    about: "local hand-over while another session waits",
    sessions: &[THREE, ONE],
    passes: 1,
    range: 3,
    renewal: Renewal::Thirds,
    wall: Wall::SetBack,
    budget: Budget { slow: 1, ..NONE },
    ..BASE
};

pub(crate) const RANGES: Scene = Scene {
    name: "ranges",
    about: "more local waiters than tokens; the connection breaks at each point of the run",
    sessions: &[THREE, ONE],
    until: 3,
    start_by: 0,
    passes: 1,
    range: 2,
    renewal: Renewal::Thirds,
    wall: Wall::SetBack,
    budget: Budget { cuts: 1, ..NONE },
    ..BASE
};

pub(crate) const STOPPED: Scene = Scene {
    name: "stopped",
    about: "a run whose process pauses or dies; tokens are counted, because the wall clock was set back",
    sessions: &[TWO, ONE],
    passes: 1,
    range: 2,
    start_by: 0,
    wall: Wall::SetBack,
    budget: Budget { pauses: 1, crashes: 1, ..NONE },
    ..BASE
};

pub(crate) const REVOKED: Scene = Scene {
    name: "revoked",
    about: "a run whose lease is revoked, with a grace; messages are slow or lost",
    sessions: &[THREE, ONE],
    until: 3,
    start_by: 0,
    passes: 1,
    range: 2,
    grace: 1,
    wall: Wall::SetBack,
    budget: Budget { slow: 1, lost_pushes: 1, revokes: 1, ..NONE },
    ..BASE
};

pub(crate) const SEIZED: Scene = Scene {
    name: "seized",
    about: "the same without a grace: the next holder is there before the last one is notified",
    grace: 0,
    ..REVOKED
};

pub(crate) const GRACE: Scene = Scene {
    name: "grace",
    about: "a holder that has died is revoked; a waiter that was notified dies, too",
    sessions: &[ONE, ONE, ONE],
    hit: 0b011,
    start_by: 0,
    lease: 9,
    claim: 1,
    grace: 1,
    until: 2,
    budget: Budget { crashes: 2, revokes: 1, ..NONE },
    ..BASE
};

pub(crate) const SET_BACK: Scene = Scene {
    name: "set back",
    about: "the store's clock is set back behind a holder that dies, or one that lives",
    sessions: &[ONE, TWO],
    lease: 3,
    claim: 1,
    start_by: 0,
    back: 7,
    until: 8,
    budget: Budget { crashes: 1, set_backs: 1, ..NONE },
    ..BASE
};

pub(crate) const EDGE: Scene = Scene {
    name: "edge",
    about: "the message that others wait is lost, and no reply repeats it",
    sessions: &[TWO, ONE],
    passes: 1,
    range: 2,
    lease: 6,
    wall: Wall::SetBack,
    budget: Budget { slow: 2, lost_pushes: 1, ..NONE },
    ..BASE
};

pub(crate) const STRICT: Scene = Scene {
    name: "strict",
    about: "a run while another session waits in strict order",
    sessions: &[THREE, ONE_STRICT],
    until: 3,
    passes: 2,
    range: 3,
    wall: Wall::SetBack,
    ..BASE
};

pub(crate) const FORGOTTEN: Scene = Scene {
    name: "forgotten",
    about: "the store restarts empty during a run: tokens grow with the clock",
    sessions: &[TWO, ONE],
    until: 4,
    start_by: 0,
    passes: 1,
    range: 2,
    budget: Budget { restarts: 1, ..NONE },
    ..BASE
};

pub(crate) const REVERTED: Scene = Scene {
    name: "reverted",
    about: "a run during which the store loses its last change: tokens grow with the clock",
    sessions: &[THREE, ONE],
    until: 3,
    budget: Budget { failovers: 1, ..NONE },
    ..FORGOTTEN
};

pub(crate) const DROPS: Scene = Scene {
    name: "drops",
    about: "local waiters of a run drop their futures; messages are slow or lost",
    sessions: &[THREE, ONE],
    until: 3,
    start_by: 0,
    passes: 1,
    range: 2,
    wall: Wall::SetBack,
    budget: Budget { slow: 1, lost_pushes: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const LANES: Scene = Scene {
    name: "lanes",
    about: "a run with two connections, one breaks: reservations and releases cross, and come late",
    sessions: &[THREE, ONE],
    links: 2,
    until: 1,
    start_by: 0,
    passes: 1,
    range: 2,
    wall: Wall::SetBack,
    budget: Budget { slow: 1, cuts: 1, ..NONE },
    ..BASE
};

pub(crate) const ROUNDS: Scene = Scene {
    name: "rounds",
    about: "two sessions with runs of their own; messages are slow or lost",
    sessions: &[TWO, TWO],
    hit: 0b011,
    until: 3,
    start_by: 0,
    passes: 1,
    range: 2,
    wall: Wall::SetBack,
    budget: Budget { slow: 1, lost_pushes: 1, ..NONE },
    ..BASE
};

pub(crate) const MEMORY: Scene = Scene {
    name: "memory",
    about: "the store refuses scripts because its memory is full",
    hit: 0b011,
    budget: Budget { slow: 1, refusals: 2, lost_pushes: 1, ..NONE },
    ..BASE
};

pub(crate) const BATCH: Scene = Scene {
    name: "batch",
    about: "the store refuses a batch: one of its requests is sent again, behind those that were sent meanwhile",
    sessions: &[TWO, ONE],
    hit: 0b011,
    budget: Budget { slow: 1, resends: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const PAUSES: Scene = Scene {
    name: "pauses",
    about: "a process pauses, with or without the lease",
    sessions: &[TWO, ONE],
    renewal: Renewal::Thirds,
    budget: Budget { slow: 1, pauses: 1, ..NONE },
    ..BASE
};

pub(crate) const UNCOUNTED: Scene = Scene {
    name: "uncounted",
    about: "an inbox on another node of the cluster: it gets messages, and is not counted here",
    sessions: &[ONE, ONE, ONE],
    until: 4,
    is_uncounted: true,
    ..BASE
};

pub(crate) const POLLERS: Scene = Scene {
    name: "pollers",
    about: "a session without an inbox waits among others, and nothing goes wrong",
    sessions: &[ONE, TWO],
    lease: 6,
    claim: 1,
    until: 6,
    pollers: 0b001,
    ..BASE
};

pub(crate) const AMNESIA: Scene = Scene {
    name: "amnesia",
    about: "the store restarts empty: no exclusion then, but tokens grow and no waiter waits forever",
    sessions: &[TWO, ONE],
    budget: Budget { restarts: 1, ..NONE },
    ..BASE
};

pub(crate) const BOTH: Scene = Scene {
    name: "both",
    about: "two sessions with two connections each, and faults for both",
    hit: 0b011,
    links: 2,
    until: 3,
    start_by: 0,
    budget: Budget { slow: 1, cuts: 1, cancels: 1, ..NONE },
    ..BASE
};

pub(crate) const EVERYBODY: Scene = Scene {
    name: "everybody",
    about: "three sessions with two connections each, any of which may break",
    sessions: &[ONE, ONE, ONE],
    hit: 0b111,
    links: 2,
    until: 1,
    start_by: 0,
    budget: Budget { cuts: 1, ..NONE },
    ..BASE
};

pub(crate) const ALL: &[Scene] = &[
    HAND_OVER, ORDER, DEATH, LAST_WORDS, CLAIMS, GHOSTS, OUTAGE, RETRIES, CROSSED, SLOT, RUNS, MEMORY, BATCH, PAUSES,
    BOTH, EVERYBODY, UNCOUNTED, POLLERS, AMNESIA, RANGES, STOPPED, REVOKED, SEIZED, EDGE, STRICT, FORGOTTEN, REVERTED,
    DROPS, LANES, ROUNDS, GRACE, SET_BACK, COOLING, COOLED,
];

/// The scene that found this bug: a re-check did not take an entry back that had come back without its ticket. It is too
/// large for daily use.
pub(crate) const DOUBLES: Scene = Scene {
    name: "doubles",
    about: "a first request and its copy, carried out far apart, and the place in the queue",
    sessions: &[ONE, THREE_STRICT],
    links: 2,
    until: 1,
    budget: Budget { cuts: 1, retries: 1, ..NONE },
    ..BASE
};

/// Returns the same scenes with one more tick and one more slow message, and the scene that is too large for daily use.
pub(crate) fn deep() -> Vec<Scene> {
    let larger = |scene: &Scene| {
        let mut scene = scene.clone();
        scene.until += 1;
        scene.budget.slow += u8::from(!scene.is_faultless());
        scene
    };
    // With a larger budget the search of these scenes would not end.
    let is_large = |scene: &&Scene| [EVERYBODY.name, LANES.name, GRACE.name].contains(&scene.name);
    let scenes = ALL.iter().filter(|scene| !is_large(scene)).map(larger);
    scenes.chain([EVERYBODY, LANES, GRACE, DOUBLES]).collect()
}
