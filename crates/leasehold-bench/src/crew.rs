//! The processes of one run: started, waited for, let go at the same moment, and ended whatever happens.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::error::{Context, Failure, Result};
use crate::worker::{GO, READY, Report, Spec};

/// What a worker takes to start and end, beside the run itself.
const SLACK: Duration = Duration::from_secs(30);

/// Workers that are connected and wait for the start.
pub(crate) struct Crew {
    hands: Vec<Hand>,
    limit: Duration,
}

struct Hand {
    /// Killed when dropped: no failure leaves a worker behind.
    child: Child,
    told: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Crew {
    /// Starts `processes` workers and waits until all are ready.
    pub(crate) async fn muster(processes: u32, spec: &Spec) -> Result<Self> {
        let mut hands = Vec::new();
        for _ in 0..processes {
            hands.push(Hand::start(spec).await?);
        }
        let limit = spec.span.limit() + SLACK;
        for hand in &mut hands {
            let word = hand.line(limit).await?;
            if word != READY {
                return Err(format!("a worker said {word:?} instead of {READY:?}").into());
            }
        }
        Ok(Self { hands, limit })
    }

    /// Lets all go, and gathers what they report.
    pub(crate) async fn go(mut self) -> Result<Vec<Report>> {
        for hand in &mut self.hands {
            hand.tell(GO).await?;
        }
        let mut reports = Vec::new();
        for hand in &mut self.hands {
            let line = hand.line(self.limit).await?;
            reports.push(serde_json::from_str(&line).context("reading a worker's report")?);
            timeout(SLACK, hand.child.wait()).await.context("a worker did not end")?.context("waiting for a worker")?;
        }
        Ok(reports)
    }
}

impl Hand {
    async fn start(spec: &Spec) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .arg("--worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker")?;
        let told = child.stdin.take().expect("the worker's input is a pipe");
        let said = BufReader::new(child.stdout.take().expect("the worker's output is a pipe")).lines();
        let mut hand = Self { child, told, said };
        hand.tell(&serde_json::to_string(spec).context("writing a worker's task")?).await?;
        Ok(hand)
    }

    async fn tell(&mut self, line: &str) -> Result<()> {
        self.told.write_all(format!("{line}\n").as_bytes()).await.context("telling a worker")?;
        self.told.flush().await.context("telling a worker")
    }

    async fn line(&mut self, limit: Duration) -> Result<String> {
        let line = timeout(limit, self.said.next_line()).await.context("a worker hangs")?;
        line.context("hearing a worker")?.ok_or_else(|| Failure::from("a worker failed: it says why above"))
    }
}
