//! The state that a connection to Redis shares with its driver: requests in flight, the receiver of messages, and whether
//! the connection is closed.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, oneshot};

use super::fault::Asker;
use super::gather::Gather;
use super::many::Batches;
use super::scripts::Script;
use crate::store::Progress;
use crate::world::Address;

/// The state that a link and its driver share.
pub(super) struct LinkState {
    /// The address of the server, for errors.
    pub(super) at: String,
    pub(super) asker: Asker,
    is_closed: AtomicBool,
    hang_up: Notify,
    attached: Mutex<Option<Attached>>,
    /// The number of our own requests to unsubscribe that the server has not confirmed.
    pub(super) unsubscribing: AtomicUsize,
    /// How often the source of each script was sent, because the server did not know the script.
    pub(super) sources: [AtomicUsize; Script::COUNT],
    pub(super) requests: Gather,
    pub(super) batches: Batches,
}

/// An event on the channel of a session.
pub(super) enum ChannelEvent<'a> {
    Text(&'a str),
    /// Something that is no text.
    Garbled,
    /// The inbox is detached: the link is gone.
    Detached,
}

/// The receiver of events, in the order of their arrival. Must not block.
pub(super) type EventHandler = Arc<dyn Fn(ChannelEvent<'_>) + Send + Sync>;

pub(super) struct Attached {
    pub(super) handler: EventHandler,
    pub(super) probe: Option<(String, oneshot::Sender<()>)>,
}

impl LinkState {
    pub(super) fn new(to: &Address, asker: Asker) -> Self {
        let (is_closed, hang_up) = (AtomicBool::new(false), Notify::new());
        Self {
            at: to.to_string(),
            asker,
            is_closed,
            hang_up,
            attached: Mutex::default(),
            unsubscribing: AtomicUsize::new(0),
            sources: [const { AtomicUsize::new(0) }; Script::COUNT],
            requests: Gather::default(),
            batches: Batches::default(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// See [`Link::check_driven`](crate::store::Link::check_driven).
    pub(super) fn check_driven(&self) -> Progress {
        self.requests.check_driven()
    }

    /// See [`Link::check_read`](crate::store::Link::check_read).
    pub(super) fn check_read(&self) -> Progress {
        self.requests.check_polled()
    }

    /// See [`Link::has_unsent`](crate::store::Link::has_unsent).
    pub(super) fn has_unsent(&self) -> bool {
        self.requests.has_unsent() || self.batches.has_unsent()
    }

    /// Runs the driver until it ends or the link is closed. The link also ends if this future is dropped with its runtime.
    pub(super) async fn drive(self: Arc<Self>, driver: impl Future<Output = ()>) {
        let state = Ending(self);
        let mut driver = pin!(driver);
        let driver = poll_fn(|context| {
            state.0.batches.send();
            let driven = driver.as_mut().poll(context);
            if !state.0.batches.deliver(state.0.requests.share(), context) {
                state.0.close();
            }
            driven
        });
        tokio::select! {
            biased;
            () = state.0.hang_up.notified() => {}
            () = state.0.requests.drive(driver) => {}
        }
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.hang_up.notify_one();
    }

    /// Takes a push of the server. The driver calls it, in order.
    pub(super) fn receive(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {}
            PushKind::Subscribe | PushKind::Disconnection => return,
            PushKind::Unsubscribe if self.takes_unsubscribed() => return,
            // Somebody else has detached the inbox.
            PushKind::Unsubscribe => return self.close(),
            _ => return self.handle(ChannelEvent::Garbled),
        }
        let text = match push.data.as_slice() {
            [_, Value::BulkString(text)] => std::str::from_utf8(text).ok(),
            _ => None,
        };
        match text {
            // A message may have several lines, each of which is a message: no name has a line break in it.
            Some(text) => text.split('\n').for_each(|line| self.receive_line(line)),
            None => self.handle(ChannelEvent::Garbled),
        }
    }

    /// Returns whether this client has asked to unsubscribe, and takes the request as confirmed.
    pub(super) fn takes_unsubscribed(&self) -> bool {
        let less = |count: usize| count.checked_sub(1);
        self.unsubscribing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn receive_line(&self, line: &str) {
        let probe = self.attached().as_mut().and_then(|to| to.probe.take_if(|(probe, _)| probe == line));
        match probe {
            // If the receiver is gone, the attempt was given up.
            Some((_, arrived)) => drop(arrived.send(())),
            None => self.handle(ChannelEvent::Text(line)),
        }
    }

    fn handle(&self, event: ChannelEvent<'_>) {
        let handler = self.attached().as_ref().map(|to| Arc::clone(&to.handler));
        if let Some(handler) = handler {
            handler(event);
        }
    }

    pub(super) fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the link and notifies its inbox when the driver ends in any way.
struct Ending(Arc<LinkState>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.batches.close();
        let attached = self.0.attached().take();
        if let Some(to) = attached {
            (to.handler)(ChannelEvent::Detached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &str) -> PushInfo {
        let data = ["lh1:inbox:1", text].map(|text| Value::BulkString(text.as_bytes().to_vec()));
        PushInfo { kind: PushKind::Message, data: data.to_vec() }
    }

    #[test]
    fn a_message_of_several_lines_is_several_messages() {
        let state = LinkState::new(&Address { host: "h".to_owned(), port: 1 }, Asker::LOCKS);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let seen = Arc::clone(&seen);
            move |event: ChannelEvent<'_>| {
                let text = if let ChannelEvent::Text(text) = event { text } else { "garbled" };
                seen.lock().unwrap().push(text.to_owned());
            }
        };
        let (arrived, mut probed) = oneshot::channel();
        *state.attached() = Some(Attached { handler: Arc::new(handler), probe: Some(("probe".to_owned(), arrived)) });
        for message in ["a b", "c\nd\ne", "f\nprobe\ng", "probe", "h\n"] {
            state.receive(&push(message));
        }
        assert_eq!(*seen.lock().unwrap(), ["a b", "c", "d", "e", "f", "g", "probe", "h", ""]);
        assert_eq!(probed.try_recv(), Ok(()));
    }

    #[test]
    fn only_a_detachment_that_nobody_here_asked_for_closes_the_link() {
        let state = LinkState::new(&Address { host: "h".to_owned(), port: 1 }, Asker::LOCKS);
        let detached = PushInfo { kind: PushKind::Unsubscribe, data: Vec::new() };
        state.unsubscribing.fetch_add(1, Ordering::Relaxed);
        state.receive(&detached);
        assert!(!state.is_closed());
        state.receive(&detached);
        assert!(state.is_closed());
    }
}
