"""Messages that a program delivers into a Maildir.

maildir.py setup
maildir.py run python|procmail|maildrop
maildir.py check
"""
import atexit
import functools
import mailbox
import os
import re
import shutil
import sys
import tempfile

from common import STEPS, acknowledge, judge, main, said, text


def setup():
    mailbox.Maildir("box", create=True)


def message(number):
    return f"From: a@example.org\nSubject: {number}\n\n{text(number)}\n"


def python(number):
    mailbox.Maildir("box").add(message(number))


def procmail(number):
    rules = f"MAILDIR={os.getcwd()}\nDEFAULT={os.getcwd()}/box/\n"
    delivered("procmail", ["-m"], rules, number)


def maildrop(number):
    delivered("maildrop", [], f'to "{os.getcwd()}/box"\n', number)


def delivered(name, words, rules, number):
    program = unprivileged(name)
    path = os.path.join(os.path.dirname(program), "rules")
    with open(path, "w") as file:
        file.write(rules)
    os.chmod(path, 0o600)
    said(program, *words, path, stdin=message(number).encode())


@functools.cache
def unprivileged(name):
    """A copy of a program that would change its user, who may not see the volume."""
    program = shutil.which(name) or sys.exit(f"{name} is missing: apt-get install {name}")
    copy = os.path.join(tempfile.mkdtemp(dir="/dev/shm"), name)
    shutil.copyfile(program, copy)
    os.chmod(copy, 0o755)
    atexit.register(shutil.rmtree, os.path.dirname(copy))
    return copy


def run():
    for number in range(STEPS):
        globals()[sys.argv[2]](number)
        acknowledge(number)


def check():
    found = {}
    for name in os.listdir("box/new"):
        with open(f"box/new/{name}") as file:
            content = file.read()
        subject = re.search(r"^Subject: (\d+)$", content, re.M)
        if not subject:
            sys.exit(f"{name} is damaged: {len(content)} bytes")
        found[int(subject[1])] = content.split("\n\n", 1)[-1].rstrip("\n")
    judge(found)


main(setup=setup, run=run, check=check)
