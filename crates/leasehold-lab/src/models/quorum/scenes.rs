//! The searches: how tokens are made, in clusters of which size, and the expected result.

pub(super) const TWICE: &str = "a token twice";
pub(super) const SMALLER: &str = "a later grant has the smaller token";
pub(super) const TWO_HOLDERS: &str = "two holders";
pub(super) const BEHIND: &str = "renewed behind a later grant";

/// The way in which the token of a grant is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Each node counts its grants; the token is the largest count of a majority.
    Counters,
    /// The client reads the largest token that a majority knows, and writes that token plus one back: it is always
    /// stored,
    WriteBack,
    /// or it is stored only where the node still holds for the client,
    WriteBackHeld,
    /// or it is stored only where that is so and the token is above the node's highest.
    WriteBackAbove,
    /// The client proposes a token; a node grants a token that is above all that it has granted, and remembers it.
    Proposed,
}

/// A flaw of a node or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// A node votes for a token that is not above those for which it has voted.
    VotesBelow,
    /// A client counts votes for its earlier rounds.
    EarlierCount,
    /// A late message that gives a round back takes the vote of a later round back, too.
    TakesBackAny,
    /// A filled vote counts at once.
    FillCounts,
    /// A vote is filled although the node has voted for a larger token,
    FillsBehind,
    /// and the filled vote counts at once.
    FillsBehindAtOnce,
}

/// Whether an operator ends the quarantine of all nodes, and the condition that the operator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    Never,
    /// The operator does not check anything.
    Unasked,
    /// No node knows a holder.
    Asked,
    /// The same, and for the length of a lease no request was sent that a node may have forgotten.
    Settled,
    /// The same, and all clocks are beyond all tokens that the nodes remember.
    Passed,
}

/// The time from which a grant is valid for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    FromAsking,
    FromEntering,
}

/// The parameters of a cluster with clocks, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) until: u8,
    pub(super) lease: u8,
    /// How far from a node's clock a proposal may be.
    pub(super) window: u8,
    /// How far from the true time a node's clock may be.
    pub(super) clock_error: u8,
    /// The quarantine: for how long a node that has lost everything abstains.
    pub(super) quarantine: u8,
    pub(super) validity: Validity,
}

/// One search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) scheme: Scheme,
    pub(super) nodes: usize,
    pub(super) attempts: usize,
    /// Without clocks: how many leases may end early, and how large proposals may be.
    pub(super) early_ends: u8,
    pub(super) tokens: u8,
    /// How often an attempt may request votes from all nodes, with a larger token each time,
    pub(super) rounds: u8,
    /// how many attempts may do so more than once (the first ones),
    pub(super) repeaters: usize,
    /// and whether an attempt may give its votes back in between. Requests of earlier rounds stay in flight.
    pub(super) withdraws: bool,
    /// Whether holders renew, which fills votes: a free node votes for a holder that it does not know.
    pub(super) renews: bool,
    /// Whether the replies that holders get about a lease without an end are checked.
    pub(super) watches: bool,
    /// How often a node may lose everything.
    pub(super) losses: u8,
    pub(super) begins: Begins,
    pub(super) timing: Option<Timing>,
    pub(super) flaw: Flaw,
    /// The violation that is found, if the scheme is flawed.
    pub(super) harm: Option<&'static str>,
}

const ORDER: Scene = Scene {
    name: "",
    about: "",
    scheme: Scheme::Proposed,
    nodes: 3,
    attempts: 2,
    early_ends: 6,
    tokens: 3,
    rounds: 1,
    repeaters: 2,
    withdraws: false,
    renews: false,
    watches: false,
    losses: 0,
    begins: Begins::Never,
    timing: None,
    flaw: Flaw::None,
    harm: None,
};

/// The quarantine is longer than 2 * (window + clock error), and at least a lease. So the grants that a node made before
/// it forgot have tokens below all that it grants later, and are over.
const TIMING: Timing =
    Timing { until: 4, lease: 2, window: 1, clock_error: 0, quarantine: 3, validity: Validity::FromAsking };

const MEMORY: Scene = Scene { early_ends: 0, losses: 1, timing: Some(TIMING), ..ORDER };

/// The quarantine lasts longer than the scene, unless an operator ends it.
const BEGUN: Scene = Scene { begins: Begins::Passed, timing: Some(Timing { quarantine: 9, ..TIMING }), ..MEMORY };

/// Holders renew leases without an end, which may end early all the same.
const WATCHED: Scene = Scene { early_ends: 1, renews: true, watches: true, ..ORDER };

/// Holders renew. The scene is shorter, since more can happen in each tick.
const RENEWED: Scene =
    Scene { renews: true, timing: Some(Timing { until: 3, window: 0, quarantine: 2, ..TIMING }), ..MEMORY };
/// An attempt gives its votes of a round back, and asks again.
const WITHDRAWN: Scene = Scene { rounds: 2, repeaters: 1, withdraws: true, early_ends: 0, ..ORDER };

pub(super) const ALL: &[Scene] = &[
    Scene { name: "proposed", about: "tokens that clients propose", ..ORDER },
    Scene { name: "five nodes", about: "the same on five", nodes: 5, early_ends: 2, ..ORDER },
    Scene { name: "in turn", about: "the same with three attempts", attempts: 3, early_ends: 2, ..ORDER },
    Scene {
        name: "above",
        about: "read, and written back above the highest token, while held",
        scheme: Scheme::WriteBackAbove,
        ..ORDER
    },
    Scene { name: "rested", about: "a node forgets, and its quarantine is longer than twice the window", ..MEMORY },
    Scene {
        name: "clocks",
        about: "the same, and the node comes back with another clock",
        timing: Some(Timing { until: 3, lease: 1, window: 0, clock_error: 1, ..TIMING }),
        ..MEMORY
    },
    Scene {
        name: "begun",
        about: "an operator ends the quarantine: no holder is known, no forgotten request in flight, tokens passed",
        ..BEGUN
    },
    Scene {
        name: "rounds",
        about: "a refused attempt proposes a larger token, and keeps its votes meanwhile",
        rounds: 2,
        early_ends: 1,
        ..ORDER
    },
    Scene {
        name: "filled",
        about: "a free node votes for a holder that it does not know",
        early_ends: 4,
        renews: true,
        ..ORDER
    },
    Scene { name: "filled, early", about: "leases end early, and no holder goes on behind a later grant", ..WATCHED },
    Scene {
        name: "fill counts, early",
        about: "the same, and a fill counts at once",
        flaw: Flaw::FillCounts,
        ..WATCHED
    },
    Scene { name: "withdrawn", about: "a lost round is given back, and another one follows", ..WITHDRAWN },
    Scene { name: "renewed", about: "holders renew, a node forgets, is in quarantine, and is filled", ..RENEWED },
    Scene { name: "fill counts", about: "the same, and a fill counts at once", flaw: Flaw::FillCounts, ..RENEWED },
    Scene {
        name: "counters",
        about: "each node counts its grants, the token is the largest count of a majority",
        scheme: Scheme::Counters,
        attempts: 3,
        early_ends: 1,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "written back",
        about: "the largest token is read, and that plus one is written back: always stored",
        scheme: Scheme::WriteBack,
        early_ends: 3,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "while held",
        about: "the same, stored only where the node still holds for it",
        scheme: Scheme::WriteBackHeld,
        early_ends: 3,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "restarted",
        about: "tokens are proposed, and a node forgets and goes on at once",
        early_ends: 1,
        losses: 1,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "no rest",
        about: "the same with leases that end on time, and proposals near the clock",
        timing: Some(Timing { quarantine: 0, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "short rest",
        about: "the quarantine is exactly twice the window",
        timing: Some(Timing { quarantine: 2, ..TIMING }),
        harm: Some(TWICE),
        ..MEMORY
    },
    Scene {
        name: "clocks, short rest",
        about: "the same, and the node comes back with another clock: twice the error",
        timing: Some(Timing { until: 3, lease: 1, window: 0, clock_error: 1, quarantine: 2, ..TIMING }),
        harm: Some(TWICE),
        ..MEMORY
    },
    Scene {
        name: "shorter than a lease",
        about: "the quarantine is longer than that, and shorter than a lease",
        timing: Some(Timing { lease: 4, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "begun unasked",
        about: "an operator ends the quarantine without a check",
        begins: Begins::Unasked,
        harm: Some(TWO_HOLDERS),
        ..BEGUN
    },
    Scene {
        name: "begun at once",
        about: "when no holder is known, while a request is in flight whose first vote was forgotten",
        begins: Begins::Asked,
        harm: Some(TWO_HOLDERS),
        ..BEGUN
    },
    Scene {
        name: "begun behind tokens",
        about: "when no holder is known, and no forgotten request is in flight",
        begins: Begins::Settled,
        harm: Some(TWICE),
        ..BEGUN
    },
    Scene {
        name: "from the answer",
        about: "validity counts from the arrival of the majority's replies",
        losses: 0,
        timing: Some(Timing { validity: Validity::FromEntering, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "below",
        about: "a node votes for a token that is not above its highest",
        flaw: Flaw::VotesBelow,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "earlier votes",
        about: "votes for an earlier round of the attempt count",
        rounds: 2,
        flaw: Flaw::EarlierCount,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "withdrawn late",
        about: "a late withdrawal of a round takes back the vote of the next round",
        flaw: Flaw::TakesBackAny,
        harm: Some(TWO_HOLDERS),
        ..WITHDRAWN
    },
    Scene {
        name: "renewed, no rest",
        about: "holders renew, and a node forgets and goes on at once",
        timing: Some(Timing { until: 2, quarantine: 0, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..RENEWED
    },
    Scene {
        name: "filled behind, at once",
        about: "a node that has voted for a larger token is filled, and the vote counts at once",
        flaw: Flaw::FillsBehindAtOnce,
        harm: Some(BEHIND),
        ..WATCHED
    },
    Scene {
        name: "filled behind",
        about: "the same, and it counts at the next renewal, which may precede the reply to this one",
        flaw: Flaw::FillsBehind,
        harm: Some(BEHIND),
        ..WATCHED
    },
];
