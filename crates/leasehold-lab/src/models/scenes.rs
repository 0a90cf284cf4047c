//! The models.

use leasehold_spec::Order::{self, Relaxed, Strict};

use super::scene::{Budget, Renewal, Scene};

const ONE: &[Order] = &[Relaxed];
const TWO: &[Order] = &[Relaxed, Relaxed];
const THREE: &[Order] = &[Relaxed, Relaxed, Relaxed];
const TWO_STRICT: &[Order] = &[Strict, Strict];
const NONE: Budget = Budget { slow: 0, cuts: 0, lost_pushes: 0, retries: 0, cancels: 0, pauses: 0, crashes: 0, refusals: 0, restarts: 0 };

const BASE: Scene = Scene {
    name: "", about: "", sessions: &[ONE, ONE], hit: 0b001, links: 1, until: 5, start_by: 1, lease: 3, claim: 2, slack: 1,
    passes: 0, renewal: Renewal::Fixed, budget: NONE,
};

pub(crate) const ALL: &[Scene] = &[
    Scene {
        name: "hand-over",
        sessions: &[ONE, ONE, ONE],
        budget: Budget { slow: 1, lost_pushes: 1, cancels: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "order",
        sessions: &[ONE, ONE, ONE],
        budget: Budget { slow: 1, cuts: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "death",
        sessions: &[TWO_STRICT, ONE],
        claim: 1, until: 6,
        budget: Budget { slow: 1, crashes: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "death-2",
        sessions: &[TWO_STRICT, ONE],
        links: 2,
        claim: 1, until: 6,
        renewal: Renewal::Thirds,
        budget: Budget { slow: 1, crashes: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "ghosts",
        sessions: &[ONE, ONE],
        links: 2, until: 6,
        budget: Budget { slow: 2, cuts: 1, cancels: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "retries",
        sessions: &[ONE, ONE],
        links: 2, until: 5,
        budget: Budget { slow: 2, retries: 1, cancels: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "slot",
        sessions: &[THREE, ONE],
        budget: Budget { slow: 1, cuts: 1, cancels: 1, ..NONE },
        ..BASE
    },
    Scene {
        name: "runs",
        sessions: &[THREE, ONE],
        passes: 1,
        renewal: Renewal::Thirds,
        until: 4,
        budget: Budget { slow: 0, ..NONE },
        ..BASE
    },
    Scene {
        name: "memory",
        sessions: &[ONE, ONE],
        budget: Budget { refusals: 2, slow: 1, lost_pushes: 1, ..NONE },
        hit: 0b011,
        ..BASE
    },
    Scene {
        name: "pause",
        sessions: &[ONE, ONE, ONE],
        budget: Budget { pauses: 1, slow: 1, ..NONE },
        renewal: Renewal::Thirds,
        ..BASE
    },
];
