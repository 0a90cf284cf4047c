//! Changes of rows.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

/// The tables with rows of names, the column with the number of the name, and the columns to change.
pub(super) const TABLES: &[(&str, &str, &[&str])] = &[
    (
        "names",
        "id",
        &[
            "name",
            "stamp",
            "last",
            "keep_until_us",
            "released",
            "waiting",
            "lapsed",
            "session",
            "counter",
            "nonce",
            "token",
            "range",
            "since_us",
            "length_ms",
            "state",
            "label",
        ],
    ),
    (
        "waiters",
        "name",
        &[
            "ticket", "seq", "session", "counter", "nonce", "lease_ms", "range", "claim_ms", "limit_us", "seen_us",
            "hears", "strict", "label", "units", "mode", "instead",
        ],
    ),
    ("lapses", "name", &["place", "session", "at_us"]),
    ("pools", "name", &["kind", "units", "taken", "granted"]),
    (
        "grants",
        "name",
        &[
            "token",
            "session",
            "counter",
            "nonce",
            "since_us",
            "length_ms",
            "end_us",
            "state",
            "units",
            "mode",
            "instead",
            "label",
        ],
    ),
    ("latches", "name", &["id", "born", "keep_ms", "counted"]),
    ("ended", "name", &["session", "counter", "nonce", "token", "range"]),
    ("dismissed", "name", &["session", "counter", "nonce", "token"]),
];

/// A change of the rows of one name.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Sets a column of all rows of a table, or of the first of them only.
    Set { table: usize, column: usize, value: Value, of: Rows },
    /// Adds to a column of all rows of a table.
    Add { table: usize, column: usize, by: i64 },
    /// Any other change of the row with the number `?1`.
    Sql(&'static str),
    /// Removes all rows of a table.
    Remove { table: usize },
    /// Writes each row of the waiters twice.
    Repeat,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
    All,
    First,
}

impl Change {
    /// Changes the rows. A value that the table refuses changes nothing.
    pub(super) fn make(&self, db: &Connection, id: i64) {
        let _refused = match self {
            Self::Set { table, column, value, of } => {
                let (table, key, columns) = TABLES[*table];
                let (column, first) = (columns[column % columns.len()], columns[0]);
                let which = match of {
                    Rows::All => String::new(),
                    Rows::First => format!("AND {first} = (SELECT min({first}) FROM {table} WHERE {key} = ?1)"),
                };
                db.execute(&format!("UPDATE {table} SET {column} = ?2 WHERE {key} = ?1 {which}"), params![id, value])
            }
            Self::Add { table, column, by } => {
                let (table, key, columns) = TABLES[*table];
                let column = columns[column % columns.len()];
                db.execute(&format!("UPDATE {table} SET {column} = {column} + ?2 WHERE {key} = ?1"), params![id, by])
            }
            Self::Sql(sql) => db.execute(sql, [id]),
            Self::Remove { table } => {
                let (table, key, _) = TABLES[*table];
                db.execute(&format!("DELETE FROM {table} WHERE {key} = ?1"), [id])
            }
            Self::Repeat => {
                let columns = TABLES[1].2[1..].join(", ");
                let sql = format!(
                    "INSERT INTO waiters (name, ticket, {columns}) SELECT name, ticket + 1, {columns} FROM waiters \
                     WHERE name = ?1"
                );
                db.execute(&sql, [id])
            }
        };
        // Otherwise the clients would go on with what they remember.
        let _refused = db.execute("UPDATE names SET stamp = stamp + 1 WHERE id = ?1 AND stamp < 1 << 62", [id]);
    }
}

fn value() -> impl Strategy<Value = Value> {
    let edges = vec![
        0,
        1,
        2,
        3,
        4,
        5,
        -1,
        64,
        100_000,
        100_001,
        86_400_000,
        86_400_001,
        i64::from(u32::MAX),
        i64::from(u32::MAX) + 1,
        (1 << 53) - 1,
        1 << 53,
        (1 << 62) - 1,
        1 << 62,
        i64::MAX - 1,
        i64::MAX,
        i64::MIN,
    ];
    let blob =
        select(vec![0, 15, 16, 17, 32, 40]).prop_flat_map(|length| vec(any::<u8>(), length)).prop_map(Value::Blob);
    prop_oneof![
        4 => select(edges).prop_map(Value::Integer),
        1 => any::<i64>().prop_map(Value::Integer),
        2 => blob,
        1 => "[ -~\u{0}äé]{0,300}".prop_map(Value::Text),
        1 => select(vec![Value::Null]),
    ]
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let table = 0..TABLES.len();
    prop_oneof![
        12 => (table.clone(), any::<u8>(), value(), select(vec![Rows::All, Rows::First]))
            .prop_map(|(table, column, value, of)| Change::Set { table, column: column.into(), value, of }),
        4 => (table.clone(), any::<u8>(), select(vec![-3_600_000_000, -1, 1, 3_600_000_000]))
            .prop_map(|(table, column, by)| Change::Add { table, column: column.into(), by }),
        1 => table.prop_map(|table| Change::Remove { table }),
        1 => select(vec![Change::Repeat]),
    ]
}
