"""statfs to the block: what each thing takes, and gives back."""
from lib import *


settled()
s = os.statvfs(".")
say("blocks", s.f_blocks)
say("sizes", (s.f_bsize, s.f_frsize, s.f_namemax))
say("available", s.f_bfree - s.f_bavail)
say("inodes there may be", s.f_files // 10000)
K = 4096


def takes(label, f, path=None):
    before = used()
    f()
    after = used()
    blocks = os.lstat(path).st_blocks if path else "-"
    say(label, (after[0] - before[0], after[1] - before[1], blocks))


def make(path, size, hole=0):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, hole + size)
    os.pwrite(fd, b"x" * size, hole)
    os.fsync(fd)
    os.close(fd)


write("first")
takes("an empty file", lambda: write("a"), "a")
for size in (1, K, K + 1, 10 * K, 1 << 20, 8 << 20):
    takes(f"{size} bytes", lambda: make("b", size), "b")
    takes("  removed", lambda: os.unlink("b"))
takes("behind a hole", lambda: make("h", K, 1 << 30), "h")
takes("cut", lambda: os.truncate("h", K), "h")
takes("preallocated", lambda: os.posix_fallocate(os.open("p", os.O_RDWR | os.O_CREAT, 0o644), 0, 4 << 20), "p")
takes("punched", lambda: call("fallocate", os.open("p", os.O_RDWR), 3, ctypes.c_long(0), ctypes.c_long(2 << 20)), "p")
takes("a directory", lambda: os.mkdir("d"), "d")
takes("a short link", lambda: os.symlink("x", "l"), "l")
takes("a long link", lambda: os.symlink("x" * 1000, "ll"), "ll")
takes("a fifo", lambda: os.mkfifo("f"), "f")
takes("a name", lambda: os.link("a", "a2"), "a")
takes("a small attribute", lambda: os.setxattr("a", "user.a", b"x" * 50), "a")
takes("a large attribute", lambda: os.setxattr("a", "user.b", b"x" * 60000), "a")
takes("removed", lambda: os.removexattr("a", "user.b"), "a")
held = os.open("p", os.O_RDONLY)
takes("open, without a name", lambda: os.unlink("p"))
takes("closed", lambda: os.close(held))
