//! Assigns replies to their requests.
//!
//! Redis answers in order, and a reply does not name its request. So the requests of a connection are kept until they are
//! answered. Three things make this more than a queue:
//!
//! - A SUBSCRIBE of n channels has n confirmations. An UNSUBSCRIBE without arguments has one for each channel that was
//!   left, or one that reports that there was none. In RESP2 they look like any array, in RESP3 like a message.
//! - Messages answer nothing. In RESP3 they have a type of their own. In RESP2 they are arrays, which are recognizable
//!   because a connection that has subscribed to something may send nothing else than subscriptions.
//! - A request that the proxy answers itself must be answered in its turn, not before those ahead of it.
//!
//! Not understood, and not used by Leasehold: MONITOR, RESET, CLIENT REPLY, and subscriptions inside of MULTI.

use std::collections::{HashSet, VecDeque};

use super::fault::Command;
use crate::resp::Value;

/// The unanswered requests of a connection. `F` is the decision about a reply, made when it begins to arrive.
#[derive(Debug)]
pub(super) struct Replies<F> {
    asked: VecDeque<Asked<F>>,
    subscribed: Subscribed,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Resp2,
    Resp3,
}

#[derive(Debug)]
struct Asked<F> {
    command: Command,
    expected: Expected,
    fate: Option<F>,
}

#[derive(Debug)]
enum Expected {
    One,
    Hello(Version),
    /// This many confirmations.
    Confirmations(usize),
    /// A confirmation for each subscription of this kind.
    LeaveAll(&'static str),
    /// No reply from the server: the proxy answers.
    Ours(Vec<u8>),
}

/// A classified value from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived<F> {
    /// A message, which answers no request.
    Push,
    /// A part of the answer to a request; more follows.
    Part(F),
    /// The answer to a request, or its last part.
    Reply(F),
    /// An answer without a request, such as the refusal of a connection.
    Unasked,
}

/// The three kinds of subscription: the commands that begin and end them, which the confirmations repeat.
const KINDS: [(&str, &str); 3] =
    [("SUBSCRIBE", "UNSUBSCRIBE"), ("PSUBSCRIBE", "PUNSUBSCRIBE"), ("SSUBSCRIBE", "SUNSUBSCRIBE")];

impl<F: Clone> Replies<F> {
    pub(super) fn new() -> Self {
        Self { asked: VecDeque::new(), subscribed: HashSet::new(), version: Version::Resp2 }
    }

    /// Records a request that goes to the server.
    pub(super) fn ask(&mut self, command: Command) {
        let expected = expected(&command);
        self.asked.push_back(Asked { command, expected, fate: None });
    }

    /// Records a request that the proxy answers when its turn has come.
    pub(super) fn answer(&mut self, command: Command, with: Vec<u8>) {
        self.asked.push_back(Asked { command, expected: Expected::Ours(with), fate: None });
    }

    /// Returns the proxy's own answer, if it is its turn. Call it after each of the other calls, until it returns `None`.
    pub(super) fn our_turn(&mut self) -> Option<Vec<u8>> {
        let Expected::Ours(bytes) = &mut self.asked.front_mut()?.expected else { return None };
        let bytes = std::mem::take(bytes);
        self.asked.pop_front();
        Some(bytes)
    }

    /// Classifies a value from the server. `decide` is called once for each request, when the first part of its reply
    /// arrives.
    pub(super) fn arrived(&mut self, value: &Value, decide: impl FnOnce(&Command) -> F) -> Arrived<F> {
        let confirmation = confirmation(value).filter(|confirmation| self.is_awaited(confirmation));
        if confirmation.is_none() && self.is_message(value) {
            return Arrived::Push;
        }
        let Some(Asked { command, expected, fate }) = self.asked.front_mut() else { return Arrived::Unasked };
        let fate = fate.get_or_insert_with(|| decide(command)).clone();
        match (&*expected, confirmation) {
            (_, Some(confirmation)) => {
                let missing = missing(expected, &self.subscribed);
                confirmation.apply(&mut self.subscribed);
                if missing > 1 {
                    *expected = Expected::Confirmations(missing - 1);
                    return Arrived::Part(fate);
                }
            }
            (Expected::Hello(version), None) if !matches!(value, Value::Error(_)) => self.version = *version,
            _ => {}
        }
        self.asked.pop_front();
        Arrived::Reply(fate)
    }

    /// Whether a confirmation is the expected next reply. Examples of one that is not: a cluster moves a shard channel
    /// away, or a script answers an array that looks like a confirmation.
    fn is_awaited(&self, confirmation: &Confirmation<'_>) -> bool {
        match self.asked.front().map(|asked| &asked.expected) {
            Some(Expected::Confirmations(_)) => true,
            Some(Expected::LeaveAll(kind)) => *kind == confirmation.kind,
            _ => false,
        }
    }

    fn is_message(&self, value: &Value) -> bool {
        match value {
            Value::Push(_) => true,
            Value::Array(items) if self.version == Version::Resp2 && !self.subscribed.is_empty() => {
                let first = items.first().and_then(Value::text);
                matches!(first, Some("message" | "pmessage" | "smessage"))
            }
            _ => false,
        }
    }
}

/// The subscriptions of a connection: the kind (channel, pattern, shard channel) and the name.
type Subscribed = HashSet<(&'static str, Vec<u8>)>;

/// Returns how many confirmations are still to come, including the one that has just come. (An UNSUBSCRIBE without
/// subscriptions is confirmed once: 0 and 1 mean the same.)
fn missing(expected: &Expected, subscribed: &Subscribed) -> usize {
    match expected {
        Expected::Confirmations(n) => *n,
        Expected::LeaveAll(kind) => subscribed.iter().filter(|(k, _)| k == kind).count(),
        _ => 1,
    }
}

/// The content of a confirmation.
#[derive(Debug)]
struct Confirmation<'a> {
    kind: &'static str,
    change: Change,
    name: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Taken,
    Left,
}

impl Confirmation<'_> {
    fn apply(&self, subscribed: &mut Subscribed) {
        let name = (self.kind, self.name.to_vec());
        match self.change {
            Change::Taken => subscribed.insert(name),
            Change::Left => subscribed.remove(&name),
        };
    }
}

fn expected(command: &Command) -> Expected {
    for (take, leave) in KINDS {
        match command.arguments.len() {
            0 if command.name == leave => return Expected::LeaveAll(take),
            n if command.name == take || command.name == leave => return Expected::Confirmations(n),
            _ => {}
        }
    }
    match (command.name.as_str(), command.argument(0)) {
        ("HELLO", Some("3")) => Expected::Hello(Version::Resp3),
        ("HELLO", Some("2")) => Expected::Hello(Version::Resp2),
        _ => Expected::One,
    }
}

fn confirmation(value: &Value) -> Option<Confirmation<'_>> {
    let [word, name, _count] = value.items()? else { return None };
    let word = word.text()?;
    // The confirmation of an UNSUBSCRIBE that left nothing has no name.
    let name: &[u8] = match name {
        Value::Bulk(name) => name,
        _ => &[],
    };
    KINDS.iter().find_map(|&(kind, leave)| {
        let change = match word {
            word if word.eq_ignore_ascii_case(kind) => Change::Taken,
            word if word.eq_ignore_ascii_case(leave) => Change::Left,
            _ => return None,
        };
        Some(Confirmation { kind, change, name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a request with a number that identifies its reply.
    fn command(connection: u64, text: &str) -> Command {
        let mut words = text.split(' ');
        let name = words.next().expect("a command has a name").to_owned();
        Command { connection, at_us: 0, name, arguments: words.map(|word| word.as_bytes().to_vec()).collect() }
    }

    fn arrive(replies: &mut Replies<u64>, value: &Value) -> Arrived<u64> {
        replies.arrived(value, |command| command.connection)
    }

    fn items(words: &[&str]) -> Vec<Value> {
        words.iter().map(|word| Value::from(*word)).collect()
    }

    #[test]
    fn replies_answer_in_order_and_pushes_answer_nothing() {
        let mut replies = Replies::new();
        replies.ask(command(0, "HELLO 3"));
        replies.ask(command(1, "GET a"));
        replies.ask(command(2, "GET b"));
        assert_eq!(arrive(&mut replies, &Value::Array(vec![])), Arrived::Reply(0));
        assert_eq!(arrive(&mut replies, &Value::Push(items(&["message", "c", "x"]))), Arrived::Push);
        assert_eq!(arrive(&mut replies, &Value::from("a")), Arrived::Reply(1));
        // With RESP3 an array is an answer, whatever it contains.
        assert_eq!(arrive(&mut replies, &Value::Array(items(&["message", "c", "x"]))), Arrived::Reply(2));
        assert_eq!(arrive(&mut replies, &Value::Nil), Arrived::Unasked);
    }

    #[test]
    fn confirmations_of_both_versions_are_counted() {
        for make in [Value::Array, Value::Push] {
            let mut replies = Replies::new();
            replies.ask(command(1, "SUBSCRIBE a b"));
            replies.ask(command(2, "PSUBSCRIBE p"));
            replies.ask(command(3, "UNSUBSCRIBE"));
            replies.ask(command(4, "UNSUBSCRIBE"));
            replies.ask(command(5, "PING"));
            let mut confirm = |words: &[&str]| arrive(&mut replies, &make(items(words)));
            assert_eq!(confirm(&["subscribe", "a", "1"]), Arrived::Part(1));
            assert_eq!(confirm(&["message", "a", "hello"]), Arrived::Push);
            assert_eq!(confirm(&["subscribe", "b", "2"]), Arrived::Reply(1));
            assert_eq!(confirm(&["psubscribe", "p", "3"]), Arrived::Reply(2));
            assert_eq!(confirm(&["unsubscribe", "a", "2"]), Arrived::Part(3));
            assert_eq!(confirm(&["unsubscribe", "b", "1"]), Arrived::Reply(3));
            assert_eq!(confirm(&["unsubscribe", "", "1"]), Arrived::Reply(4));
            assert_eq!(arrive(&mut replies, &Value::Status("PONG".into())), Arrived::Reply(5));
        }
    }

    #[test]
    fn an_answer_that_looks_like_a_message_or_a_confirmation_is_an_answer() {
        let mut replies = Replies::new();
        replies.ask(command(1, "HELLO 3"));
        replies.ask(command(2, "SUBSCRIBE c"));
        replies.ask(command(3, "EVAL return"));
        replies.ask(command(4, "UNSUBSCRIBE"));
        assert_eq!(arrive(&mut replies, &Value::Array(vec![])), Arrived::Reply(1));
        assert_eq!(arrive(&mut replies, &Value::Push(items(&["subscribe", "c", "1"]))), Arrived::Reply(2));
        assert_eq!(arrive(&mut replies, &Value::Array(items(&["message", "c", "x"]))), Arrived::Reply(3));
        // A cluster has moved a shard channel away, without an UNSUBSCRIBE.
        assert_eq!(arrive(&mut replies, &Value::Push(items(&["sunsubscribe", "s", "0"]))), Arrived::Push);
        assert_eq!(arrive(&mut replies, &Value::Push(items(&["unsubscribe", "c", "0"]))), Arrived::Reply(4));
    }

    #[test]
    fn a_refused_subscription_has_one_answer() {
        let mut replies = Replies::new();
        replies.ask(command(1, "SUBSCRIBE a b c"));
        replies.ask(command(2, "PING"));
        assert_eq!(arrive(&mut replies, &Value::Error("NOPERM".into())), Arrived::Reply(1));
        assert_eq!(arrive(&mut replies, &Value::Status("PONG".into())), Arrived::Reply(2));
    }

    #[test]
    fn our_own_answers_wait_for_their_turn() {
        let mut replies = Replies::new();
        replies.ask(command(1, "GET a"));
        replies.answer(command(2, "GET x"), b"-no\r\n".to_vec());
        replies.answer(command(3, "GET x"), b"-never\r\n".to_vec());
        replies.ask(command(4, "GET b"));
        assert_eq!(replies.our_turn(), None);
        assert_eq!(arrive(&mut replies, &Value::Nil), Arrived::Reply(1));
        assert_eq!(replies.our_turn(), Some(b"-no\r\n".to_vec()));
        assert_eq!(replies.our_turn(), Some(b"-never\r\n".to_vec()));
        assert_eq!(replies.our_turn(), None);
        assert_eq!(arrive(&mut replies, &Value::Nil), Arrived::Reply(4));
    }

    #[test]
    fn an_array_before_any_subscription_is_an_answer() {
        let mut replies = Replies::new();
        replies.ask(command(1, "LRANGE l 0 -1"));
        assert_eq!(arrive(&mut replies, &Value::Array(items(&["message", "c", "x"]))), Arrived::Reply(1));
    }
}
