"""A commit of Git for each file.

git.py setup
git.py run COMPONENTS  (as of core.fsync: default, all, …)
git.py check
"""
import os
import sys

from common import STEPS, acknowledge, judge, main, said, text

WHO = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "safe.directory=*"]


def git(*words):
    return said("git", *WHO, *words)


def setup():
    git("init", "-q", ".")


def run():
    fsync = ["-c", f"core.fsync={sys.argv[2]}"]
    for number in range(STEPS):
        with open(str(number), "w") as file:
            file.write(text(number))
        git(*fsync, "add", str(number))
        git(*fsync, "commit", "-q", "-m", str(number))
        acknowledge(number)


def check():
    git("fsck", "--full", "--strict")
    heads = git("for-each-ref", "--format=%(refname)", "refs/heads").split()
    names = git("ls-tree", "--name-only", "HEAD").split() if heads else []
    judge({int(name): git("show", f"HEAD:{name}") for name in names})


main(setup=setup, run=run, check=check)
