"""A PostgreSQL cluster of its own in a directory, run by the user postgres.

1. fsync and full_page_writes are on, and synchronous_commit is: what differs is only what fsync does.
2. `sound` judges by sums that every moment of pgbench agrees in, and by pg_amcheck.

Used by tools/ordered-rates and tools/ordered-aging.
"""
import glob
import os
import pwd
import re
import signal
import subprocess
import time

from volume import PATIENCE, fail

SUMS = """select count(*) from (select sum(abalance) from pgbench_accounts union
    select sum(tbalance) from pgbench_tellers union select sum(bbalance) from pgbench_branches union
    select coalesce(sum(delta), 0) from pgbench_history) s"""


class Postgres:
    """A cluster below `dir`, whose socket is in `home`."""

    def __init__(self, home, dir, settings=()):
        owner = pwd.getpwnam("postgres")
        found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
        if not found:
            fail("PostgreSQL is missing: apt-get install postgresql")
        self.bin = os.path.dirname(max(found, key=lambda path: int(path.split("/")[4])))
        self.user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self.data = os.path.join(dir, "data")
        self.socket = os.path.join(home, "socket")
        self.log = os.path.join(home, "postgres.log")
        self.settings = ["listen_addresses=", f"unix_socket_directories={self.socket}", *settings]
        self.server = None

    def env(self, preload=None):
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "LC_ALL": "C", "PGHOST": self.socket}
        return {**env, "LD_PRELOAD": preload} if preload else env

    def run(self, *words):
        """Runs one of PostgreSQL's programs and returns what it prints."""
        done = subprocess.run([os.path.join(self.bin, words[0]), *words[1:]], env=self.env(),
                              capture_output=True, text=True, cwd="/", **self.user)
        if done.returncode:
            fail(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def sql(self, text):
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, "postgres").strip()

    def made(self, scale):
        """Makes the cluster and pgbench's tables, and stops it."""
        for path in (self.socket, self.data):
            os.makedirs(path, mode=0o700, exist_ok=True)
            os.chown(path, self.user["user"], self.user["group"])
        self.run("initdb", "-D", self.data, "-A", "trust")
        self.start()
        self.run("pgbench", "-i", "-q", "-s", str(scale), "postgres")
        self.sql("create extension amcheck")
        self.stop()

    def start(self, preload=None):
        """Starts the cluster, with a library preloaded if one is named."""
        words = [os.path.join(self.bin, "postgres"), "-D", self.data]
        for setting in self.settings:
            words += ["-c", setting]
        with open(self.log, "ab") as log:
            self.server = subprocess.Popen(words, env=self.env(preload), stdout=log, stderr=log,
                                           cwd="/", **self.user)
        ready = [os.path.join(self.bin, "pg_isready"), "-q"]
        for _ in range(PATIENCE * 10):
            if subprocess.run(ready, env=self.env()).returncode == 0:
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.1)
        fail(f"PostgreSQL did not start; see {self.log}")

    def stop(self):
        """Stops the cluster after its last checkpoint."""
        self.server.send_signal(signal.SIGINT)
        if self.server.wait(PATIENCE):
            fail(f"PostgreSQL did not stop well; see {self.log}")
        self.server = None

    def pgbench(self, clients, seconds, rate=None):
        """Runs pgbench and returns its transactions a second."""
        limit = ["-R", str(rate)] if rate else []
        said = self.run("pgbench", "-n", "-c", str(clients), "-j", str(min(clients, 2)),
                        "-T", str(seconds), *limit, "postgres")
        return float(re.search(r"^tps = ([\d.]+)", said, re.M)[1])

    def sound(self):
        """Sums must agree, and pg_amcheck must find nothing."""
        if self.sql(SUMS) != "1":
            fail("the sums of pgbench's tables differ")
        self.run("pg_amcheck", "--heapallindexed", "--all")

    def tables(self):
        """The files of pgbench's tables and indexes, by name, of a cluster that runs."""
        query = """select relname, pg_relation_filepath(oid) from pg_class
            where relname like 'pgbench%' and relkind in ('r', 'i') order by relname"""
        lines = [line.split("|") for line in self.sql(query).splitlines()]
        return {name: os.path.join(self.data, path) for name, path in lines}

    def ended(self):
        """Ends the server, whatever it does."""
        if self.server and self.server.poll() is None:
            children = subprocess.run(["pgrep", "-P", str(self.server.pid)], capture_output=True)
            for pid in [self.server.pid, *map(int, children.stdout.split())]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.server.wait()
