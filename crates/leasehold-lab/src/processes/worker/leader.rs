//! Candidates of an election. The leader leads until it is killed, or until the run ends.

use std::time::Duration;

use super::{Worker, alone, ending, released};
use crate::processes::notes::Event;

pub(super) async fn campaign(worker: &mut Worker) -> leasehold::Result<()> {
    let election = worker.client.election("shard");
    let label = format!("{}.{}", worker.who.number, worker.who.life);
    while let Some(leadership) = worker.get(election.campaign(&label)).await? {
        worker.enter(vec![alone(0, leadership.token())]);
        while !*worker.stop.borrow() && leadership.check().is_ok() {
            let seen = election.leader().await?;
            let is_ours =
                seen.as_ref().is_some_and(|leader| leader.token == leadership.token() && leader.value == label);
            if leadership.check().is_ok() && !is_ours {
                worker.note(Event::Wrong(format!("it leads, and the election shows {seen:?}")));
            }
            worker.pause(Duration::from_millis(20)).await;
        }
        worker.leave(ending(&leadership.check()));
        released(leadership.resign().await)?;
    }
    Ok(())
}
