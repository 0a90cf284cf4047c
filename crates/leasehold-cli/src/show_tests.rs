//! Locks as text and as JSON: those of a client in this process, and replies of nodes that no test can arrange.

use leasehold::Released;

use super::*;
use crate::json::Lock;

#[test]
fn control_characters_of_a_label_are_escaped() {
    assert_eq!(plain("host/job: Ä"), "host/job: Ä");
    assert_eq!(plain("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
}

async fn held(label: &str) -> (leasehold::Guard, Inspection) {
    let client = leasehold::Leasehold::builder("memory:").holder(label).connect().await.unwrap();
    let guard = client.mutex("a").fixed_lease(Duration::from_secs(60)).lock().await.unwrap();
    let mut inspection = client.mutex("a").inspect().await.unwrap();
    inspection.holders.first_mut().unwrap().remaining = Duration::from_millis(24_100);
    (guard, inspection)
}

#[tokio::test]
async fn each_node_of_a_quorum_has_its_line() {
    let (guard, mut inspection) = held("host/job").await;
    let (_other, other) = held("host/other").await;
    assert_eq!(nodes(&inspection), Vec::<String>::new(), "no quorum");
    let (holder, other) = (inspection.holder().cloned().unwrap(), other.holder().cloned().unwrap());
    let mut revoked = holder.clone();
    (revoked.is_revoked, revoked.remaining) = (true, Duration::from_millis(4_900));
    let (id, token) = (other.id(), other.token);
    inspection.nodes = vec![
        NodeView::new("a:6379", NodeSays::Voted(holder)),
        NodeView::new("b.example:7000", NodeSays::Voted(revoked)),
        NodeView::new("c:6379", NodeSays::Voted(other)),
        NodeView::new("d:6379", NodeSays::Free),
        NodeView::new("e:6379", NodeSays::Resting { left: Duration::from_millis(41_001) }),
        NodeView::new("f:6379", NodeSays::Nothing { why: "cannot\u{7}reach".to_owned() }),
    ];
    let lines = [
        "  a:6379          voted for the holder; 24.1 s left".to_owned(),
        "  b.example:7000  voted for the holder, revoked; 4.9 s left".to_owned(),
        format!("  c:6379          voted for host/other (grant {id}); token {token}; 24.1 s left"),
        "  d:6379          free".to_owned(),
        "  e:6379          no vote: in quarantine for another 42 s, because it may have forgotten votes".to_owned(),
        "  f:6379          no reply: cannot\\u{7}reach".to_owned(),
    ];
    assert_eq!(nodes(&inspection), lines);
    // Without a majority, each line names the holder that the node voted for.
    inspection.holders.clear();
    assert_eq!((sentence("a", &inspection), exit(&inspection)), (unknown(), Exit::Failed), "two, and two more may");
    assert!(nodes(&inspection)[0].contains("voted for host/job (grant "), "{:?}", nodes(&inspection));
    assert!(guard.is_valid());
}

#[tokio::test]
async fn the_time_of_the_grant_is_shown_in_utc() {
    let (_guard, mut inspection) = held("host/job").await;
    let holder = inspection.holders.first_mut().unwrap();
    holder.token = leasehold::Token::new(1_795_563_784_123_456).unwrap();
    let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
    assert_eq!(held_for(holder, at(1_795_563_784 + 193)), "3m 12s");
    assert_eq!(held_for(holder, at(1_795_563_000)), "0s", "the clock of the store is ahead");
    let id = holder.id();
    let shown = sentence("a", &inspection);
    let wanted = format!("a: held by host/job (grant {id}); held since 2026-11-24 23:43:04 UTC (");
    assert!(shown.starts_with(&wanted), "{shown}");
    assert!(shown.ends_with("); token 1795563784123456; 24.1 s left; nobody waits"), "{shown}");
    let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
    assert_eq!(told["holder"]["held_since"], "2026-11-24T23:43:04.123456Z");
}

fn unknown() -> String {
    "a: unknown: too few nodes vote to tell whether it is held; no waiter is known".to_owned()
}

#[tokio::test]
async fn a_lock_without_a_known_majority_is_not_shown_as_free() {
    let (guard, inspection) = held("host/job").await;
    let voted = || NodeSays::Voted(inspection.holder().cloned().unwrap());
    let rests = || NodeSays::Resting { left: Duration::from_secs(9) };
    let silent = || NodeSays::Nothing { why: "silent".to_owned() };
    let free = || NodeSays::Free;
    for (says, is_known) in [
        (vec![], true),
        (vec![free(), free(), free()], true),
        (vec![free(), free(), rests()], true),
        (vec![free(), rests(), rests()], false),
        (vec![rests(), rests(), rests()], false),
        (vec![free(), silent(), rests()], false),
        // The node that does not reply may have one more vote.
        (vec![free(), free(), silent(), silent(), voted()], false),
        (vec![free(), free(), free(), silent(), voted()], true),
    ] {
        let (case, mut inspection) = (format!("{says:?}"), inspection.clone());
        inspection.holders.clear();
        inspection.nodes = says.into_iter().map(|says| NodeView::new("a:1", says)).collect();
        let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
        let shown = (sentence("a", &inspection), exit(&inspection), told["state"].as_str().unwrap().to_owned());
        let wanted = match is_known {
            true => ("a: free; nobody waits".to_owned(), Exit::Done, "free".to_owned()),
            false => (unknown(), Exit::Failed, "unknown".to_owned()),
        };
        assert_eq!(shown, wanted, "{case}");
    }
    assert!(guard.is_valid());
}

#[tokio::test]
async fn json_has_the_nodes_too() {
    let (_guard, mut inspection) = held("host/job").await;
    let alone = json(&Lock::new("a", &inspection)).unwrap();
    assert!(!alone.contains("nodes"), "{alone}");
    inspection.nodes = vec![
        NodeView::new("a:1", NodeSays::Voted(inspection.holder().cloned().unwrap())),
        NodeView::new("b:2", NodeSays::Resting { left: Duration::from_millis(1_500) }),
        NodeView::new("c:3", NodeSays::Nothing { why: "silent".to_owned() }),
        NodeView::new("d:4", NodeSays::Free),
    ];
    let told: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &inspection)).unwrap()).unwrap();
    let states: Vec<_> = told["nodes"].as_array().unwrap().iter().map(|node| node["state"].clone()).collect();
    assert_eq!(states, ["voted", "resting", "unknown", "free"]);
    assert_eq!((&told["nodes"][0]["at"], &told["nodes"][0]["holder"]), (&"a:1".into(), &told["holder"]));
    assert_eq!((&told["nodes"][1]["rests_ms"], &told["nodes"][2]["why"]), (&1_500.into(), &"silent".into()));
}

/// Removes what differs in each run: IDs, times and tokens.
fn shape(lines: &[String]) -> Vec<String> {
    let cut = |line: &String| match line.split_once(" (grant ") {
        Some((before, behind)) => format!("{before}{}", behind.rsplit_once(')').unwrap().1),
        None => line.clone(),
    };
    lines.iter().map(cut).collect()
}

async fn waits(client: &leasehold::Leasehold, count: usize) -> Inspection {
    let waiting = async {
        loop {
            let seen = client.mutex("a").inspect().await.unwrap();
            if seen.waiters == count {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("they wait")
}

#[tokio::test]
async fn the_holders_and_the_queue_of_a_read_write_lock_are_shown() {
    let client = leasehold::Leasehold::builder("memory:").holder("host/job").connect().await.unwrap();
    let lock = client.rw_lock("a");
    let upgradeable = lock.upgradeable_read().await.unwrap();
    assert_eq!(sentence("a", &waits(&client, 0).await), "a: read-write lock, 1 reader; nobody waits");
    let reader = lock.read().await.unwrap();
    let writes = lock.clone();
    let writer = tokio::spawn(async move { writes.try_write_for(Duration::from_secs(60)).await });
    waits(&client, 1).await;
    let upgrade = tokio::spawn(upgradeable.upgrade());
    let seen = waits(&client, 2).await;
    let shown = lines("a", &seen);
    let starts = [
        "a: read-write lock, 2 readers; 2 waiters",
        "  reads, and may be upgraded: host/job",
        "  reads: host/job",
        "  reads, and waits to write: host/job",
        "  waits to write: host/job; for another ",
    ];
    let shape = shape(&shown);
    assert!(shape.len() == 5 && shape.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{shape:#?}");
    assert!(shown[1].contains("; held since 20") && shown[1].ends_with(" s left"), "{shown:#?}");
    let json: serde_json::Value = serde_json::from_str(&json(&Lock::new("a", &seen)).unwrap()).unwrap();
    let modes = |list: &str| json[list].as_array().unwrap().iter().map(|one| one["mode"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (modes("holders"), modes("queue")),
        (vec!["upgradeable_read".into(), "read".into()], vec!["upgrade".into(), "write".into()])
    );
    assert_eq!((&json["kind"], &json["units"], &json["limit"]), (&"read_write".into(), &2.into(), &100_000.into()));
    drop(reader);
    let upgraded = upgrade.await.unwrap().unwrap();
    assert_eq!(sentence("a", &waits(&client, 1).await), "a: read-write lock, 1 writer; 1 waiter");
    assert_eq!(upgraded.release().await.unwrap(), Released::Released);
    let writer = writer.await.unwrap().unwrap().expect("nobody reads");
    assert_eq!(writer.release().await.unwrap(), Released::Released);
    assert_eq!(lines("a", &waits(&client, 0).await), ["a: read-write lock, free; nobody waits"]);
}

#[tokio::test]
async fn the_permits_of_a_semaphore_are_shown_and_the_rest_is_counted() {
    let client = leasehold::Leasehold::builder("memory:").holder("host/job").connect().await.unwrap();
    let semaphore = client.semaphore("a", 20);
    let mut permits = vec![semaphore.acquire_many(2).await.unwrap()];
    for _ in 0..17 {
        permits.push(semaphore.acquire().await.unwrap());
    }
    let all = semaphore.clone();
    let waiting = tokio::spawn(async move { all.acquire_many(20).await });
    let shape = shape(&lines("a", &waits(&client, 1).await));
    assert_eq!(shape[0], "a: semaphore, 19 of 20 permits taken; 1 waiter");
    assert!(shape[1].starts_with("  holds 2 permits: host/job") && shape[2].starts_with("  holds 1 permit: "));
    assert_eq!(shape[17..], ["  and 2 more holders", "  waits for 20 permits: host/job"]);
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    waits(&client, 0).await;
    for permit in permits {
        assert_eq!(permit.release().await.unwrap(), Released::Released);
    }
    assert_eq!(sentence("a", &waits(&client, 0).await), "a: semaphore, 0 of 20 permits taken; nobody waits");
}
