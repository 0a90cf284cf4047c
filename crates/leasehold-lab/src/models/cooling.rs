//! The scenes of a minimum hold (P23).

use super::scene::{Budget, Renewal, Scene};
use super::scenes::ONE;

pub(crate) const COOLING: Scene = Scene {
    name: "cooling",
    about: "a section is shorter than the minimum hold; the connection breaks, messages are slow",
    sessions: &[ONE, ONE, ONE],
    links: 2,
    lease: 6,
    claim: 1,
    until: 4,
    start_by: 0,
    min_hold: 3,
    renewal: Renewal::Thirds,
    budget: Budget { slow: 1, cuts: 1, ..Budget::NONE },
    ..Scene::BASE
};

pub(crate) const COOLED: Scene = Scene {
    name: "cooled",
    about: "nothing is slow: the waiters are served when the minimum hold is over, although a process dies",
    lease: 9,
    links: 1,
    until: 6,
    min_hold: 4,
    budget: Budget { crashes: 1, ..Budget::NONE },
    ..COOLING
};
