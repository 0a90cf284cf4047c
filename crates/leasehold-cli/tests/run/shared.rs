//! `--shared`, `--exclusive` and `--permits`: locks that several runs can hold at a time.

use std::time::Instant;

use leasehold::Leasehold;
use tempfile::TempDir;

use crate::bench::{Ended, LONG, NAME, Run, leasehold};

struct Host {
    url: String,
    _dir: TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { url: format!("file:{}", dir.path().join("store").display()), _dir: dir }
    }

    fn run(&self, options: &[&str]) -> Run {
        Run::start(&self.url, options, &["sh", "-c", "echo ready; read line"])
    }

    /// Starts a run, and waits until its command runs.
    fn runs(&self, options: &[&str]) -> Run {
        let mut run = self.run(options);
        run.read_to("ready\n");
        run
    }

    fn ends(&self, options: &[&str]) -> Ended {
        self.run(options).ends()
    }

    /// Waits until somebody waits in the queue.
    fn await_waiter(&self) {
        let begun = Instant::now();
        while self.shows(&["inspect", NAME]).contains("nobody waits") {
            assert!(begun.elapsed() < LONG, "nobody ever waits");
        }
    }

    fn shows(&self, verb: &[&str]) -> String {
        let output = leasehold().args(verb).args(["--store", &self.url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn shared_runs_hold_together_and_keep_a_writer_out() {
    let host = Host::new();
    let mut readers = [host.runs(&["--shared", "--holder", "one"]), host.runs(&["-s", "--holder", "two"])];
    let shown = host.shows(&["inspect", NAME]);
    assert!(shown.starts_with("job: read-write lock, 2 readers; nobody waits\n  reads: one (grant "), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&host.shows(&["inspect", NAME, "--json"])).unwrap();
    assert_eq!((&json["kind"], &json["holder_count"]), (&"read_write".into(), &2.into()), "{json}");
    assert!(host.shows(&["ls"]).contains("rwlock, read"));
    for reader in &mut readers {
        reader.write("\n");
    }
    assert!(readers.into_iter().all(|reader| reader.ends().code == Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_makes_shared_runs_busy() {
    let host = Host::new();
    let client = Leasehold::builder(&host.url).holder("host/writer").connect().await.unwrap();
    let writer = client.rw_lock(NAME).write().await.unwrap();
    let busy = host.ends(&["--shared", "--no-wait"]);
    assert!(busy.code == Some(124) && busy.err.contains("\"job\" is held by host/writer"), "{busy:?}");
    drop(writer);
    let mut run = host.runs(&["--shared", "other"]);
    run.write("\n");
    assert_eq!(run.ends().code, Some(0));
}

/// A reader that comes while a writer waits does not overtake it.
#[test]
fn an_exclusive_run_waits_for_readers_and_is_alone() {
    let host = Host::new();
    let mut reader = host.runs(&["--shared", "--holder", "reader"]);
    let busy = host.ends(&["--exclusive", "--no-wait"]);
    assert!(busy.code == Some(124) && busy.err.contains("\"job\" is held by reader"), "{busy:?}");
    let mut writer = host.run(&["-x", "--holder", "writer"]);
    host.await_waiter();
    let busy = host.ends(&["--shared", "--no-wait"]);
    assert_eq!(busy.code, Some(124), "{busy:?}");
    reader.write("\n");
    assert_eq!(reader.ends().code, Some(0));
    writer.read_to("ready\n");
    let shown = host.shows(&["inspect", NAME]);
    assert!(shown.starts_with("job: read-write lock, 1 writer; nobody waits\n  writes: writer (grant "), "{shown}");
    let busy = host.ends(&["--shared", "--no-wait"]);
    assert!(busy.code == Some(124) && busy.err.contains("\"job\" is held by writer"), "{busy:?}");
    writer.write("\n");
    assert_eq!(writer.ends().code, Some(0));
}

#[test]
fn permits_are_counted() {
    let host = Host::new();
    let mut two = host.runs(&["--permits", "2", "--limit", "3", "--holder", "two"]);
    let busy = host.ends(&["--permits", "2", "--limit", "3", "--no-wait"]);
    assert!(busy.code == Some(124) && busy.err.contains("\"job\" is held by two (2 of 3 permits taken)"), "{busy:?}");
    let mut one = host.runs(&["--limit", "3", "--holder", "one"]);
    let shown = host.shows(&["inspect", NAME]);
    assert!(shown.starts_with("job: semaphore, 3 of 3 permits taken; nobody waits\n  holds 2 permits: two"), "{shown}");
    assert!(host.shows(&["ls"]).contains("semaphore 3/3"));
    for (options, known) in [
        (&["--limit", "4"][..], "a semaphore with 3 permits"),
        (&["--shared"], "a semaphore with 3 permits"),
        (&[], "a semaphore with 3 permits"),
    ] {
        let refused = host.ends(&[options, &["--no-wait"]].concat());
        assert!(refused.code == Some(125) && refused.err.contains(known), "{options:?}: {refused:?}");
    }
    let several = leasehold().args(["revoke", NAME, "--store", &host.url]).output().unwrap();
    assert_eq!(several.status.code(), Some(2), "two hold: {several:?}");
    for run in [&mut two, &mut one] {
        run.write("\n");
    }
    assert_eq!([two.ends().code, one.ends().code], [Some(0); 2]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (options, says) in [
        (&["--permits", "2"][..], "--limit <N>"),
        (&["--permits", "3", "--limit", "2"], "--permits 3 is more than --limit 2"),
        (&["--limit", "0"], "from 1 to 999999"),
        (&["--limit", "1000000"], "from 1 to 999999"),
        (&["--shared", "--limit", "2"], "cannot be used with"),
        (&["--shared", "--min-hold", "1m"], "cannot be used with"),
        (&["--exclusive", "--shared"], "cannot be used with"),
        (&["--exclusive", "--limit", "2"], "cannot be used with"),
        (&["--exclusive", "--min-hold", "1m"], "cannot be used with"),
        (&["--limit", "2", "--min-hold", "1m"], "cannot be used with"),
    ] {
        let ended = Run::start("redis://127.0.0.1:1", options, &["true"]).ends();
        assert!(ended.code == Some(2) && ended.err.contains(says), "{options:?}: {ended:?}");
    }
}
