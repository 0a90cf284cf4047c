//! A table refuses the late write of a former holder, by its token.
//!
//! ```sh
//! cargo run -p leasehold --example fence_sqlite
//! ```
//!
//! A reads the stock and is stopped for longer than its lease. B gets the lock, sells, and writes. Then A continues and
//! writes what it computed from the old stock. Without the fence, A's write would undo B's.

use std::time::Duration;

use leasehold::{Leasehold, Token};
use rusqlite::{Connection, Result, params};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let table = Connection::open_in_memory()?;
    table.execute_batch("CREATE TABLE stock (id, pieces, fence DEFAULT 0); INSERT INTO stock VALUES (42, 5, 0)")?;
    let leasehold = Leasehold::connect("memory:").await?;
    let mutex = leasehold.mutex("stock:42").fixed_lease(Duration::from_millis(500));

    let a = mutex.lock().await?;
    let seen_by_a = enter(&table, a.token())?.expect("A holds the lock");
    println!("A reads {seen_by_a} pieces, and is stopped");

    // The lease of A ends, so B gets the lock.
    let b = mutex.lock().await?;
    let seen_by_b = enter(&table, b.token())?.expect("B holds the lock");
    assert!(write(&table, b.token(), seen_by_b - 1)?);
    println!("B reads {seen_by_b} pieces, and sells one");

    // A continues. It does not call `check`: its process was stopped between the check and this line.
    if write(&table, a.token(), seen_by_a - 1)? {
        panic!("the table accepted a late write");
    }
    println!("A writes, and the table refuses: its token is too small");
    assert_eq!(enter(&table, b.token())?, Some(4));
    Ok(())
}

/// Returns the stock, and excludes all holders of smaller tokens from now on. `None`: the token is too small.
fn enter(table: &Connection, token: Token) -> Result<Option<i64>> {
    let sql = "UPDATE stock SET fence = ?1 WHERE id = 42 AND fence <= ?1 RETURNING pieces";
    let mut statement = table.prepare(sql)?;
    let mut pieces = statement.query_map([token.get().cast_signed()], |row| row.get(0))?;
    pieces.next().transpose()
}

/// Writes the stock. `false`: the token is too small, and nothing was changed.
fn write(table: &Connection, token: Token, pieces: i64) -> Result<bool> {
    let sql = "UPDATE stock SET pieces = ?2, fence = ?1 WHERE id = 42 AND fence <= ?1";
    Ok(table.execute(sql, params![token.get().cast_signed(), pieces])? == 1)
}
