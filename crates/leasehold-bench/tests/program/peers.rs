//! Peers: programs of other languages, here a shell's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{all_lines, bench, field, of};

/// A peer that sends commands, and the plain one scripts as well, and that does not count.
const RUN: &str = r#"#!/usr/bin/env bash
if [ "${1:-}" = --about ]; then
  echo '{"systems":{"shell":{"version":"1.2","settings":"none"},"shell-fair":{"version":"1.2","settings":"fair"}}}'
  exit
fi
read -r spec
[[ $spec =~ redis://127.0.0.1:([0-9]+) ]] || exit 1
# No field that is only for our own workers.
[[ $spec != *duty* ]] || exit 1
# Five servers, if any.
[[ $spec != *nodes* || $spec =~ \"nodes\":\[(\"redis://127.0.0.1:[0-9]+\",?){5}\] ]] || exit 1
exec 3<>"/dev/tcp/127.0.0.1/${BASH_REMATCH[1]}"
echo ready
read -r go
[ "$go" = go ] || exit 1
for _ in 1 2 3 4 5; do
  printf 'SET a b\r\n' >&3
  read -r answer <&3
  [[ $spec == *fair* ]] && continue
  printf 'EVAL "return redis.call([[incr]],[[x]])" 0\r\n' >&3
  read -r answer <&3
done
echo '{"served":[2,2],"pairs":5,"counted_us":1000,"cpu_us":70,"waits":[[100,3],[900,1]]}'
"#;

const SYSTEMS: &str = r#"[
  { "system": "shell", "dir": "shell", "class": "push", "has": ["push"], "quorum": true },
  { "system": "shell-fair", "dir": "shell", "class": "queue", "has": ["queue"] },
  { "system": "gone", "dir": "gone", "class": "poll", "has": [] },
  { "system": "ill", "dir": "ill", "class": "poll", "has": [] }
]"#;

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn peers() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::write(at("systems.json"), SYSTEMS).unwrap();
    script(&at("shell/build"), "#!/bin/sh\n");
    script(&at("shell/run"), RUN);
    script(&at("gone/build"), "#!/bin/sh\necho first >&2; echo 'gone: needs a compiler' >&2; exit 1\n");
    script(&at("ill/build"), "#!/bin/sh\n");
    let about = r#"{"systems":{"ill":{"version":"3","settings":"-"}}}"#;
    script(&at("ill/run"), &format!("#!/bin/sh\n[ \"$1\" = --about ] && echo '{about}' && exit\necho 'ill: no' >&2\n"));
    dir
}

#[test]
fn a_peer_takes_its_turn() {
    let dir = peers();
    let lines = all_lines(&format!(
        "uncontended --systems s5 --peers shell,shell-fair --tasks 2 --runs 2 --seconds 1 --peers-dir {}",
        dir.path().display()
    ));
    let abouts = of(&lines, "about");
    assert_eq!(field(&abouts, "version"), ["-", "1.2", "1.2"]);
    assert_eq!((&abouts[2]["class"], &abouts[2]["has"][0]), (&"queue".into(), &"queue".into()));
    let runs = of(&lines, "run");
    assert_eq!(field(&runs, "system"), ["s5", "shell", "shell-fair", "s5", "shell", "shell-fair"]);
    let [_, shell, fair, ..] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((&shell["ops"], &shell["ops_per_s"]), (&4.into(), &4000.0.into()), "{shell}");
    assert_eq!((&shell["server_calls_per_op"], &shell["lost_updates"]), (&1.0.into(), &Value::Null), "{shell}");
    // Without a script, the server's time is that of the client's commands that the monitor has seen.
    assert_eq!(fair["server_calls_per_op"], 0.0, "{fair}");
    assert!(fair["server_us_per_op"].as_f64().unwrap() > 0.0, "{fair}");
    assert_eq!((&shell["client_cpu_us_per_op"], &shell["fairness"]["min"]), (&14.0.into(), &1.0.into()), "{shell}");
}

#[test]
fn a_peer_that_can_lock_on_a_quorum_gets_five_servers() {
    let dir = peers();
    let line = format!("quorum --systems fan --peers all --runs 1 --seconds 1 --peers-dir {}", dir.path().display());
    let runs = of(&all_lines(&line), "run");
    assert_eq!(field(&runs, "system"), ["fan", "shell", "fan", "shell"]);
    // It has sent its commands to the counter's server, which is not one of the five.
    assert_eq!((&runs[1]["server_calls_per_op"], &runs[1]["attempts"]["mean"]), (&0.0.into(), &0.0.into()));
}

#[test]
fn a_peer_without_a_build_is_missing_and_a_failing_one_has_no_figures() {
    let dir = peers();
    let lines = all_lines(&format!(
        "uncontended --systems s5 --peers all --tasks 1 --runs 1 --seconds 1 --peers-dir {}",
        dir.path().display()
    ));
    let [missing] = &of(&lines, "missing")[..] else { panic!("{lines:?}") };
    assert_eq!((&missing["system"], &missing["why"]), (&"gone".into(), &"gone: needs a compiler".into()));
    let [failed] = &of(&lines, "failed")[..] else { panic!("{lines:?}") };
    assert_eq!((&failed["system"], &failed["why"]), (&"ill".into(), &"ill: no".into()), "{failed}");
    assert_eq!(field(&of(&lines, "run"), "system"), ["s5", "shell", "shell-fair"]);
}

#[test]
fn lost_updates_of_a_peer_are_shown_and_are_not_our_failure() {
    let dir = peers();
    let line = format!("hot --systems shell --runs 1 --seconds 1 --peers-dir {}", dir.path().display());
    let output = bench(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Two processes, five pairs each, and none was counted. With nothing inside, nobody has counted.
    assert_eq!(field(&of(&lines, "run"), "lost_updates"), [&Value::from(10), &Value::Null]);
}

#[test]
fn a_peer_that_does_not_exist_is_refused_by_name() {
    let dir = peers();
    let output = bench(&format!("hot --peers shell,etcd --peers-dir {}", dir.path().display()));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("no system \"etcd\"; peers are shell, shell-fair, gone, ill; ours are s5, s5-batched, floor"),
        "{said}"
    );
}
