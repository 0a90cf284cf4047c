//! Exit statuses and messages for the caller.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released};
use leasehold_testkit::free_port;
use leasehold_testkit::proxy::Way;
use rustix::process::Signal;

use crate::bench::{Bench, NAME, Run, leasehold};

#[test]
fn a_commands_own_status_is_handed_through() {
    let bench = Bench::new();
    for code in [0, 1, 7, 123, 124, 125, 255] {
        let ended = bench.run(&[], &["sh", "-c", &format!("exit {code}")]).ends();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.err, "", "no message");
    }
    for (signal, number) in [("KILL", 9), ("TERM", 15), ("INT", 2)] {
        let ended = bench.run(&[], &["sh", "-c", &format!("kill -{signal} $$")]).ends();
        assert_eq!(ended.code, Some(128 + number), "{ended:?}");
    }
}

/// A run holds its lock for hours, and a server may have thousands of runs.
#[test]
fn a_run_has_one_connection() {
    let bench = Bench::new();
    let mut run = bench.run_through(&[], &["sh", "-c", "echo ready; read line"]);
    run.read_to("ready\n");
    assert_eq!(bench.proxy.seen().accepted, 1);
    run.write("\n");
    assert_eq!(run.ends().code, Some(0));
    assert_eq!(bench.proxy.seen().accepted, 1);
}

#[test]
fn a_command_finds_name_token_and_standard_input() {
    let bench = Bench::new();
    let mut run = bench.run(&[], &["sh", "-c", "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN; cat"]);
    run.write("said\n");
    let ended = run.ends();
    let (first, rest) = ended.out.split_once('\n').unwrap();
    let token: u64 = first.strip_prefix("job ").expect("the name").parse().expect("a token");
    assert!(token > 1_000_000_000_000_000, "{token}");
    assert_eq!((rest, ended.code), ("said\n", Some(0)));
}

#[test]
fn a_command_that_cannot_be_executed() {
    let bench = Bench::new();
    let ended = bench.run(&[], &["/nowhere/to/be/found"]).ends();
    assert_eq!(ended.code, Some(127), "{ended:?}");
    let file = bench.dir.path().join("script");
    std::fs::File::create(&file).unwrap().write_all(b"exit 6\n").unwrap();
    let path = file.to_str().unwrap();
    let ended = bench.run(&[], &[path]).ends();
    assert_eq!(ended.code, Some(126), "{ended:?}");
    assert!(ended.err.contains("Permission denied"), "{ended:?}");
    // The shell executes a script without an interpreter line.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(bench.run(&[], &[path]).ends().code, Some(6));
    // Nothing is left behind: the lock is free at once.
    assert_eq!(bench.run(&["--no-wait"], &["true"]).ends().code, Some(0));
}

/// flock has the option -c for this. Here a shell reads a line only if the user asks for one.
#[test]
fn a_shell_line_as_the_command_gets_a_hint() {
    let bench = Bench::new();
    for line in ["a && b", "echo $HOME", "a;b", "ls|wc"] {
        let ended = bench.run(&[], &[line]).ends();
        assert_eq!(ended.code, Some(127), "{ended:?}");
        assert!(ended.err.contains("; to run a shell command, use: sh -c '...'"), "{ended:?}");
    }
    for command in [&["no-such-program"][..], &["a && b", "c"]] {
        let ended = bench.run(&[], command).ends();
        assert_eq!((ended.code, ended.err.contains("sh -c")), (Some(127), false), "{ended:?}");
    }
}

/// One grammar and one message, wherever a duration is read.
#[test]
fn durations_have_one_message() {
    let message = "expected a duration such as 500ms, 30s, 1m30s or 2h";
    for option in ["--wait", "--lease", "--kill-after", "--grace"] {
        for bad in ["soon", "30", "", "1.5", "5 apples"] {
            let arguments = match option {
                "--grace" => vec!["revoke", NAME, option, bad],
                option => vec!["run", NAME, option, bad, "--", "true"],
            };
            let output = leasehold().args(arguments).output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && err.contains(message), "{option} {bad}: {err}");
        }
    }
    let url = "quorum:?node=redis://a&node=redis://b&node=redis://c&max_lease=soon";
    let output = leasehold().args(["ls", "--store", url]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && err.contains(message), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_has_it() {
    let bench = Bench::new();
    let client = Leasehold::builder(&bench.server.url()).holder("host/backup").connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let begun = Instant::now();
    for options in [&["--no-wait"][..], &["-n"], &["--wait", "0s"], &["-w", "100ms"]] {
        let ended = bench.run(options, &["true"]).ends();
        assert_eq!(ended.code, Some(124), "{ended:?}");
        let (words, waited) = (format!("\"{NAME}\" is held by host/backup"), options.contains(&"100ms"));
        assert!(ended.err.contains(&words) && ended.err.contains("(waited 0.1 s)") == waited, "{ended:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "none of them waited for long");
    let ended = bench.run(&["-n", "-q", "-E", "0"], &["false"]).ends();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let waiting = bench.run(&["--wait", "1m"], &["echo", "ran"]);
    bench.waiters(1).await;
    drop(guard);
    assert_eq!(waiting.ends().out, "ran\n");
}

#[test]
fn p30_a_store_that_is_not_there_is_not_busy() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{}", port.number());
    for options in [&[][..], &["--no-wait"]] {
        let ended = Run::start(&url, options, &["true"]).ends();
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.err.contains("127.0.0.1") && !ended.err.contains("waited"), "{ended:?}");
    }
    // It waits for the whole time, and the message has the waiting time and the lock.
    let begun = Instant::now();
    let ended = Run::start(&url, &["--wait", "1700ms"], &["true"]).ends();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(begun.elapsed() >= Duration::from_millis(1700), "{:?}", begun.elapsed());
    assert!(ended.err.contains("127.0.0.1") && ended.err.contains("(waited 1."), "{ended:?}");
    assert!(ended.err.ends_with(&format!(" s for the store, to lock \"{NAME}\")\n")), "{ended:?}");
    // A store that starts during the wait.
    let bench = Bench::new();
    bench.proxy.refuse_connections();
    let waiting = bench.run_through(&["--wait", "forever"], &["echo", "ran"]);
    bench.proxy.wait_seen("it has tried", Duration::from_secs(20), |seen| seen.refused >= 2);
    bench.proxy.accept_connections();
    assert_eq!(waiting.ends().out, "ran\n");
}

/// However long the pause between two tries is, the last try is at the very end of the wait.
#[test]
fn a_store_that_comes_in_the_last_moment_is_met() {
    let bench = Bench::new();
    bench.proxy.refuse_connections();
    // The run tries in the first 1.6 s, after pauses of 50 to 800 ms. The next pause would take a second, which is longer
    // than the rest of the wait. A slow machine tries later, but never ends its wait before this moment.
    let wait = Duration::from_millis(2_400);
    let begun = Instant::now();
    let waiting = bench.run_through(&["--wait", "2400ms"], &["echo", "ran"]);
    bench.proxy.wait_seen("it has tried", Duration::from_secs(20), |seen| seen.refused >= 1);
    std::thread::sleep((wait - Duration::from_millis(50)).saturating_sub(begun.elapsed()));
    bench.proxy.accept_connections();
    let ended = waiting.ends();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ran\n"), "{ended:?}");
}

/// A wait is reported once, with the holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_is_reported() {
    let bench = Bench::new();
    let client = Leasehold::builder(&bench.server.url()).holder("host/backup").connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let quiet = bench.run(&["-q"], &["true"]);
    let mut waiting = bench.run(&[], &["true"]);
    let words = format!("leasehold: waiting for \"{NAME}\": held by host/backup\n");
    assert_eq!(waiting.read_error_line(), words);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    for ended in [waiting.ends(), quiet.ends()] {
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    }
}

/// The store is unreachable at the start of the wait, and then reachable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_the_store_is_reported() {
    let bench = Bench::new();
    let client = Leasehold::builder(&bench.server.url()).holder("host/backup").connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    bench.proxy.refuse_connections();
    let quiet = bench.run_through(&["-q", "--wait", "1m"], &["true"]);
    let mut waiting = bench.run_through(&["--wait", "1m"], &["true"]);
    let first = waiting.read_error_line();
    assert!(first.starts_with(&format!("leasehold: waiting for \"{NAME}\": the store is unreachable: ")), "{first}");
    bench.proxy.accept_connections();
    let back = waiting.read_error_line();
    assert!(back.starts_with("leasehold: the store is reachable again after "), "{back}");
    assert_eq!(waiting.read_error_line(), format!("leasehold: waiting for \"{NAME}\": held by host/backup\n"));
    drop(guard);
    for ended in [waiting.ends(), quiet.ends()] {
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    }
}

/// A run that has given up is not in the queue any more, in any store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_over_leaves_the_queue() {
    let bench = Bench::new();
    let files = format!("file:{}", bench.dir.path().join("locks").display());
    for url in [bench.server.url(), files] {
        let client = Leasehold::connect(&url).await.unwrap();
        let _guard = client.mutex(NAME).lock().await.unwrap();
        for _ in 0..10 {
            assert_eq!(Run::start(&url, &["--wait", "50ms"], &["true"]).ends().code, Some(124));
            assert_eq!(client.mutex(NAME).inspect().await.unwrap().waiters, 0, "{url}");
        }
        let run = Run::start(&url, &[], &["true"]);
        let begun = Instant::now();
        while client.mutex(NAME).inspect().await.unwrap().waiters != 1 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it never waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        run.signal(Signal::TERM);
        assert_eq!(run.ends().code, Some(128 + 15));
        assert_eq!(client.mutex(NAME).inspect().await.unwrap().waiters, 0, "{url}");
    }
}

/// The store did not reply during the wait: it is unknown whether another client holds the lock.
#[test]
fn p30_a_store_that_is_silent_is_not_busy() {
    let bench = Bench::new();
    bench.proxy.stall(Way::Both);
    let ended = bench.run_through(&["--wait", "600ms"], &["true"]).ends();
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.err.contains(&format!("{} does not reply (waited ", bench.proxy.url())), "{ended:?}");
}

#[test]
fn invalid_arguments_are_refused() {
    let bench = Bench::new();
    for (options, says) in [
        (&["--lease", "500ms"][..], "use 1s to 24h"),
        (&["--lease", "48h"], "a lease of 48 h is too long: use 1s to 24h"),
        (&["--lease", "30"], "expected a duration such as 500ms, 30s"),
        (&["--kill-after", "20s"], "third"),
        (&["--wait", "soon"], "--wait"),
        (&["--wait", "1s", "--no-wait"], "--no-wait"),
        (&["-E", "256"], "256"),
        (&["--holder", "a\nb"], "control"),
        (&["--holder", ""], "--holder"),
    ] {
        let ended = bench.run(options, &["true"]).ends();
        assert_eq!(ended.code, Some(2), "{options:?}: {ended:?}");
        assert!(ended.err.contains(says), "{options:?}: {ended:?}");
    }
    for arguments in [&["run"][..], &["run", "a"], &["run", "a", "--"], &["run", "--", "true"]] {
        let output = leasehold().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let output = leasehold().args(["run", "a", "-n", "ls", "-l"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && errors.contains("put -- before the command"), "{errors}");
    let long = "x".repeat(300);
    let output = leasehold().args(["run", "--store", &bench.server.url(), &long, "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_answers_the_questions_of_an_operator() {
    let page = leasehold().args(["run", "--help"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    for word in [
        "123",
        "124",
        "125",
        "126",
        "127",
        "128+n",
        "LEASEHOLD_TOKEN",
        "30s",
        "--kill-after",
        "Examples:",
        "KillMode=mixed",
    ] {
        assert!(page.contains(word), "{word} is not on the page");
    }
    let long: Vec<&str> = page.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "lines that a terminal cannot show: {long:#?}");
    let short = leasehold().args(["run", "-h"]).output().unwrap();
    let short = String::from_utf8(short.stdout).unwrap();
    let long: Vec<&str> = short.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(short.contains("--conflict-exit-code") && long.is_empty(), "lines that a terminal cannot show: {long:#?}");
}

/// A reader of standard error that does not read does not block the run.
#[test]
fn a_reader_that_does_not_read_stops_nothing() {
    let bench = Bench::new();
    let (ours, its) = std::os::unix::net::UnixStream::pair().unwrap();
    // The command fills the pipe, which its reader never empties, and ends.
    let fill =
        "dd if=/dev/zero of=/dev/stderr bs=1 count=1 2>/dev/null; timeout 1 cat /dev/zero >&2; sleep 0.1 & exit 3";
    let mut child = leasehold()
        .args(["run", "--store", &bench.server.url(), "--lease", "1s", NAME, "--", "sh", "-c", fill])
        .stdin(Stdio::null())
        .stderr(Stdio::from(std::os::fd::OwnedFd::from(its)))
        .spawn()
        .unwrap();
    let status = child.wait().unwrap();
    drop(ours);
    assert_eq!(status.code(), Some(3));
}
