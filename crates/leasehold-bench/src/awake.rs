//! Processors that are kept awake: on many a machine, virtual ones above all, a processor that has gone to sleep takes
//! longer to wake than a lock takes. What is measured then is how often each system lets it sleep.

use std::process::Stdio;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::error::{Context, Result};

/// A loop that ends with the process that has started it, however that ends.
const LOOP: &str = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

/// One loop for each processor, of a class that runs only where nobody else wants to, and nice, so that the kernel does not
/// count it as work. They end when this is dropped.
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
        // One that cannot be started says so on our standard error, and ends at once.
        sleep(Duration::from_millis(200)).await;
        for one in &mut loops {
            if let Some(status) = one.try_wait().context("looking after a loop of --awake")? {
                return Err(format!("--awake needs `chrt`, of util-linux: a loop ended with {status}").into());
            }
        }
        Ok(Self { _loops: loops })
    }
}
