//! Tests of `leasehold lab` as a program.
#![cfg(feature = "lab")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

fn lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("lab").args(arguments).output().expect("it runs")
}

#[track_caller]
fn stdout_of(arguments: &[&str], status: i32) -> String {
    let output = lab(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn list_names_every_hazard_of_the_tutorials_once() {
    let list = stdout_of(&["list"], 0);
    let ids: Vec<&str> = list.lines().skip(1).map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    let hazards = (1..=18).map(|number| format!("H{number}")).chain((7..=9).map(|number| format!("N{number}")));
    for hazard in hazards {
        assert_eq!(ids.iter().filter(|id| **id == hazard).count(), 1, "{hazard}");
    }
}

#[test]
fn show_prints_a_schedule_and_the_promise() {
    let page = stdout_of(&["show", "h3"], 0);
    assert!(page.contains("DEL lock → 1"), "{page}");
    assert!(page.contains("B and C are in their critical sections at the same time."), "{page}");
    assert!(page.contains("exclusion        never two holders"), "{page}");
}

#[test]
fn show_names_the_guarantee_that_permits_two_holders() {
    let page = stdout_of(&["show", "H9"], 0);
    assert!(page.contains("as documented (redis://: a failover can lose a grant)"), "{page}");
    assert!(page.contains("and each is refused"), "{page}");
}

#[test]
fn show_runs_the_schedule_on_real_servers() {
    let page = stdout_of(&["show", "H16", "--live", "2"], 0);
    assert!(page.contains("On real servers: 2 of 2 runs did the same harm."), "{page}");
    assert!(page.contains("On real servers, 2 of 2: never two holders."), "{page}");
}

#[test]
fn a_report_that_cannot_be_written_fails_before_it_searches() {
    let output = lab(&["report", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot write /proc/nowhere") && !errors.contains("searching"), "{errors}");
}

#[test]
fn a_report_replaces_only_a_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("index.html");
    std::fs::write(&page, "my home page").expect("a page");
    let output = lab(&["report", dir.path().to_str().expect("text")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{errors}");
    assert!(errors.contains("is no report of the lab; name another directory"), "{errors}");
    assert_eq!(std::fs::read_to_string(&page).expect("a page"), "my home page");
}

#[test]
fn an_interrupted_report_leaves_the_earlier_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("index.html");
    let earlier = "<meta name=generator content=\"leasehold lab report\">";
    std::fs::write(&page, earlier).expect("a page");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let mut child = command.arg("lab").arg("report").arg(dir.path()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.contains("searching S0a"), "{line}");
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    assert_eq!(std::fs::read_to_string(&page).expect("a page"), earlier);
}

#[test]
fn a_number_of_runs_is_at_least_one() {
    let output = lab(&["show", "H16", "--live", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("0 is not in 1..=100000"));
}

#[test]
fn a_missing_hazard_is_an_error_that_says_where_they_are() {
    let output = lab(&["show"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tip: 'leasehold lab list' names the hazards"));
}

/// A terminal sends its signals to all processes of the command, and to the keepers of its servers too.
#[test]
fn an_interrupt_of_the_live_half_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["lab", "show", "H6", "--live", "50"]).env("TMPDIR", dir.path()).process_group(0);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let left = || std::fs::read_dir(dir.path()).expect("a directory").count();
    let within = |what: &str, is_so: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    within("servers start", &|| left() > 5);
    let group = Pid::from_child(&child);
    kill_process_group(group, Signal::INT).expect("the signal is sent");
    child.wait().expect("it has ended");
    within("the directories of the servers are gone", &|| left() == 0);
}

#[test]
fn an_unknown_hazard_is_an_error_that_names_all() {
    let output = lab(&["show", "H99"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected one of S0a, S0b, H1"));
}

#[test]
fn without_a_server_the_live_half_says_what_it_needs() {
    let output = without_path(&["lab", "show", "H16", "--live", "1"]);
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("install it (Debian: apt-get install redis-server)"), "{errors}");
    let modelled = without_path(&["lab", "show", "H16"]);
    assert_eq!(modelled.status.code(), Some(0), "the modelled half needs no server");
}

fn without_path(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env("PATH", "/nonexistent").output().expect("it runs")
}
