//! Decodes the arguments of each script as an [`Op`], independently of the library's `call.rs`.

use leasehold_spec::{Acquire, From, GrantId, Hears, Op, Order, Patience, Place, PublicId, Renew, Take, Token};

/// Decodes the arguments of `acquire.lua` after the key.
pub(super) fn acquire(argv: &[&str]) -> Option<Op> {
    let [id, lease, label, not_after, _ttl, optional @ ..] = argv else { return None };
    let (range, label) = label.split_at_checked(8)?;
    let (label_len, label) = label.split_at_checked(3)?;
    if label_len.parse() != Ok(label.len()) || optional.len() > 3 {
        return None;
    }
    let patience = match optional {
        [] | ["", ..] => Patience::Try,
        [place, bounds @ ..] => Patience::Queue(self::place(place, bounds.first().copied().unwrap_or_default())?),
    };
    Some(Op::Acquire(Acquire {
        id: id.parse().ok()?,
        take: Take::MUTEX,
        lease_ms: number(lease, 8)?,
        not_after_us: number(not_after, 16)?,
        patience,
        label: label.into(),
        range: number(range, 8)?,
    }))
}

/// Reads the arguments of a request for several mutexes.
pub(super) fn acquire_all(count: usize, argv: &[&str]) -> Option<Vec<Acquire>> {
    let (not_after, members) = argv.split_first()?;
    let (members, []) = members.as_chunks::<4>() else { return None };
    let one = |[id, lease, label, ttl]: &[&str; 4]| match acquire(&[id, lease, label, not_after, ttl])? {
        Op::Acquire(acquire) => Some(acquire),
        _ => None,
    };
    (members.len() == count).then(|| members.iter().map(one).collect())?
}

/// Decodes the arguments of `many.lua` for these keys: the earliest `not_after`, and the requests.
pub(super) fn many(keys: &[&str], argv: &[&str]) -> Option<(u64, Vec<Op>)> {
    let [earliest, all, again, common, ttl, label, place, bounds, asked @ ..] = argv else { return None };
    if asked.len() != keys.len() || all.len() != 16 * keys.len() || *again != numbers_of_repeats(keys) {
        return None;
    }
    let one = |(at, asked): (usize, &&str)| {
        if asked.len() != 32 {
            return release(asked, None);
        }
        let (session, lease) = common.split_at_checked(32)?;
        let id = format!("{session}{asked}");
        acquire(&[&id, lease, label, all.get(16 * at..16 * at + 16)?, ttl, place, bounds])
    };
    let ops: Vec<Op> = asked.iter().enumerate().map(one).collect::<Option<_>>()?;
    let earliest = number(earliest, 16)?;
    let is_late = |op: &Op| matches!(op, Op::Acquire(acquire) if acquire.not_after_us < earliest);
    (!ops.iter().any(is_late)).then_some((earliest, ops))
}

fn numbers_of_repeats(keys: &[&str]) -> String {
    let is_repeat = |&at: &usize| keys[..at].contains(&keys[at]);
    (0..keys.len()).filter(is_repeat).map(|at| format!("{:02}", at + 1)).collect()
}

pub(super) fn place(place: &str, bounds: &str) -> Option<Place> {
    let mut fields = Fields(place);
    let claim_ms = fields.number(8)?;
    let hears = match fields.take(1)? {
        "L" => Hears::Listens,
        "P" => Hears::Polls,
        _ => return None,
    };
    let order = match fields.take(1)? {
        "s" => Order::Strict,
        "r" => Order::Relaxed,
        _ => return None,
    };
    fields.end()?;
    let (limit_ms, ticket) = match bounds {
        "" => (None, None),
        _ => {
            let (patience, ticket) = bounds.split_at_checked(16)?;
            (number(patience, 16), number(ticket, 16))
        }
    };
    Some(Place { claim_ms, limit_ms, ticket, hears, order })
}

/// Decodes the arguments of `renew.lua` for `count` keys.
pub(super) fn renew(count: usize, argv: &[&str]) -> Option<Vec<Renew>> {
    let [earliest, all, wanted @ ..] = argv else { return None };
    if wanted.len() != count || all.len() != 16 * count {
        return None;
    }
    let renews: Option<Vec<_>> =
        wanted.iter().enumerate().map(|(at, want)| one_renewal(want, all.get(16 * at..16 * at + 16)?)).collect();
    let renews = renews?;
    let is_earliest = renews.iter().map(|renew| renew.not_after_us).min() == number(earliest, 16);
    is_earliest.then_some(renews)
}

fn one_renewal(want: &str, not_after: &str) -> Option<Renew> {
    let mut fields = Fields(want);
    let from = match fields.take(4)? {
        "lh1H" => From::Now,
        "lh1G" => From::Grant,
        _ => return None,
    };
    let (token, id, lease_ms) = (fields.token()?, fields.id()?, fields.number(8)?);
    fields.end()?;
    Some(Renew { id, token, from, lease_ms, not_after_us: number(not_after, 16)? })
}

/// Decodes the arguments of `release.lua`; the second one is a guess.
pub(super) fn release(held: &str, used: Option<&str>) -> Option<Op> {
    let mut fields = Fields(held.strip_prefix("lh1H")?);
    let (token, id) = (fields.token()?, fields.id()?);
    fields.end()?;
    let used = used.map_or(Some(token), |used| Fields(used).token())?;
    Some(Op::Release { id, token, used })
}

/// Decodes the arguments of `leave.lua`.
pub(super) fn leave(id: &str, used: Option<&str>) -> Option<Op> {
    let used = used.map_or(Some(Token::NONE), |used| Fields(used).token())?;
    Some(Op::Leave { id: id.parse().ok()?, used })
}

/// Decodes the arguments of `cool_down.lua`.
pub(super) fn cool_down(id: &str, for_ms: &str, used: Option<&str>) -> Option<Op> {
    let used = used.map_or(Some(Token::NONE), |used| Fields(used).token())?;
    Some(Op::CoolDown { id: id.parse().ok()?, used, for_ms: number(for_ms, 8)? })
}

/// Decodes the argument of `reserve.lua`.
pub(super) fn reserve(wanted: &str) -> Option<Op> {
    let mut fields = Fields(wanted);
    let (token, id, range) = (fields.token()?, fields.id()?, fields.number(8)?);
    fields.end()?;
    Some(Op::Reserve { id, token, range })
}

/// Decodes the arguments of `put.lua`.
pub(super) fn put(held: &str, label: &str) -> Option<Op> {
    let (id, token, label) = held_and_label(held, label)?;
    Some(Op::Put { id, token, label })
}

/// Decodes the arguments of `hand_to.lua`.
pub(super) fn hand_to(held: &str, label: &str) -> Option<Op> {
    let (id, token, label) = held_and_label(held, label)?;
    Some(Op::HandTo { id, token, label })
}

fn held_and_label(held: &str, label: &str) -> Option<(GrantId, Token, String)> {
    let mut fields = Fields(held);
    let (token, id) = (fields.token()?, fields.id()?);
    fields.end()?;
    let (length, label) = label.split_at_checked(3)?;
    (number(length, 3)? == label.len() as u64).then(|| (id, token, label.to_owned()))
}

/// Decodes the arguments of `revoke.lua`.
pub(super) fn revoke(seen: &str, grace_ms: &str) -> Option<Op> {
    let mut fields = Fields(seen);
    let token = fields.token()?;
    let holder: PublicId = fields.take(48)?.parse().ok()?;
    fields.end()?;
    Some(Op::Revoke { holder, token, grace_ms: grace_ms.parse().ok()? })
}

/// Fields of fixed width, taken from the beginning.
pub(super) struct Fields<'a>(pub(super) &'a str);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a str> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    pub(super) fn number(&mut self, len: usize) -> Option<u64> {
        number(self.take(len)?, len)
    }

    pub(super) fn token(&mut self) -> Option<Token> {
        Token::new(self.number(16)?)
    }

    pub(super) fn id(&mut self) -> Option<GrantId> {
        self.take(64)?.parse().ok()
    }

    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Parses exactly `len` digits.
pub(super) fn number(digits: &str, len: usize) -> Option<u64> {
    let is_number = digits.len() == len && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}
