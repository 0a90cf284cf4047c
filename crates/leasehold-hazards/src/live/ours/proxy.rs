//! A proxy between one worker and one server. It forwards everything, until the trial wants a fault.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// The treatment of the bytes that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// They pass.
    #[default]
    None,
    /// Requests wait in the proxy until the fault is over.
    HoldRequests,
    /// Replies and messages wait in the proxy until the fault is over.
    HoldReplies,
    /// Requests are lost. The connection breaks when the fault is over.
    LoseRequests,
    /// Replies are lost. The connection breaks when the fault is over.
    LoseReplies,
    /// Replies and messages are lost, and the connection remains: nobody detects the loss.
    LoseQuietly,
    /// No connection is possible.
    Refuse,
}

/// A proxy. Its workers connect to it as to a server.
#[derive(Clone)]
pub(super) struct Proxy {
    port: u16,
    state: Rc<State>,
}

struct State {
    /// Where the server listens.
    server: RefCell<PathBuf>,
    fault: Cell<Fault>,
    /// The number of times that the fault has held or lost something.
    struck: Cell<usize>,
    /// The number of messages that no request asked for.
    pushes: Cell<usize>,
    changed: Notify,
}

impl Proxy {
    /// Starts a proxy in front of the server that listens on this Unix socket.
    pub(super) async fn start(server: PathBuf, fault: Fault) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let state = Rc::new(State {
            server: RefCell::new(server),
            fault: Cell::new(fault),
            struck: Cell::default(),
            pushes: Cell::default(),
            changed: Notify::new(),
        });
        let shared = Rc::clone(&state);
        // It ends with the tasks of the run.
        spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.fault.get() != Fault::Refuse {
                    spawn_local(forward(client, Rc::clone(&shared)));
                }
            }
        });
        Ok(Self { port, state })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Begins a fault, or ends it.
    pub(super) fn set(&self, fault: Fault) {
        self.state.fault.set(fault);
        self.state.struck.set(0);
        self.state.changed.notify_waiters();
    }

    /// Whether the fault has held or lost something since it began.
    pub(super) fn has_struck(&self) -> bool {
        self.state.struck.get() > 0
    }

    /// Connects to another server from now on. Connections to the old one remain until that closes them.
    pub(super) fn redirect(&self, server: PathBuf) {
        self.state.server.replace(server);
    }

    /// Begins to count the messages that no request asked for.
    pub(super) fn forget_pushes(&self) {
        self.state.pushes.set(0);
    }

    /// Returns the number of messages that no request asked for.
    pub(super) fn pushes(&self) -> usize {
        self.state.pushes.get()
    }
}

impl State {
    fn strike(&self) {
        self.struck.set(self.struck.get() + 1);
    }
}

async fn forward(mut client: TcpStream, state: Rc<State>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let path = state.server.borrow().clone();
    let mut server = UnixStream::connect(path).await?;
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    let mut is_broken = false;
    // Whether the client waits for a reply. Anything that the server sends in the meantime may be this reply.
    let mut is_asking = false;
    loop {
        let changed = state.changed.notified();
        match state.fault.get() {
            Fault::Refuse => return Ok(()),
            Fault::None if is_broken => return Ok(()),
            Fault::HoldRequests => {}
            Fault::None if !replies.is_empty() => client.write_all(&std::mem::take(&mut replies)).await?,
            _ if !requests.is_empty() => {
                is_asking = true;
                server.write_all(&std::mem::take(&mut requests)).await?;
            }
            _ => {}
        }
        tokio::select! {
            () = changed => {}
            read = client.read_buf(&mut requests) => {
                if read? == 0 {
                    return deliver(server, &requests, &state).await;
                }
                match state.fault.get() {
                    Fault::LoseRequests => {
                        requests.clear();
                        is_broken = true;
                        state.strike();
                    }
                    Fault::HoldRequests => state.strike(),
                    _ => {}
                }
            }
            read = server.read_buf(&mut replies) => {
                if read? == 0 {
                    return Ok(());
                }
                match state.fault.get() {
                    fault @ (Fault::LoseReplies | Fault::LoseQuietly) => {
                        replies.clear();
                        is_broken |= fault == Fault::LoseReplies;
                        state.strike();
                    }
                    Fault::HoldReplies => state.strike(),
                    _ => client.write_all(&std::mem::take(&mut replies)).await?,
                }
                if !std::mem::take(&mut is_asking) {
                    state.pushes.set(state.pushes.get() + 1);
                }
            }
        }
    }
}

/// Delivers the requests that wait in the proxy when the client has gone, once the fault is over: late, and to no avail.
async fn deliver(mut server: UnixStream, requests: &[u8], state: &State) -> io::Result<()> {
    loop {
        let changed = state.changed.notified();
        if state.fault.get() != Fault::HoldRequests {
            return server.write_all(requests).await;
        }
        changed.await;
    }
}
