//! Turns the user's arguments into a plan, or into a reason why there is none.

use clap::ValueEnum;

use super::{Options, Wanted};
use crate::bench::{Entrant, Group, Plan};
use crate::peers::Peers;
use crate::scenario::{Case, Ending, Extent, Inside, NameUse, Primitive, Scenario};
use crate::system::{Own, System};

/// Releases are quick and vary; a death takes as long as its lease.
const RELEASES: u64 = 10;

/// The default of --pairs.
const PAIRS: u64 = 60_000;
/// Readers only, some writers, and as many writers as readers.
const WRITES_PERCENT: [u32; 3] = [0, 10, 50];
/// A quarter of the tasks can hold a permit.
const PERMITS: u32 = 4;
const BUSY_US: [u64; 3] = [0, 1, 10];
/// The pause of a process between two pairs, for each process that wants the name: so the name is free most of the time.
const PAUSE_US: u64 = 5_000;
/// The delay of each server of a quorum: none, and the longest round trip to another zone.
const DELAYS_US: [Option<u64>; 2] = [None, Some(5_000)];

pub(super) fn plan(wanted: Wanted, options: &Options) -> Result<Plan, String> {
    let named: Vec<System> = options.systems.iter().map(|name| System::named(name)).collect();
    let unknown = named.iter().find(|system| system.own().is_none());
    let known = match unknown {
        _ if !options.peers.is_empty() => read_peers(options)?,
        Some(unknown) => read_peers(options).map_err(|why| {
            format!("there is no system {:?} of ours ({}), and no peer: {why}", unknown.name(), ours())
        })?,
        None => Peers::default(),
    };
    let peers: Vec<System> = match &options.peers[..] {
        [all] if all == "all" => known.names().map(System::named).collect(),
        some => some.iter().map(|name| System::Peer(name.clone())).collect(),
    };
    for system in named.iter().chain(&peers).filter(|system| system.own().is_none()) {
        if !known.knows(system.name()) {
            let all: Vec<&str> = known.names().collect();
            let (name, all) = (system.name(), all.join(", "));
            return Err(format!("there is no system {name:?}; peers are {all}; ours are {}", ours()));
        }
    }
    refuse_contradictions(wanted, options)?;
    if let Wanted::One(scenario) = wanted
        && scenario.is_of_quorum()
        && let Some(one) = named
            .iter()
            .chain(&peers)
            .find(|one| one.own().is_none() && options.peers[..] != ["all"] && !known.has_quorum(one.name()))
    {
        return Err(format!("{} is a lock of one server: it cannot take part in {}", one.name(), scenario.name()));
    }
    if let Wanted::One(scenario) = wanted
        && options.peers[..] != ["all"]
        && let Some(one) = named.iter().chain(&peers).find(|one| !can_share(one, scenario, &known))
    {
        return Err(format!("{} has no {}: it cannot take part", one.name(), noun(scenario.primitive())));
    }
    let scenarios = wanted.scenarios();
    let is_all = options.peers[..] == ["all"];
    let takes_part = |scenario: Scenario| -> Vec<System> {
        let can = |peer: &&System| {
            !is_all || can_share(peer, scenario, &known) && (!scenario.is_of_quorum() || known.has_quorum(peer.name()))
        };
        peers.iter().filter(can).cloned().collect()
    };
    let of = |scenario| groups(scenario, options, &named, &takes_part(scenario));
    let groups = scenarios.into_iter().flat_map(of).collect();
    let plan = Plan { groups, peers: known, awake: options.awake };
    let twice = |group: &Group| (1..group.entrants.len()).any(|at| group.entrants[..at].contains(&group.entrants[at]));
    if plan.groups.iter().any(twice) {
        return Err("something takes part twice: use --runs for more runs".into());
    }
    Ok(plan)
}

/// Whether a peer has what the scenario measures. Our own systems are judged elsewhere.
fn can_share(system: &System, scenario: Scenario, known: &Peers) -> bool {
    system.own().is_some() || known.primitive(system.name()) == Some(scenario.primitive())
}

fn noun(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Mutex => "mutex",
        Primitive::Rwlock => "read-write lock",
        Primitive::Semaphore => "semaphore",
    }
}

/// Returns the names of this program's own systems.
fn ours() -> String {
    Own::value_variants().iter().map(|own| own.name()).collect::<Vec<_>>().join(", ")
}

/// Refuses an option that would change nothing: the user believes that it did.
fn refuse_ignored(scenario: Scenario, options: &Options) -> Result<(), String> {
    use Scenario::{
        Hot, HotLocal, Leases, Queue, Quorum, QuorumHot, Rwlock, Semaphore, ServerCost, Takeover, Uncontended,
    };
    let of_one_server: &[Scenario] =
        &[Uncontended, Hot, HotLocal, Queue, Leases, ServerCost, Takeover, Rwlock, Semaphore];
    let timed: &[Scenario] = &[Uncontended, Hot, HotLocal, Queue, Leases, Quorum, QuorumHot, Rwlock, Semaphore];
    let for_some: [(&str, bool, &[Scenario]); 6] = [
        ("--store", options.store.is_some(), of_one_server),
        ("--processes", options.processes.is_some(), &[Hot, QuorumHot, Rwlock, Semaphore]),
        ("--pairs", options.pairs.is_some(), &[ServerCost]),
        ("--busy-us", !options.busy_us.is_empty(), &[HotLocal]),
        ("--lease-ms", !options.lease_ms.is_empty(), &[Leases, Takeover]),
        ("--seconds", options.seconds.is_some(), timed),
    ];
    match for_some.iter().find(|(_, is_given, some)| *is_given && !some.contains(&scenario)) {
        None => Ok(()),
        Some((option, _, some)) => {
            let some: Vec<&str> = some.iter().map(|one| one.name()).collect();
            Err(format!("{option} changes nothing in {}: it is for {}", scenario.name(), some.join(", ")))
        }
    }
}

/// Refuses contradictions that are independent of the peers.
fn refuse_contradictions(wanted: Wanted, options: &Options) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    match wanted {
        Wanted::All if !options.tasks.is_empty() => {
            return refuse("--tasks means something else to each scenario: name one instead of `all`");
        }
        Wanted::All if !options.lease_ms.is_empty() => {
            return refuse("--lease-ms means something else to each scenario: name one instead of `all`");
        }
        Wanted::All if !options.systems.is_empty() => {
            return refuse("--systems makes no sense to each scenario: name one instead of `all`");
        }
        Wanted::One(scenario) if !scenario.is_for_peers() && !options.peers.is_empty() => {
            return refuse(
                "--peers are for uncontended, hot, server-cost, quorum, quorum-hot, rwlock and semaphore: the others \
                 ask for what peers do not have",
            );
        }
        Wanted::One(scenario) if scenario.is_for_leasehold_only() && !options.systems.is_empty() => {
            return refuse("--systems cannot be chosen here: only Leasehold's own client does it");
        }
        Wanted::One(Scenario::Takeover) if !options.tasks.is_empty() => {
            return refuse("--tasks: one holds and one waits, always; there is --lease-ms");
        }
        _ => {}
    }
    if let Wanted::One(scenario) = wanted {
        refuse_ignored(scenario, options)?;
        let named = || options.systems.iter().map(|name| System::named(name));
        if let Some(own) = named().filter_map(|system| system.own()).find(|own| !scenario.takes(*own)) {
            return Err(match own {
                Own::TokioMutex => {
                    "tokio-mutex is a lock of one process: it can take part in hot-local only".to_owned()
                }
                Own::Fan => "fan is a lock that waits for nobody, on several servers: it can take part in quorum only"
                    .to_owned(),
                other if scenario.is_shared() => {
                    format!("{} has no {}: it cannot take part", other.name(), noun(scenario.primitive()))
                }
                other => {
                    format!("{} is a lock of one server: it cannot take part in {}", other.name(), scenario.name())
                }
            });
        }
        if !scenario.is_for_peers() && named().any(|system| system.own().is_none()) {
            return refuse(
                "--systems: peers take part in uncontended, hot, server-cost, quorum, quorum-hot, rwlock and \
                 semaphore, and not here",
            );
        }
    }
    match &options.store {
        Some(url) if !["redis://", "rediss://", "unix://"].iter().any(|scheme| url.starts_with(scheme)) => {
            refuse("--store takes a redis:// URL: the systems to compare with speak to nothing else")
        }
        _ => Ok(()),
    }
}

fn read_peers(options: &Options) -> Result<Peers, String> {
    Peers::read(&options.peers_dir).map_err(|error| error.to_string())
}

fn groups(scenario: Scenario, options: &Options, named: &[System], peers: &[System]) -> Vec<Group> {
    let mut systems: Vec<System> = match named {
        [] => scenario.systems().iter().map(|&own| own.into()).collect(),
        some => some.to_vec(),
    };
    if scenario.is_for_peers() {
        systems.extend(peers.iter().cloned());
    }
    let runs = options.runs.unwrap_or(scenario.runs());
    let entrants = |case: Case| -> Vec<Entrant> {
        systems.iter().map(|system| Entrant { system: system.clone(), case: case.clone() }).collect()
    };
    let cases = cases(scenario, options);
    if scenario == Scenario::Queue {
        // The sizes of this scenario are compared with each other.
        return vec![Group { entrants: cases.into_iter().flat_map(entrants).collect(), runs }];
    }
    cases.into_iter().map(|case| Group { entrants: entrants(case), runs }).collect()
}

fn cases(scenario: Scenario, options: &Options) -> Vec<Case> {
    let window_ms = options.seconds.unwrap_or(scenario.seconds()) * 1_000;
    let sizes = if options.tasks.is_empty() { scenario.tasks() } else { &options.tasks };
    let case = |tasks: u32| Case {
        scenario,
        names: scenario.name_uses()[0],
        processes: scenario.processes()[0],
        tasks,
        threads: options.threads.unwrap_or(scenario.threads(tasks)[0]),
        inside: None,
        busy_us: None,
        lease_ms: None,
        ending: None,
        delay_us: None,
        pause_us: None,
        writes_percent: None,
        permits: None,
        extent: Extent::WindowMs(window_ms),
    };
    let shared = |tasks: u32| Case { processes: options.processes.unwrap_or(scenario.processes()[0]), ..case(tasks) };
    let leases = |usual: &[u64]| if options.lease_ms.is_empty() { usual.to_vec() } else { options.lease_ms.clone() };
    let busy_us = if options.busy_us.is_empty() { &BUSY_US[..] } else { &options.busy_us };
    let of_size = |&tasks: &u32| -> Vec<Case> {
        match scenario {
            Scenario::Queue => vec![case(tasks)],
            Scenario::Uncontended => {
                let numbers = options.threads.map_or_else(|| scenario.threads(tasks).to_vec(), |one| vec![one]);
                numbers.into_iter().map(|threads| Case { threads, ..case(tasks) }).collect()
            }
            Scenario::Hot | Scenario::QuorumHot => {
                let numbers = options.processes.map_or_else(|| scenario.processes().to_vec(), |one| vec![one]);
                let at_once = numbers.into_iter().map(|processes| Case { processes, ..case(tasks) });
                let empty = |case: Case| Case { inside: Some(Inside::Nothing), ..case };
                let in_a_while = |case: Case| Case { pause_us: Some(PAUSE_US * u64::from(case.processes)), ..case };
                match scenario {
                    Scenario::Hot => at_once.flat_map(|case| [case.clone(), empty(case)]).collect(),
                    _ => at_once.flat_map(|case| [case.clone(), in_a_while(case)]).collect(),
                }
            }
            Scenario::Rwlock => {
                let writes = WRITES_PERCENT.map(|writes| Case { writes_percent: Some(writes), ..shared(tasks) });
                writes.to_vec()
            }
            Scenario::Semaphore => vec![Case { permits: Some(PERMITS), ..shared(tasks) }],
            Scenario::Quorum => DELAYS_US.map(|delay_us| Case { delay_us, ..case(tasks) }).to_vec(),
            Scenario::HotLocal => busy_us.iter().map(|&us| Case { busy_us: Some(us), ..case(tasks) }).collect(),
            Scenario::Leases => {
                leases(&[10_000]).into_iter().map(|ms| Case { lease_ms: Some(ms), ..case(tasks) }).collect()
            }
            Scenario::ServerCost => {
                let of_names = |&names: &NameUse| Case {
                    names,
                    extent: Extent::Pairs(options.pairs.unwrap_or(PAIRS)),
                    ..case(tasks)
                };
                scenario.name_uses().iter().map(of_names).collect()
            }
            Scenario::Takeover => {
                let endings = [(Ending::Killed, 1), (Ending::Released, RELEASES)];
                let of_lease = |ms: u64| {
                    endings.map(|(ending, times)| Case {
                        lease_ms: Some(ms),
                        ending: Some(ending),
                        extent: Extent::Pairs(times),
                        ..case(tasks)
                    })
                };
                leases(&[1_000, 3_000]).into_iter().flat_map(of_lease).collect()
            }
        }
    };
    sizes.iter().flat_map(of_size).collect()
}
