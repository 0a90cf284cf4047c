//! Reads the record of a name at a node out of Redis, independently of the scripts. Checks the form of every field, and
//! that nothing follows.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_spec::node::{Called, Charter, Granted, Marker, Record};
use leasehold_spec::{Contention, GrantId, GrantState, Order, Token};
use leasehold_testkit::{Resp, Value};

/// One round trip for both keys: types, values, and ends (ms since 1970).
const READ: &str = "local kinds = redis.call('TYPE', KEYS[1]).ok .. ' ' .. redis.call('TYPE', KEYS[2]).ok
local record, queue = false, {}
if string.find(kinds, '^string') then record = redis.call('GET', KEYS[1]) end
if string.find(kinds, 'zset$') then queue = redis.call('ZRANGE', KEYS[2], '0', '-1', 'WITHSCORES') end
return { kinds, record, queue, redis.call('PEXPIRETIME', KEYS[1]), redis.call('PEXPIRETIME', KEYS[2]) }";

/// The stored state of a name.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) record: Record,
    /// The ends of the keys, in ms since 1970: of the record, and of the queue if there is one.
    pub(crate) ends_ms: Vec<u64>,
}

/// Returns the stored state of a name. `None` if there are no keys.
pub(crate) fn look(resp: &mut Resp, key: &str, queue_key: &str) -> Result<Option<Stored>, String> {
    let answer = resp.command(&["EVAL", READ, "2", key, queue_key]);
    let Some([kinds, text, queue, record_end, queue_end]) = answer.items() else { return Err(format!("{answer:?}")) };
    match kinds.text() {
        Some("none none") => return Ok(None),
        Some("string none" | "string zset") => {}
        other => return Err(format!("keys of types {other:?}")),
    }
    let mut fields = Fields(text.text().ok_or("a record that is not UTF-8")?);
    let (mut record, waits) = record(&mut fields)?;
    fields.end()?;
    record.queue = members(queue.items().ok_or("no queue")?)?;
    if record.contention() != waits {
        return Err(format!("{waits:?} wait by the record, and there is {:?}", record.queue));
    }
    let end_ms = |end: &Value| end.int().and_then(|ms| u64::try_from(ms).ok()).ok_or("a key that never ends");
    let mut ends_ms = vec![end_ms(record_end)?];
    if !record.queue.is_empty() {
        ends_ms.push(end_ms(queue_end)?);
    }
    Ok(Some(Stored { record, ends_ms }))
}

fn members(pairs: &[Value]) -> Result<BTreeMap<(u64, GrantId), Order>, String> {
    let (mut queue, mut ids) = (BTreeMap::new(), BTreeSet::new());
    for pair in pairs.chunks(2) {
        let [Some(member), Some(score)] = [pair[0].text(), pair[1].text()] else { return Err(format!("{pair:?}")) };
        let ticket: u64 = score.parse().map_err(|_| format!("no ticket: {score}"))?;
        let mut fields = Fields(member);
        let id = fields.id()?.ok_or("no waiter")?;
        let order = match fields.take(1)? {
            "s" => Order::Strict,
            "r" => Order::Relaxed,
            other => return Err(format!("neither strict nor relaxed: {other:?}")),
        };
        fields.end()?;
        queue.insert((ticket, id), order);
        if !ids.insert(id) {
            return Err(format!("{id:?} waits twice"));
        }
    }
    Ok(queue)
}

fn record(fields: &mut Fields<'_>) -> Result<(Record, Contention), String> {
    if fields.take(3)? != "lq1" {
        return Err("a record of another layout".into());
    }
    let (state, waits, is_called) = (fields.take(1)?, fields.take(1)?, fields.take(1)?);
    let waits = match waits {
        "N" => Contention::None,
        "O" => Contention::Others,
        "S" => Contention::Strict,
        other => return Err(format!("who waits? {other:?}")),
    };
    let highest = fields.token()?;
    let keep_until_us = fields.number(16)?;
    let released = fields.id()?;
    let called = match is_called {
        "-" => None,
        "C" => {
            let id = fields.id()?.ok_or("no called waiter")?;
            Some(Called { id, ticket: fields.number(16)?, until_us: fields.number(16)? })
        }
        other => return Err(format!("called? {other:?}")),
    };
    let mut record = Record { highest, released, called, keep_until_us, ..Record::default() };
    let state = match state {
        "F" => return Ok((record, waits)),
        "H" => GrantState::Held,
        "R" => GrantState::Revoked,
        "C" => GrantState::CoolingDown,
        other => return Err(format!("no state: {other:?}")),
    };
    let id = fields.id()?.ok_or("a vote without a holder")?;
    let (token, since_us, length_ms) = (fields.token()?, fields.number(16)?, fields.number(8)?);
    let (range, len) = (fields.number(8)?, fields.number(3)?);
    let label = fields.take(usize::try_from(len).map_err(|e| e.to_string())?)?.to_owned();
    record.grant = Some(Granted { id, token, range, since_us, length_ms, state, label });
    Ok((record, waits))
}

/// Returns the stored marker. `None` if there is none.
pub(crate) fn marker(resp: &mut Resp, key: &str) -> Result<Option<(Marker, String)>, String> {
    let answer = resp.command(&["GET", key]);
    let Some(text) = answer.text() else { return Ok(None) };
    let mut fields = Fields(text);
    if fields.take(4)? != "lq1m" {
        return Err("another marker".into());
    }
    let rests_until_us = fields.number(16)?;
    let nodes = usize::try_from(fields.number(4)?).map_err(|e| e.to_string())?;
    let charter = Charter { nodes, max_lease_ms: fields.number(8)? };
    let forgets = match fields.take(1)? {
        "K" => false,
        "F" => true,
        other => return Err(format!("keeps or forgets? {other:?}")),
    };
    let was_used = match fields.take(1)? {
        "N" => false,
        "U" => true,
        other => return Err(format!("new or used? {other:?}")),
    };
    Ok(Some((Marker { charter, run: fields.0.to_owned(), forgets, rests_until_us, was_used }, text.to_owned())))
}

/// The remaining fixed-width fields of a text.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a str, String> {
        let (field, rest) = self.0.split_at_checked(len).ok_or_else(|| format!("too short: {:?}", self.0))?;
        self.0 = rest;
        Ok(field)
    }

    fn number(&mut self, len: usize) -> Result<u64, String> {
        let field = self.take(len)?;
        match field.bytes().all(|b| b.is_ascii_digit()) {
            true => field.parse().map_err(|e| format!("{field:?}: {e}")),
            false => Err(format!("not a number of {len} digits: {field:?}")),
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        Token::new(self.number(16)?).ok_or_else(|| "a token beyond 2^53".into())
    }

    fn id(&mut self) -> Result<Option<GrantId>, String> {
        match self.take(64)? {
            field if field.bytes().all(|b| b == b'-') => Ok(None),
            field => field.parse().map(Some).map_err(|_| format!("no grant id: {field:?}")),
        }
    }

    fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("left over: {:?}", self.0)) }
    }
}
