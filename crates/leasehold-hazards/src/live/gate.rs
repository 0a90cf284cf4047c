//! The gate: a proxy between one thread and one server. It forces the schedule.
//!
//! Each request waits in the gate until the schedule passes it on. Replies and messages wait as well, until it is the turn
//! of the thread. The gate can lose a request or a reply, and it closes the connection then, as a network does.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::wire::first_value;

/// The decision of the schedule about the request that waits in the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The request and its reply pass.
    On,
    /// The request is lost.
    LoseRequest,
    /// The reply is lost.
    LoseReply,
}

/// The turn of one thread, as all of its gates see it.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The decision about the next request, until the gate takes it.
    pass: Cell<Option<Pass>>,
    /// Whether replies and messages flow to the thread.
    flows: Cell<bool>,
    /// The number of messages that wait in the gates of the thread.
    waiting: Cell<usize>,
    changed: Notify,
}

impl Turn {
    /// Begins the turn of the thread. `pass` is for the request that it has sent or will send.
    pub(super) fn begin(&self, pass: Option<Pass>) {
        self.pass.set(pass);
        self.flows.set(true);
        self.changed.notify_waiters();
    }

    /// Ends the turn.
    pub(super) fn end(&self) {
        self.pass.set(None);
        self.flows.set(false);
    }

    /// Waits for the decision about a request.
    pub(super) async fn pass(&self) -> Pass {
        loop {
            let changed = self.changed.notified();
            if let Some(pass) = self.pass.take() {
                return pass;
            }
            changed.await;
        }
    }

    /// Loses the messages that wait.
    pub(super) fn lose_messages(&self) {
        self.waiting.set(0);
        self.changed.notify_waiters();
    }

    /// Returns the number of messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.get()
    }
}

/// Serves the connection of a thread until the thread closes it, or until the schedule loses something. `socket` is where
/// the server listens now: the gate connects to it for a request, and again if the server has closed its connection.
pub(super) async fn serve(
    mut thread: UnixStream,
    socket: impl Fn() -> Option<PathBuf>,
    turn: Rc<Turn>,
) -> io::Result<()> {
    let (mut request, mut held) = (Vec::new(), Vec::new());
    let mut server = None;
    loop {
        if turn.flows.get() && !held.is_empty() {
            turn.waiting.set(0);
            thread.write_all(&std::mem::take(&mut held)).await?;
        } else if turn.waiting.get() == 0 {
            // The schedule has lost the messages that waited.
            held.clear();
        }
        tokio::select! {
            read = thread.read_buf(&mut request) => {
                if read? == 0 {
                    return Ok(());
                }
                if first_value(&request).is_some() {
                    let pass = turn.pass().await;
                    if pass == Pass::LoseRequest {
                        return Ok(());
                    }
                    let server = connected(&mut server, &socket).await?;
                    server.write_all(&std::mem::take(&mut request)).await?;
                    if pass == Pass::LoseReply {
                        server.read_buf(&mut held).await?;
                        return Ok(());
                    }
                }
            }
            read = read(&mut server, &mut held) => match read {
                Ok(1..) => turn.waiting.set(turn.waiting.get() + usize::from(!turn.flows.get())),
                _ => server = None,
            },
            () = turn.changed.notified() => {}
        }
    }
}

async fn connected<'a>(
    server: &'a mut Option<UnixStream>,
    socket: &impl Fn() -> Option<PathBuf>,
) -> io::Result<&'a mut UnixStream> {
    if server.is_none() {
        let socket = socket().ok_or(io::ErrorKind::ConnectionRefused)?;
        *server = Some(UnixStream::connect(socket).await?);
    }
    server.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Reads from the server. Without a connection this waits for ever.
async fn read(server: &mut Option<UnixStream>, into: &mut Vec<u8>) -> io::Result<usize> {
    match server {
        Some(server) => server.read_buf(into).await,
        None => std::future::pending().await,
    }
}
