//! Signals that are forwarded, or end a wait.

use rustix::process::Signal;

use crate::bench::{Bench, NAME, Run, leasehold};

const FORWARDED: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("TERM", Signal::TERM),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
];

#[test]
fn signals_reach_the_command() {
    let bench = Bench::new();
    for (name, signal) in FORWARDED {
        // A command that handles the signal ends with its own status.
        let script = format!("trap 'echo {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done");
        let mut run = bench.run(&[], &["sh", "-c", &script]);
        run.read_to("ready\n");
        run.signal(signal);
        let ended = run.ends();
        assert_eq!((ended.out.trim(), ended.code), (name, Some(9)), "{ended:?}");
    }
    let mut run = bench.run(&[], &["sh", "-c", "echo ready; exec sleep 60"]);
    run.read_to("ready\n");
    run.signal(Signal::TERM);
    assert_eq!(run.ends().code, Some(128 + 15));
}

/// The whole group gets the signal: otherwise, a shell that waits for its child would handle it late.
#[test]
fn signals_reach_grandchildren() {
    let bench = Bench::new();
    let mut run = bench.run(&[], &["sh", "-c", "sh -c 'echo ready; sleep 60'; echo rc=$?"]);
    run.read_to("ready\n");
    run.signal(Signal::TERM);
    let ended = run.ends();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_while_waiting_leaves_the_queue() {
    let bench = Bench::new();
    let guard = bench.client().await.mutex(NAME).lock().await.unwrap();
    for (name, signal) in FORWARDED {
        let run = bench.run(&[], &["true"]);
        bench.waiters(1).await;
        if signal == Signal::WINCH {
            // A change of the window size is no request to end.
            run.signal(signal);
            bench.waiters(1).await;
            run.signal(Signal::TERM);
            assert_eq!(run.ends().code, Some(128 + 15));
        } else {
            run.signal(signal);
            let ended = run.ends();
            assert_eq!(ended.code, Some(128 + signal.as_raw()), "{name}: {ended:?}");
        }
        // It has left the queue of the store, and not only this process.
        bench.waiters(0).await;
    }
    drop(guard);
}

/// `nohup` also applies to the command.
#[test]
fn ignored_signals_stay_ignored() {
    let bench = Bench::new();
    let mut run = Run::of(
        std::process::Command::new("sh")
            .arg("-c")
            .arg("trap '' HUP; exec \"$0\" \"$@\"")
            .arg(leasehold().get_program())
            .args(["run", "--store", &bench.server.url(), NAME, "--"])
            .args(["sh", "-c", "grep SigIgn /proc/self/status; echo ready; read line; echo $line"]),
    );
    let output = run.read_to("ready\n");
    assert!(output.contains("0001\n"), "the command ignores HUP: {output}");
    run.signal(Signal::HUP);
    run.write("on it goes\n");
    let ended = run.ends();
    assert_eq!((ended.out.as_str(), ended.code), ("on it goes\n", Some(0)), "{ended:?}");
}
