//! Keeps processors awake. On many machines, above all virtual ones, an idle processor takes longer to wake than a lock
//! takes. Without this a benchmark would measure how often each system lets the processor sleep.

use std::process::Stdio;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::error::{Context, Result};

/// A loop that ends with the process that has started it, however that process ends.
const LOOP: &str = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

/// One loop for each processor. Its class runs only when no other process wants the processor, and it is nice, so that
/// the kernel does not count it as work. The loops end when this is dropped.
pub(crate) struct Awake {
    _loops: Vec<Child>,
}

impl Awake {
    pub(crate) async fn keep() -> Result<Self> {
        let processors = available_parallelism().context("counting the processors")?.get();
        let mut loops = Vec::new();
        for _ in 0..processors {
            let mut command = Command::new("nice");
            command.args(["-n", "19", "chrt", "--idle", "0", "sh", "-c", LOOP]).stdin(Stdio::null());
            loops.push(command.kill_on_drop(true).spawn().context("starting `nice` for --awake")?);
        }
        // A loop that cannot be started reports that on our standard error, and ends at once.
        sleep(Duration::from_millis(200)).await;
        for one in &mut loops {
            if let Some(status) = one.try_wait().context("checking a loop of --awake")? {
                return Err(format!("--awake needs `chrt`, of util-linux: a loop ended with {status}").into());
            }
        }
        Ok(Self { _loops: loops })
    }
}
