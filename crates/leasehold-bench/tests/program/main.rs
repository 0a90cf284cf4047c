//! The program as a whole, on a redis-server of its own. Every scenario runs once, in a tiny size; no figure of speed is
//! judged.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod peers;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

/// Returns the lines of a run that succeeded.
fn all_lines(arguments: &str) -> Vec<Value> {
    let output = bench(&format!("{arguments} --json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {:?}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(lines: &[Value], record: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["record"] == record).cloned().collect()
}

/// Returns the lines with figures.
fn lines(arguments: &str) -> Vec<Value> {
    of(&all_lines(arguments), "run")
}

fn field<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().map(|line| &line[name]).collect()
}

/// The loops that keep processors awake end with the program, and the record of the machine shows that they ran.
#[test]
fn processors_are_kept_awake() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    let arguments = "hot-local --systems tokio-mutex --tasks 1 --busy-us 0 --runs 1 --seconds 1 --awake --json";
    let bench = command.args(arguments.split_whitespace()).stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let loops = loop {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", bench.id())).unwrap();
        let is_loop =
            |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("kill -0"));
        let loops: Vec<String> = children.split_whitespace().filter(is_loop).map(str::to_owned).collect();
        if !loops.is_empty() {
            break loops;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing keeps them awake");
        thread::sleep(Duration::from_millis(10));
    };
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success());
    let first: Value = serde_json::from_str(String::from_utf8(output.stdout).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!((&first["record"], &first["awake"]), (&"machine".into(), &true.into()));
    for pid in loops {
        let begun = Instant::now();
        while fs::exists(format!("/proc/{pid}")).unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{pid} goes on");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn no_lock_loses_updates_and_a_lock_loses_none() {
    let lines = lines("hot --systems none,floor,s5,s5-batched --runs 2 --seconds 1");
    let (counted, empty) = lines.split_at(8);
    let turn = ["none", "floor", "s5", "s5-batched"];
    assert_eq!(field(counted, "system"), [turn, turn].concat(), "systems take turns");
    assert_eq!(field(empty, "system"), [turn, turn].concat());
    assert_eq!(field(counted, "run"), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert!(
        counted.iter().all(|line| line["inside"].is_null()) && empty.iter().all(|line| line["inside"] == "nothing")
    );
    for line in &lines {
        assert_eq!((&line["record"], &line["scenario"]), (&"run".into(), &"hot".into()));
        assert_eq!((&line["processes"], &line["tasks"]), (&2.into(), &8.into()));
        let lost = line["lost_updates"].as_u64().unwrap();
        assert_eq!(lost > 0, line["system"] == "none", "{line}");
        // One script to acquire, one to release; polling sends more acquires, and `none` sends no script.
        let scripts = line["server_calls_per_op"].as_f64().unwrap();
        match line["system"].as_str().unwrap() {
            "none" => assert!(scripts < 0.01, "{line}"),
            "floor" => assert!((scripts - 2.0).abs() < 0.01, "{line}"),
            // Two of one process may share a script.
            "s5-batched" => assert!(scripts > 0.5, "{line}"),
            _ => assert!(scripts > 2.0, "{line}"),
        }
    }
}

/// Readers alone exclude nobody. All others must see each other if there is no lock.
#[test]
fn what_must_not_overlap_does_so_without_a_lock_only() {
    for (scenario, cases) in [("rwlock", 3), ("semaphore", 1)] {
        let lines = lines(&format!("{scenario} --systems none,leasehold --runs 1 --seconds 1"));
        assert_eq!(lines.len(), cases * 2, "{lines:?}");
        for line in &lines {
            let may_lose = line["system"] == "none" && line["writes_percent"] != 0;
            assert_eq!(line["lost_updates"].as_u64().unwrap() > 0, may_lose, "{line}");
        }
    }
}

#[test]
fn a_queue_serves_everybody_and_waits_add_up() {
    let lines = lines("hot --systems floor --runs 1 --seconds 1 --processes 3 --tasks 4");
    let [line, _] = &lines[..] else { panic!("{lines:?}") };
    assert!(line["fairness"]["min"].as_f64().unwrap() > 0.5, "{line}");
    let percentiles: Vec<u64> =
        ["p50_us", "p99_us", "p999_us", "max_us"].map(|name| line[name].as_u64().unwrap()).to_vec();
    assert!(percentiles.is_sorted() && percentiles[0] > 0, "{line}");
    // In a fair queue of twelve the mean wait is some eleven mean hand-overs: their sums are over the same second,
    // however long the machine pauses in it. The twelve cannot wait for more than twelve seconds in one second, except
    // for the waits that began before it; figures are exact to one percent.
    let turn_us = 1e6 / line["ops_per_s"].as_f64().unwrap();
    let turns = line["mean_us"].as_f64().unwrap() / turn_us;
    let most = 12.0 * (1.02 + percentiles[3] as f64 / 1e6);
    assert!(turns >= 3.0 && turns <= most, "{turns} turns of at most {most} in {line}");
}

/// Sixty-four tasks share scripts of up to sixteen names; a single one sends its own.
#[test]
fn one_task_sends_its_own_scripts_and_64_tasks_share_theirs() {
    let lines = lines("uncontended --systems s5-batched --tasks 1,64 --runs 1 --seconds 1");
    let found: Vec<_> = lines.iter().map(|line| (line["tasks"].as_u64().unwrap(), &line["threads"])).collect();
    assert_eq!(found, [(1, &Value::from(2)), (64, &2.into()), (64, &1.into())]);
    for line in &lines {
        let scripts = line["server_calls_per_op"].as_f64().unwrap();
        let (least, most) = if line["tasks"] == 1 { (1.9, 2.1) } else { (2.0 / 16.0, 1.0) };
        assert!((least..most).contains(&scripts), "{line}");
    }
}

#[test]
fn every_pair_is_two_scripts_on_names_of_any_kind() {
    let lines = lines("server-cost --systems s5 --runs 1 --pairs 640");
    assert_eq!(field(&lines, "names"), ["new", "used"]);
    for line in &lines {
        assert_eq!((&line["ops"], &line["server_calls_per_op"]), (&640.into(), &2.0.into()), "{line}");
        assert!(line["server_us_per_op"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn systems_are_named_and_judged() {
    let charts = tempfile::tempdir().unwrap();
    let plot = charts.path().join("new");
    let lines =
        all_lines(&format!("hot --systems floor,leasehold-fair --runs 1 --seconds 1 --plot {}", plot.display()));
    let chart = fs::read_to_string(plot.join("hot-2x8.svg")).unwrap();
    assert!(chart.contains(">floor</text>") && chart.contains(">leasehold-fair</text>"), "{chart}");
    let [machine] = &of(&lines, "machine")[..] else { panic!("{lines:?}") };
    assert!(machine["redis"].as_str().unwrap().contains('.') && machine["cores"].as_u64() > Some(0), "{machine}");
    assert_eq!(field(&of(&lines, "about"), "system"), ["floor", "leasehold-fair"]);
    let runs = of(&lines, "run");
    let [_, fair, _, empty] = &runs[..] else { panic!("{lines:?}") };
    // In a fair queue each pair is a grant of the store, and each hand-over is one message.
    for fair in [fair, empty] {
        assert_eq!((&fair["store_grants_per_op"], &fair["local_runs_per_op"]), (&1.0.into(), &0.0.into()), "{fair}");
        assert!(fair["publishes_per_op"].as_f64().unwrap() > 0.5, "{fair}");
    }
    assert!(plot.join("hot-2x8-empty.svg").exists());
    let verdicts = of(&lines, "verdict");
    for what in ["lost updates", "hand-overs a second", "messages for each hand-over and run"] {
        assert!(verdicts.iter().any(|verdict| verdict["what"] == what), "{what} in {verdicts:?}");
    }
    let lost = verdicts.iter().find(|verdict| verdict["what"] == "lost updates").unwrap();
    assert_eq!((&lost["system"], &lost["is_met"]), (&"leasehold-fair".into(), &true.into()));
}

#[test]
fn a_lock_in_one_process_is_compared_with_the_one_of_the_runtime() {
    let lines = lines("hot-local --systems tokio-mutex,leasehold,none --tasks 20 --busy-us 0,10 --runs 1 --seconds 1");
    let who: Vec<_> = lines.iter().map(|line| (&line["busy_us"], line["system"].as_str().unwrap())).collect();
    let zero = Value::from(0);
    let ten = Value::from(10);
    let systems = ["tokio-mutex", "leasehold", "none"];
    let wanted: Vec<_> = [&zero, &ten].into_iter().flat_map(|us| systems.map(|system| (us, system))).collect();
    assert_eq!(who, wanted);
    for line in &lines {
        let lost = line["lost_updates"].as_u64().unwrap();
        // This checks the measurement: without a lock, and with enough time inside, two threads are inside at once.
        match (line["system"].as_str().unwrap(), line["busy_us"].as_u64().unwrap()) {
            ("none", 0) => {}
            ("none", _) => assert!(lost > 0, "{line}"),
            _ => assert_eq!(lost, 0, "{line}"),
        }
    }
}

/// Five servers, and a sixth one for the counter.
#[test]
fn a_quorum_uses_all_its_servers_and_loses_nothing() {
    let near_and_far = lines("quorum --runs 1 --seconds 1");
    let who: Vec<_> =
        near_and_far.iter().map(|line| (line["delay_us"].as_u64(), line["system"].as_str().unwrap())).collect();
    let both = ["fan", "leasehold"];
    assert_eq!(who, [None, Some(5_000)].into_iter().flat_map(|us| both.map(|system| (us, system))).collect::<Vec<_>>());
    for line in &near_and_far {
        // Two scripts at each of five servers; requests in flight at the end are not counted.
        let scripts = line["server_calls_per_op"].as_f64().unwrap();
        assert!((9.0..11.0).contains(&scripts), "{line}");
        let is_far = line["delay_us"].is_u64();
        assert!(!is_far || line["p50_us"].as_u64() > Some(4_000), "{line}");
    }
    let hot = lines("quorum-hot --systems none,leasehold,leasehold-remote --processes 3 --runs 1 --seconds 1");
    let systems = ["none", "leasehold", "leasehold-remote"];
    assert_eq!(field(&hot, "system"), [systems, systems].concat());
    let (at_once, in_a_while) = hot.split_at(3);
    for line in in_a_while {
        assert_eq!(line["pause_us"], 15_000, "{line}");
        // Without contention nothing may be lost even without a lock, so `none` is not checked here.
        assert!(line["system"] == "none" || line["lost_updates"] == 0, "{line}");
    }
    for line in at_once {
        let (is_locked, lost) = (line["system"] != "none", line["lost_updates"].as_u64().unwrap());
        assert_eq!(lost == 0, is_locked, "{line}");
        // A waiter in the queue is refused first, and called then.
        assert_eq!(line["attempts"]["p50"].as_u64() >= Some(1), is_locked, "{line}");
        assert!(!is_locked || line["fairness"]["min"].as_f64() > Some(0.2), "{line}");
    }
}

#[test]
fn the_length_of_a_queue_stays_constant() {
    let lines = lines("queue --tasks 5,40 --runs 2 --seconds 1");
    assert_eq!(field(&lines, "tasks"), [5, 40, 5, 40], "sizes take turns");
    for line in &lines {
        assert_eq!(line["system"], "leasehold-fair");
        // One script to queue again and one to hand over, and sometimes an inspection.
        let scripts = line["server_calls_per_op"].as_f64().unwrap();
        assert!((1.9..2.5).contains(&scripts), "{line}");
        // Every grant comes from a hand-over.
        let messages = line["publishes_per_op"].as_f64().unwrap();
        assert!((messages - 1.0).abs() < 0.02, "{line}");
    }
}

#[test]
fn leases_are_held_and_renewed() {
    let [line] = &lines("leases --tasks 300 --lease-ms 1000 --seconds 2")[..] else { panic!() };
    assert_eq!((&line["ops"], &line["lost_leases"]), (&300.into(), &0.into()), "{line}");
    // Each is renewed at least twice, up to sixteen in a script.
    assert!(line["server_calls_per_op"].as_f64().unwrap() >= 2.0 / 16.0, "{line}");
    for share in ["client_core_share", "server_core_share"] {
        assert!((0.0..2.0).contains(&line[share].as_f64().unwrap()), "{line}");
    }
}

#[test]
fn a_takeover_waits_after_a_death_and_not_after_a_release() {
    let lines = lines("takeover --lease-ms 600 --runs 1");
    assert_eq!(field(&lines, "ending"), ["killed", "released"]);
    let wait = |line: &Value| line["p50_us"].as_u64().unwrap();
    // Between two renewals at least two thirds of the lease are left; less if the machine paused.
    assert!(wait(&lines[0]) > 200_000, "{}", lines[0]);
    assert!(wait(&lines[1]) < wait(&lines[0]), "{lines:?}");
    assert_eq!(field(&lines, "ops"), [1, 10]);
}

#[test]
fn a_signal_stops_the_workers_too() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    // A worker that needs no server, and so does not end with the server.
    command.args(["hot-local", "--systems", "tokio-mutex", "--seconds", "60"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let program = command.spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    let wait = |what: &str| {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(10));
    };
    let workers = loop {
        let workers = workers_of(program.id());
        // Far more than the start needs: it is working, and would work for a minute.
        if workers.iter().any(|worker| ticks(*worker) >= 20) {
            break workers;
        }
        wait("no worker is at work");
    };
    let kill = Command::new("kill").args(["-INT", &program.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = program.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"), "{output:?}");
    while workers.iter().any(|worker| is_worker(*worker)) {
        wait("a worker lives on");
    }
}

/// Returns the workers that are children of this process.
fn workers_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|id| stat(*id, 1) == Some(parent.into()) && is_worker(*id)).collect()
}

/// Returns its processor time, in hundredths of a second.
fn ticks(id: u32) -> u64 {
    stat(id, 11).unwrap_or(0) + stat(id, 12).unwrap_or(0)
}

/// Returns a field of /proc/PID/stat after the name, which may contain anything: 0 is the state, 1 the parent.
fn stat(id: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field)?.parse().ok()
}

/// Returns whether it lives: a process that has ended has no arguments any more.
fn is_worker(id: u32) -> bool {
    fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains("--worker"))
}

#[test]
fn a_wrong_argument_and_an_absent_store_have_different_statuses() {
    let wrong = bench("hot --runs 0");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty());
    // Port 1 of the loopback: nobody listens, and only root could.
    let absent = bench("hot --systems floor --store redis://127.0.0.1:1");
    assert_eq!(absent.status.code(), Some(1));
    let said = String::from_utf8_lossy(&absent.stderr);
    assert!(said.contains("connecting to the store"), "{said}");
}
