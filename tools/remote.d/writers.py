"""Programs that write numbered files and rows of an SQLite database on a mount, and note what was acknowledged.

1. What is noted was confirmed by fsync or a commit. Between a call and its return a file is not judged, because both
   states are right.
2. An error is a failure, until `ends` is set because the mount's server is killed.

Used by tools/ceph-rbd.
"""
import hashlib
import os
import random
import sqlite3
import threading

from private import fail, until

FILE_THREADS = 3
# Acknowledged between two events.
STEP = 60


class Lost(Exception):
    """What was acknowledged is not there, or the volume is not sound."""


def row(number):
    return hashlib.sha256(str(number).encode()).hexdigest() * 20


class Writers:
    """Threads that write on a mount, and what was acknowledged to them, over all rounds."""

    def __init__(self, dir, seed):
        self.dir, self.seed, self.round = dir, seed, 0
        # The hash of each file's content; None if its removal was acknowledged.
        self.files, self.rows = {}, 0
        self.acknowledged, self.error, self.threads = 0, None, []
        self.lock = threading.Lock()

    def note(self):
        with self.lock:
            self.acknowledged += 1

    def begin(self):
        self.round += 1
        self.error, self.ends = None, threading.Event()
        work = [(self.write_files, number) for number in range(FILE_THREADS)] + [(self.write_rows, FILE_THREADS)]
        self.threads = [threading.Thread(target=self.guarded, args=one, daemon=True) for one in work]
        for thread in self.threads:
            thread.start()

    def guarded(self, work, number):
        try:
            work(number)
        except (OSError, sqlite3.Error) as error:
            # After a kill an error is what must come.
            if not self.ends.is_set():
                self.error = error

    def goes_on(self, server, count=STEP):
        """Waits until so much more was acknowledged."""
        wanted = self.acknowledged + count

        def is_there():
            if self.error:
                raise Lost(f"a program on the mount got an error while servers came back: {self.error}")
            return self.acknowledged >= wanted
        until(f"{count} more files and rows are acknowledged", is_there, server)

    def end(self):
        """Waits for the threads of a mount whose server was killed."""
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                fail("a program hangs on a mount whose server was killed")

    def write_files(self, number):
        rng = random.Random(f"{self.seed} {self.round} {number}")
        dir = os.path.join(self.dir, f"files{number}")
        os.makedirs(dir, exist_ok=True)
        handle = os.open(dir, os.O_RDONLY)
        os.fsync(handle)
        own, count = [], 0
        while not self.ends.is_set():
            kind = rng.choice(["new", "new", "renamed", "again", "removed"])
            path = os.path.join(dir, f"{self.round}-{count}")
            count += 1
            if kind in ("again", "removed") and own:
                # Until the call returns, both states are right.
                path = own.pop(rng.randrange(len(own)))
                self.files.pop(path)
            if kind == "removed" and not os.path.lexists(path):
                continue
            if kind == "removed":
                os.unlink(path)
                os.fsync(handle)
                self.files[path] = None
            else:
                data = rng.randbytes(min(int(rng.lognormvariate(9, 2)), 1 << 20))
                at = path + ".new" if kind == "renamed" else path
                with open(at, "wb", buffering=0) as file:
                    file.write(data)
                    os.fsync(file.fileno())
                if kind == "renamed":
                    os.rename(at, path)
                    os.fsync(handle)
                self.files[path] = hashlib.sha256(data).digest()
                own.append(path)
            self.note()

    def write_rows(self, _):
        base = sqlite3.connect(os.path.join(self.dir, "rows.db"), isolation_level=None)
        base.execute("pragma synchronous = extra")
        base.execute("create table if not exists rows (number integer primary key, text)")
        while not self.ends.is_set():
            number = base.execute("select coalesce(max(number), 0) + 1 from rows").fetchone()[0]
            base.execute("insert into rows values (?, ?)", (number, row(number)))
            self.rows = number
            self.note()

    def judge(self):
        """Everything that was acknowledged is there, with its content."""
        for path, wanted in self.files.items():
            try:
                with open(path, "rb") as file:
                    found = hashlib.sha256(file.read()).digest()
            except FileNotFoundError:
                found = None
            except OSError as error:
                raise Lost(f"{path}: {error}") from error
            if found != wanted:
                what = "is missing" if found is None else "is there" if wanted is None else "has other content"
                raise Lost(f"{path} {what}")
        try:
            base = sqlite3.connect(os.path.join(self.dir, "rows.db"))
            sound = base.execute("pragma integrity_check").fetchall()
            rows = base.execute("select number, text from rows order by number").fetchall()
            base.close()
        except sqlite3.Error as error:
            raise Lost(f"rows.db: {error}") from error
        if sound != [("ok",)]:
            raise Lost(f"rows.db: {sound}")
        if len(rows) < self.rows or any(one != (at, row(at)) for at, one in enumerate(rows, 1)):
            raise Lost(f"rows.db has {len(rows)} rows; {self.rows} were acknowledged")
