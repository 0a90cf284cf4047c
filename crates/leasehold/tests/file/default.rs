//! P28: the default store.

use std::process::Command;

use leasehold::file::default_url;

use crate::child::Child;

const MARK: &str = "@@ ";

#[test]
#[ignore = "the other process of the next test, and nothing by itself"]
fn prints_the_default_url() {
    println!("{MARK}{}", default_url().unwrap());
}

fn default_url_by(by: &[&str]) -> String {
    let us = std::env::current_exe().unwrap();
    let output = Command::new(by[0])
        .args(&by[1..])
        .arg(us)
        .args(["--ignored", "--exact", "default::prints_the_default_url", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once(MARK)).unwrap_or_else(|| panic!("{by:?} said {text}"));
    line.1.to_owned()
}

/// A shell, cron, `su` and `sudo` differ in every variable and in the working directory.
#[test]
fn p28_the_default_depends_on_user_and_host_only() {
    let here = default_url().unwrap();
    assert!(here.starts_with("file:/"), "{here}");
    let environments: [&[&str]; 5] = [
        &["env", "HOME=/tmp"],
        &["env", "-i"],
        &["env", "HOME=", "XDG_STATE_HOME=/tmp", "XDG_RUNTIME_DIR=/tmp", "TMPDIR=/tmp"],
        &["env", "-u", "HOME", "USER=nobody", "LOGNAME=nobody"],
        &["env", "-C", "/", "PWD=/"],
    ];
    for environment in environments {
        assert_eq!(default_url_by(environment), here, "{environment:?}");
    }
}

/// On a machine that never had one, with its parents.
#[test]
fn p28_the_default_store_is_made() {
    let script = "exec 3<\"$0\" && mount -t tmpfs none ~root && exec /proc/self/fd/3 \"$@\"";
    let unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script];
    let mut child = Child::start_by(&default_url().unwrap(), &unshare);
    child.reads("ready");
    child.ask("lock x 30", "locked");
    child.ask("release x", "released Ok(Released)");
}
