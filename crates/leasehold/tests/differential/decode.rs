//! Reads a record out of Redis, in both encodings, with other eyes than the scripts': every field is checked for its
//! form, every link of the queue for its other end, and nothing may be left over.

use std::collections::{BTreeMap, VecDeque};

use leasehold_spec::{Entry, Grant, GrantId, GrantState, Hears, Lapse, Order, Resource, SessionId, Token};
use leasehold_testkit::{Resp, Value};

/// One round trip for whatever the key holds, unless that is long: type, value, and when it ends (ms since 1970).
const LOOK: &str = "local kind, key = redis.call('TYPE', KEYS[1]).ok, KEYS[1]
local value = false
if kind == 'string' then value = redis.call('GET', key) end
if kind == 'hash' and redis.call('HLEN', key) < 500 then value = redis.call('HGETALL', key) end
return { kind, value, redis.call('PEXPIRETIME', key) }";

/// A record as it is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    /// A short record does not say until when it is kept: 0.
    pub(crate) resource: Resource,
    pub(crate) is_short: bool,
    /// When the key ends, in ms since 1970.
    pub(crate) expires_ms: u64,
}

/// What is stored under the key; `None` if there is nothing.
pub(crate) fn look(resp: &mut Resp, key: &str) -> Result<Option<Stored>, String> {
    let answer = resp.command(&["EVAL", LOOK, "1", key]);
    let Some([kind, value, expires]) = answer.items() else { return Err(format!("not a look: {answer:?}")) };
    let (resource, is_short) = match kind.text() {
        Some("none") => return Ok(None),
        Some("string") => (short(value.text().ok_or("a record that is not UTF-8")?)?, true),
        Some("hash") => (long(&value.items().map_or_else(|| scan(resp, key), <[_]>::to_vec))?, false),
        other => return Err(format!("a key of type {other:?}")),
    };
    let expires_ms = expires.int().and_then(|ms| u64::try_from(ms).ok()).ok_or("a record that never ends")?;
    Ok(Some(Stored { resource, is_short, expires_ms }))
}

/// A long hash, in parts.
fn scan(resp: &mut Resp, key: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let answer = resp.command(&["HSCAN", key, &cursor, "COUNT", "500"]);
        let Some([next, Value::Array(part)]) = answer.items() else { return all };
        all.extend_from_slice(part);
        cursor = next.text().unwrap_or("0").to_owned();
        if cursor == "0" {
            return all;
        }
    }
}

fn short(text: &str) -> Result<Resource, String> {
    let mut fields = Fields(text);
    if fields.take(3)? != "lh1" {
        return Err(format!("no record: {text:?}"));
    }
    let state = fields.take(1)?;
    let last = fields.token()?;
    let id = fields.id()?;
    let length_ms = fields.number(8)?;
    let since_us = fields.number(16)?;
    let prev = fields.id()?;
    let label = fields.0.to_owned();
    let state = match state {
        "F" => return Ok(Resource { last, released: id, ..Resource::default() }),
        "H" => GrantState::Held,
        "P" => GrantState::Pushed,
        "R" => GrantState::Revoked,
        other => return Err(format!("no state: {other:?}")),
    };
    let id = id.ok_or("a grant without an id")?;
    let grant = Some(Grant { id, token: last, since_us, length_ms, state, label });
    Ok(Resource { last, grant, released: prev, ..Resource::default() })
}

fn long(pairs: &[Value]) -> Result<Resource, String> {
    let mut hash = BTreeMap::new();
    for pair in pairs.chunks(2) {
        let [field, value] = pair else { return Err("half a pair".into()) };
        hash.insert(field.text().ok_or("a field that is not UTF-8")?, value.text().ok_or("a value that is not UTF-8")?);
    }
    let mut take = |field: &str| hash.remove(field);
    let mut resource = short(take("r").ok_or("no field r")?)?;
    let mut meta = Fields(take("m").ok_or("no field m")?);
    let (count, strict) = (meta.number(5)?, meta.number(5)?);
    resource.keep_until_us = meta.number(16)?;
    let (head, tail) = (meta.take(64)?, meta.take(64)?);
    let tail_ticket = meta.number(16)?;
    while !meta.0.is_empty() {
        let session = u128::from_str_radix(meta.take(32)?, 16).map_err(|e| e.to_string())?;
        resource.lapses.push(Lapse { session: SessionId(session), at_us: meta.number(16)? });
    }
    let mut queue: VecDeque<Entry> = VecDeque::new();
    let (mut at, mut before) = (Some(head), None);
    while let Some(id) = at {
        let (entry, link) = entry(id, take(&format!("e{id}")).ok_or("a link to no entry")?)?;
        if before.is_some_and(|before| before != link) {
            return Err(format!("{id} links back to {link}, and not to {before:?}"));
        }
        queue.push_back(entry);
        before = Some(id);
        at = take(&format!("n{id}"));
    }
    let last = queue.back().map(|entry| entry.ticket);
    if before != Some(tail) || last != Some(tail_ticket) {
        return Err(format!("the tail is {before:?} with {last:?}, and m says {tail} with {tail_ticket}"));
    }
    let stricts = queue.iter().filter(|entry| entry.order == Order::Strict).count() as u64;
    if (queue.len() as u64, stricts) != (count, strict) {
        return Err(format!("{} entries, {stricts} strict; m says {count}, {strict}", queue.len()));
    }
    if !hash.is_empty() {
        return Err(format!("left over: {:?}", hash.keys()));
    }
    resource.queue = queue;
    Ok(resource)
}

fn entry<'a>(id: &str, text: &'a str) -> Result<(Entry, &'a str), String> {
    let mut fields = Fields(text);
    let ticket = fields.number(16)?;
    let (lease_ms, claim_ms) = (fields.number(8)?, fields.number(8)?);
    let limit_us = Some(fields.number(16)?).filter(|&limit| limit != 0);
    let seen_us = fields.number(16)?;
    let hears = match fields.take(1)? {
        "L" => Hears::Listens,
        "P" => Hears::Polls,
        other => return Err(format!("neither listens nor polls: {other:?}")),
    };
    let order = match fields.take(1)? {
        "s" => Order::Strict,
        "r" => Order::Relaxed,
        other => return Err(format!("neither strict nor relaxed: {other:?}")),
    };
    let before = fields.take(64)?;
    let id: GrantId = id.parse().map_err(|_| format!("an entry of {id:?}"))?;
    let label = fields.0.to_owned();
    Ok((Entry { id, ticket, lease_ms, claim_ms, limit_us, seen_us, hears, order, label }, before))
}

/// The fixed-width fields of a text, taken from its beginning.
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
}
