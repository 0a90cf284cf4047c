//! The memory that a lying server can make a client hold. These tests have a process of their own, whose memory is
//! measured, and run one after the other.

#![cfg(all(feature = "redis", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[expect(dead_code, reason = "it knows more lies than these")]
#[path = "../hostile/liar.rs"]
mod liar;

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_spec::{GrantId, SessionId};
use liar::{Liar, Says};

/// More than the bound of a reply, the buffers of both sides and the overhead of an allocator. Less than a user would
/// notice.
const MOST_MB: u64 = 64;

/// Held by the test that measures.
static MEASURING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lie_fills_no_memory() {
    let _alone = MEASURING.lock().await;
    let lies = [
        ("a string that never ends", Says::Endless(b"$536870912\r\n".to_vec(), vec![b'x'; 1 << 16])),
        ("a line that never ends", Says::Endless(b"+".to_vec(), vec![b'x'; 1 << 16])),
        ("an array that never ends", Says::Endless(b"*2147483647\r\n".to_vec(), b":1\r\n".repeat(1 << 14))),
        ("arrays in arrays", Says::Endless(b"*1\r\n".repeat(90), b"*1000000\r\n".repeat(1 << 12))),
        ("a map that never ends", Says::Endless(b"%1000000000\r\n".to_vec(), b"+a\r\n".repeat(1 << 14))),
        ("messages that never end", Says::Endless(Vec::new(), b">2\r\n$7\r\nnothing\r\n$1\r\na\r\n".repeat(1 << 11))),
    ];
    for (what, says) in lies {
        let liar = Liar::start();
        let client = Leasehold::connect(&liar.url()).await.unwrap();
        liar.lie(("acquire", says));
        let before = begin_mb();
        let asked = client.mutex("n").try_lock_for(Duration::from_secs(4)).await;
        let grown = peak_mb().saturating_sub(before);
        let took = liar.endless() >> 20;
        println!(
            "{what}: the client took {took} MB and held {grown} MB; {:?}",
            asked.map(|_| ()).map_err(|e| e.kind())
        );
        assert!(grown < MOST_MB, "{what}: {grown} MB are held");
        assert!(liar.lies() > 0, "{what}: it never lied");
        liar.tell_the_truth();
        drop(client.mutex("n").lock().await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_were_not_requested_fill_no_memory() {
    let _alone = MEASURING.lock().await;
    let liar = Liar::start();
    let client = Leasehold::connect(&liar.url()).await.unwrap();
    let channel = liar.channels().first().unwrap().clone();
    let session: SessionId = SessionId(u128::from_str_radix(channel.rsplit(':').next().unwrap(), 16).unwrap());
    // The server never answers the leaves that these grants cause.
    liar.lie(("return", Says::Silence));
    let before = begin_mb();
    for counter in 0..PUSHES / 1_000 {
        let push = |at| {
            let id = GrantId { session, counter: 1_000_000 + counter * 1_000 + at, nonce: 1 };
            let text = format!("lh1 G {} 1795276536085874 86400000000 1795276536085874 N D lh1:{{n}}", id.wire());
            format!(">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n{text}\r\n", channel.len(), text.len())
        };
        liar.write_to_all((0..1_000).map(push).collect::<String>().as_bytes());
    }
    let grown = peak_mb().saturating_sub(before);
    println!("{PUSHES} grants that were never requested: {grown} MB are held");
    assert!(grown < 2 * MOST_MB, "{grown} MB are held");
    liar.tell_the_truth();
    drop(client.mutex("n").lock().await.unwrap());
}

const PUSHES: u64 = 300_000;

/// Returns how much memory this process holds now, in MB. Resets its peak.
fn begin_mb() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_mb()
}

/// Returns the most memory that this process has held since then, in MB. The kernel counts pages per processor and sums
/// them up late, so the result can be a little less than the value at the beginning.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}
