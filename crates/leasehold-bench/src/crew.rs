//! The processes of one run: they are started together, begin at the same moment, and are ended in every case.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::{Context, Failure, Result};
use crate::worker::{GO, READY, Report, Spec};

/// The time that a worker takes to start and end, beside the run itself.
const SLACK: Duration = Duration::from_secs(30);

/// Workers that are connected and wait for the start signal.
pub(crate) struct Crew {
    hands: Vec<Hand>,
}

/// One worker.
pub(crate) struct Hand {
    /// Killed with its whole process group when dropped: no failure leaves a worker running, and a peer may be a shell
    /// with its children.
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// The last line of its standard error, once that has ended.
    complaint: JoinHandle<Option<String>>,
    limit: Duration,
}

impl Crew {
    /// Starts `processes` workers, each by a command of its own, and waits until all are ready.
    pub(crate) async fn muster(processes: u32, spec: &Spec, command: impl Fn() -> Result<Command>) -> Result<Self> {
        let mut hands = Vec::new();
        for _ in 0..processes {
            hands.push(Hand::start(command()?, spec).await?);
        }
        for hand in &mut hands {
            hand.ready().await?;
        }
        Ok(Self { hands })
    }

    /// Starts the run of all workers, and collects their reports.
    pub(crate) async fn go(&mut self) -> Result<Vec<Report>> {
        for hand in &mut self.hands {
            hand.go().await?;
        }
        let mut reports = Vec::new();
        for hand in &mut self.hands {
            reports.push(hand.report().await?);
        }
        Ok(reports)
    }

    /// Waits until all have ended.
    pub(crate) async fn end(self) -> Result<()> {
        for hand in self.hands {
            hand.end().await?;
        }
        Ok(())
    }
}

impl Hand {
    pub(crate) async fn start(mut command: Command, spec: &Spec) -> Result<Self> {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker")?;
        let input = child.stdin.take().expect("the worker's input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("the worker's output is a pipe")).lines();
        let complaint = tokio::spawn(last_line(child.stderr.take().expect("the worker's errors are a pipe")));
        let mut hand = Self { child, input, output, complaint, limit: spec.span.limit() + SLACK };
        let task = serde_json::to_string(spec).context("writing a worker's task")?;
        match hand.send(&task).await {
            Ok(()) => Ok(hand),
            Err(_) => Err(hand.failure().await),
        }
    }

    pub(crate) async fn ready(&mut self) -> Result<()> {
        match self.line().await?.as_str() {
            READY => Ok(()),
            word => Err(format!("a worker sent {word:?} instead of {READY:?}").into()),
        }
    }

    pub(crate) async fn go(&mut self) -> Result<()> {
        self.send(GO).await
    }

    pub(crate) async fn report(&mut self) -> Result<Report> {
        serde_json::from_str(&self.line().await?).context("reading a worker's report")
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        let ended = timeout(SLACK, self.child.wait()).await.context("a worker did not end")?;
        let status = ended.context("waiting for a worker")?;
        if status.success() { Ok(()) } else { Err(format!("a worker ended with {status}").into()) }
    }

    /// Kills it at once (SIGKILL).
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.start_kill().context("killing a worker")
    }

    async fn send(&mut self, line: &str) -> Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await.context("writing to a worker")?;
        self.input.flush().await.context("writing to a worker")
    }

    async fn line(&mut self) -> Result<String> {
        let line = timeout(self.limit, self.output.next_line()).await.context("a worker hangs")?;
        match line.context("reading from a worker")? {
            Some(line) => Ok(line),
            None => Err(self.failure().await),
        }
    }

    /// Returns why it ended without a report.
    async fn failure(&mut self) -> Failure {
        let output = timeout(SLACK, &mut self.complaint).await;
        let complaint = output.ok().and_then(|line| line.ok()?);
        complaint.unwrap_or_else(|| "a worker ended without an error message".to_owned()).into()
    }
}

/// Copies everything to our own standard error, and keeps the last line.
async fn last_line(errors: ChildStderr) -> Option<String> {
    let (mut lines, mut last) = (BufReader::new(errors).lines(), None);
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{line}");
        last = Some(line);
    }
    last
}

impl Drop for Hand {
    fn drop(&mut self) {
        // The ID stays valid until the child was waited for, so the group cannot belong to another process.
        if let Some(group) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // The group may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
