"""What the ready-made tests share: acknowledgements, stores of records, and commands.

Each script is called with `run` and `check`, some with `setup` before. It works in the current directory.
"""
import os
import subprocess
import sys

STEPS = 25


def text(number):
    """The content of a record: short ones, and ones of several pages."""
    return f"record {number} " * (1 + number * 37 % 400)


def acknowledge(number):
    os.write(int(os.environ["UXFS_ACK"]), b"%d\n" % number)


def acknowledged():
    """Number of the steps that were acknowledged."""
    with open(os.environ["UXFS_ACKED"]) as file:
        return len(file.readlines())


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def need(module, package):
    """A module of Python that a package of Debian brings."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        sys.exit(f"Python's module {module} is missing: apt-get install {package} (and use /usr/bin/python3)")


def said(*words, env=(), stdin=None):
    """Runs a command, which must succeed, and returns what it prints."""
    # Nothing of the user's own settings counts, and no language changes what is printed.
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "HOME": "/nonexistent", "LC_ALL": "C", **dict(env)}
    try:
        done = subprocess.run(words, env=env, input=stdin, capture_output=True)
    except FileNotFoundError:
        sys.exit(f"{words[0]} is missing: install it")
    if done.returncode:
        out = (done.stdout + done.stderr).decode(errors="replace").strip()
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}: {out}")
    return done.stdout.decode(errors="replace")


def judge(records, atomic=True):
    """The records must be the first ones, and none of those acknowledged may be missing. All must be whole, or, of a
    program that does not write them in one step, those acknowledged."""
    count = acknowledged()
    if len(records) < count:
        sys.exit(f"{count} records were acknowledged, {len(records)} are there")
    for number in range(len(records)):
        if number not in records:
            sys.exit(f"record {number} is missing, and a later one is there")
        if records[number] != text(number) and (atomic or number < count):
            sys.exit(f"record {number} is damaged")


def store(opened):
    """Runs or checks a store: what `opened` returns has `put`, `records` and `close`."""
    if sys.argv[1] == "setup":
        opened().close()
    elif sys.argv[1] == "run":
        db = opened()
        for number in range(STEPS):
            db.put(number, text(number))
            acknowledge(number)
        db.close()
    elif acknowledged() or os.listdir("."):
        db = opened()
        records = db.records()
        db.close()
        judge(records)


def main(**verbs):
    """Runs or checks what is no store."""
    verbs[sys.argv[1]]()
