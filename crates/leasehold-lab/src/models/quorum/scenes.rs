//! How tokens are made, in clusters of which size, and what is to come of it.

pub(super) const TWICE: &str = "a token twice";
pub(super) const SMALLER: &str = "a later grant has the smaller token";
pub(super) const TWO_HOLDERS: &str = "two holders";
pub(super) const BEHIND: &str = "renewed behind a later grant";

/// Who makes the token of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Each node counts its grants; the token is the most that a majority says.
    Counters,
    /// The client reads the most that a majority knows, and writes one more back: always stored,
    WriteBack,
    /// or only where the node still holds for it,
    WriteBackHeld,
    /// or only where that is so and the token is above what the node knows.
    WriteBackAbove,
    /// The client proposes; a node grants what is above all that it has granted, and keeps it.
    Proposed,
}

/// What a node or a client does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// A node votes for a token that is not above those for which it has voted.
    VotesBelow,
    /// A client counts votes for its earlier rounds.
    EarlierCount,
    /// A round that is given back takes the vote of a later one along.
    TakesBackAny,
    /// A vote that is filled counts at once.
    FillCounts,
    /// A node is filled although it has voted for a larger token,
    FillsBehind,
    /// and that counts at once.
    FillsBehindAtOnce,
}

/// Whether an operator ends the rest of all nodes, and what the operator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    Never,
    /// The operator waits for nothing.
    Unasked,
    /// No node knows a holder.
    Asked,
    /// The same, and for the time of a lease no request has been sent that a node may have forgotten.
    Settled,
    /// The same, and all clocks have passed all tokens that the nodes remember.
    Passed,
}

/// From when on a grant is valid for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    FromAsking,
    FromEntering,
}

/// A cluster with clocks. All in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) until: u8,
    pub(super) lease: u8,
    /// How far from a node's clock a proposal may be.
    pub(super) window: u8,
    /// How far from the true time a node's clock may be.
    pub(super) clock_error: u8,
    /// For how long a node abstains that has lost everything.
    pub(super) rest: u8,
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
    /// Without clocks: how many leases may end before their time, and how large proposals may be.
    pub(super) early_ends: u8,
    pub(super) tokens: u8,
    /// How often an attempt may ask all nodes, with a larger token each time,
    pub(super) rounds: u8,
    /// where this many of them may ask more than once, the first ones,
    pub(super) repeaters: usize,
    /// and whether it may give its votes back in between. Requests of earlier rounds are under way still.
    pub(super) withdraws: bool,
    /// Whether holders renew, which fills: a free node votes for a holder that it does not know.
    pub(super) renews: bool,
    /// Whether what they are told of a lease that has no end is watched.
    pub(super) watches: bool,
    /// How often a node may lose everything.
    pub(super) losses: u8,
    pub(super) begins: Begins,
    pub(super) timing: Option<Timing>,
    pub(super) flaw: Flaw,
    /// What is found, where the scheme is flawed.
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

/// The rest is above 2 * (window + clock error), and at least a lease: what a node has granted before it forgot is then
/// below all that it grants after, and over.
const TIMING: Timing =
    Timing { until: 4, lease: 2, window: 1, clock_error: 0, rest: 3, validity: Validity::FromAsking };

const MEMORY: Scene = Scene { early_ends: 0, losses: 1, timing: Some(TIMING), ..ORDER };

/// Nodes rest for longer than the scene lasts, unless an operator ends that.
const BEGUN: Scene = Scene { begins: Begins::Passed, timing: Some(Timing { rest: 9, ..TIMING }), ..MEMORY };

/// Holders renew leases that have no end but end all the same.
const WATCHED: Scene = Scene { early_ends: 1, renews: true, watches: true, ..ORDER };

/// Holders renew: shorter, since there is more to happen in each tick.
const RENEWED: Scene =
    Scene { renews: true, timing: Some(Timing { until: 3, window: 0, rest: 2, ..TIMING }), ..MEMORY };
/// An attempt gives back what it has of a round, and asks again.
const WITHDRAWN: Scene = Scene { rounds: 2, repeaters: 1, withdraws: true, early_ends: 0, ..ORDER };

pub(super) const ALL: &[Scene] = &[
    Scene { name: "proposed", about: "tokens that clients propose", ..ORDER },
    Scene { name: "five nodes", about: "the same on five", nodes: 5, early_ends: 2, ..ORDER },
    Scene { name: "in turn", about: "the same with three attempts", attempts: 3, early_ends: 2, ..ORDER },
    Scene {
        name: "above",
        about: "read, and written back above what is known, while held",
        scheme: Scheme::WriteBackAbove,
        ..ORDER
    },
    Scene { name: "rested", about: "a node forgets, and rests for more than twice the window", ..MEMORY },
    Scene {
        name: "clocks",
        about: "the same where it comes back with another clock",
        timing: Some(Timing { until: 3, lease: 1, window: 0, clock_error: 1, ..TIMING }),
        ..MEMORY
    },
    Scene {
        name: "begun",
        about: "an operator ends its rest: no node knows a holder, nobody has asked for a lease, tokens are passed",
        ..BEGUN
    },
    Scene {
        name: "rounds",
        about: "refused, it proposes more, and keeps its votes meanwhile",
        rounds: 2,
        early_ends: 1,
        ..ORDER
    },
    Scene {
        name: "filled",
        about: "a node that is free votes for a holder that it does not know",
        early_ends: 4,
        renews: true,
        ..ORDER
    },
    Scene {
        name: "filled, early",
        about: "leases end before their time, and nobody goes on behind a later one",
        ..WATCHED
    },
    Scene {
        name: "fill counts, early",
        about: "the same, and a fill counts at once",
        flaw: Flaw::FillCounts,
        ..WATCHED
    },
    Scene { name: "withdrawn", about: "a round that is lost is given back, and another one follows", ..WITHDRAWN },
    Scene { name: "renewed", about: "holders renew, a node forgets, rests, and is filled", ..RENEWED },
    Scene { name: "fill counts", about: "the same, and a fill counts at once", flaw: Flaw::FillCounts, ..RENEWED },
    Scene {
        name: "counters",
        about: "each node counts its grants, the token is the most of a majority",
        scheme: Scheme::Counters,
        attempts: 3,
        early_ends: 1,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "written back",
        about: "read, and one more written back: always stored",
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
        about: "proposed, and a node forgets and goes on at once",
        early_ends: 1,
        losses: 1,
        harm: Some(TWICE),
        ..ORDER
    },
    Scene {
        name: "no rest",
        about: "the same with leases that end by time, and proposals near the clock",
        timing: Some(Timing { rest: 0, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "short rest",
        about: "it rests for exactly twice the window",
        timing: Some(Timing { rest: 2, ..TIMING }),
        harm: Some(TWICE),
        ..MEMORY
    },
    Scene {
        name: "clocks, short rest",
        about: "the same where it comes back with another clock: twice the error",
        timing: Some(Timing { until: 3, lease: 1, window: 0, clock_error: 1, rest: 2, ..TIMING }),
        harm: Some(TWICE),
        ..MEMORY
    },
    Scene {
        name: "shorter than a lease",
        about: "it rests for more than that, and for less than a lease",
        timing: Some(Timing { lease: 4, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "begun unasked",
        about: "an operator ends its rest, and asks nobody",
        begins: Begins::Unasked,
        harm: Some(TWO_HOLDERS),
        ..BEGUN
    },
    Scene {
        name: "begun at once",
        about: "when no node knows a holder, while a request is under way whose first vote was forgotten",
        begins: Begins::Asked,
        harm: Some(TWO_HOLDERS),
        ..BEGUN
    },
    Scene {
        name: "begun behind tokens",
        about: "when no node knows a holder, and nobody has asked for a lease",
        begins: Begins::Settled,
        harm: Some(TWICE),
        ..BEGUN
    },
    Scene {
        name: "from the answer",
        about: "validity counts from the majority's answer",
        losses: 0,
        timing: Some(Timing { validity: Validity::FromEntering, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..MEMORY
    },
    Scene {
        name: "below",
        about: "a node votes for what is not above its highest",
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
        about: "what gives a round back takes the vote of the next one along",
        flaw: Flaw::TakesBackAny,
        harm: Some(TWO_HOLDERS),
        ..WITHDRAWN
    },
    Scene {
        name: "renewed, no rest",
        about: "holders renew, and a node forgets and goes on at once",
        timing: Some(Timing { until: 2, rest: 0, ..TIMING }),
        harm: Some(TWO_HOLDERS),
        ..RENEWED
    },
    Scene {
        name: "filled behind, at once",
        about: "a node is filled that has voted for a larger token, and that counts at once",
        flaw: Flaw::FillsBehindAtOnce,
        harm: Some(BEHIND),
        ..WATCHED
    },
    Scene {
        name: "filled behind",
        about: "the same, and it counts at the next renewal, which may come before the message about this one",
        flaw: Flaw::FillsBehind,
        harm: Some(BEHIND),
        ..WATCHED
    },
];
