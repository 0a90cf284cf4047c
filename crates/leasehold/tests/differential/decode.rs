//! Reads a record out of Redis, in each of its encodings, with other eyes than the scripts': every field is checked for
//! its form, every link of the queue for its other end, and nothing may be left over.

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
    pub(crate) resource: Resource,
    pub(crate) encoding: Encoding,
    /// When the key ends, in ms since 1970.
    pub(crate) expires_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A string without a queue. It does not say until when it is kept: 0.
    Short,
    /// A string with its queue.
    Inline,
    /// A hash.
    Hash,
}

/// What is stored under the key; `None` if there is nothing.
pub(crate) fn look(resp: &mut Resp, key: &str) -> Result<Option<Stored>, String> {
    let answer = resp.command(&["EVAL", LOOK, "1", key]);
    let Some([kind, value, expires]) = answer.items() else { return Err(format!("not a look: {answer:?}")) };
    let (resource, encoding) = match kind.text() {
        Some("none") => return Ok(None),
        Some("string") => string(value.text().ok_or("a record that is not UTF-8")?)?,
        Some("hash") => {
            let pairs = value.items().map_or_else(|| scan(resp, key), <[_]>::to_vec);
            (hash(&pairs)?, Encoding::Hash)
        }
        other => return Err(format!("a key of type {other:?}")),
    };
    let expires_ms = expires.int().and_then(|ms| u64::try_from(ms).ok()).ok_or("a record that never ends")?;
    Ok(Some(Stored { resource, encoding, expires_ms }))
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

fn string(text: &str) -> Result<(Resource, Encoding), String> {
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
    let label = fields.label()?;
    let mut resource = Resource { last, ..Resource::default() };
    let state = match state.to_ascii_uppercase().as_str() {
        "F" => None,
        "H" => Some(GrantState::Held),
        "P" => Some(GrantState::Pushed),
        "R" => Some(GrantState::Revoked),
        other => return Err(format!("no state: {other:?}")),
    };
    match state {
        None => resource.released = id,
        Some(state) => {
            let id = id.ok_or("a grant without an id")?;
            resource.grant = Some(Grant { id, token: last, since_us, length_ms, state, label });
            resource.released = prev;
        }
    }
    if fields.0.is_empty() {
        return Ok((resource, Encoding::Short));
    }
    if !text.as_bytes()[3].is_ascii_lowercase() {
        return Err(format!("a queue that the state does not tell of: {text:?}"));
    }
    inline(&mut resource, &mut fields)?;
    Ok((resource, Encoding::Inline))
}

fn inline(resource: &mut Resource, fields: &mut Fields<'_>) -> Result<(), String> {
    resource.keep_until_us = fields.number(16)?;
    let ends = (fields.number(5)?, fields.number(5)?, fields.number(16)?);
    for _ in 0..fields.number(2)? {
        resource.lapses.push(fields.lapse()?);
    }
    while !fields.0.is_empty() {
        let id = fields.id()?.ok_or("an entry of nobody")?;
        resource.queue.push_back(fields.entry(id)?);
    }
    check_ends(&resource.queue, ends)
}

fn hash(pairs: &[Value]) -> Result<Resource, String> {
    let mut hash = BTreeMap::new();
    for pair in pairs.chunks(2) {
        let [field, value] = pair else { return Err("half a pair".into()) };
        hash.insert(field.text().ok_or("a field that is not UTF-8")?, value.text().ok_or("a value that is not UTF-8")?);
    }
    let mut take = |field: &str| hash.remove(field);
    let (mut resource, Encoding::Short) = string(take("r").ok_or("no field r")?)? else {
        return Err("a queue in field r".into());
    };
    let mut meta = Fields(take("m").ok_or("no field m")?);
    let (count, strict) = (meta.number(5)?, meta.number(5)?);
    resource.keep_until_us = meta.number(16)?;
    let (head, tail) = (meta.take(64)?, meta.take(64)?);
    let tail_ticket = meta.number(16)?;
    while !meta.0.is_empty() {
        resource.lapses.push(meta.lapse()?);
    }
    let (mut at, mut before) = (Some(head), None);
    while let Some(id) = at {
        let mut fields = Fields(take(&format!("e{id}")).ok_or("a link to no entry")?);
        resource.queue.push_back(fields.entry(id.parse().map_err(|_| format!("an entry of {id:?}"))?)?);
        if before.is_some_and(|before| before != fields.0) {
            return Err(format!("{id} links back to {}, and not to {before:?}", fields.0));
        }
        before = Some(id);
        at = take(&format!("n{id}"));
    }
    if before != Some(tail) {
        return Err(format!("the tail is {before:?}, and m says {tail}"));
    }
    if !hash.is_empty() {
        return Err(format!("left over: {:?}", hash.keys()));
    }
    check_ends(&resource.queue, (count, strict, tail_ticket))?;
    Ok(resource)
}

/// What a record says of its queue: how many, how many strict, the last ticket.
fn check_ends(queue: &VecDeque<Entry>, ends: (u64, u64, u64)) -> Result<(), String> {
    let strict = queue.iter().filter(|entry| entry.order == Order::Strict).count() as u64;
    let found = (queue.len() as u64, strict, queue.back().map_or(0, |entry| entry.ticket));
    if found == ends { Ok(()) } else { Err(format!("the queue is {found:?}, and the record says {ends:?}")) }
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

    fn label(&mut self) -> Result<String, String> {
        let len = self.number(3)?;
        Ok(self.take(usize::try_from(len).map_err(|e| e.to_string())?)?.to_owned())
    }

    fn lapse(&mut self) -> Result<Lapse, String> {
        let session = u128::from_str_radix(self.take(32)?, 16).map_err(|e| e.to_string())?;
        Ok(Lapse { session: SessionId(session), at_us: self.number(16)? })
    }

    fn entry(&mut self, id: GrantId) -> Result<Entry, String> {
        let ticket = self.number(16)?;
        let (lease_ms, claim_ms) = (self.number(8)?, self.number(8)?);
        let limit_us = Some(self.number(16)?).filter(|&limit| limit != 0);
        let seen_us = self.number(16)?;
        let hears = match self.take(1)? {
            "L" => Hears::Listens,
            "P" => Hears::Polls,
            other => return Err(format!("neither listens nor polls: {other:?}")),
        };
        let order = match self.take(1)? {
            "s" => Order::Strict,
            "r" => Order::Relaxed,
            other => return Err(format!("neither strict nor relaxed: {other:?}")),
        };
        let label = self.label()?;
        Ok(Entry { id, ticket, lease_ms, claim_ms, limit_us, seen_us, hears, order, label })
    }
}
