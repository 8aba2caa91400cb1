"""Times: which call changes which, to the nanosecond."""
import time

from lib import *

OLD = 1_000_000_000_123_456_789


def stamps(path):
    s = os.lstat(path)
    return s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns


def changed(label, path, f, *args):
    """Which of the three a call moves."""
    os.utime(path, ns=(OLD, OLD), follow_symlinks=False)
    before = stamps(path)
    time.sleep(0.02)
    f(*args)
    after = stamps(path)
    moved = [n for n, b, a in zip("amc", before, after) if a != b]
    say(label, "".join(moved) or "-")


def mtime(path):
    return os.lstat(path).st_mtime_ns


write("f", b"content")
os.mkdir("d")
os.symlink("f", "l")
for ns in (OLD, 0, 1, -1, -1_500_000_000, -(2**31) * 10**9, 2**31 * 10**9 + 5, 2**32 * 10**9 + 7,
           16299260424 * 10**9 + 999_999_999, 2**40 * 10**9, -(2**40) * 10**9):
    os.utime("f", ns=(ns, ns))
    s = os.stat("f")
    say(f"set {ns}", (s.st_atime_ns, s.st_mtime_ns))
os.utime("l", ns=(5, 6), follow_symlinks=False)
say("of a link", stamps("l")[:2])


def utimensat(path, a, m):
    times = (ctypes.c_long * 4)(*a, *m)
    return call("utimensat", AT_FDCWD, path.encode(), times, 0)


UTIME_NOW, UTIME_OMIT = (0, (1 << 30) - 1), (0, (1 << 30) - 2)
utimensat("f", (7, 8), UTIME_OMIT)
say("mtime left out", os.stat("f").st_atime_ns)
before = time.time_ns()
utimensat("f", UTIME_OMIT, UTIME_NOW)
say("mtime now", abs(mtime("f") - before) < 5 * 10**9)
say("atime left out", os.stat("f").st_atime_ns)
t("nanoseconds out of range", utimensat, "f", (0, 10**9), UTIME_OMIT)

fd = os.open("f", os.O_RDWR)
changed("write", "f", os.pwrite, fd, b"x", 0)
changed("write of nothing", "f", os.pwrite, fd, b"", 0)
changed("append", "f", os.pwrite, fd, b"x", 10)
changed("ftruncate", "f", os.ftruncate, fd, 3)
changed("ftruncate to the same", "f", os.ftruncate, fd, 3)
changed("truncate to the same", "f", os.truncate, "f", 3)
changed("open with O_TRUNC", "f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
changed("O_TRUNC of an empty one", "f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
changed("chmod", "f", os.chmod, "f", 0o600)
changed("chmod to the same", "f", os.chmod, "f", 0o600)
changed("chown", "f", os.chown, "f", 1, 1)
changed("chown to the same", "f", os.chown, "f", -1, -1)
changed("setxattr", "f", os.setxattr, "f", "user.a", b"1")
changed("removexattr", "f", os.removexattr, "f", "user.a")
changed("link", "f", os.link, "f", "g")
changed("unlink of one of two", "f", os.unlink, "g")
changed("rename", "f", lambda: (os.rename("f", "h"), os.rename("h", "f")))
changed("fallocate", "f", os.posix_fallocate, fd, 0, 8192)
changed("punch", "f", lambda: call("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(4096)))
changed("directory: create", "d", write, "d/a")
changed("directory: link", "d", os.link, "f", "d/b")
changed("directory: rename inside", "d", os.rename, "d/a", "d/c")
changed("directory: unlink", "d", os.unlink, "d/c")
changed("directory: mkdir", "d", os.mkdir, "d/s")
changed("directory: rmdir", "d", os.rmdir, "d/s")
changed("directory: write of a file inside", "d", write, "d/b", b"zz")
changed("directory: stat of it", "d", os.stat, "d/b")
changed("stat", "f", os.stat, "f")
changed("fsync", "f", os.fsync, fd)
