"""Files that programs write into a directory, each synced by coreutils' `sync` with its directory.

copy.py setup
copy.py run cp|rsync|sed|vim
copy.py check
"""
import os
import sys

from common import STEPS, acknowledge, judge, main, said, text


def setup():
    for name in ("from", "to"):
        os.mkdir(name)
    for number in range(STEPS):
        with open(f"from/{number}", "w") as file:
            file.write(text(number))


def cp(number):
    said("cp", f"from/{number}", f"to/{number}")
    said("sync", f"to/{number}", "to")


def rsync(number):
    # It syncs each file that it wrote, and not the directory.
    said("rsync", "--fsync", f"from/{number}", "to/")


def vim(number):
    # Binary: the file has no newline at its end.
    said("vim.tiny", "-b", "-u", "NONE", "-es", "-c", f"w to/{number}", "-c", "q", f"from/{number}")


def run():
    for number in range(STEPS):
        globals()[sys.argv[2]](number)
        acknowledge(number)


def check():
    # Names that begin with a dot are files that a program had not finished.
    names = [name for name in os.listdir("to") if not name.startswith(".")]
    # rsync renames what it has written whole; the others write where the file will stay.
    judge({int(name): open(f"to/{name}").read() for name in names}, atomic=sys.argv[2] == "rsync")


main(setup=setup, run=run, check=check)
