//! The inbox of the session, and how the thread moves it. (Why and when it moves is in `machine/inbox_moves.rs`.)

use std::sync::{Arc, Weak};

use leasehold_spec::SessionId;
use leasehold_spec::mutant::{Mutant, is_on};

use super::task::{begun, race, spawn};
use crate::session::bounds::ANSWER_MAX_US;
use crate::session::machine::contact;
use crate::session::machine::inbox_moves;
use crate::session::machine::inbox_place::Move;
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
    match due {
        Move::ToLane(lane) => move_to_lane(shared, id, home, lane),
        Move::ToHome => move_home(shared, id, home),
    }
}

fn move_to_lane(shared: &Arc<Shared>, id: SessionId, home: &Arc<dyn Link>, lane: Arc<dyn Link>) {
    if is_on(Mutant::P17DetachesFirst) {
        detach(shared, id, Arc::clone(home));
    }
    let attaching = begun(attach(shared, id, &lane));
    spawn(shared, move |shared| async move {
        let from = match is_attached_in_time(&shared, attaching).await {
            true => shared.with(|turn| inbox_moves::attached_to_lane(turn, &lane)),
            false => shared.with(|turn| inbox_moves::failed_at_lane(turn, &lane)),
        };
        from.into_iter().for_each(|from| detach(&shared, id, from));
        shared.wake.notify_one(); // The thread has to check the lane from now on.
    });
}

fn move_home(shared: &Arc<Shared>, id: SessionId, home: &Arc<dyn Link>) {
    let (home, attaching) = (Arc::clone(home), begun(attach(shared, id, home)));
    spawn(shared, move |shared| async move {
        if is_attached_in_time(&shared, attaching).await {
            let lane = shared.with(|turn| inbox_moves::attached_to_home(turn, &home));
            lane.into_iter().for_each(|lane| detach(&shared, id, lane));
        } else {
            home.close(); // The thread opens another connection, with the inbox.
        }
        shared.wake.notify_one(); // The thread may send what waited for the inbox.
    });
}

async fn is_attached_in_time(shared: &Shared, attaching: Pending<Result<(), Fault>>) -> bool {
    matches!(race(&*shared.world, ANSWER_MAX_US, attaching).await, Some(Ok(())))
}

fn detach(shared: &Arc<Shared>, id: SessionId, link: Arc<dyn Link>) {
    let detaching = begun(link.detach(id));
    spawn(shared, move |shared| async move {
        let within_us = shared.with(|turn| inbox_moves::detach_within_us(turn, &link));
        let detached = match within_us {
            Some(within_us) => race(&*shared.world, within_us, detaching).await,
            None => Some(detaching.await),
        };
        match detached {
            Some(Ok(())) => {}
            Some(Err(Fault::Refused(_))) => shared.with(|turn| inbox_moves::detach_refused(turn, &link)),
            Some(Err(_)) => shared.with(|turn| inbox_moves::detach_failed(turn, &link)),
            None => shared.with(|turn| inbox_moves::detach_late(turn, &link)),
        }
    });
}
