//! The program as a whole, on a redis-server of its own.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

/// The lines of a run that ended well.
fn lines(arguments: &str) -> Vec<Value> {
    let output = bench(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {:?}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn field<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().map(|line| &line[name]).collect()
}

#[test]
fn no_lock_loses_updates_and_a_lock_loses_none() {
    let lines = lines("hot --systems none,floor,s5 --runs 2 --seconds 1 --json");
    assert_eq!(field(&lines, "system"), ["none", "floor", "s5", "none", "floor", "s5"], "systems take turns");
    assert_eq!(field(&lines, "run"), [1, 1, 1, 2, 2, 2]);
    for line in &lines {
        assert_eq!((&line["record"], &line["scenario"]), (&"run".into(), &"hot".into()));
        assert_eq!((&line["processes"], &line["tasks"]), (&2.into(), &8.into()));
        let lost = line["lost_updates"].as_u64().unwrap();
        assert_eq!(lost > 0, line["system"] == "none", "{line}");
        // One script to ask, one to give back; polling asks more than once, and no lock never asks.
        let scripts = line["server_calls_per_op"].as_f64().unwrap();
        match line["system"].as_str().unwrap() {
            "none" => assert!(scripts < 0.01, "{line}"),
            "floor" => assert!((scripts - 2.0).abs() < 0.01, "{line}"),
            _ => assert!(scripts > 2.0, "{line}"),
        }
    }
}

#[test]
fn a_queue_serves_everybody_and_waits_add_up() {
    let [line] = &lines("hot --systems floor --runs 1 --seconds 1 --processes 3 --tasks 4 --json")[..] else {
        panic!()
    };
    assert!(line["fairness"]["min"].as_f64().unwrap() > 0.5, "{line}");
    let percentiles: Vec<u64> =
        ["p50_us", "p99_us", "p999_us", "max_us"].map(|name| line[name].as_u64().unwrap()).to_vec();
    assert!(percentiles.is_sorted() && percentiles[0] > 0, "{line}");
    // In a fair queue of twelve, the usual wait is some eleven hand-overs; the mean hand-over is longer than the usual one
    // on a machine that stands still now and then.
    let turn_us = 1e6 / line["ops_per_s"].as_f64().unwrap();
    let turns = percentiles[0] as f64 / turn_us;
    assert!((3.0..=14.0).contains(&turns), "{turns} turns in {line}");
}

#[test]
fn every_pair_is_two_scripts_on_names_of_any_kind() {
    let lines = lines("server-cost --systems s5 --runs 1 --pairs 640 --json");
    assert_eq!(field(&lines, "names"), ["new", "used"]);
    for line in &lines {
        assert_eq!((&line["ops"], &line["server_calls_per_op"]), (&640.into(), &2.0.into()), "{line}");
        assert!(line["server_us_per_op"].as_f64().unwrap() > 0.0, "{line}");
    }
}

#[test]
fn a_wrong_argument_and_an_absent_store_are_told_apart() {
    let wrong = bench("hot --runs 0");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stdout.is_empty());
    // Port 1 of the loopback: nobody listens, and nobody may.
    let absent = bench("hot --systems floor --store redis://127.0.0.1:1");
    assert_eq!(absent.status.code(), Some(1));
    let said = String::from_utf8_lossy(&absent.stderr);
    assert!(said.contains("connecting to the store"), "{said}");
}
