//! Rounds that all processes begin together: a barrier. The leader of a round counts it in a file, which needs no lock:
//! the next round cannot begin before its leader has come back.
//!
//! If a process dies, the round of the others is broken, and they come again.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold::{Barrier, ErrorKind, Leasehold};

use super::{Worker, number, replace};
use crate::processes::notes::{Ending, Event, Share, Use};
use crate::processes::scene::{LEASE, Scene};

const FILE: &str = "rounds";

pub(super) fn open(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(FILE), "0")
}

pub(in super::super) fn barrier(client: &Leasehold) -> Barrier {
    let parties = u32::try_from(Scene::Rounds.processes()).expect("a few processes");
    client.barrier("rounds", parties).lease(LEASE)
}

pub(super) async fn play(worker: &mut Worker) -> leasehold::Result<()> {
    let barrier = barrier(&worker.client);
    let file = worker.dir.join(FILE);
    loop {
        let arrival = match worker.get(barrier.wait()).await {
            Ok(Some(arrival)) => arrival,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Broken => {
                worker.note(Event::Unserved);
                continue;
            }
            Err(error) => return Err(error),
        };
        if arrival.is_leader() {
            let round = number(&file) + 1;
            replace(&file, &round.to_string());
            worker.enter(vec![Use { resource: 0, share: Share::Alone, token: round }]);
        } else {
            worker.enter(Vec::new());
        }
        worker.pause(Duration::from_millis(3)).await;
        worker.leave(Ending::Whole);
    }
}
