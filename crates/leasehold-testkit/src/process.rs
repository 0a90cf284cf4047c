//! Processes that a test starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Begins each line of a [`Worker`]'s results. The test harness of its process prints lines of its own.
const MARK: &str = "@@ ";

/// Returns a command that starts the `leasehold` at this path, without variables from the environment of the tests.
#[must_use]
pub fn leasehold(path: &str) -> Command {
    without_settings(Command::new(path))
}

/// Removes the settings of `leasehold` from the environment of a command.
#[must_use]
pub fn without_settings(mut command: Command) -> Command {
    for name in ["LEASEHOLD_STORE", "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"] {
        command.env_remove(name);
    }
    command
}

/// Reads through the end of this word, and nothing after it.
///
/// # Panics
/// If the output ends before, or is no text.
pub fn read_to(output: &mut impl Read, word: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(word.as_bytes()) {
        let mut byte = [0];
        let count = output.read(&mut byte).expect("it can be read");
        assert_eq!(count, 1, "it ended: {}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).expect("a text")
}

/// A process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let started = command.spawn();
        Self(started.unwrap_or_else(|error| panic!("{} cannot be started: {error}", command.get_program().display())))
    }

    /// Returns its process ID.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child that was not waited for can be signalled");
    }

    /// Waits until the process has ended, and kills it if it does not end within this time.
    fn ended(&mut self, within: Duration) -> (ExitStatus, bool) {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return (status, true);
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.0.kill().expect("it can be killed");
        (self.0.wait().expect("it is our child"), false)
    }

    /// Waits until the process has ended, and returns what it printed to pipes, which must fit into them.
    ///
    /// # Panics
    /// If it has not ended within this time.
    #[must_use]
    pub fn output(mut self, within: Duration) -> Output {
        fn rest_of(pipe: Option<impl Read>) -> Vec<u8> {
            let mut rest = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut rest).expect("it can be read");
            }
            rest
        }
        drop(self.0.stdin.take());
        let (status, in_time) = self.ended(within);
        let output = Output { status, stdout: rest_of(self.0.stdout.take()), stderr: rest_of(self.0.stderr.take()) };
        assert!(in_time, "the process has not ended in {within:?}: {output:?}");
        output
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A test of this binary that runs in a process of its own. It reads orders from its standard input, one in a line, and
/// prints the results by [`Worker::print`].
#[derive(Debug)]
pub struct Worker {
    process: Process,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts a test that is ignored in every other run, with a variable in its environment. Another command, such as
    /// `unshare`, may start it.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(by: &[&str], test: &str, (variable, value): (&str, &str)) -> Self {
        let us = std::env::current_exe().expect("the path of this binary");
        let mut command = match by.split_first() {
            None => Command::new(us),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(us);
                command
            }
        };
        command.args(["--ignored", "--exact", test, "--nocapture"]).env(variable, value);
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let orders = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(MARK) {
                    let _nobody_listens_at_the_end = sender.send(line.to_owned());
                }
            }
        });
        Self { process, orders, lines }
    }

    /// Prints a result, in the process of the worker.
    pub fn print(line: &str) {
        println!("{MARK}{line}");
    }

    /// Sends an order.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it reads orders");
    }

    /// Returns its next line, if it prints one within this time.
    #[must_use]
    pub fn line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    /// Waits until the process has ended. Returns the number of its lines that were not returned by [`Worker::line`].
    #[must_use]
    pub fn rest(&self) -> u64 {
        self.lines.iter().count() as u64
    }

    /// Kills the process, and returns when it is gone.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) -> ExitStatus {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it is our child")
    }
}

impl Deref for Worker {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}
