//! A server's process, and the watchdog that ends it if the test cannot: see `server.rs`.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const WATCHDOG: &str = r#"read -r _; kill -9 "$1"; rm -rf -- "$2""#;

/// A running server and its watchdog.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) server: Child,
    watchdog: Child,
}

impl Process {
    pub(super) fn start(command: &mut Command, dir: &Path) -> Self {
        let mut server = command.spawn().unwrap_or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => panic!(
                "redis-server is not installed: these tests run against a real one and are not skipped without it \
                 (Debian: apt-get install redis-server; macOS: brew install redis)"
            ),
            _ => panic!("redis-server cannot be started: {e}"),
        });
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "leasehold-watchdog", &server.id().to_string()])
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match watchdog {
            Ok(watchdog) => Self { server, watchdog },
            Err(e) => {
                end(&mut server);
                panic!("sh cannot be started: {e}");
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog first: once the server has ended, another process may get its process ID.
        end(&mut self.watchdog);
        end(&mut self.server);
    }
}

/// Kills a child and waits for it. If the child has already ended, only waits for it.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
