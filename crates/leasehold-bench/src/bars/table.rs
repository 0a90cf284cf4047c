//! The promises. A peer *has* something if it has a token, keeps a queue or pushes waits, as Leasehold does. Where
//! locks are free and there is one task, Leasehold may be a little slower than a peer that has none of these, but not
//! slower than rslock. With more tasks it must be faster than every peer.

use super::{Against, Bar, Kind, Limit};
use crate::record::Row;
use crate::scenario::{Case, Inside, Scenario};
use crate::stats::Fairness;
use crate::system::Own;

const OPS: fn(&Row) -> Option<f64> = |row| Some(row.ops_per_s);
const SERVER_US: fn(&Row) -> Option<f64> = |row| Some(row.server_us_per_op);
const SERVER_CPU: fn(&Row) -> Option<f64> = |row| Some(row.server_cpu_us_per_op);
const CLIENT_CPU: fn(&Row) -> Option<f64> = |row| Some(row.client_cpu_us_per_op);
const P999_MS: fn(&Row) -> Option<f64> = |row| Some(row.p999_us? as f64 / 1e3);
const LOST: fn(&Row) -> Option<f64> = |row| Some(row.lost_updates? as f64);
const LEAST: fn(&Row) -> Option<f64> = |row| Some(row.fairness?.min);
const FARTHEST: fn(&Row) -> Option<f64> = |row| row.fairness.as_ref().map(Fairness::worst_deviation);
/// One for each grant that came from another process, and one for each ended run of grants within one process.
const PUBLISHES: fn(&Row) -> Option<f64> =
    |row| Some(row.publishes_per_op / (row.store_grants_per_op? + row.local_runs_per_op?));

const P50: fn(&Row) -> Option<f64> = |row| Some(row.p50_us? as f64);
const P99: fn(&Row) -> Option<f64> = |row| Some(row.p99_us? as f64);
const ATTEMPTS_P99: fn(&Row) -> Option<f64> = |row| Some(row.attempts?.p99? as f64);

const ALWAYS: fn(&Case) -> bool = |_| true;
const ONE: fn(&Case) -> bool = |case| case.tasks == 1;
const SIXTEEN: fn(&Case) -> bool = |case| case.tasks == 16;
const SIXTY_FOUR: fn(&Case) -> bool = |case| case.tasks == 64;
const THOUSAND: fn(&Case) -> bool = |case| case.tasks == 1000;
const SIXTY_FOUR_ON_ONE: fn(&Case) -> bool = |case| SIXTY_FOUR(case) && case.threads == 1;
const SIXTY_FOUR_ON_TWO: fn(&Case) -> bool = |case| SIXTY_FOUR(case) && case.threads == 2;
const COUNTED: fn(&Case) -> bool = |case| case.inside.is_none();
const EMPTY: fn(&Case) -> bool = |case| case.inside == Some(Inside::Nothing);

const fn bar(
    (scenario, of): (Scenario, Own),
    at: fn(&Case) -> bool,
    (what, figure): (&'static str, fn(&Row) -> Option<f64>),
    against: Against,
    limit: Limit,
) -> Bar {
    Bar { scenario, of, at, what, figure, against, limit }
}

const fn at_least(least: f64) -> Limit {
    Limit::AtLeast(least)
}

const fn at_most(most: f64) -> Limit {
    Limit::AtMost(most)
}

const UNCONTENDED: (Scenario, Own) = (Scenario::Uncontended, Own::Leasehold);
const COST: (Scenario, Own) = (Scenario::ServerCost, Own::Leasehold);
const HOT: (Scenario, Own) = (Scenario::Hot, Own::Leasehold);
const HOT_FAIR: (Scenario, Own) = (Scenario::Hot, Own::LeaseholdFair);
const HOT_LOCAL: (Scenario, Own) = (Scenario::HotLocal, Own::Leasehold);
const QUEUE: (Scenario, Own) = (Scenario::Queue, Own::LeaseholdFair);
const LEASES: (Scenario, Own) = (Scenario::Leases, Own::Leasehold);

const QUORUM: (Scenario, Own) = (Scenario::Quorum, Own::Leasehold);
const QUORUM_HOT: (Scenario, Own) = (Scenario::QuorumHot, Own::Leasehold);
const RWLOCK: (Scenario, Own) = (Scenario::Rwlock, Own::Leasehold);
const SEMAPHORE: (Scenario, Own) = (Scenario::Semaphore, Own::Leasehold);
const EACH: Against = Against::Each(Kind::Any);
/// With 32 processes there are more than most machines have processors: those cases are only shown.
const FEW: fn(&Case) -> bool = |case| case.processes <= 8;
const EIGHT_AT_ONCE: fn(&Case) -> bool = |case| case.processes == 8 && case.pause_us.is_none();

const S5: Against = Against::Own(Own::S5);
/// The usual names of these locks, which are also their names in `systems.json`.
const REDISSON: Against = Against::Peer("redisson");
const RSLOCK: Against = Against::Peer("rslock");

pub(super) const BARS: [Bar; 50] = [
    bar(UNCONTENDED, ONE, ("pairs a second", OPS), S5, at_least(0.9)),
    bar(UNCONTENDED, SIXTEEN, ("pairs a second", OPS), S5, at_least(0.9)),
    bar(UNCONTENDED, SIXTY_FOUR_ON_TWO, ("pairs a second", OPS), S5, at_least(1.2)),
    bar(UNCONTENDED, SIXTY_FOUR_ON_ONE, ("pairs a second", OPS), S5, at_least(1.3)),
    bar(UNCONTENDED, THOUSAND, ("pairs a second", OPS), S5, at_least(1.0)),
    bar(UNCONTENDED, SIXTY_FOUR_ON_TWO, ("server CPU of a pair", SERVER_CPU), S5, at_most(0.65)),
    bar(UNCONTENDED, SIXTY_FOUR_ON_TWO, ("client CPU of a pair", CLIENT_CPU), S5, at_most(0.8)),
    bar(UNCONTENDED, ONE, ("pairs a second", OPS), Against::Each(Kind::Equal), at_least(1.0)),
    bar(UNCONTENDED, ONE, ("pairs a second", OPS), Against::Each(Kind::Bare), at_least(0.85)),
    bar(UNCONTENDED, ONE, ("pairs a second", OPS), RSLOCK, at_least(1.0)),
    bar(UNCONTENDED, SIXTEEN, ("pairs a second", OPS), EACH, at_least(1.1)),
    bar(UNCONTENDED, SIXTY_FOUR, ("pairs a second", OPS), EACH, at_least(1.3)),
    bar(UNCONTENDED, SIXTY_FOUR, ("pairs a second", OPS), REDISSON, at_least(1.5)),
    bar(UNCONTENDED, THOUSAND, ("pairs a second", OPS), EACH, at_least(1.3)),
    bar(COST, ALWAYS, ("server time of a pair", SERVER_US), REDISSON, at_most(0.8)),
    bar(COST, ALWAYS, ("server time of a pair", SERVER_US), S5, at_most(1.8)),
    bar(HOT_FAIR, ALWAYS, ("hand-overs a second", OPS), Against::Best(Kind::Fair), at_least(4.0)),
    bar(HOT_FAIR, ALWAYS, ("hand-overs a second", OPS), Against::Own(Own::Floor), at_least(0.9)),
    bar(HOT_FAIR, ALWAYS, ("worker farthest from the mean, of the mean", FARTHEST), Against::Nothing, at_most(0.1)),
    bar(HOT_FAIR, ALWAYS, ("p99.9 wait, ms", P999_MS), Against::Nothing, at_most(100.0)),
    bar(HOT_FAIR, ALWAYS, ("messages for each hand-over and run", PUBLISHES), Against::Nothing, at_most(1.0)),
    bar(HOT_FAIR, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
    bar(HOT, COUNTED, ("hand-overs a second", OPS), Against::Best(Kind::Any), at_least(1.8)),
    bar(HOT, EMPTY, ("hand-overs a second", OPS), Against::Best(Kind::Any), at_least(4.0)),
    bar(HOT, ALWAYS, ("hand-overs a second", OPS), Against::Own(Own::Floor), at_least(0.8)),
    bar(HOT, ALWAYS, ("p99.9 wait, ms", P999_MS), Against::Nothing, at_most(100.0)),
    bar(HOT, ALWAYS, ("least served worker, of the mean", LEAST), Against::Nothing, at_least(0.5)),
    bar(HOT, ALWAYS, ("messages for each hand-over and run", PUBLISHES), Against::Nothing, at_most(1.0)),
    bar(HOT, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
    bar(
        HOT_LOCAL,
        |case| case.busy_us == Some(0),
        ("pairs a second", OPS),
        Against::Own(Own::TokioMutex),
        at_least(0.6),
    ),
    bar(HOT_LOCAL, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
    bar(QUEUE, |case| case.tasks >= 500, ("server time of a hand-over", SERVER_US), Against::Waiters(10), at_most(1.5)),
    bar(LEASES, ALWAYS, ("lost leases", |row| Some(row.lost_leases? as f64)), Against::Nothing, at_most(0.0)),
    bar(
        LEASES,
        |case| case.tasks == 100_000,
        ("the client's share of a core", |row| Some(row.client_core_share)),
        Against::Nothing,
        at_most(0.2),
    ),
    bar(
        LEASES,
        |case| case.tasks == 100_000,
        ("the server's share of a core", |row| Some(row.server_core_share)),
        Against::Nothing,
        at_most(0.2),
    ),
    // Its acquire takes one exchange with the third-fastest node, and nothing else.
    bar(QUORUM, ALWAYS, ("median wait", P50), Against::Own(Own::Fan), at_most(1.3)),
    bar(QUORUM_HOT, FEW, ("median wait", P50), EACH, at_most(1.0)),
    bar(QUORUM_HOT, FEW, ("p99 wait", P99), EACH, at_most(1.0)),
    bar(QUORUM_HOT, EIGHT_AT_ONCE, ("sections a second", OPS), EACH, at_least(1.0)),
    bar(QUORUM_HOT, EIGHT_AT_ONCE, ("p99.9 wait", P999_MS), EACH, at_most(1.0)),
    bar(QUORUM_HOT, FEW, ("p99 of attempts", ATTEMPTS_P99), Against::Nothing, at_most(4.0)),
    bar(QUORUM_HOT, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
    bar(RWLOCK, ALWAYS, ("pairs a second", OPS), Against::Best(Kind::Equal), at_least(2.0)),
    bar(RWLOCK, ALWAYS, ("pairs a second", OPS), EACH, at_least(1.0)),
    bar(RWLOCK, ALWAYS, ("p99.9 wait", P999_MS), EACH, at_most(1.0)),
    bar(RWLOCK, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
    bar(SEMAPHORE, ALWAYS, ("pairs a second", OPS), Against::Best(Kind::Equal), at_least(2.0)),
    bar(SEMAPHORE, ALWAYS, ("pairs a second", OPS), EACH, at_least(1.0)),
    bar(SEMAPHORE, ALWAYS, ("p99.9 wait", P999_MS), EACH, at_most(1.0)),
    bar(SEMAPHORE, ALWAYS, ("lost updates", LOST), Against::Nothing, at_most(0.0)),
];
