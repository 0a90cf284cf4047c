//! Tests of `leasehold ls`, `revoke`, `completions` and `man` as programs.

use std::process::Output;
use std::time::Duration;

use leasehold::{Leasehold, LostReason};
use leasehold_testkit::{Quorum, RedisServer, process, wait_until};
use serde_json::Value;

fn leasehold(arguments: &[&str]) -> Output {
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn stdout_of(arguments: &[&str], status: i32) -> String {
    let output = leasehold(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ls_lists_what_is_held_or_waited_for() {
    let server = RedisServer::start();
    let url = server.url();
    let nothing = leasehold(&["ls", "--store", &url]);
    assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(0), String::new()));
    assert_eq!(text(&nothing.stderr), "leasehold: no lock is held or waited for\n");
    for options in [&["--json"][..], &["-q"]] {
        let nothing = leasehold(&[&["ls", "--store", &url], options].concat());
        assert_eq!((nothing.stdout, nothing.stderr, nothing.status.code()), (vec![], vec![], Some(0)), "{options:?}");
    }
    let nothing = leasehold(&["ls", "stock:", "--all", "--store", &url]);
    assert_eq!(text(&nothing.stderr), "leasehold: there is no lock with a name that starts with \"stock:\"\n");
    let client = Leasehold::builder(&url).holder("host/job").connect().await.unwrap();
    let b = client.mutex("b").lock().await.unwrap();
    let _a = client.mutex("a {lock}").lock().await.unwrap();
    let table = stdout_of(&["ls", "--store", &url], 0);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("TOKEN") && lines[0].ends_with("NAME"), "{table}");
    assert!(
        lines[1].contains("  mutex  0 ")
            && lines[1].ends_with("host/job  a {lock}")
            && lines[2].starts_with(&b.token().to_string()),
        "{table}"
    );
    let token = b.token().get();
    assert_eq!(b.release().await.unwrap(), leasehold::Released::Released);
    let held = json(&stdout_of(&["ls", "--json", "--store", &url], 0));
    assert_eq!(held.len(), 1, "the free one is left out: {held:?}");
    assert_eq!((&held[0]["name"], &held[0]["state"]), (&"a {lock}".into(), &"held".into()));
    let all = json(&stdout_of(&["ls", "--json", "--all", "--store", &url], 0));
    assert_eq!((all.len(), &all[1]["state"], &all[1]["holder"]), (2, &"free".into(), &Value::Null));
    assert_eq!(stdout_of(&["ls", "b", "--store", &url], 0), "", "no name begins like this");
    assert_eq!(json(&stdout_of(&["ls", "--all", "b", "--json", "--store", &url], 0)).len(), 1);
    let free = json(&stdout_of(&["inspect", "b", "--json", "--store", &url], 0));
    let wanted = serde_json::json!({
        "name": "b", "state": "free", "holder": null, "waiters": 0,
        "kind": "mutex", "limit": 1, "units": 0, "holders": [], "holder_count": 0, "queue": [],
    });
    assert_eq!(free, [wanted]);
    let held = &json(&stdout_of(&["inspect", "a {lock}", "--json", "--store", &url], 0))[0]["holder"];
    assert!(held["token"].as_u64().unwrap() > token && held["label"] == "host/job", "{held}");
    let since = held["held_since"].as_str().unwrap();
    // The fixture's clock is that of the server.
    assert!(lines[1].contains(&since[..19].replace('T', " ")), "{since}: {table}");
    assert!(held["remaining_ms"].as_u64().unwrap() > 25_000, "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ls_lists_the_rest_where_one_is_somebody_elses() {
    let server = RedisServer::start();
    let url = server.url();
    let client = Leasehold::connect(&url).await.unwrap();
    let _a = client.mutex("a").lock().await.unwrap();
    let _z = client.mutex("z").lock().await.unwrap();
    server.command(&["SET", "lh1:{foo}", "x"]);
    let output = leasehold(&["ls", "--store", &url]);
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(125), "{table}{errors}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("  a\n") && table.ends_with("  z\n"), "{table}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.starts_with("leasehold: cannot inspect \"foo\": ") && errors.contains("lh1:{foo}"), "{errors}");
    assert_eq!(json(&stdout_of(&["ls", "--json", "--store", &url], 125)).len(), 2);
    assert_eq!(json(&stdout_of(&["ls", "a", "--json", "--store", &url], 0)).len(), 1, "the broken one is not listed");
}

/// `leasehold ls | head -1`.
#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.args(["completions", "bash"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()));
}

/// All commands that print on standard output: help, manual pages, the version, completions, and data of locks.
fn all_that_prints(store: &str) -> Vec<Vec<&str>> {
    let of_verbs = VERBS.into_iter().flat_map(|verb| [vec![verb, "--help"], vec![verb, "-h"], vec!["help", verb]]);
    let whole = [vec!["--help"], vec!["-h"], vec!["help"], vec!["--version"], vec!["-V"], vec!["man"]];
    let manuals = VERBS.into_iter().map(|verb| vec!["man", verb]);
    let asked = [
        vec!["inspect", "a", "--store", store],
        vec!["inspect", "a", "--json", "--store", store],
        vec!["ls", "--all", "--store", store],
        vec!["ls", "--all", "--json", "--store", store],
        vec!["revoke", "a", "--store", store],
        vec!["completions", "bash"],
    ];
    whole.into_iter().chain(of_verbs).chain(manuals).chain(asked).collect()
}

/// `leasehold --help >/dev/full`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_is_an_error_of_every_verb() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("file:{}", dir.path().join("locks").display());
    let client = Leasehold::connect(&store).await.unwrap();
    let _held = client.mutex("b").lock().await.unwrap();
    for arguments in all_that_prints(&store) {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
        let output = command.args(&arguments).stdout(full).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {errors}");
        assert!(
            errors.starts_with("leasehold: ") && errors.contains("cannot write to standard output"),
            "{arguments:?}: {errors}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
        let output = command.args(&arguments).stdout(writer).output().unwrap();
        let unread = (output.status.code(), text(&output.stderr));
        assert_eq!(unread, (Some(141), String::new()), "{arguments:?}");
    }
}

/// If standard error cannot be written, the exit status still tells the result.
#[test]
fn a_full_standard_error_changes_no_exit_status() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("file:{}", dir.path().join("locks").display());
    let away = "redis://127.0.0.1:1";
    let cases: [(&[&str], i32); 6] = [
        (&["ls", "--store", &store], 0),
        (&["ls", "--store", away], 125),
        (&["inspect", "a", "--store", away], 125),
        (&["revoke", "a", "--store", away], 125),
        (&["quorum", "begin", "--store", away], 2),
        (&["run", "a", "true"], 2),
    ];
    for (arguments, status) in cases {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
        let ended = command.args(arguments).stderr(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(status), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoke_affects_only_the_named_token() {
    let server = RedisServer::start();
    let url = server.url();
    assert_eq!(stdout_of(&["revoke", "a", "--store", &url], 1), "a: free; nothing to revoke\n");
    let client = Leasehold::builder(&url).holder("host/job").connect().await.unwrap();
    let guard = client.mutex("a").lock().await.unwrap();
    let token = guard.token().to_string();
    let other = stdout_of(&["revoke", "a", "--token", "17", "--store", &url], 1);
    assert_eq!(other, format!("a: not revoked: it is held with token {token}\n"));
    assert!(guard.is_valid());
    let done = stdout_of(&["revoke", "a", "--token", &token, "--grace", "4s", "--store", &url], 0);
    assert_eq!(done, format!("a: revoked; host/job (token {token}) holds it for at most another 4.0 s\n"));
    let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason()), Ok(LostReason::Revoked));
    let marked = &json(&stdout_of(&["ls", "--json", "--store", &url], 0))[0];
    assert_eq!(marked["state"], "revoked");
    let done = &json(&stdout_of(&["revoke", "a", "--now", "--json", "--store", &url], 0))[0];
    assert_eq!((&done["is_revoked"], &done["ends_within_ms"]), (&true.into(), &0.into()), "{done}");
    let free = &json(&stdout_of(&["revoke", "a", "--json", "--store", &url], 1))[0];
    assert_eq!((&free["is_revoked"], &free["holder"]), (&false.into(), &Value::Null), "{free}");
}

#[test]
fn an_invalid_token_gets_an_explanation() {
    let output = leasehold(&["revoke", "a", "--token", "abc", "--store", "redis://127.0.0.1:1"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("'--token <N>': expected a token: the number of a grant, which 'leasehold inspect' shows"),
        "{errors}"
    );
}

/// Verbs and options of other programs get a tip that names ours.
#[test]
fn verbs_of_other_programs_get_a_tip() {
    for (arguments, tips) in [
        (&["list"][..], &["'leasehold ls' lists the locks"][..]),
        (&["unlock", "job"], &["'leasehold revoke'", "a lock is released when its command ends"]),
        (&["release", "job"], &["'leasehold revoke'", "a lock is released when its command ends"]),
        (&["status", "job"], &["'leasehold inspect'"]),
        (&["lock", "job"], &["'leasehold run'"]),
        (&["run", "job", "--timeout", "5s", "--", "true"], &["--wait DUR", "--kill-after DUR"]),
        (&["run", "--timeout=5s", "job", "--", "true"], &["--wait DUR", "--kill-after DUR"]),
        (&["run", "job", "--ttl", "5s", "--", "true"], &["--lease DUR"]),
        (&["elect", "job", "--no-wait", "--", "true"], &["a candidate waits until it leads"]),
        (&["elect", "job", "--wait", "5s", "--", "true"], &["a candidate waits until it leads"]),
        (&["elect", "job", "--ttl", "5s", "--", "true"], &["--lease DUR"]),
        (&["elect", "job", "other", "--", "true"], &["an election has one name"]),
        (&["elect", "job", "true"], &["put -- before the command"]),
    ] {
        let output = leasehold(arguments);
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {err}");
        assert!(tips.iter().all(|tip| err.contains(tip)) && err.contains("  tip: "), "{arguments:?}: {err}");
    }
    let unknown = text(&leasehold(&["nothing"]).stderr);
    assert!(!unknown.contains("  tip: "), "{unknown}");
}

#[test]
fn invalid_arguments_are_refused() {
    for wrong in [
        &["revoke", "a", "--grace", "3"][..],
        &["revoke", "a", "--grace", "6s", "--store", "redis://127.0.0.1:1"],
        &["revoke", "a", "--grace", "3s", "--now"],
        &["revoke", "", "--store", "redis://127.0.0.1:1"],
        &["man", "nothing"],
        &["completions", "nothing"],
        &["nothing"],
    ] {
        let output = leasehold(wrong);
        assert_eq!((output.status.code(), output.stdout), (Some(2), vec![]), "{wrong:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn only_a_quorum_is_begun() {
    for (arguments, says) in [
        (&["quorum", "begin", "--store", "redis://127.0.0.1:1"][..], "quorum:?node="),
        (&["quorum", "begin", "--store", "quorum:?node=redis://127.0.0.1:1"], "3 to 9"),
        (&["quorum", "begin"], "quorum:?node="),
        (&["quorum", "--store", "quorum:?node=redis://127.0.0.1:1"], "begin"),
        (&["quorum", "end", "--store", "quorum:?node=redis://127.0.0.1:1"], "begin"),
    ] {
        let output = leasehold(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
    let nobody = "quorum:?node=redis://127.0.0.1:1&node=redis://127.0.0.1:2&node=redis://127.0.0.1:3";
    let output = leasehold(&["quorum", "begin", "--store", nobody]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("127.0.0.1:1"), "{}", text(&output.stderr));
}

#[test]
fn a_quorum_that_was_begun_locks_at_once() {
    let quorum = Quorum::start(3);
    let url = quorum.url();
    assert_eq!(stdout_of(&["quorum", "begin", "--store", &url], 0), "initialized: the nodes vote from now on\n");
    stdout_of(&["run", "a", "--no-wait", "--store", &url, "--", "true"], 0);
    let servers = quorum.servers().iter().map(|server| format!("  127.0.0.1:{}  free\n", server.port()));
    let free = format!("a: free; nobody waits\n{}", servers.collect::<String>());
    // The command has ended when two nodes have released. It has sent the release to the third, which may be slow.
    wait_until("all nodes are free", Duration::from_secs(5), || {
        stdout_of(&["inspect", "a", "--store", &url], 0) == free
    });
}

/// A holds. Two of three nodes restart empty. An operator runs `quorum begin`. It fails, and names the holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_somebody_holds_is_begun_by_force_only() {
    let quorum = Quorum::start(3);
    let url = quorum.url();
    stdout_of(&["quorum", "begin", "--store", &url], 0);
    let client = Leasehold::builder(&url).holder("host/job").connect().await.unwrap();
    let guard = client.mutex("stock").lock().await.unwrap();
    let begun = std::time::Instant::now();
    let knows = |server: &RedisServer| server.command(&["EXISTS", "lq1:{stock}"]) == leasehold_testkit::Value::Int(1);
    while !quorum.servers().iter().all(knows) {
        assert!(begun.elapsed() < Duration::from_secs(20), "in the end it has the votes of all nodes");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    quorum.servers()[..2].iter().for_each(RedisServer::restart);
    let busy = leasehold(&["run", "stock", "--no-wait", "--store", &url, "--", "true"]);
    assert_eq!(busy.status.code(), Some(125), "{}", text(&busy.stderr));
    assert!(!text(&busy.stderr).contains("quorum begin"), "{}", text(&busy.stderr));
    let refused = leasehold(&["quorum", "begin", "--store", &url]);
    let errors = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(125), String::new()), "{errors}");
    let third = format!("\"stock\" is held by host/job (127.0.0.1:{})", quorum.server(2).port());
    assert!(errors.starts_with("leasehold: ") && errors.contains(&third) && errors.contains("--force"), "{errors}");
    assert!(guard.is_valid());
    stdout_of(&["quorum", "begin", "--force", "--store", &url], 0);
    stdout_of(&["run", "other", "--no-wait", "--store", &url, "--", "true"], 0);
    drop(guard);
}

const VERBS: [&str; 8] = ["run", "elect", "inspect", "ls", "revoke", "quorum", "completions", "man"];

#[test]
fn completions_know_every_verb_and_no_hidden_one() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let page = stdout_of(&["completions", shell], 0);
        assert!(VERBS.iter().all(|verb| page.contains(verb)), "{shell}");
        assert!(!page.contains("minder") && !page.contains("process group for"), "{shell} offers a hidden verb");
    }
    let bash = stdout_of(&["completions", "bash"], 0);
    let lab = if cfg!(feature = "lab") { " lab" } else { "" };
    let all = format!("opts=\"-h -V --help --version run elect inspect ls revoke quorum{lab} completions man help\"");
    assert!(bash.contains(&all), "{bash}");
    let of_man = format!("opts=\"-h --help run elect inspect ls revoke quorum{lab} completions man\"");
    assert!(bash.contains(&of_man), "{bash}");
    assert!(stdout_of(&["completions", "zsh"], 0).contains("_cmdambivalent"), "what run runs is a command");
}

#[test]
fn manual_pages_have_sections_and_are_of_this_version() {
    let page = stdout_of(&["man"], 0);
    let named = |verb: &&str| page.contains(&format!("leasehold\\-{verb}(1)"));
    assert!(VERBS.iter().all(named) && !named(&"help") && !named(&"minder"), "{page}");
    for arguments in [vec!["man"]].into_iter().chain(VERBS.map(|verb| vec!["man", verb])) {
        let page = stdout_of(&arguments, 0);
        assert!(page.contains(concat!(" \"leasehold ", env!("CARGO_PKG_VERSION"), "\"")), "{page}");
        assert!(page.contains(".SH EXAMPLES\n.nf\n  ") && !page.contains("EXTRA"), "{arguments:?}: {page}");
    }
    for verb in ["run", "inspect", "ls", "revoke", "quorum"] {
        assert!(stdout_of(&["man", verb], 0).contains(".SH \"EXIT STATUS\"\n"), "{verb}");
    }
    #[cfg(feature = "lab")]
    assert!(stdout_of(&["man", "lab-show"], 0).contains(r"\-\-live"), "the verb of a verb has a page");
    let run = stdout_of(&["man", "run"], 0);
    assert!(run.contains("\\fBleasehold run\\fR [OPTIONS] <NAME>... \\-\\- <CMD>..."), "{run}");
}
