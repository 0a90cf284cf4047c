//! Transfers between accounts, under the locks of both. Audits hold the locks of all accounts, and add them up.
//!
//! A transfer that is killed has not happened, unless it was committed. Each account has its value before and after the
//! last transfer, and the number of that transfer. The transfer is committed when the file of its number exists: until
//! then the earlier values of both accounts count.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{All, AllGuard, Mutex, Token};
use serde::{Deserialize, Serialize};

use super::{Worker, alone, ending, released, replace};
use crate::processes::notes::Event;

pub(crate) const ACCOUNTS: usize = 100;
const BALANCE: u64 = 1000;
const TOTAL: u64 = ACCOUNTS as u64 * BALANCE;
/// The most members of a multi-lock. An audit holds several multi-locks, and takes them in the order of the names.
const GROUP: usize = 16;
const AUDIT_PERCENT: u64 = 5;
const COMMITS: &str = "commits";

#[derive(Debug, Serialize, Deserialize)]
struct Account {
    before: u64,
    after: u64,
    transfer: String,
}

pub(super) fn open(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir.join(COMMITS))?;
    (0..ACCOUNTS).for_each(|number| write(dir, number, (BALANCE, BALANCE), "none"));
    Ok(())
}

/// Adds up all accounts.
pub(super) fn audit(dir: &Path) -> Result<(), String> {
    let total: u64 = (0..ACCOUNTS).map(|number| balance(dir, number)).sum();
    match total {
        TOTAL => Ok(()),
        _ => Err(format!("the accounts have {total} instead of {TOTAL}")),
    }
}

pub(super) async fn work(worker: &mut Worker) -> leasehold::Result<()> {
    loop {
        let goes_on = match worker.random.chance(AUDIT_PERCENT) {
            true => audit_all(worker).await?,
            false => transfer(worker).await?,
        };
        if !goes_on {
            return Ok(());
        }
        worker.pause(Duration::from_millis(3)).await;
    }
}

async fn transfer(worker: &mut Worker) -> leasehold::Result<bool> {
    let from = worker.random.index(ACCOUNTS);
    let to = (from + worker.random.within(1, ACCOUNTS as u64 - 1) as usize) % ACCOUNTS;
    let both = leasehold::all([from, to].map(|number| lock(worker, number)));
    let Some(guard) = worker.get(both.lock()).await? else { return Ok(false) };
    worker.enter([from, to].into_iter().zip(guard.tokens()).map(|(number, token)| alone(number, token)).collect());
    let (had, got) = (balance(&worker.dir, from), balance(&worker.dir, to));
    let sum = worker.random.within(0, had / 4);
    let number = format!("{}.{}.{}", worker.who.number, worker.who.life, worker.section);
    let mut checked = guard.check();
    for (account, values) in [(from, (had, had - sum)), (to, (got, got + sum))] {
        if checked.is_ok() {
            write(&worker.dir, account, values, &number);
            worker.pause(Duration::from_millis(1)).await;
            checked = guard.check();
        }
    }
    if checked.is_ok() {
        fs::write(commit(&worker.dir, &number), "").expect("a directory of the lab can be written");
        checked = guard.check();
    }
    worker.leave(ending(&checked));
    released(guard.release().await)?;
    Ok(true)
}

async fn audit_all(worker: &mut Worker) -> leasehold::Result<bool> {
    let numbers: Vec<usize> = (0..ACCOUNTS).collect();
    let groups: Vec<All> =
        numbers.chunks(GROUP).map(|group| leasehold::all(group.iter().map(|number| lock(worker, *number)))).collect();
    let Some(guards) = worker.get(lock_all(&groups)).await? else { return Ok(false) };
    let tokens: Vec<Token> = guards.iter().flat_map(AllGuard::tokens).collect();
    worker.enter(tokens.into_iter().enumerate().map(|(number, token)| alone(number, token)).collect());
    let audited = audit(&worker.dir);
    let checked: Result<Vec<()>, _> = guards.iter().map(AllGuard::check).collect();
    if let (Err(what), Ok(_)) = (audited, &checked) {
        worker.note(Event::Wrong(what));
    }
    worker.leave(ending(&checked));
    for guard in guards {
        released(guard.release().await)?;
    }
    Ok(true)
}

async fn lock_all(groups: &[All]) -> leasehold::Result<Vec<AllGuard>> {
    let mut guards = Vec::with_capacity(groups.len());
    for group in groups {
        guards.push(group.lock().await?);
    }
    Ok(guards)
}

/// Returns the lock of an account. The names have one length, so their order is that of the numbers.
fn lock(worker: &Worker, number: usize) -> Mutex {
    worker.client.mutex(account(number))
}

pub(crate) fn account(number: usize) -> String {
    format!("account {number:02}")
}

fn balance(dir: &Path, number: usize) -> u64 {
    let text = fs::read(path(dir, number)).expect("the lab has written the account");
    let account: Account = serde_json::from_slice(&text).expect("an account is plain data");
    match commit(dir, &account.transfer).exists() {
        true => account.after,
        false => account.before,
    }
}

fn write(dir: &Path, number: usize, (before, after): (u64, u64), transfer: &str) {
    let account = Account { before, after, transfer: transfer.to_owned() };
    replace(&path(dir, number), &serde_json::to_string(&account).expect("plain data"));
}

fn path(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("account-{number:02}.json"))
}

fn commit(dir: &Path, transfer: &str) -> PathBuf {
    dir.join(COMMITS).join(transfer)
}
