"""Records in a server that is started for the test: Redis or PostgreSQL.

server.py setup redis|postgres
server.py run redis|postgres
server.py check redis|postgres
"""
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from common import STEPS, acknowledge, judge, said, text

PATIENCE = 120


class Server:
    """A process that serves on a socket in a directory beside the volume, and is ended with the test."""

    def __init__(self):
        # A kernel's machine can write here beside the volume.
        self.dir = tempfile.mkdtemp(dir="/dev/shm")
        self.process = None

    def start(self, words, ready):
        with open(f"{self.dir}/log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(PATIENCE * 20):
            if self.process.poll() is not None:
                break
            if ready():
                return
            time.sleep(0.05)
        with open(f"{self.dir}/log", errors="replace") as log:
            sys.exit(f"{words[0]} does not start: {log.read().strip()}")

    def end(self, number=signal.SIGTERM):
        if self.process:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
        shutil.rmtree(self.dir, ignore_errors=True)


class Redis(Server):
    """An append-only file that is synced before each answer."""

    def setup(self):
        pass

    def begin(self):
        if not shutil.which("redis-server"):
            sys.exit("redis-server is missing: apt-get install redis-server")
        path = f"{self.dir}/socket"
        self.start(["redis-server", "--port", "0", "--unixsocket", path, "--dir", os.getcwd(), "--save", "",
                    "--appendonly", "yes", "--appendfsync", "always"],
                   lambda: os.path.exists(path) and self.connected(path))

    def connected(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(path)
        except OSError:
            return False
        self.answers = self.socket.makefile("rb")
        return self.ask("PING") == b"PONG" or self.loading()

    def loading(self):
        self.socket.close()
        return False

    def ask(self, *words):
        words = [word.encode() for word in words]
        parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]
        self.socket.sendall(b"".join(parts))
        return self.answer()

    def answer(self):
        line = self.answers.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return self.answers.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        return rest

    def put(self, number):
        if self.ask("SET", str(number), text(number)) != b"OK":
            sys.exit("redis does not take a record")

    def records(self):
        return {int(key): self.ask("GET", key.decode()).decode() for key in self.ask("KEYS", "*")}


class Postgres(Server):
    """Rows, each in a transaction of its own."""

    def program(self, name):
        found = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
        if not found:
            sys.exit("PostgreSQL is missing: apt-get install postgresql")
        return max(found, key=lambda path: int(path.split("/")[4]))

    def setup(self):
        said(self.program("initdb"), "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync")
        self.begin()
        self.sql("create table t (number integer primary key, text text)")
        self.sql("create extension amcheck")

    def begin(self):
        # A lock file that was made and not written keeps the server from starting, until someone removes it.
        lock = "data/postmaster.pid"
        if os.path.exists(lock) and not os.path.getsize(lock):
            os.unlink(lock)
        words = [self.program("postgres"), "-D", "data", "-k", self.dir, "-c", "listen_addresses="]
        # Small and seldom, so that the volume holds it, and nothing but the rows is written.
        for setting in ("shared_buffers=8MB", "max_wal_size=64MB", "autovacuum=off", "dynamic_shared_memory_type=mmap"):
            words += ["-c", setting]
        ready = [self.program("pg_isready"), "-q", "-h", self.dir]
        self.start(words, lambda: subprocess.run(ready).returncode == 0)

    def sql(self, line):
        return said(self.program("psql"), "-XAtq", "-h", self.dir, "-U", "postgres", "-v", "ON_ERROR_STOP=1",
                    "-c", line, "postgres")

    def put(self, number):
        self.sql(f"insert into t values ({number}, '{text(number)}')")
        if number == STEPS // 2:
            self.sql("checkpoint")

    def records(self):
        self.sql("select bt_index_check('t_pkey', true)")
        rows = (row.split("|", 1) for row in self.sql("select number, text from t").splitlines())
        return {int(number): text for number, text in rows}

    def end(self):
        super().end(signal.SIGINT)


def main(verb, name):
    server = {"redis": Redis, "postgres": Postgres}[name]()
    try:
        if verb == "setup":
            server.setup()
            return
        server.begin()
        if verb == "check":
            judge(server.records())
            return
        for number in range(STEPS):
            server.put(number)
            acknowledge(number)
    finally:
        server.end()


main(*sys.argv[1:])
