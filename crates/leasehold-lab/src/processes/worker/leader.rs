//! Candidates of an election. The leader leads until it is killed, or until the run ends. With `--crashes` any process may
//! be killed, and not only the leader. Each term is short then, so that no candidate waits for the end of a long one.

use std::time::{Duration, Instant};

use super::{Worker, alone, ending, released};
use crate::processes::notes::Event;
use crate::processes::options::Kills;

const SHORT_TERM: Duration = Duration::from_millis(100);

pub(super) async fn campaign(worker: &mut Worker) -> leasehold::Result<()> {
    let election = worker.client.election("shard");
    let label = format!("{}.{}", worker.who.number, worker.who.life);
    while let Some(leadership) = worker.get(election.campaign(&label)).await? {
        worker.enter(vec![alone(0, leadership.token())]);
        let begun = Instant::now();
        let goes_on = |worker: &Worker| worker.kills == Kills::EachSecond || begun.elapsed() < SHORT_TERM;
        while !*worker.stop.borrow() && leadership.check().is_ok() && goes_on(worker) {
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
