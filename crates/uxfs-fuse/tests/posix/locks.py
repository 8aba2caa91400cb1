"""Locks of all three kinds, between processes and descriptors."""
import fcntl

from lib import *

write("f", b"0123456789")
a = os.open("f", os.O_RDWR)
b = os.open("f", os.O_RDWR)
NB = fcntl.LOCK_NB
t("flock", fcntl.flock, a, fcntl.LOCK_EX | NB)
t("flock by another", fcntl.flock, b, fcntl.LOCK_EX | NB)
t("shared by another", fcntl.flock, b, fcntl.LOCK_SH | NB)
t("unlock", fcntl.flock, a, fcntl.LOCK_UN)
t("shared", fcntl.flock, b, fcntl.LOCK_SH | NB)
t("shared twice", fcntl.flock, a, fcntl.LOCK_SH | NB)
t("exclusive beside shared", fcntl.flock, a, fcntl.LOCK_EX | NB)
fcntl.flock(b, fcntl.LOCK_UN)
t("range", fcntl.lockf, a, fcntl.LOCK_EX | NB, 5, 0)


def other():
    mine = os.open("f", os.O_RDWR)
    t("another process: the same range", fcntl.lockf, mine, fcntl.LOCK_EX | NB, 2, 3)
    t("another process: another range", fcntl.lockf, mine, fcntl.LOCK_EX | NB, 2, 5)


user(0, 0, other)
LOCK = struct.Struct("hhqqi4x")


def ofd(fd, kind, start, length):
    fcntl.fcntl(fd, 37, LOCK.pack(kind, 0, start, length, 0))


fcntl.lockf(a, fcntl.LOCK_UN)
t("of a descriptor", ofd, a, fcntl.F_WRLCK, 0, 4)
t("by another descriptor", ofd, b, fcntl.F_WRLCK, 2, 4)
t("behind it", ofd, b, fcntl.F_WRLCK, 4, 4)
