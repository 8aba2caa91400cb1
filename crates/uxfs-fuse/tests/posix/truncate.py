"""Lengths: cutting, growing, limits."""
import resource

from lib import *

fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"0123456789" * 1000)
for size in (10000, 5, 4096, 4095, 12345, 0, 1, 1 << 20, 3):
    os.ftruncate(fd, size)
    data = os.pread(fd, 20000, 0)
    say(f"to {size}", (os.fstat(fd).st_size, data[:12], data.count(b"\0"), len(data)))
os.ftruncate(fd, 0)
os.pwrite(fd, b"end", 100_000)
os.ftruncate(fd, 50_000)
os.ftruncate(fd, 100_003)
say("cut and grown reads zeroes", os.pread(fd, 3, 100_000))
t("negative", os.ftruncate, fd, -1)
t("read behind the end", os.pread, fd, 10, 1 << 40)
t("far", os.ftruncate, fd, 1 << 50)
t("write far", os.pwrite, fd, b"x", (1 << 50) + 7)
say("size", os.fstat(fd).st_size)
t("read it", os.pread, fd, 10, (1 << 50) + 5)
t("longest", os.ftruncate, fd, (1 << 63) - 4096)
t("longer", os.ftruncate, fd, (1 << 63) - 1)
t("write at the very end", os.pwrite, fd, b"xy", (1 << 63) - 2)
t("back", os.ftruncate, fd, 0)
ro = os.open("f", os.O_RDONLY)
t("of one that is open for reading", os.ftruncate, ro, 0)
t("write to it", os.write, ro, b"x")
t("O_APPEND", lambda: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"abc"))
t("O_APPEND again", lambda: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"def"))
t("content", read, "f")
ap = os.open("f", os.O_RDWR | os.O_APPEND)
t("pwrite to O_APPEND goes to the end", os.pwrite, ap, b"!", 0)
t("content", read, "f")


def limited():
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    small = os.open("limited", os.O_RDWR | os.O_CREAT, 0o644)
    t("up to a limit", os.write, small, b"x" * 10000)
    t("at a limit", os.write, small, b"x")
    t("truncate beyond a limit", os.ftruncate, small, 10000)


user(0, 0, limited)
