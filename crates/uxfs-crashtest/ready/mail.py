"""A mail drop: each message is written, synced, renamed, and its directory synced.

mail.py run
mail.py check
"""
import os
import sys

MESSAGES = 25


def body(number):
    return b"message %d\n" % number * (1 + number * 53 % 400)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def run():
    acknowledge = os.fdopen(int(os.environ["UXFS_ACK"]), "w")
    for name in ("tmp", "new"):
        os.mkdir(name)
    sync(".")
    for number in range(MESSAGES):
        with open(f"tmp/{number}", "wb") as file:
            file.write(body(number))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"tmp/{number}", f"new/{number}")
        sync("new")
        print(number, file=acknowledge, flush=True)


def check():
    with open(os.environ["UXFS_ACKED"]) as file:
        acknowledged = [int(line) for line in file]
    there = os.listdir("new") if os.path.isdir("new") else []
    for number in acknowledged:
        if str(number) not in there:
            sys.exit(f"message {number} is lost")
    for name in there:
        with open(f"new/{name}", "rb") as file:
            if file.read() != body(int(name)):
                sys.exit(f"message {name} is damaged")


run() if sys.argv[1] == "run" else check()
