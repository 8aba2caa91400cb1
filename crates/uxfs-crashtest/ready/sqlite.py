"""Rows inserted by SQLite, each in a transaction of its own.

sqlite.py run JOURNAL_MODE SYNCHRONOUS
sqlite.py check
"""
import sqlite3
import sys

from common import store


class Store:
    def __init__(self):
        self.db = sqlite3.connect("db", isolation_level=None)
        if sys.argv[1] == "check":
            (state,) = self.db.execute("pragma integrity_check").fetchone()
            if state != "ok":
                sys.exit(f"the database is damaged: {state}")
        else:
            mode, synchronous = sys.argv[2:]
            self.db.execute(f"pragma journal_mode={mode}")
            self.db.execute(f"pragma synchronous={synchronous}")
        # Small, so that checkpoints are among the moments.
        self.db.execute("pragma wal_autocheckpoint=20")
        self.db.execute("create table if not exists t (number integer primary key, text)")

    def put(self, number, text):
        self.db.execute("insert into t values (?, ?)", (number, text))

    def records(self):
        return dict(self.db.execute("select number, text from t"))

    def close(self):
        self.db.close()


store(Store)
