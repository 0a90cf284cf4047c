//! The store of a run, and the store of a `leasehold` inside its command.

use leasehold_testkit::RedisServer;

use crate::bench::{Bench, Ended, NAME, Run, leasehold};

const SECRET: &str = "sentinel-8c1f";

/// A command that starts another `leasehold` with these arguments.
fn nested(arguments: &str) -> [String; 3] {
    ["sh".into(), "-c".into(), format!("{} {arguments}", leasehold().get_program().to_str().unwrap())]
}

/// Runs it with the store in the environment.
fn by_environment(url: &str, options: &[&str], command: &[String]) -> Ended {
    let mut run = leasehold();
    Run::of(run.env("LEASEHOLD_STORE", url).args(["run", NAME]).args(options).arg("--").args(command)).ends()
}

/// Otherwise it would lock on this host only, and with -q without a notice.
#[test]
fn p30_a_nested_run_finds_the_same_store() {
    let bench = Bench::new();
    let url = bench.server.url();
    let busy = nested(&format!("run {NAME} -n -q -- true"));
    for ended in [by_environment(&url, &[], &busy), bench.run(&[], &busy).ends()] {
        assert_eq!(ended.code, Some(124), "{ended:?}");
    }
    let other = by_environment("redis://127.0.0.1:1", &["--store", &url], &nested("inspect other"));
    assert_eq!((other.code, other.out.as_str()), (Some(0), "other: free; nobody waits\n"), "{other:?}");
}

/// A run inside the command waits for its own outer run: the report says so.
#[test]
fn a_wait_for_itself_is_reported() {
    let bench = Bench::new();
    let ended = bench.run(&["--holder", "outer"], &nested(&format!("run {NAME} --wait 1500ms -- true"))).ends();
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert!(ended.err.contains(": held by outer, which started this run and may be waiting for it\n"), "{ended:?}");
}

/// The command does not inherit the password, and gets no other store in its place.
#[test]
fn p30_a_nested_run_is_not_given_another_store_for_want_of_a_password() {
    let server = RedisServer::builder().password(SECRET).start();
    for arguments in ["run other -- true", "inspect other", "ls", "revoke other"] {
        let ended = by_environment(&server.url(), &[], &nested(arguments));
        assert_eq!(ended.code, Some(2), "{arguments}: {ended:?}");
        assert!(ended.err.contains("?password_file=/PATH") && !ended.err.contains(SECRET), "{ended:?}");
    }
    let mut run = leasehold();
    let by_name = format!("redis://127.0.0.1:{}?password_env=SECRET_OF_THE_TEST", server.port());
    run.env("SECRET_OF_THE_TEST", SECRET).args(["run", "--store", &by_name, NAME, "--"]).args(nested("inspect other"));
    let ended = Run::of(&mut run).ends();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let file = server.dir().join("password");
    std::fs::write(&file, SECRET).unwrap();
    let by_file = format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.display());
    let by_path = nested(&format!("inspect other --store '{by_file}'"));
    assert_eq!(by_environment(&server.url(), &[], &by_path).code, Some(0), "another way is open");
    assert_eq!(by_environment(&by_file, &[], &nested("inspect other")).code, Some(0), "a path is no secret");
}

/// If the user named no store, there is none to inherit: the default is the same one inside.
#[test]
fn the_default_store_is_not_named_to_the_command() {
    let name = format!("leasehold-test-{}", std::process::id());
    let mut run = leasehold();
    let ended = Run::of(run.args(["run", "-q", &name, "--", "sh", "-c", "echo ${LEASEHOLD_STORE-unset}"])).ends();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "unset\n"), "{ended:?}");
}

/// An empty line in a unit file does not mean this host's own store.
#[test]
fn p30_an_empty_store_is_not_the_default() {
    for arguments in [&["run", NAME, "--", "true"][..], &["inspect", NAME], &["ls"]] {
        let output = leasehold().env("LEASEHOLD_STORE", "").args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("invalid LEASEHOLD_STORE: the URL is empty: unset it, or set it to a URL"), "{errors}");
    }
}
