"""A mail drop: each message is written, synced, renamed, and its directory synced."""
import os

from common import STEPS, acknowledge, judge, main, sync, text


def setup():
    os.mkdir("tmp")
    os.mkdir("new")


def run():
    for number in range(STEPS):
        with open(f"tmp/{number}", "w") as file:
            file.write(text(number))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"tmp/{number}", f"new/{number}")
        sync("new")
        acknowledge(number)


def check():
    judge({int(name): open(f"new/{name}").read() for name in os.listdir("new")})


main(setup=setup, run=run, check=check)
