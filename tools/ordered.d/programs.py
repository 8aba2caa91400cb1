"""The programs whose rates tools/ordered-rates compares: each makes its input from a seed, does its work in
a directory, and is judged by its own checker.

1. `run` returns a rate, of the program's work alone. Input is on the host, and is made before.
2. `check` fails unless the program finds its own result whole.
3. `size` scales the work: 1.0 takes some seconds on two processors.
"""
import os
import random
import shutil
import subprocess
import time

from postgres import Postgres
from volume import fail

SEED = 20100524


def environment(preload=None, **more):
    env = {**os.environ, "LC_ALL": "C", **more}
    return {**env, "LD_PRELOAD": preload} if preload else env


def done(words, env=None, **how):
    """Runs a command that must succeed, and returns what it prints."""
    ran = subprocess.run(words, env=env or environment(), stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, **how)
    if ran.returncode:
        fail(f"{' '.join(words)} failed:\n{ran.stdout}")
    return ran.stdout


def timed(words, **how):
    begun = time.monotonic()
    done(words, **how)
    return time.monotonic() - begun


class Sqlite:
    """Transactions of one row each, synchronous=full, in one of SQLite's journal modes."""
    unit = "transactions/s"

    def __init__(self, home, size, mode, count):
        self.count = max(1, int(count * size))
        self.script = os.path.join(home, mode + ".sql")
        rng = random.Random(SEED)
        with open(self.script, "w") as out:
            out.write(f"pragma journal_mode={mode};\npragma synchronous=full;\n"
                      "create table t(n integer primary key, s text);\n")
            for n in range(self.count):
                out.write(f"insert into t values({n}, '{rng.randbytes(100).hex()}');\n")

    def run(self, dir, preload):
        with open(self.script) as script:
            took = timed(["sqlite3", "-bail", os.path.join(dir, "db")], stdin=script,
                         env=environment(preload))
        return self.count / took

    def check(self, dir):
        query = "pragma integrity_check; select count(*) from t"
        said = done(["sqlite3", os.path.join(dir, "db"), query]).split()
        if said != ["ok", str(self.count)]:
            fail(f"SQLite's database is not whole: {said[:3]}")


class Pgbench:
    """pgbench's transactions by eight clients, on a cluster that is made for each run."""
    unit = "transactions/s"
    CLIENTS = 8
    SCALE = 10

    def __init__(self, home, size):
        self.home, self.seconds = home, max(1, round(20 * size))
        self.cluster = None

    def run(self, dir, preload):
        self.cluster = Postgres(self.home, dir)
        self.cluster.made(self.SCALE)
        self.cluster.start(preload)
        return self.cluster.pgbench(self.CLIENTS, self.seconds)

    def check(self, _dir):
        self.cluster.sound()
        self.cluster.stop()

    def ended(self):
        if self.cluster:
            self.cluster.ended()


class Dpkg:
    """Packages of twenty files unpacked and configured into a root of their own."""
    unit = "packages/s"
    FILES = 20

    def __init__(self, home, size):
        self.count = max(1, int(100 * size))
        self.debs = []
        rng = random.Random(SEED)
        for number in range(self.count):
            name = f"sample{number:03}"
            tree = os.path.join(home, name)
            share = os.path.join(tree, "usr/share", name)
            os.makedirs(share)
            os.mkdir(os.path.join(tree, "DEBIAN"))
            for file in range(self.FILES):
                with open(os.path.join(share, f"file{file:02}"), "wb") as out:
                    out.write(rng.randbytes(int(rng.lognormvariate(8.5, 1.2))))
            with open(os.path.join(tree, "DEBIAN/control"), "w") as out:
                out.write(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\n"
                          "Description: a package of random files\n")
            sums = done(["sh", "-c", "find usr -type f -exec md5sum {} +"], cwd=tree)
            with open(os.path.join(tree, "DEBIAN/md5sums"), "w") as out:
                out.write(sums)
            deb = tree + ".deb"
            done(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, deb])
            shutil.rmtree(tree)
            self.debs.append(deb)

    def command(self, dir, *words):
        return ["dpkg", f"--root={dir}", "--force-not-root", *words]

    def run(self, dir, preload):
        admin = os.path.join(dir, "var/lib/dpkg")
        for below in ("info", "updates", "triggers"):
            os.makedirs(os.path.join(admin, below))
        for file in ("status", "available"):
            with open(os.path.join(admin, file), "x"):
                pass
        took = timed(self.command(dir, "--install", *self.debs), env=environment(preload))
        return self.count / took

    def check(self, dir):
        for word in ("--audit", "--verify"):
            said = done(self.command(dir, word))
            if said:
                fail(f"dpkg {word}: {said}")
        listed = done(["dpkg-query", f"--admindir={dir}/var/lib/dpkg", "-W", "-f", "${db:Status-Abbrev}\n"])
        if listed.split("\n")[:-1] != ["ii "] * self.count:
            fail(f"dpkg did not install all {self.count} packages")


class Git:
    """A clone, then commits of five files each, with core.fsync=all."""
    unit = "commits/s"
    FILES = 500
    CONFIG = {"core.fsync": "all", "gc.auto": "0", "maintenance.auto": "false", "user.name": "nobody",
              "user.email": "nobody@localhost", "safe.directory": "*"}

    def __init__(self, home, size):
        self.count = max(1, int(200 * size))
        self.source = os.path.join(home, "source")
        rng = random.Random(SEED)
        os.mkdir(self.source)
        for number in range(self.FILES):
            dir = os.path.join(self.source, f"dir{number % 25:02}")
            os.makedirs(dir, exist_ok=True)
            with open(os.path.join(dir, f"file{number:03}"), "w") as out:
                out.write(rng.randbytes(int(rng.lognormvariate(7.5, 1))).hex())
        done(["sh", "-c", "git init -q && git add . && git commit -qm first"], cwd=self.source,
             env=self.environment())

    def environment(self, preload=None):
        config = {"GIT_CONFIG_COUNT": str(len(self.CONFIG)), "GIT_CONFIG_NOSYSTEM": "1",
                  "GIT_CONFIG_GLOBAL": "/dev/null"}
        for at, (key, value) in enumerate(self.CONFIG.items()):
            config[f"GIT_CONFIG_KEY_{at}"], config[f"GIT_CONFIG_VALUE_{at}"] = key, value
        return environment(preload, **config)

    def run(self, dir, preload):
        script = """git clone -q "file://$1" clone && cd clone && n=0
            while [ $n -lt $2 ]; do
                n=$((n + 1))
                for file in 0 1 2 3 4; do
                    echo $n >>dir0$file/file00$file || exit 1
                done
                git commit -qam $n || exit 1
            done"""
        took = timed(["sh", "-c", script, "sh", self.source, str(self.count)], cwd=dir,
                     env=self.environment(preload))
        return self.count / took

    def check(self, dir):
        clone = os.path.join(dir, "clone")
        done(["git", "fsck", "--full", "--strict"], cwd=clone, env=self.environment())
        said = done(["git", "rev-list", "--count", "HEAD"], cwd=clone, env=self.environment())
        changed = done(["git", "status", "--porcelain"], cwd=clone, env=self.environment())
        if (said.strip(), changed) != (str(self.count + 1), ""):
            fail(f"git has {said.strip()} commits of {self.count + 1}, and changes: {changed or 'none'}")


class Cargo:
    """A workspace of crates that need only each other, built offline."""
    unit = "crates/s"
    FUNCTIONS = 60

    def __init__(self, home, size):
        self.count = max(2, int(40 * size))
        self.source = os.path.join(home, "workspace")
        rng = random.Random(SEED)
        members = ", ".join(f'"c{n}"' for n in range(self.count))
        self.put("Cargo.toml", f'[workspace]\nresolver = "2"\nmembers = [{members}]\n')
        for n in range(self.count):
            below = [other for other in range(n) if rng.random() < 2 / n]
            needs = "".join(f'c{other} = {{ path = "../c{other}" }}\n' for other in below)
            self.put(f"c{n}/Cargo.toml", f'[package]\nname = "c{n}"\nversion = "1.0.0"\n'
                                         f'edition = "2021"\n[dependencies]\n{needs}')
            body = ["pub fn own() -> u64 {\n    let mut sum = 0;"]
            numbers = [rng.randrange(1000) for _ in range(self.FUNCTIONS)]
            body += [f"    sum += f{at}(&[sum % 2, {number}]);" for at, number in enumerate(numbers)]
            body += ["    sum\n}"]
            body += [f"fn f{at}(of: &[u64]) -> u64 {{ of.iter().skip(1).map(|n| n / 1).sum() }}"
                     for at in range(self.FUNCTIONS)]
            body += [f"pub fn below{other}() -> u64 {{ c{other}::own() }}" for other in below]
            self.put(f"c{n}/src/lib.rs", "\n".join(body) + "\n")
        last, self.result = f"c{self.count - 1}", sum(numbers)
        self.put(f"{last}/src/main.rs", f'fn main() {{ println!("{{}}", {last}::own()); }}\n')

    def put(self, name, text):
        path = os.path.join(self.source, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)

    def run(self, dir, preload):
        copy = os.path.join(dir, "workspace")
        shutil.copytree(self.source, copy)
        env = environment(preload, CARGO_TARGET_DIR=os.path.join(dir, "target"), CARGO_INCREMENTAL="1")
        took = timed(["cargo", "build", "--quiet", "--offline", "--workspace"], cwd=copy, env=env)
        return self.count / took

    def check(self, dir):
        said = done([os.path.join(dir, "target/debug", f"c{self.count - 1}")]).strip()
        if said != str(self.result):
            fail(f"the program that cargo built prints {said}, not {self.result}")


# Name, what it is, and how it is made from a directory for its input and a size.
ALL = {
    "sqlite-wal": lambda home, size: Sqlite(home, size, "wal", 120_000),
    "sqlite-journal": lambda home, size: Sqlite(home, size, "delete", 20_000),
    "pgbench": Pgbench,
    "dpkg": Dpkg,
    "git": Git,
    "cargo": Cargo,
}
NEEDED = {
    "sqlite-wal": ["sqlite3:sqlite3"],
    "sqlite-journal": ["sqlite3:sqlite3"],
    "pgbench": ["psql:postgresql"],
    "dpkg": ["dpkg-deb:dpkg"],
    "git": ["git:git"],
    "cargo": ["cargo:cargo", "cc:gcc"],
}
