//! The inbox of the session, and how the thread moves it. (Why and when it moves stands in `machine/listen.rs`.)

use std::sync::{Arc, Weak};

use leasehold_spec::SessionId;
use leasehold_spec::mutant::{Mutant, is_on};

use super::task::{begun, race, spawn};
use crate::session::bounds::ANSWER_MAX_US;
use crate::session::machine::contact;
use crate::session::machine::listen::{self, Move};
use crate::session::shared::Shared;
use crate::store::{Fault, Inbox, Link};
use crate::world::Pending;

/// Attaches the inbox to a connection, and proves it.
pub(super) fn attach(shared: &Arc<Shared>, id: SessionId, link: &Arc<dyn Link>) -> Pending<Result<(), Fault>> {
    let (shared, run_id) = (Arc::downgrade(shared), link.run_id().to_owned());
    let inbox: Inbox = Arc::new(move |message| {
        if let Some(shared) = Weak::upgrade(&shared) {
            shared.with(|turn| contact::accept_message(turn, &run_id, message));
        }
    });
    link.attach(id, inbox)
}

/// Begins a move. `home` is the session's connection.
pub(super) fn begin(shared: &Arc<Shared>, id: SessionId, home: &Arc<dyn Link>, due: Move) {
    let (to, is_lane) = match due {
        Move::ToLane(lane) => (lane, true),
        Move::ToHome => (Arc::clone(home), false),
    };
    if is_lane && is_on(Mutant::P17DetachesFirst) {
        detach(shared, id, Arc::clone(home));
    }
    let attaching = begun(attach(shared, id, &to));
    spawn(shared, move |shared| async move {
        let attached = race(&*shared.world, ANSWER_MAX_US, attaching).await;
        let is_attached = matches!(attached, Some(Ok(())));
        let from = match is_lane {
            true => shared.with(|turn| listen::lane_attached(turn, &to, is_attached)),
            false if is_attached => shared.with(|turn| listen::home_attached(turn, &to)),
            // The thread opens another connection, with the inbox.
            false => {
                to.close();
                shared.wake.notify_one();
                None
            }
        };
        if let Some(from) = from {
            detach(&shared, id, from);
        }
        // The lane is checked from now on, and callers may wait until something can be sent.
        shared.wake.notify_one();
    });
}

fn detach(shared: &Arc<Shared>, id: SessionId, link: Arc<dyn Link>) {
    let detaching = begun(link.detach(id));
    spawn(shared, move |shared| async move {
        match detaching.await {
            Ok(()) => {}
            Err(Fault::Refused(_)) => shared.with(|turn| listen::detach_refused(turn, &link)),
            Err(_) => shared.with(listen::detach_failed),
        }
    });
}
