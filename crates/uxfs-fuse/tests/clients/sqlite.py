"""A program that believes SQLite, on a volume that promises one earlier moment, and what must be left of it.

usage: sqlite.py VOLUME NAME do JOURNAL SYNCHRONOUS COMMITS SEED
       sqlite.py DIRECTORY NAME check

Step n appends n to a file, commits row n, overwrites a counter with n, and renames a file that says n into
its place. Nothing is synced in between. At every moment of it: lines >= rows >= counter >= renamed >= lines - 1.

`do` makes the next steps in VOLUME/NAME. It prints "commit N TIME" after the commit, and "durable N" when
the volume has acknowledged everything up to step N. COMMITS of 0: until it fails.
`check` fails unless the files are those of one moment, and prints the number of rows. It changes the database
only as every opening does.
"""

import hashlib
import os
import random
import sqlite3
import sys
import time

# Rows whose blobs are kept.
KEPT = 24


def content(n):
    """What step n writes."""
    seed = hashlib.sha256(str(n).encode()).digest()
    return (seed * 1000)[: 1 + n * 7919 % 25_000]


def read(name):
    try:
        with open(name, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def check():
    rows = 0
    if os.path.exists("db"):
        db = sqlite3.connect("db", isolation_level=None)
        found = db.execute("pragma integrity_check").fetchall()
        assert found == [("ok",)], found
        tables = {name for name, in db.execute("select name from sqlite_master where type = 'table'")}
        if "sums" in tables:
            sums = dict(db.execute("select n, s from sums"))
            rows = len(sums)
            assert sorted(sums) == list(range(1, rows + 1)), f"not 1..{rows}: {sorted(sums)}"
        if "blobs" in tables:
            blobs = dict(db.execute("select n, b from blobs"))
            assert sorted(blobs) == list(range(max(1, rows - KEPT + 1), rows + 1)), (rows, sorted(blobs))
            for n, data in blobs.items():
                assert data == content(n), f"blob {n}"
                assert hashlib.md5(data).hexdigest() == sums[n], f"sum {n}"
        db.close()
    text = read("lines")
    lines = len(text) // 9
    assert text == b"".join(b"%08d\n" % n for n in range(1, lines + 1)), text[-40:]
    number = {}
    for name in ("counter", "renamed"):
        text = read(name)
        assert len(text) in (0, 8), (name, text)
        number[name] = int(text or b"0")
    order = [lines, rows, number["counter"], number["renamed"], lines - 1]
    assert order == sorted(order, reverse=True), f"not one moment: lines, rows, counter, renamed = {order[:4]}"
    return rows


def do(volume, journal, synchronous, commits, seed):
    rng = random.Random(int(seed))
    last = check()
    db = sqlite3.connect("db", isolation_level=None)
    db.execute(f"pragma journal_mode={journal}")
    db.execute(f"pragma synchronous={synchronous}")
    # Small limits, so that pages go to the database in the midst of transactions, and the log is begun anew.
    db.execute("pragma cache_size=12")
    db.execute("pragma wal_autocheckpoint=40")
    db.execute("create table if not exists sums(n integer primary key, s text, touched integer)")
    db.execute("create table if not exists blobs(n integer primary key, b blob)")
    lines = os.open("lines", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    counter = os.open("counter", os.O_WRONLY | os.O_CREAT, 0o644)
    # A crash may have come between an append and its commit.
    os.ftruncate(lines, 9 * last)
    n = last
    while commits == "0" or n < last + int(commits):
        n += 1
        data = content(n)
        os.write(lines, b"%08d\n" % n)
        db.execute("begin immediate")
        db.execute("insert into sums values(?, ?, 0)", (n, hashlib.md5(data).hexdigest()))
        db.execute("insert into blobs values(?, ?)", (n, data))
        for _ in range(rng.randrange(12)):
            db.execute("update sums set touched = touched + 1 where n = ?", (rng.randint(1, n),))
        db.execute("delete from blobs where n <= ?", (n - KEPT,))
        db.execute("commit")
        print("commit", n, time.time(), flush=True)
        os.pwrite(counter, b"%08d" % n, 0)
        with open("new", "wb") as file:
            file.write(b"%08d" % n)
        os.rename("new", "renamed")
        if rng.random() < 0.02:
            os.getxattr(volume, "uxfs.durable")
            print("durable", n, flush=True)
        if rng.random() < 0.1:
            time.sleep(rng.random() / 10)


volume, name, what, *rest = sys.argv[1:]
volume = os.path.abspath(volume)
os.makedirs(os.path.join(volume, name), exist_ok=True)
os.chdir(os.path.join(volume, name))
if what == "do":
    do(volume, *rest)
else:
    print(check())
