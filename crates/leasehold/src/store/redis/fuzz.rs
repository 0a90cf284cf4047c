//! Random input for all parsers: URLs, names, leases, replies of scripts, messages, bytes of a reply. No parser panics,
//! each reads back what was written, and no error contains a password.
//!
//! `LEASEHOLD_FUZZ_CASES` (default 1,000) and `LEASEHOLD_FUZZ_SEED` (default 1) select other input.

use std::fmt::Debug;
use std::time::Duration;

use leasehold_spec::limits::{LEASE_MAX_MS, LEASE_MIN_MS, NAME_MAX, RANGE_END, RANGE_MAX, TOKEN_END};
use leasehold_spec::{
    Answer, Contention, Delivery, Event, GrantId, GrantState, Holder, Inspection, Joined, Kind, LostHow, Name, Outcome,
    Refusal, Rest, SessionId, ShownMode, Token, Waiter, Was,
};
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::keys::Keys;
use super::reply::{To, delivery, parse};
use super::sieve::Sieve;
use super::url::Target;
use super::words::Reply;
use crate::settings::check_lease;
use crate::store::quorum::url::QuorumUrl;

/// Runs a test with the number of inputs that the environment sets.
pub(super) fn fuzz<S: Strategy>(inputs: S, test: impl Fn(S::Value))
where
    S::Value: Debug,
{
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed: u64 = number("LEASEHOLD_FUZZ_SEED").unwrap_or(1);
    let cases = u32::try_from(number("LEASEHOLD_FUZZ_CASES").unwrap_or(1_000)).unwrap();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let played = runner.run(&inputs, |input| {
        test(input);
        Ok::<_, TestCaseError>(())
    });
    played.unwrap_or_else(|error| panic!("LEASEHOLD_FUZZ_SEED={seed} LEASEHOLD_FUZZ_CASES={cases}: {error}"));
}

/// Returns any text, often with bytes that have a meaning.
pub(super) fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        any::<char>().prop_map(String::from),
        select(vec!["{", "}", "%", "%7B", "%2", " ", "\n", "\0", "ä", "://", "@", ":", "/", "?", "=", "&", "#", "lh1"])
            .prop_map(str::to_owned),
        "[ -~]{0,12}",
        "[0-9]{1,20}",
    ];
    vec(part, 0..12).prop_map(|parts| parts.concat())
}

const SECRET: &str = "hunter2";

/// Returns nearly valid URLs that contain a password.
fn url() -> impl Strategy<Value = String> {
    let word = |words: &'static [&'static str]| select(words).prop_map(str::to_owned);
    let scheme =
        prop_oneof![word(&["redis://", "rediss://", "redis:", "REDIS://", "redis+cluster://", "file:"]), text()];
    // Some passwords contain a character that ends the host, and are cut there.
    let cut = word(&["", "", "1?", "1/", "1#", "?", "1?x=", "1?a&"]);
    let who = (prop_oneof![word(&["", "u", "%zz", "ä"]), text()], cut);
    let who = who.prop_map(|(user, cut)| format!("{user}:{cut}{SECRET}@"));
    let host = prop_oneof![word(&["", "h", "127.0.0.1", "[::1]", "[::", "h:99999", "h:x", "%00", "a b"]), text()];
    let path = prop_oneof![word(&["", "/", "/0", "/-1", "/99999999999999999999", "//", "/x"]), text()];
    let said = prop_oneof![
        word(&[
            "",
            "?",
            "?prefix=a",
            "?prefix={",
            "?password_file=x",
            "?password_env=A",
            "?ca=/x",
            "?cert=/x",
            "?x=y",
            "?password=hunter2",
            "?prefix=a&prefix=b",
            "#hunter2",
        ]),
        text(),
    ];
    (scheme, who, host, path, said).prop_map(|(scheme, who, host, path, said)| [scheme, who, host, path, said].concat())
}

#[test]
fn errors_about_urls_contain_no_password() {
    // One character more or less, anywhere but in the password itself.
    let bent =
        (url(), any::<Index>(), prop_oneof![Just(None), any::<char>().prop_map(Some)]).prop_map(|(url, at, by)| {
            let places: Vec<usize> = url.char_indices().map(|(at, _)| at).collect();
            let at = *at.get(&places);
            let mut bent = url.clone();
            match by {
                Some(by) => bent.insert(at, by),
                None => drop(bent.remove(at)),
            }
            // Without its '@' it is no password.
            if bent.contains(SECRET) && bent.contains('@') { bent } else { url }
        });
    fuzz(bent, |url| {
        if let Err(error) = Target::parse(&url) {
            let said = format!("{error} {error:?}");
            // In front of an '@' it is a password, with anything in between.
            let is_password = url.find(SECRET) < url.rfind('@');
            assert!(!is_password || !said.contains(SECRET), "{url}: {said}");
        }
    });
}

/// Returns the URL of a node of a quorum, plain or encoded or neither.
fn node() -> impl Strategy<Value = String> {
    let encoded = |url: String| ::url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>();
    let sound = "redis://[a-z]{1,9}(:[0-9]{1,3})?".prop_map(|url| url);
    // Passwords that contain separators of the quorum's URL or of a node's.
    let cut = select(vec!["", "1?", "1&", "1?a&", "1?a=&ca=", "1&node=redis://", "1&prefix=", "1&max_lease="]);
    let more = select(vec!["", "&x", "&node=redis://x", "&node=redis%3A%2F%2Fx", "=&prefix=x", "?", "/", "#"]);
    let torn = (cut, more).prop_map(|(cut, more)| format!("redis://u:{cut}{SECRET}{more}@h"));
    prop_oneof![
        url(),
        url().prop_map(|url| url.replace('&', "%26")),
        torn.clone(),
        torn.prop_map(encoded),
        sound.clone(),
        sound.prop_map(encoded),
    ]
}

#[test]
fn errors_about_quorums_contain_no_password() {
    let words = select(vec!["max_lease=60s", "max_lease=1", "prefix=a", "prefix=%40", "ca=/x", "x", "", "&", "node="]);
    let part = prop_oneof![8 => node().prop_map(|node| format!("node={node}")), 1 => words.prop_map(str::to_owned)];
    let rest = (vec(part, 0..11), select(vec!["?", "?", "?", "", "//?"])).prop_map(|(parts, begins)| {
        let parts = parts.join("&");
        format!("{begins}{parts}")
    });
    fuzz(rest, |rest| match QuorumUrl::parse(&rest) {
        Ok(url) => assert!((3..=9).contains(&url.nodes.len()), "{rest}"),
        Err(error) => {
            let plain = rest.replace("%40", "@");
            let is_password = plain.find(SECRET) < plain.rfind('@');
            let said = format!("{error} {error:?}");
            assert!(!is_password || !said.contains(SECRET), "{rest}: {said}");
        }
    });
}

#[test]
fn a_prefix_is_accepted_or_refused() {
    fuzz(text(), |prefix| {
        let Ok(target) = Target::parse("redis://h").unwrap().below(&prefix) else { return };
        let keys = Keys::new(&target.prefix);
        let name = Name::new("a {b}%").unwrap();
        assert_eq!(keys.name(&keys.record(&name)), Some(name));
    });
}

#[test]
fn a_name_is_refused_or_comes_back_from_its_key() {
    fuzz(text(), |text| {
        let keys = Keys::new("p:");
        let Ok(name) = Name::new(&text) else {
            assert!(text.is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control));
            return;
        };
        assert_eq!(name.as_str(), text);
        let key = keys.record(&name);
        assert_eq!(keys.name(&key), Some(name));
        // A text that is read as a key is the key of that name.
        assert!(keys.name(&text).is_none_or(|name| keys.record(&name) == text));
    });
}

#[test]
fn a_lease_is_within_its_range_or_refused() {
    fuzz(any::<Duration>(), |lease| {
        let range = Duration::from_millis(LEASE_MIN_MS)..=Duration::from_millis(LEASE_MAX_MS);
        assert_eq!(check_lease(lease).is_ok(), range.contains(&lease), "{lease:?}");
    });
}

pub(super) fn contention() -> impl Strategy<Value = Contention> {
    select(vec![Contention::None, Contention::Others, Contention::Strict])
}

fn rest() -> impl Strategy<Value = Rest> {
    select(vec![Rest::Done, Rest::More])
}

pub(super) fn token() -> impl Strategy<Value = Token> {
    (0..TOKEN_END).prop_map(|number| Token::new(number).unwrap())
}

pub(super) fn id() -> impl Strategy<Value = GrantId> {
    (any::<u128>(), any::<u64>(), any::<u64>()).prop_map(|(session, counter, nonce)| GrantId {
        session: SessionId(session),
        counter,
        nonce,
    })
}

fn range() -> impl Strategy<Value = u64> {
    1..=RANGE_END
}

/// Returns an answer, and the reply of the script. No lease ends before the time of the reply.
fn answer() -> impl Strategy<Value = (Answer, String)> {
    let outcome = (0..19_u8, token(), 0..10_u64.pow(15), 0..10_u64.pow(7), range(), (id(), text()));
    let parts = (0..10_u64.pow(15), token(), contention(), rest(), any::<Option<u16>>(), outcome);
    parts.prop_map(|(now_us, highest, contention, rest, claim, (which, token, ticket, length_ms, range, about))| {
        let (left_us, small) = (length_ms * 1000, u32::try_from(length_ms).unwrap());
        let lease = format!("{now_us:016} {length_ms:08}");
        let (word, outcome, tail) = match which {
            0 => {
                let granted = Outcome::Granted { token, left_us, range };
                ("GRANTED", granted, format!(" {:016} {range:08} {lease}", token.get()))
            }
            1 => {
                let queued = Outcome::Queued { ticket, left_us, joined: Joined::Before };
                ("QUEUED", queued, format!(" {ticket:016} {lease} before"))
            }
            2 => ("BUSY", Outcome::Busy { left_us }, format!(" {lease}")),
            3 => ("GONE", Outcome::Gone, String::new()),
            4 => ("LATE", Outcome::Late, String::new()),
            5 => ("RENEWED", Outcome::Renewed { left_us }, format!(" {lease}")),
            6 => ("LOST", Outcome::Lost { how: LostHow::Revoked }, " revoked".to_owned()),
            7 => ("RELEASED", Outcome::Released, String::new()),
            8 => ("RESERVED", Outcome::Reserved { range }, format!(" {range:08}")),
            9 => ("LEFT", Outcome::Left { was: Was::Granted }, " granted".to_owned()),
            10 => {
                let (seen, tail) = inspected((now_us, token), (left_us, &lease), about);
                ("INSPECTED", Outcome::Inspected(seen), tail)
            }
            11 => ("NOTIFIED", Outcome::Notified { count: small }, format!(" {small}")),
            12 => ("SPENT", Outcome::Spent, String::new()),
            13 => ("COUNTED", Outcome::Counted { left: small, born: token }, format!(" {small} {:016}", token.get())),
            14 => ("DELETED", Outcome::Deleted, String::new()),
            15 => ("PUT", Outcome::Put, String::new()),
            16 => ("NOWAITER", Outcome::NoWaiter, String::new()),
            17 => ("REFUSED", Outcome::Refused(Refusal::Absent), " absent L 000000".to_owned()),
            _ => ("REVOKING", Outcome::Revoking { left_us }, format!(" {lease}")),
        };
        let handed_claim_ms = claim.map(u64::from);
        let claim = handed_claim_ms.map_or("-".to_owned(), |ms| format!("{ms:08}"));
        let said = format!(
            "{word} {now_us:016} {:016} {} {} {claim}{tail}",
            highest.get(),
            letter(contention),
            if rest == Rest::Done { "D" } else { "M" }
        );
        (Answer { now_us, highest, contention, rest, handed_claim_ms, outcome }, said)
    })
}

/// Returns what an inspection shows: a holder and two waiters with the same label.
fn inspected(
    (now_us, token): (u64, Token),
    (left_us, lease): (u64, &str),
    (id, label): (GrantId, String),
) -> (Inspection, String) {
    let (id, mode, units) = (id.public(), ShownMode::Upgradeable, 3);
    let holder = Holder { id, token, left_us, label: label.clone(), state: GrantState::Pushed, units, mode };
    let waiter = |left_us| Waiter { id, units, mode, left_us, label: label.clone() };
    let queue = vec![waiter(None), waiter(Some(left_us + 1))];
    let (holders, kind) = (vec![holder], Kind::Semaphore);
    let shown = format!("{} 3 U {:03}{label}", id.wire(), label.len());
    let text = format!(
        " S 9 3 1 70 h {lease} P {:016} {shown} w {:016} {shown} w {:016} {shown}",
        token.get(),
        0,
        now_us + left_us + 1
    );
    (Inspection { kind, limit: 9, units, holders, grants: 1, queue, waiters: 70 }, text)
}

pub(super) fn letter(contention: Contention) -> &'static str {
    match contention {
        Contention::None => "N",
        Contention::Others => "O",
        Contention::Strict => "S",
    }
}

fn to() -> impl Strategy<Value = To> {
    prop_oneof![
        (0..10_u64.pow(8), 1..=RANGE_MAX).prop_map(|(lease_ms, range)| To::Acquire { lease_ms, range }),
        token().prop_map(|last| To::Release { last }),
        Just(To::Other),
    ]
}

#[test]
fn an_answer_reads_as_it_was_written() {
    fuzz(answer(), |(answer, said)| match parse(To::Other, &said) {
        Some(Reply::Sound(read)) => assert_eq!(read, answer, "{said}"),
        other => panic!("{said}: {other:?}"),
    });
}

/// Returns any text, or a valid one in which a piece was replaced.
pub(super) fn bent(truth: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let cut = (truth, any::<Index>(), any::<Index>(), text()).prop_map(|(truth, from, to, by)| {
        let places: Vec<usize> = truth.char_indices().map(|(at, _)| at).collect();
        let (from, to) = (*from.get(&places), *to.get(&places));
        [&truth[..from.min(to)], &by, &truth[from.max(to)..]].concat()
    });
    prop_oneof![text(), cut]
}

#[test]
fn a_bent_answer_is_no_panic() {
    fuzz((to(), bent(answer().prop_map(|(_, said)| said))), |(to, said)| drop(parse(to, &said)));
}

fn message() -> impl Strategy<Value = (Name, Delivery, String)> {
    let name = text().prop_filter_map("no name", |text| Name::new(&text).ok());
    let events = select(vec![(Event::Granted, "G"), (Event::Revoked, "R"), (Event::Wanted, "W"), (Event::Ending, "E")]);
    let parts = (name, id(), token(), any::<u64>(), any::<u64>(), contention(), rest(), events, range());
    parts.prop_map(|(name, id, token, left_us, now_us, contention, rest, (event, word), range)| {
        let delivery = Delivery { to: id.session, now_us, contention, rest, id, token, left_us, event, range };
        let (wire, number, who, key) = (id.wire(), token.get(), letter(contention), Keys::new("p:").record(&name));
        let rest = if rest == Rest::Done { "D" } else { "M" };
        (name, delivery, format!("lh1 {word} {wire} {number:016} {left_us} {now_us} {who} {rest} {range:08} {key}"))
    })
}

#[test]
fn a_message_reads_as_it_was_written_and_for_its_session_alone() {
    fuzz(message(), |(name, told, said)| {
        let keys = Keys::new("p:");
        assert_eq!(delivery(&keys, told.to, &said), Some((name, told.clone())), "{said}");
        assert_eq!(delivery(&keys, SessionId(told.to.0 ^ 1), &said), None, "{said}");
    });
}

#[test]
fn a_bent_message_is_no_panic() {
    fuzz((bent(message().prop_map(|(_, _, said)| said)), any::<u128>()), |(said, session)| {
        drop(delivery(&Keys::new("p:"), SessionId(session), &said));
    });
}

/// The same bytes are accepted or refused, however the network cuts them.
#[test]
fn the_sieve_does_not_depend_on_the_cuts() {
    let line = prop_oneof![
        "[$*~>%|=!+:_-]-?[0-9]{0,4}\r\n".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..20),
        Just(b"$3\r\nabc\r\n".to_vec()),
    ];
    fuzz((vec(line, 0..20), 1..9_usize), |(lines, cut)| {
        let bytes = lines.concat();
        assert_eq!(Sieve::LOCKS.passes(&[&bytes]), Sieve::LOCKS.passes(&bytes.chunks(cut).collect::<Vec<_>>()));
    });
}
