//! The scripts of pools: decodes their arguments independently of the library, runs [`step`], and formats its answer.

use leasehold::seam::Script;
use leasehold_spec::{
    Acquire, Answer, Env, From, Joined, Kind, LostHow, Mode, Op, Outcome, Patience, Refusal, Renew, Resource,
    SessionId, Take, Token, Was, step,
};

use super::decode::{Fields, number, place};
use super::run::{contention_letter, inspected, message, rest_letter};
use super::{Front, Sent, What};

pub(super) fn is_of_pools(script: Script) -> bool {
    script.name().starts_with("pool/")
}

impl Front {
    pub(super) fn run_pool_script(
        &mut self,
        script: Script,
        now_us: u64,
        (keys, argv): (&[&str], &[&str]),
        sent: &mut Vec<Sent>,
    ) -> Option<String> {
        if script == Script::PoolRenew {
            let renews = renew(keys.len(), argv)?;
            let each =
                keys.iter().zip(renews).map(|(key, renew)| self.apply_to_pool(key, now_us, &Op::Renew(renew), sent));
            return Some(each.collect::<Vec<_>>().join("\n"));
        }
        let [key] = keys else { return None };
        let op = match (script, argv) {
            (Script::PoolAcquire, _) => Op::Acquire(acquire(argv)?),
            (Script::PoolRelease, [id, token]) => {
                let token = Fields(token).token()?;
                Op::Release { id: id.parse().ok()?, token, used: token }
            }
            (Script::PoolLeave, [id]) => Op::Leave { id: id.parse().ok()?, used: Token::NONE },
            (Script::PoolCoolDown, [id, ms]) => {
                Op::CoolDown { id: id.parse().ok()?, used: Token::NONE, for_ms: number(ms, 8)? }
            }
            (Script::PoolLower, [id, token, units]) => {
                let units = u32::try_from(number(units, 6)?).ok()?;
                Op::Lower { id: id.parse().ok()?, token: Fields(token).token()?, units }
            }
            (Script::PoolResize, [begins, to, not_after]) => Op::Resize {
                from: self::begins(begins)?.1,
                to: u32::try_from(number(to, 6)?).ok()?,
                not_after_us: number(not_after, 16)?,
            },
            (Script::PoolRevoke, [seen, grace]) => {
                let mut fields = Fields(seen);
                let holder = fields.take(48)?.parse().ok()?;
                Op::Revoke { holder, token: fields.token()?, grace_ms: grace.parse().ok()? }
            }
            (Script::PoolNotify, [count]) => Op::Notify { count: count.parse().ok()? },
            (Script::PoolSpend, [id, token]) => Op::Spend { id: id.parse().ok()?, token: Fields(token).token()? },
            (Script::PoolCreate, [limit, keep, not_after]) => Op::CreateLatch {
                limit: u32::try_from(number(limit, 6)?).ok()?,
                keep_ms: number(keep, 8)?,
                not_after_us: number(not_after, 16)?,
            },
            (Script::PoolState, [not_after]) => {
                Op::CreateLatch { limit: 0, keep_ms: 0, not_after_us: number(not_after, 16)? }
            }
            (Script::PoolCountDown, [id, born]) => Op::CountDown { id: id.parse().ok()?, born: Fields(born).token()? },
            (Script::PoolDelete, [born]) => Op::DeleteLatch { born: Fields(born).token()? },
            (Script::PoolSettle, _) => Op::Settle,
            (Script::PoolInspect, _) => Op::Inspect,
            _ => return None,
        };
        Some(self.apply_to_pool(key, now_us, &op, sent))
    }

    fn apply_to_pool(&mut self, key: &str, now_us: u64, op: &Op, sent: &mut Vec<Sent>) -> String {
        let known = self.records.remove(key).filter(|record| !record.resource.is_forgotten(now_us, now_us));
        let mut record = known.unwrap_or_default();
        let is_mutex = matches!(op, Op::Acquire(acquire) if acquire.take.kind == Kind::Mutex);
        let is_new = record.resource.last == Token::NONE;
        if is_new && is_mutex || !is_new && record.resource.kind == Kind::Mutex {
            if !is_new {
                self.records.insert(key.to_owned(), record);
            }
            return "OTHER".to_owned();
        }
        let inboxes = format!("{}inbox:", key.split('{').next().unwrap_or_default());
        let attached = |session: SessionId| self.is_listened_to(&format!("{inboxes}{session}"));
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &attached };
        let marked = marked(op, &record.resource, now_us);
        let (answer, deliveries) = step(&mut record.resource, &env, op);
        let text = sentence(op, &answer, &record.resource, &marked);
        if record.resource.last != Token::NONE {
            self.records.insert(key.to_owned(), record);
        }
        for delivery in deliveries {
            self.publish(&format!("{inboxes}{}", delivery.to), &message(key, &delivery), What::Push, sent);
        }
        text
    }
}

fn acquire(argv: &[&str]) -> Option<Acquire> {
    let [id, lease, begins, share, label, not_after, optional @ ..] = argv else { return None };
    let (kind, limit) = self::begins(begins)?;
    let (mode, units) = share.split_at_checked(1)?;
    let units = u32::try_from(number(units, 6)?).ok()?;
    let mode = match (mode, optional) {
        ("P", _) => Mode::Plain,
        ("U", _) => Mode::Upgradeable,
        ("I", [.., of]) => {
            let mut fields = Fields(of);
            Mode::Instead { id: fields.id()?, token: fields.token()? }
        }
        _ => return None,
    };
    let patience = match optional {
        [] | ["", ..] => Patience::Try,
        [place, bounds @ ..] => Patience::Queue(self::place(place, bounds.first().copied().unwrap_or_default())?),
    };
    Some(Acquire {
        id: id.parse().ok()?,
        take: Take { kind, limit, units, mode },
        lease_ms: number(lease, 8)?,
        not_after_us: number(not_after, 16)?,
        patience,
        label: (*label).into(),
        range: 1,
    })
}

fn begins(text: &str) -> Option<(Kind, u32)> {
    let (kind, limit) = text.strip_prefix("lh1")?.split_at_checked(1)?;
    let kind = match kind {
        "M" => Kind::Mutex,
        "W" => Kind::ReadWrite,
        "S" => Kind::Semaphore,
        "V" => Kind::Condition,
        "L" => Kind::Latch,
        "B" => Kind::Barrier,
        _ => return None,
    };
    Some((kind, u32::try_from(number(limit, 6)?).ok()?))
}

fn renew(count: usize, argv: &[&str]) -> Option<Vec<Renew>> {
    let [_, all, wanted @ ..] = argv else { return None };
    if wanted.len() != count || all.len() != 16 * count {
        return None;
    }
    let one = |(at, want): (usize, &&str)| {
        let mut fields = Fields(want);
        let from = if fields.take(1)? == "H" { From::Now } else { From::Grant };
        let (id, token, lease_ms) = (fields.id()?, fields.token()?, fields.number(8)?);
        fields.end()?;
        Some(Renew { id, token, from, lease_ms, not_after_us: number(all.get(16 * at..16 * at + 16)?, 16)? })
    };
    wanted.iter().enumerate().map(one).collect()
}

pub(super) fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "M",
        Kind::ReadWrite => "W",
        Kind::Semaphore => "S",
        Kind::Condition => "V",
        Kind::Latch => "L",
        Kind::Barrier => "B",
    }
}

/// Returns the beginning and the length of a lease that this step marks.
fn marked(op: &Op, before: &Resource, now_us: u64) -> String {
    let Op::Revoke { holder, token, grace_ms } = op else { return String::new() };
    let Some(grant) = before.grants.iter().find(|grant| grant.id.public() == *holder && grant.token == *token) else {
        return format!("{now_us:016} {grace_ms:08}");
    };
    let (since_us, grace_ms) = (grant.since_us.min(now_us), if grant.is_held() { *grace_ms } else { 0 });
    let end_us = (since_us + grant.length_ms * 1000).min(now_us + grace_ms * 1000);
    format!("{since_us:016} {:08}", (end_us - since_us) / 1000)
}

fn sentence(op: &Op, answer: &Answer, after: &Resource, marked: &str) -> String {
    let Answer { now_us, highest, contention, rest, handed_claim_ms, outcome } = answer;
    let claim = handed_claim_ms.map_or("-".to_owned(), |claim_ms| format!("{claim_ms:08}"));
    let text =
        format!("{now_us:016} {:016} {} {} {claim}", highest.get(), contention_letter(*contention), rest_letter(*rest));
    let lease = |left_us: u64| match after.grants.is_empty() {
        true => "0 0".to_owned(),
        false => format!("{now_us:016} {:08}", left_us.div_ceil(1000)),
    };
    let own = op.subject().and_then(|id| after.grants.get(id));
    let own = || own.map_or("0 0".to_owned(), |grant| format!("{:016} {:08}", grant.since_us, grant.length_ms));
    match outcome {
        Outcome::Granted { token, .. } => format!("GRANTED {text} {:016} 00000001 {}", token.get(), own()),
        Outcome::Queued { ticket, joined, left_us } => {
            let joined = match joined {
                Joined::Now => "now",
                Joined::Before => "before",
            };
            format!("QUEUED {text} {ticket:016} {} {joined}", lease(*left_us))
        }
        Outcome::Busy { left_us } => format!("BUSY {text} {}", lease(*left_us)),
        Outcome::Gone => format!("GONE {text}"),
        Outcome::Late => format!("LATE {text}"),
        Outcome::Full => format!("FULL {text}"),
        Outcome::Refused(Refusal::Other { kind, limit }) => {
            format!("REFUSED {text} other {} {limit:06}", letter(*kind))
        }
        Outcome::Refused(Refusal::TooMany { limit }) => {
            let kind = if let Op::CreateLatch { .. } = op { "L" } else { letter(after.kind) };
            format!("REFUSED {text} many {kind} {limit:06}")
        }
        Outcome::Refused(Refusal::Absent) => format!("REFUSED {text} absent L 000000"),
        Outcome::Refused(Refusal::NoGrant) => format!("REFUSED {text} grant W 000000"),
        Outcome::Lowered => format!("LOWERED {text}"),
        Outcome::Resized => format!("RESIZED {text}"),
        Outcome::Notified { count } => format!("NOTIFIED {text} {count}"),
        Outcome::Spent => format!("SPENT {text}"),
        Outcome::Counted { left, born } => format!("COUNTED {text} {left} {:016}", born.get()),
        Outcome::Deleted => format!("DELETED {text}"),
        Outcome::Renewed { .. } => format!("RENEWED {text} {}", own()),
        Outcome::Lost { how: LostHow::Revoked } => format!("LOST {text} revoked"),
        Outcome::Lost { how: LostHow::NotHeld } => format!("LOST {text} notheld"),
        Outcome::Released => format!("RELEASED {text}"),
        Outcome::NotHeld => format!("NOTHELD {text}"),
        Outcome::Left { was: Was::Queued } => format!("LEFT {text} queued"),
        Outcome::Left { was: Was::Granted } => format!("LEFT {text} granted"),
        Outcome::Left { was: Was::Absent } => format!("LEFT {text} absent"),
        Outcome::Revoking { .. } => format!("REVOKING {text} {marked}"),
        Outcome::Settled => format!("SETTLED {text}"),
        Outcome::Inspected(inspection) => format!("INSPECTED {text} {}", inspected(inspection, after)),
        Outcome::Reserved { .. } | Outcome::Put | Outcome::NoWaiter => unreachable!("no script of pools says so"),
    }
}
