//! A test of redb, a store of keys and values, for `tools/crash-test-trophies`:
//!
//!     redb setup    makes an empty store
//!     redb run      makes a transaction for each record, and prints its number when it is committed
//!     redb check    judges what is left, as `ready/common.py` does for other stores

use std::error::Error;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};

const TABLE: TableDefinition<u64, &str> = TableDefinition::new("records");
const RECORDS: u64 = 25;
const FILE: &str = "db";

/// The content of a record: short ones, and ones of several pages.
fn text(number: u64) -> String {
    format!("record {number} ").repeat(usize::try_from(1 + number * 37 % 400).unwrap_or(1))
}

fn run() -> Result<(), Box<dyn Error>> {
    let db = Database::open(FILE)?;
    for number in 0..RECORDS {
        let transaction = db.begin_write()?;
        transaction.open_table(TABLE)?.insert(number, text(number).as_str())?;
        transaction.commit()?;
        println!("{number}");
    }
    Ok(())
}

fn check() -> Result<(), Box<dyn Error>> {
    let acknowledged = std::fs::read_to_string(std::env::var("UXFS_ACKED")?)?.lines().count();
    let mut db = Database::open(FILE)?;
    if !db.check_integrity()? {
        return Err("the database is damaged".into());
    }
    let table = match db.begin_read()?.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) if acknowledged == 0 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut count = 0;
    for record in table.iter()? {
        let (number, content) = record?;
        if number.value() != count || content.value() != text(count) {
            return Err(format!("record {count} is missing or damaged").into());
        }
        count += 1;
    }
    if count < u64::try_from(acknowledged)? {
        return Err(format!("{acknowledged} records were acknowledged, {count} are there").into());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("setup") => {
            Database::create(FILE)?;
            Ok(())
        }
        Some("run") => run(),
        Some("check") => check(),
        _ => Err("usage: redb setup|run|check".into()),
    }
}
