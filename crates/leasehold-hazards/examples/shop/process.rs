//! The manager's handle of a service.

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::plan::Plan;
use crate::sale::IN_A_SALE;
use crate::service::{GO_ON, STOP, WILL_STOP};

/// The time in which a service must start, or reply to an order.
const REPLIES_WITHIN: Duration = Duration::from_secs(20);

/// A service in a process of its own. Dropping it kills the process.
pub(crate) struct Service {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Runs this program again, as a service, and waits until it listens.
    pub(crate) async fn start(plan: &Plan) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot start a service: {error}");
        let mut child = Command::new(env::current_exe().map_err(failed)?)
            .arg("--serve")
            // If the manager is killed while this process is stopped, the process cannot read that its input has ended.
            // But the kernel sends SIGHUP and SIGCONT to a stopped process group whose last parent outside of the group
            // has ended.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(mut orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a service has no pipes".into());
        };
        let plan = serde_json::to_string(plan).map_err(|error| error.to_string())?;
        orders.write_all(format!("{plan}\n").as_bytes()).await.map_err(failed)?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(REPLIES_WITHIN, lines.next_line()).await.map_err(|error| failed(error.into()))?;
        let address = line.map_err(failed)?.and_then(|line| line.parse().ok());
        let address = address.ok_or("a service ended before it listened")?;
        Ok(Self { child, orders, lines, address })
    }

    /// Orders the next sale to wait right before its write.
    pub(crate) async fn order_stop(&mut self) -> io::Result<()> {
        self.order(STOP).await?;
        self.wait_for(WILL_STOP).await
    }

    /// Waits until a sale is right before its write, and stops the process.
    pub(crate) async fn stop_in_the_sale(&mut self) -> io::Result<()> {
        self.wait_for(IN_A_SALE).await?;
        self.signal(Signal::STOP)
    }

    /// Lets a stopped process go on after this time. Returns the time for which it was stopped.
    pub(crate) async fn go_on_after(&mut self, time: Duration) -> io::Result<Duration> {
        let stopped = Instant::now();
        sleep(time).await;
        self.order(GO_ON).await?;
        self.signal(Signal::CONT)?;
        Ok(stopped.elapsed())
    }

    /// Kills the process, and waits for its end.
    pub(crate) async fn end(mut self) {
        // It has ended in any case.
        let _ended = self.child.kill().await;
    }

    async fn wait_for(&mut self, line: &str) -> io::Result<()> {
        let wait = async {
            while self.lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)? != line {}
            Ok(())
        };
        timeout(REPLIES_WITHIN, wait).await?
    }

    async fn order(&mut self, order: &str) -> io::Result<()> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(pid, signal)?)
    }
}
