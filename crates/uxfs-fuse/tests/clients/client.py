"""Programs whose work is acknowledged step by step, and what must be left of it after a crash.

usage: client.py DIR KIND do COUNT       does its steps, and prints the number of each that is durable
       client.py DIR KIND check STEPS    fails unless at least so many steps are there, and all is whole
"""

import hashlib
import os
import sqlite3
import subprocess
import sys

os.environ.update(
    GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
    GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1",
)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def content(n):
    """What step n writes."""
    seed = hashlib.sha256(str(n).encode()).digest()
    return (seed * 2000)[: 1 + n * 7919 % 60_000]


class Sqlite:
    """A row a commit, with a growing blob; what is deleted goes with the commit, too."""

    def __init__(self, mode):
        self.db = sqlite3.connect(f"{mode}.db", isolation_level=None, timeout=3600)
        self.db.execute(f"pragma journal_mode={mode}")
        # Full would leave a journal's removal to chance.
        self.db.execute("pragma synchronous=extra")
        self.db.execute("create table if not exists t(n integer primary key, b blob)")
        self.db.execute("create table if not exists sums(n integer primary key, s text)")

    def do(self, n):
        data = content(n)
        self.db.execute("begin immediate")
        self.db.execute("insert into t values(?, ?)", (n, data))
        self.db.execute("insert into sums values(?, ?)", (n, hashlib.md5(data).hexdigest()))
        if n % 3 == 2:
            self.db.execute("delete from t where n = ?", (n - 2,))
        self.db.execute("commit")
        # A directory that it cannot open SQLite takes as synced, after it has removed the journal: only
        # while the server lives does its word count.
        os.statvfs(".")

    def check(self, steps):
        found = self.db.execute("pragma integrity_check").fetchall()
        assert found == [("ok",)], found
        sums = dict(self.db.execute("select n, s from sums"))
        assert sorted(sums) == list(range(len(sums))), sorted(sums)
        assert len(sums) >= steps, f"{len(sums)} of {steps} commits"
        for n, data in self.db.execute("select n, b from t"):
            assert hashlib.md5(data).hexdigest() == sums[n], n
        there = {n for n, in self.db.execute("select n from t")}
        gone = {n - 2 for n in sums if n % 3 == 2}
        assert there == set(sums) - gone, (there, gone)


class Git:
    """A commit a step. That its last names are durable git does not see to: one step is forgiven."""

    def run(self, *args):
        done = subprocess.run(["git", "-c", "core.fsync=all", "-c", "gc.auto=0", *args], cwd="repo", capture_output=True, text=True)
        assert done.returncode == 0, f"git {args}: {done.stdout}{done.stderr}"
        return done.stdout

    def do(self, n):
        if not os.path.exists("repo/.git"):
            os.mkdir("repo")
            self.run("init", "-q")
            # Git does not: an empty HEAD or config is no repository any more.
            for where, _, names in os.walk("repo"):
                for name in (*names, "."):
                    sync(os.path.join(where, name))
            sync(".")
        with open(f"repo/f{n}", "wb") as file:
            file.write(content(n))
        with open("repo/all", "ab") as file:
            file.write(b"%d\n" % n)
        self.run("add", "-A")
        self.run("commit", "-qm", str(n))
        if n % 8 == 7:
            self.run("repack", "-qad")

    def check(self, steps):
        if steps < 2:
            return
        self.run("fsck", "--strict", "--full")
        commits = self.run("log", "--format=%s").split()
        assert len(commits) >= steps - 1, f"{len(commits)} of {steps} commits"
        assert commits == [str(n) for n in reversed(range(len(commits)))], commits
        for n in range(len(commits)):
            blob = subprocess.run(["git", "show", f"HEAD:f{n}"], cwd="repo", capture_output=True, check=True).stdout
            assert blob == content(n), n


class Store:
    """Files made, replaced and appended to, each brought down by the means of its kind."""

    def do(self, n):
        os.makedirs("store", exist_ok=True)
        # Written beside it and put in its place.
        with open("store/new", "wb") as file:
            file.write(content(n))
            file.flush()
            os.fsync(file.fileno())
        os.rename("store/new", f"store/state{n % 5}")
        # By O_DSYNC, without a further call.
        log = os.open("store/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC, 0o644)
        os.write(log, b"%06d\n" % n)
        os.close(log)
        # A directory with a link, an attribute and a preallocated file, by the directory.
        made = f"store/d{n}"
        os.mkdir(made)
        os.symlink("../log", f"{made}/link")
        fd = os.open(f"{made}/f", os.O_RDWR | os.O_CREAT, 0o640)
        os.posix_fallocate(fd, 0, 30_000)
        os.pwrite(fd, content(n)[:20_000], 100)
        os.setxattr(fd, "user.n", str(n).encode())
        os.fdatasync(fd)
        os.fsync(fd)
        os.close(fd)
        os.link(f"{made}/f", f"store/linked{n}")
        if n >= 6:
            old = f"store/d{n - 6}"
            for name in os.listdir(old):
                os.unlink(f"{old}/{name}")
            os.rmdir(old)
        sync("store")
        sync(made)

    def check(self, steps):
        if steps == 0:
            return
        with open("store/log", "rb") as file:
            lines = file.read()
        count = lines.count(b"\n")
        # The last line may be on its way.
        whole = b"".join(b"%06d\n" % n for n in range(count))
        assert lines.startswith(whole) and len(lines) < len(whole) + 7, lines[-100:]
        assert count >= steps, f"{count} of {steps} lines"
        for n in range(steps):
            path = f"store/linked{n}"
            with open(path, "rb") as file:
                data = file.read()
            wanted = content(n)[:20_000]
            assert len(data) == max(30_000, 100 + len(wanted)) and data[100 : 100 + len(wanted)] == wanted, path
            assert data[:100].count(0) == 100 and data[100 + len(wanted) :].count(0) == len(data) - 100 - len(wanted), path
            assert os.getxattr(path, "user.n") == str(n).encode(), path
            made = f"store/d{n}"
            if n >= count - 6:
                assert os.readlink(f"{made}/link") == "../log"
                assert os.path.samefile(path, f"{made}/f")
            elif n < steps - 6:
                assert not os.path.exists(made), made
        for k in range(min(5, steps)):
            with open(f"store/state{k}", "rb") as file:
                data = file.read()
            # That of the last acknowledged step, or of a later one.
            last = max(n for n in range(steps) if n % 5 == k)
            assert any(data == content(n) for n in range(last, last + 16, 5)), f"state{k}: {len(data)} bytes"


class Rest:
    """What nobody asks to be durable: trees unpacked, copied and removed. Nothing is promised of it."""

    def do(self, n):
        subprocess.run("rm -rf tree$((N % 3)); mkdir tree$((N % 3)); cp -r /usr/include/linux/[a-h]* tree$((N % 3))/ 2>/dev/null || "
                       "cp -r /etc tree$((N % 3))/; tar -cf t.tar tree$((N % 3)); mv tree$((N % 3)) moved$N; rm -rf moved$((N - 2))",
                       shell=True, env={**os.environ, "N": str(n)}, check=True)

    def check(self, steps):
        subprocess.run(["tar", "-cf", "/dev/null", "."], check=True, stderr=subprocess.DEVNULL)


KINDS = {"wal": lambda: Sqlite("wal"), "delete": lambda: Sqlite("delete"), "git": Git, "store": Store, "rest": Rest}


def main():
    where, kind, what, number = sys.argv[1:]
    os.chdir(where)
    client = KINDS[kind]()
    if what == "do":
        for n in range(int(number)):
            client.do(n)
            print(n + 1, flush=True)
    else:
        client.check(int(number))


main()
