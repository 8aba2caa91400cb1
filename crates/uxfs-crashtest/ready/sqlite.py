"""Rows inserted by SQLite, each in a transaction of its own and acknowledged when it is committed.

sqlite.py run JOURNAL_MODE SYNCHRONOUS
sqlite.py check
"""
import os
import sqlite3
import sys

ROWS = 25


def text(row):
    return f"row {row} " * (1 + row * 37 % 200)


def run(mode, synchronous):
    acknowledge = os.fdopen(int(os.environ["UXFS_ACK"]), "w")
    db = sqlite3.connect("db", isolation_level=None)
    db.execute(f"pragma journal_mode={mode}")
    db.execute(f"pragma synchronous={synchronous}")
    # Small, so that checkpoints are among the moments.
    db.execute("pragma wal_autocheckpoint=20")
    db.execute("create table if not exists t (row integer primary key, text)")
    for row in range(ROWS):
        db.execute("insert into t values (?, ?)", (row, text(row)))
        print(row, file=acknowledge, flush=True)
    db.close()


def check():
    with open(os.environ["UXFS_ACKED"]) as file:
        acknowledged = len(file.readlines())
    if not acknowledged and not os.path.exists("db"):
        return
    db = sqlite3.connect("db")
    (state,) = db.execute("pragma integrity_check").fetchone()
    if state != "ok":
        sys.exit(f"the database is damaged: {state}")
    if not db.execute("select 1 from sqlite_schema where name = 't'").fetchone():
        rows = []
    else:
        rows = db.execute("select row, text from t order by row").fetchall()
    if rows != [(row, text(row)) for row in range(len(rows))]:
        sys.exit("the rows are not the first ones, or their text is another")
    if len(rows) < acknowledged:
        sys.exit(f"{acknowledged} rows were acknowledged, {len(rows)} are there")


run(*sys.argv[2:]) if sys.argv[1] == "run" else check()
