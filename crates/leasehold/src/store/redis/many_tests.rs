//! The delivery of the replies to batches.

use std::future::ready;

use leasehold_spec::{GrantId, Name, SessionId, Token};

use super::*;

/// A batch with this reply, and the receivers of its requests.
fn sent(requests: usize, reply: Reply) -> (Sent, Vec<oneshot::Receiver<BatchReply>>) {
    let (mut batch, mut receivers) = (Batch::default(), Vec::new());
    for counter in 0..requests as u64 {
        let id = GrantId { session: SessionId(1), counter, nonce: 1 };
        let release = Op::Release { id, token: Token::NONE, used: Token::NONE };
        let (sender, receiver) = oneshot::channel();
        batch.requests.push((Part::of(&Name::new("name").unwrap(), &release).unwrap(), sender));
        receivers.push(receiver);
    }
    (Sent { asking: Box::pin(ready(reply)), reply: None, batch }, receivers)
}

fn text(bytes: &[u8]) -> Reply {
    Ok(Value::BulkString(bytes.to_vec()))
}

/// Returns what the receivers got, as labels.
fn replies_of(receivers: &mut [oneshot::Receiver<BatchReply>]) -> Vec<String> {
    let label = |reply| match reply {
        Ok(BatchReply::Short(now_us)) => format!("short {now_us}"),
        Ok(BatchReply::Full(text)) => format!("full {text}"),
        Ok(BatchReply::SendAlone) => "alone".to_owned(),
        Ok(BatchReply::Broken(_)) => "broken".to_owned(),
        Ok(BatchReply::Garbled) => "garbled".to_owned(),
        Err(_) => "nothing".to_owned(),
    };
    receivers.iter_mut().map(|receiver| label(receiver.try_recv())).collect()
}

fn deliver(batches: &Batches, limit: usize) -> bool {
    batches.deliver(limit, &Context::from_waker(Waker::noop()))
}

#[test]
fn each_request_gets_its_part_of_the_reply() {
    let (sent, mut receivers) = sent(3, text(b"0000000000000007\n02NOTHELD 1\xff"));
    assert!(sent.deliver());
    assert_eq!(replies_of(&mut receivers), ["short 7", "full NOTHELD 1\u{fffd}", "short 7"]);
}

#[test]
fn a_reply_that_no_script_makes_is_garbage() {
    for garbage in [
        "",
        "7",
        "0000000000000007\n",
        "0000000000000007\n00X",
        "0000000000000007\n04X",
        "0000000000000007\n02",
        "0000000000000007\n02X\n02Y",
        "0000000000000007\n02X\n01Y",
        "RELEASED",
    ] {
        let (sent, mut receivers) = sent(3, text(garbage.as_bytes()));
        assert!(!sent.deliver(), "{garbage:?}");
        assert_eq!(replies_of(&mut receivers), ["garbled"; 3], "{garbage:?}");
    }
}

/// A reply too many is taken for that of the next batch, whose locks would be believed to be held.
#[test]
fn after_garbage_no_later_reply_is_believed() {
    for is_closed in [false, true] {
        let batches = Batches::default();
        let (first, mut of_first) = sent(1, text(b"garbage"));
        let (second, mut of_second) = sent(1, text(b"0000000000000007"));
        batches.lock().sent.extend([first, second]);
        if is_closed {
            batches.close();
        } else {
            assert!(!deliver(&batches, 9));
        }
        assert_eq!(
            (replies_of(&mut of_first), replies_of(&mut of_second)),
            (vec!["garbled".into()], vec!["garbled".into()])
        );
    }
}

/// The tasks of the first batch run before the second batch gets its replies.
#[test]
fn one_turn_delivers_no_more_than_its_share() {
    let batches = Batches::default();
    let (first, mut of_first) = sent(2, text(b"0000000000000007"));
    let (second, mut of_second) = sent(2, text(b"0000000000000008"));
    batches.lock().sent.extend([first, second]);
    assert!(deliver(&batches, 2));
    assert_eq!(replies_of(&mut of_first), ["short 7", "short 7"]);
    assert_eq!(replies_of(&mut of_second), ["nothing", "nothing"]);
    assert!(deliver(&batches, 2));
    assert_eq!(replies_of(&mut of_second), ["short 8", "short 8"]);
}

/// Replies that have come are delivered, although the link has ended.
#[test]
fn a_link_that_ends_delivers_what_has_come() {
    let batches = Batches::default();
    let (first, mut of_first) = sent(1, text(b"0000000000000007"));
    batches.lock().sent.push_back(first);
    batches.close();
    assert_eq!(replies_of(&mut of_first), ["short 7"]);
}
