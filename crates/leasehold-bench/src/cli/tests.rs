use super::*;
use crate::scenario::{Case, Ending, Extent, Inside, NameUse};
use crate::system::System;

fn read(line: &str) -> Result<Task, clap::Error> {
    task(std::iter::once("leasehold-bench").chain(line.split_whitespace()).map(String::from))
}

fn plan(line: &str) -> Plan {
    match read(line).unwrap() {
        Task::Measure { plan, .. } => plan,
        other => panic!("{line} should measure, but is {other:?}"),
    }
}

/// Returns the first case of each group, with the systems that take part.
fn cases(plan: &Plan) -> Vec<(&Case, Vec<&str>)> {
    plan.groups
        .iter()
        .map(|group| (&group.entrants[0].case, group.entrants.iter().map(|one| one.system.name()).collect()))
        .collect()
}

#[test]
fn the_clap_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn defaults_are_those_of_the_bars() {
    let hot = plan("hot");
    assert_eq!(hot.groups[0].runs, 5);
    let [(counted, systems), (empty, same)] = &cases(&hot)[..] else { panic!("{hot:?}") };
    assert_eq!((counted.processes, counted.tasks, counted.names, counted.inside), (2, 8, NameUse::Shared, None));
    assert_eq!(**empty, Case { inside: Some(Inside::Nothing), ..(*counted).clone() });
    assert_eq!((systems, same), (&vec!["floor", "leasehold", "leasehold-fair"], systems));
    let sizes =
        |line: &str| cases(&plan(line)).iter().map(|(case, _)| (case.processes, case.tasks)).collect::<Vec<_>>();
    let threads =
        |line: &str| cases(&plan(line)).iter().map(|(case, _)| (case.tasks, case.threads)).collect::<Vec<_>>();
    assert_eq!(threads("uncontended"), [(1, 2), (16, 2), (64, 2), (64, 1), (1000, 2)]);
    assert_eq!(threads("uncontended --tasks 64"), [(64, 2), (64, 1)]);
    assert_eq!(threads("uncontended --tasks 16,64 --threads 1"), [(16, 1), (64, 1)]);
    assert_eq!(cases(&plan("uncontended"))[0].1, ["s5", "s5-batched", "leasehold"]);
    assert_eq!(sizes("leases"), [(1, 1_000), (1, 10_000), (1, 100_000)]);
    let cost = plan("server-cost");
    let names: Vec<_> = cases(&cost).iter().map(|(case, _)| (case.names, case.extent)).collect();
    assert_eq!(names, [(NameUse::New, Extent::Pairs(60_000)), (NameUse::Used, Extent::Pairs(60_000))]);
    let local = plan("hot-local");
    let busy: Vec<_> = cases(&local).iter().map(|(case, _)| (case.busy_us, case.tasks, case.threads)).collect();
    assert_eq!(busy, [0, 1, 10].map(|us| (Some(us), 1000, 2)));
    assert_eq!(plan("leases").groups[0].entrants[0].case.extent, Extent::WindowMs(60_000));
}

#[test]
fn only_the_sizes_of_a_queue_take_turns() {
    let queue = plan("queue");
    let [group] = &queue.groups[..] else { panic!("{queue:?}") };
    let waiters: Vec<_> = group.entrants.iter().map(|one| (one.system.name(), one.case.tasks)).collect();
    assert_eq!(waiters, [10, 100, 500, 10_000].map(|waiters| ("leasehold-fair", waiters)));
    assert_eq!(plan("uncontended").groups.len(), 5);
}

#[test]
fn a_takeover_has_two_beginnings() {
    let takeover = plan("takeover --lease-ms 500");
    let cases: Vec<_> = cases(&takeover).iter().map(|(case, _)| (case.lease_ms, case.ending)).collect();
    assert_eq!(cases, [(Some(500), Some(Ending::Killed)), (Some(500), Some(Ending::Released))]);
    assert_eq!(plan("takeover").groups.len(), 4);
}

#[test]
fn all_is_everything() {
    assert_eq!(plan("all").groups.len(), 5 + 2 + 3 + 1 + 3 + 2 + 4 + 2 + 6 + 3 + 1);
    assert_eq!(plan("all").steps(), (15 + 6 + 6 + 4) * 5 + 3 + (4 + 4) * 5 + (4 + 12) * 5 + (3 + 1) * 5);
}

#[test]
fn a_quorum_is_near_or_delayed_and_shared_by_few_or_many() {
    let near_and_far = plan("quorum");
    let delays: Vec<_> =
        cases(&near_and_far).iter().map(|(case, who)| (case.delay_us, case.tasks, who.clone())).collect();
    assert_eq!(delays, [None, Some(5_000)].map(|delay| (delay, 1, vec!["fan", "leasehold"])));
    let processes =
        |line: &str| cases(&plan(line)).iter().map(|(case, _)| (case.processes, case.pause_us)).collect::<Vec<_>>();
    let both = |number: u32| [(number, None), (number, Some(5_000 * u64::from(number)))];
    assert_eq!(processes("quorum-hot"), [both(2), both(8), both(32)].concat());
    assert_eq!(processes("quorum-hot --processes 3"), both(3));
}

#[test]
fn all_peers_that_can_take_part_in_a_quorum() {
    let dir = tempfile::tempdir().unwrap();
    let list = r#"[{"system":"a","dir":"x","class":"poll","has":[]},
        {"system":"b","dir":"x","class":"poll","has":[],"quorum":true}]"#;
    std::fs::write(dir.path().join("systems.json"), list).unwrap();
    let at = |line: &str| format!("{line} --peers-dir {}", dir.path().display());
    assert_eq!(cases(&plan(&at("quorum-hot --peers all")))[0].1, ["leasehold", "leasehold-remote", "b"]);
    assert_eq!(cases(&plan(&at("quorum --systems fan,b")))[0].1, ["fan", "b"]);
    for line in ["quorum --peers a", "quorum-hot --systems b,a"] {
        let wrong = read(&at(line)).unwrap_err().to_string();
        assert!(wrong.contains("a is a lock of one server: it cannot take part in quorum"), "{line}: {wrong}");
    }
}

#[test]
fn a_peer_takes_part_where_it_has_what_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let list = r#"[{"system":"a","dir":"x","class":"poll","has":[]},
        {"system":"a-shared","dir":"x","class":"push","has":["push"],"primitive":"rwlock"}]"#;
    std::fs::write(dir.path().join("systems.json"), list).unwrap();
    let at = |line: &str| format!("{line} --peers-dir {}", dir.path().display());
    let shared = plan(&at("rwlock --peers all --processes 3"));
    let wanted = [0, 10, 50].map(|writes| (3, Some(writes), vec!["leasehold", "a-shared"]));
    let found: Vec<_> =
        cases(&shared).into_iter().map(|(case, who)| (case.processes, case.writes_percent, who)).collect();
    assert_eq!(found, wanted);
    assert_eq!(cases(&plan(&at("hot --systems floor --peers all")))[0].1, ["floor", "a"]);
    let semaphore = plan(&at("semaphore --peers all"));
    assert_eq!(
        cases(&semaphore).iter().map(|(case, who)| (case.permits, who.len())).collect::<Vec<_>>(),
        [(Some(4), 1)]
    );
    let wrong = read(&at("semaphore --peers a-shared")).unwrap_err().to_string();
    assert!(wrong.contains("a-shared has no semaphore: it cannot take part"), "{wrong}");
}

#[test]
fn options_reach_the_plan() {
    let hot = plan("hot --runs 2 --seconds 7 --tasks 4,64 --processes 3 --threads 2 --systems none,floor,s5");
    assert_eq!(hot.groups[0].runs, 2);
    let sizes: Vec<_> = cases(&hot).iter().map(|(c, _)| (c.processes, c.tasks, c.threads, c.extent)).collect();
    assert_eq!(sizes, [4, 4, 64, 64].map(|tasks| (3, tasks, 2, Extent::WindowMs(7_000))));
    assert_eq!(cases(&hot)[0].1, ["none", "floor", "s5"]);
    let given = read("uncontended --store redis://127.0.0.1:7 --json --plot d").unwrap();
    let Task::Measure { store, format, plot, .. } = given else { panic!() };
    assert_eq!((store.as_deref(), format), (Some("redis://127.0.0.1:7"), Format::Json));
    assert_eq!(plot, Some("d".into()));
}

#[test]
fn peers_join_by_name_or_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let list = r#"[{"system":"a","dir":"x","class":"poll","has":[]},
        {"system":"a-fair","dir":"x","class":"queue","has":["queue","push","token"]}]"#;
    std::fs::write(dir.path().join("systems.json"), list).unwrap();
    let of = |line: &str| {
        let plan = plan(&format!("{line} --peers-dir {}", dir.path().display()));
        let names =
            |group: &crate::bench::Group| group.entrants.iter().map(|one| one.system.clone()).collect::<Vec<_>>();
        names(&plan.groups[0])
    };
    let named = |names: &[&str]| names.iter().map(|name| System::named(name)).collect::<Vec<_>>();
    assert_eq!(of("uncontended --peers all"), named(&["s5", "s5-batched", "leasehold", "a", "a-fair"]));
    assert_eq!(of("uncontended --peers a"), named(&["s5", "s5-batched", "leasehold", "a"]));
    assert_eq!(of("hot --systems a-fair,leasehold"), named(&["a-fair", "leasehold"]));
    let wrong = read(&format!("hot --peers b --peers-dir {}", dir.path().display())).unwrap_err();
    let says = "no system \"b\"; peers are a, a-fair; ours are s5, s5-batched, floor, leasehold, leasehold-fair, \
                leasehold-remote, fan, tokio-mutex, none";
    assert!(wrong.to_string().contains(says), "{wrong}");
    for scenario in ["hot", "hot-local", "queue"] {
        let wrong = read(&format!("{scenario} --systems b --peers-dir {}", dir.path().display())).unwrap_err();
        assert!(wrong.to_string().contains(says), "{scenario}: {wrong}");
    }
    let nowhere = read("hot --systems b --peers-dir /nonexistent").unwrap_err().to_string();
    assert!(
        nowhere.contains("no system \"b\" of ours (s5, s5-batched,") && nowhere.contains("systems.json"),
        "{nowhere}"
    );
    let twice = read(&format!("hot --systems a --peers a --peers-dir {}", dir.path().display())).unwrap_err();
    assert!(twice.to_string().contains("twice"), "{twice}");
}

#[test]
fn a_worker_takes_nothing_else_and_a_report_a_directory() {
    assert_eq!(read("--worker").unwrap(), Task::Work);
    assert!(read("--worker hot").is_err());
    assert!(read("--worker --runs 2").is_err());
    assert_eq!(read("report bench").unwrap(), Task::Report { dir: "bench".into() });
    assert!(read("report").is_err());
}

#[test]
fn contradictions_are_refused_before_anything_is_measured() {
    for (line, kind) in [
        ("", ErrorKind::MissingRequiredArgument),
        ("cold", ErrorKind::InvalidValue),
        ("hot --runs 0", ErrorKind::ValueValidation),
        ("hot --seconds 0", ErrorKind::ValueValidation),
        ("hot --seconds x", ErrorKind::ValueValidation),
        ("hot --tasks 0", ErrorKind::ValueValidation),
        ("hot --tasks 1,,2", ErrorKind::ValueValidation),
        ("hot --processes 0", ErrorKind::ValueValidation),
        ("server-cost --pairs 0", ErrorKind::ValueValidation),
        ("takeover --lease-ms 10", ErrorKind::ValueValidation),
        ("hot --systems s5,s5", ErrorKind::ArgumentConflict),
        ("hot --systems tokio-mutex", ErrorKind::ArgumentConflict),
        ("hot --peers all --peers-dir /nonexistent", ErrorKind::ArgumentConflict),
        ("hot-local --peers all", ErrorKind::ArgumentConflict),
        ("hot-local --systems redsync", ErrorKind::ArgumentConflict),
        ("queue --systems floor", ErrorKind::ArgumentConflict),
        ("takeover --tasks 3", ErrorKind::ArgumentConflict),
        ("all --tasks 3", ErrorKind::ArgumentConflict),
        ("all --systems s5", ErrorKind::ArgumentConflict),
        ("uncontended --processes 3", ErrorKind::ArgumentConflict),
        ("hot --pairs 3", ErrorKind::ArgumentConflict),
        ("hot --busy-us 3", ErrorKind::ArgumentConflict),
        ("hot --lease-ms 300", ErrorKind::ArgumentConflict),
        ("server-cost --seconds 3", ErrorKind::ArgumentConflict),
        ("takeover --seconds 3", ErrorKind::ArgumentConflict),
        ("hot --store memory:", ErrorKind::ArgumentConflict),
        ("quorum --store redis://127.0.0.1:7", ErrorKind::ArgumentConflict),
        ("quorum --processes 3", ErrorKind::ArgumentConflict),
        ("quorum --systems s5-batched", ErrorKind::ArgumentConflict),
        ("quorum-hot --systems fan", ErrorKind::ArgumentConflict),
        ("hot --systems fan", ErrorKind::ArgumentConflict),
        ("rwlock --systems floor", ErrorKind::ArgumentConflict),
        ("semaphore --systems leasehold-fair", ErrorKind::ArgumentConflict),
        ("rwlock --lease-ms 300", ErrorKind::ArgumentConflict),
        ("hot --fast", ErrorKind::UnknownArgument),
    ] {
        assert_eq!(read(line).map(|_| ()).map_err(|error| error.kind()), Err(kind), "{line}");
    }
    let ignored = read("takeover --seconds 3").unwrap_err().to_string();
    let says = "--seconds changes nothing in takeover: it is for uncontended, hot, hot-local, queue, leases, \
                quorum, quorum-hot, rwlock, semaphore";
    assert!(ignored.contains(says), "{ignored}");
}
