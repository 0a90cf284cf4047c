//! Opening the callers' connection, the lane. (What the machine knows of it is in `machine/lane.rs`.)

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::session::bounds::REOPEN_MAX_US;
use crate::session::machine::{Upkeep, contact};
use crate::session::shared::Shared;

/// Begins to open the lane while the session's thread opens its own connection: nothing is sent on either before both are
/// up, and a lane that leads to another run than the inbox is never used. Returns a receiver that ends when the lane is
/// open. Without a runtime there is no lane.
pub(crate) fn begin(shared: &Arc<Shared>) -> oneshot::Receiver<()> {
    let upkeep = shared.with(contact::want_lane);
    let (opened, is_open) = oneshot::channel();
    keep_up(shared, upkeep, Some(opened));
    is_open
}

/// Waits for the lane, but not for ever: the session's connection serves as well.
pub(crate) async fn await_open(shared: &Shared, is_open: oneshot::Receiver<()>) {
    let _open_or_too_late = shared.within(REOPEN_MAX_US, is_open).await;
}

/// Opens the lane in the background, if the caller has to.
pub(crate) fn keep_up(shared: &Arc<Shared>, upkeep: Upkeep, opened: Option<oneshot::Sender<()>>) {
    let Upkeep::Reopen(runtime, opener) = upkeep else { return };
    let weak = Arc::downgrade(shared);
    let (open, superseded) = (shared.store.open(), opener.superseded());
    let task = async move {
        let link = tokio::select! {
            biased;
            link = open => link,
            () = superseded => return,
        };
        if let Some(shared) = weak.upgrade() {
            shared.with(|turn| contact::lane_opened(turn, runtime, link));
        }
        drop(opened);
    };
    // Without a runtime, the session's connection serves, and the next call tries again.
    drop(shared.world.spawn(Box::pin(task)));
}
