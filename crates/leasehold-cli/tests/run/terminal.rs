//! On a terminal: a pseudo-terminal of the test, with a shell that has job control, like that of a user.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use leasehold_testkit::process::{Process, without_settings};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::bench::{Bench, LONG, NAME, leasehold};

/// A terminal, and the program that leads its session.
struct Terminal {
    keys: File,
    screen: Arc<(Mutex<String>, Condvar)>,
    /// How much of the screen the test has read.
    read: usize,
    process: Process,
}

impl Terminal {
    fn start(program: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let open = || {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(&name).unwrap()
        };
        let mut command = without_settings(Command::new("setsid"));
        command.arg("--ctty").args(program).env("PS1", "prompt> ").env("TERM", "dumb");
        let process = Process::start(command.stdin(open()).stdout(open()).stderr(open()));
        drop(command);
        let keys = File::from(master);
        let screen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (mut from, to) = (keys.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the last program has closed the terminal.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.0.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                to.1.notify_all();
            }
        });
        Self { keys, screen, read: 0, process }
    }

    /// A shell with job control.
    fn shell() -> Self {
        let mut terminal = Self::start(&["bash", "--norc", "--noprofile", "-i"]);
        terminal.shows("prompt> ");
        terminal
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is on the screen, after the text that was read before.
    #[track_caller]
    fn shows(&mut self, word: &str) {
        let (text, changed) = &*self.screen;
        let (text, _) =
            changed.wait_timeout_while(text.lock().unwrap(), LONG, |text| !text[self.read..].contains(word)).unwrap();
        let rest = &text[self.read..];
        let Some(at) = rest.find(word) else { panic!("{word:?} is not on the screen: {rest:?}") };
        self.read += at + word.len();
    }

    /// Asks the shell for the status of the last job.
    #[track_caller]
    fn shows_status(&mut self, code: i32) {
        self.types("echo status=$?.\r");
        self.shows(&format!("status={code}."));
    }

    /// Waits until the job in the background is stopped: a shell reports that only when it is asked.
    #[track_caller]
    fn shows_stopped_job(&mut self) {
        let from = self.read;
        for _ in 0..500 {
            self.types("jobs\r");
            self.shows("leasehold run");
            self.shows("prompt> ");
            if self.screen.0.lock().unwrap()[from..self.read].contains("Stopped") {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it is never stopped for reading");
    }

    fn ends(self) -> Option<i32> {
        let status = self.process.output(LONG).status;
        // Like a shell reports it.
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

/// Reads a line from the terminal, and reports when it goes on after a stop. (The shell, which has the terminal in a mode
/// of its own, may lose text that is typed before.) None of these words is on the screen when the line was typed.
const ASKS: &str = r#"trap "echo on""ward" CONT; echo rea""dy; until read line; do :; done; echo got $line"#;

/// The start of a line that a shell reads.
fn run(bench: &Bench, options: &str) -> String {
    let program = leasehold();
    let program = program.get_program().to_str().expect("a path of ours").to_owned();
    format!("{program} run --store {} {options} {NAME} -- ", bench.server.url())
}

#[test]
fn ctrl_c_ends_the_command() {
    let bench = Bench::new();
    let program = leasehold().get_program().to_str().unwrap().to_owned();
    let url = bench.server.url();
    let mut terminal =
        Terminal::start(&[&program, "run", "--store", &url, NAME, "--", "sh", "-c", "echo ready; exec sleep 60"]);
    terminal.shows("ready");
    terminal.types("\x03");
    assert_eq!(terminal.ends(), Some(130));
}

/// Only the command has the terminal, and so gets the Ctrl-C. The script around the run must be ended too, like with
/// other programs.
#[test]
fn ctrl_c_ends_a_script_around_us() {
    let bench = Bench::new();
    let run = run(&bench, "");
    let script = format!("{run} sh -c 'echo ready; exec sleep 60'; echo af''ter");
    let mut terminal = Terminal::start(&["bash", "-c", &script]);
    terminal.shows("ready");
    terminal.types("\x03");
    let screen = Arc::clone(&terminal.screen);
    assert_eq!(terminal.ends(), Some(130));
    assert!(!screen.0.lock().unwrap().contains("after"));
    // The lock is released, and does not wait for the end of its lease.
    assert_eq!(bench.run(&["--no-wait"], &["true"]).ends().code, Some(0));
    // After QUIT, a shell reports that its child died of it, and goes on.
    let mut terminal = Terminal::start(&["bash", "-c", &script]);
    terminal.shows("ready");
    terminal.types("\x1c");
    terminal.shows("Quit");
    terminal.shows("after");
    let mut terminal = Terminal::shell();
    terminal.types(&format!("while true; do {run} sh -c 'echo rea''dy; exec sleep 60'; done\r"));
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("prompt> ");
    terminal.shows_status(130);
    // A command that ends by itself after a Ctrl-C has handled it: the script goes on.
    let asks = r#"trap "exit 3" INT; echo rea""dy; while :; do sleep 0.01; done"#;
    terminal.types(&format!("{run} sh -c '{asks}'; echo af''ter=$?.\r"));
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("after=3.");
}

/// An INT that another process sends only to the run must not end the script around it.
#[test]
fn a_forwarded_interrupt_does_not_reach_the_script() {
    let bench = Bench::new();
    let run = run(&bench, "");
    let script = format!("{run} sh -c 'kill -INT $PPID; exec sleep 60'; echo code=$?; exit 4");
    let mut terminal = Terminal::start(&["bash", "-c", &script]);
    terminal.shows("code=130");
    assert_eq!(terminal.ends(), Some(4));
}

#[test]
fn statuses_on_a_terminal_are_those_of_a_pipe() {
    let bench = Bench::new();
    let program = leasehold().get_program().to_str().unwrap().to_owned();
    let url = bench.server.url();
    let cases: [(&[&str], i32); 7] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["sh", "-c", "kill -HUP $$"], 129),
        (&["sh", "-c", "sleep 0.1 & exit 3"], 3),
        (&["/nowhere/to/be/found"], 127),
        (&["/etc/passwd"], 126),
    ];
    for (command, code) in cases {
        let start = [&[&program, "run", "--store", &url, NAME, "--"], command].concat();
        assert_eq!(Terminal::start(&start).ends(), Some(code), "{command:?}");
    }
}

#[test]
fn ctrl_z_and_back() {
    let bench = Bench::new();
    let mut terminal = Terminal::shell();
    let run = run(&bench, "");
    terminal.types(&format!("{run} sh -c '{ASKS}; exit 5'\r"));
    terminal.shows("ready");
    terminal.types("\x1a");
    terminal.shows("is lost in");
    terminal.shows("Stopped");
    terminal.types("fg\r");
    terminal.shows("onward");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.shows_status(5);
    // And through the background, where it is stopped because it reads.
    terminal.types(&format!("{run} sh -c '{ASKS}; exit 6'\r"));
    terminal.shows("ready");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.types("bg\r");
    terminal.shows("leasehold run");
    terminal.shows_stopped_job();
    terminal.types("fg\r");
    terminal.shows("onward");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.shows_status(6);
}

#[test]
fn a_job_that_was_started_in_the_background() {
    let bench = Bench::new();
    let mut terminal = Terminal::shell();
    let run = run(&bench, "");
    terminal.types(&format!("{run} sh -c '{ASKS}; exit 7' &\r"));
    terminal.shows("prompt> ");
    terminal.shows_stopped_job();
    terminal.types("fg\r");
    terminal.shows("onward");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.shows_status(7);
}

#[test]
fn a_shell_as_the_command() {
    let bench = Bench::new();
    let mut terminal = Terminal::shell();
    let run = run(&bench, "");
    terminal.types(&format!("{run} bash --norc --noprofile -i\r"));
    terminal.shows("prompt> ");
    terminal.types("echo $((6 * 7)) $LEASEHOLD_NAME\r");
    terminal.shows("42 job");
    // Its own job control works on the lent terminal.
    terminal.types(&format!("sh -c '{ASKS}'\r"));
    terminal.shows("ready");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.types("fg\r");
    terminal.shows("onward");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.types("exit 8\r");
    terminal.shows("exit");
    terminal.shows_status(8);
}

/// In a pipeline, the terminal belongs to the program that reads it.
#[test]
fn in_a_pipeline_the_terminal_is_lent_on_demand() {
    let bench = Bench::new();
    let mut terminal = Terminal::shell();
    let run = run(&bench, "");
    terminal.types(&format!("{run} sh -c 'echo a''sks; read line; echo got $line' | cat\r"));
    terminal.shows("asks");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.shows("prompt> ");
    // The other member of the pipeline reads, and the command does not.
    terminal.types(&format!(
        "{run} sh -c 'sleep 0.3; echo hi' | (echo ot''her; read line </dev/tty; echo got $line; cat)\r"
    ));
    terminal.shows("other");
    terminal.types("it\r");
    terminal.shows("got it");
    terminal.shows("hi");
    // Ctrl-Z reaches the pipeline, and through the run also the command. The command is not `sh`: a dash that is just
    // starting a program by vfork waits for a stopped child, and is not stopped itself, whoever started it.
    terminal.types(&format!("{run} bash -c 'echo rea''dy; sleep 0.2; echo do''ne' | cat\r"));
    terminal.shows("ready");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    thread::sleep(Duration::from_millis(400));
    assert!(!terminal.screen.0.lock().unwrap()[terminal.read..].contains("done"), "it was stopped, too");
    terminal.types("fg\r");
    terminal.shows("done");
    terminal.shows("prompt> ");
    terminal.types(&format!("{run} sh -c 'echo sle''eps; exec sleep 60' | cat\r"));
    terminal.shows("sleeps");
    terminal.types("\x03");
    terminal.shows("prompt> ");
}

/// While the run is stopped, it does not renew: the minder ends the command, and a message reports that after `fg`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_ctrl_z_for_longer_than_the_lease() {
    let bench = Bench::new();
    let life = bench.life();
    let mut terminal = Terminal::shell();
    let command: Vec<String> =
        life.stubborn().iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let run = run(&bench, "--lease 2s");
    terminal.types(&format!("{run} {}\r", command.join(" ")));
    life.has_begun();
    terminal.types("\x1a");
    terminal.shows("Stopped");
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
    terminal.types("fg\r");
    terminal.shows("is lost");
    terminal.shows_status(123);
    drop(guard);
}
