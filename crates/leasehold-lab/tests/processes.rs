//! Short runs of the scenes with real processes, as a command. Each second one process is killed.

use std::process::{Command, Output};

fn processes(scene: &str, store: &str, more: &[&str]) -> Output {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_leasehold-lab"));
    lab.args(["processes", "--scene", scene, "--store", store, "--seconds", "4", "--seed", "7"]).args(more);
    lab.output().expect("the laboratory is built, and starts")
}

fn is_clean(scene: &str, store: &str) {
    let played = processes(scene, store, &[]);
    let output = String::from_utf8_lossy(&played.stdout).into_owned();
    assert!(played.status.success(), "{output}{}", String::from_utf8_lossy(&played.stderr));
    assert!(output.contains("3 killed"), "{output}");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn philosophers_dine() {
    is_clean("philosophers", "redis");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn readers_and_writers_share_a_record() {
    is_clean("readers", "redis");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_bounded_buffer_keeps_its_items() {
    is_clean("buffer", "redis");
    is_clean("buffer", "file");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn accounts_keep_their_total() {
    is_clean("accounts", "redis");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn rounds_begin_when_all_have_come() {
    is_clean("rounds", "redis");
    is_clean("rounds", "file");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn jobs_are_done_when_all_parts_are() {
    is_clean("jobs", "redis");
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn crashes_of_many_leave_nothing_locked() {
    for (scene, store) in [("machines", "redis"), ("counter", "file")] {
        let played = processes(scene, store, &["--crashes", "--seconds", "8"]);
        let output = String::from_utf8_lossy(&played.stdout).into_owned();
        assert!(played.status.success(), "{output}{}", String::from_utf8_lossy(&played.stderr));
        // All six die at the end, and some before.
        let killed = output.split(" killed in waves").next().and_then(|words| words.split(' ').next_back());
        let killed: usize = killed.and_then(|number| number.parse().ok()).expect("the report has the number");
        assert!(killed > 6, "{output}");
    }
}

/// While nobody leads, nobody is killed: so the number of kills is not known.
#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn leaders_that_are_killed_have_successors() {
    let played = processes("leader", "redis", &[]);
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
}

#[test]
#[cfg_attr(not(leasehold_lab), ignore = "needs RUSTFLAGS=\"--cfg leasehold_lab\"")]
fn a_store_in_memory_is_refused() {
    assert_eq!(processes("leader", "memory:x", &[]).status.code(), Some(2));
}
