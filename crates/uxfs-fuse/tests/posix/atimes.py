"""Which reads move the access time, as the volume's options say; and times nobody should ask for."""
import mmap
import time

from lib import *

OLD = 1_000_000_000_123_456_789
LATER = OLD + 10**9


def fresh(path, a, m):
    # Nothing of it is in the kernel's memory: what comes from there is nobody's access.
    if os.path.isfile(path) and not os.path.islink(path):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    os.utime(path, ns=(a, m), follow_symlinks=False)


def accessed(label, path, f, a=OLD, m=OLD):
    fresh(path, a, m)
    before = os.lstat(path).st_atime_ns
    time.sleep(0.02)
    f()
    say(label, "moved" if os.lstat(path).st_atime_ns != before else "stays")


write("f", b"x" * 10000)
os.mkdir("d")
write("d/in")
os.symlink("f", "l")
now = time.time_ns
WHEN = (("old", OLD, OLD), ("older than the content", OLD, LATER), ("newer than the content", LATER, OLD))
for label, a, m in WHEN:
    accessed(f"{label}: read", "f", lambda: read("f"), a, m)
    accessed(f"{label}: list", "d", lambda: os.listdir("d"), a, m)
    accessed(f"{label}: readlink", "l", lambda: os.readlink("l"), a, m)
SOON = 10**10
accessed("recent: read", "f", lambda: read("f"), now() + SOON, OLD)
accessed("recent: list", "d", lambda: os.listdir("d"), now() + SOON, OLD)
accessed("recent, content newer: list", "d", lambda: os.listdir("d"), now() + SOON, now() + 2 * SOON)
accessed("O_NOATIME: read", "f", lambda: os.read(os.open("f", os.O_RDONLY | os.O_NOATIME), 10))
accessed("read of nothing", "f", lambda: os.read(os.open("f", os.O_RDONLY), 0))
accessed("read at the end", "f", lambda: os.pread(os.open("f", os.O_RDONLY), 10, 1 << 20))
accessed("open", "f", lambda: os.close(os.open("f", os.O_RDONLY)))
accessed("stat", "f", lambda: os.stat("f"))
accessed("through a link: the link", "l", lambda: os.stat("l"))
accessed("a way through a directory", "d", lambda: os.stat("d/in"))
accessed("getxattr", "f", lambda: os.listxattr("f"))
accessed("O_DIRECT", "f", lambda: os.preadv(os.open("f", os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 0))


def mapped():
    m = mmap.mmap(os.open("f", os.O_RDONLY), 4096, prot=mmap.PROT_READ)
    m[0]


accessed("mapped and read", "f", mapped)
accessed("copied from", "f", lambda: os.copy_file_range(os.open("f", os.O_RDONLY), os.open("out", os.O_RDWR | os.O_CREAT, 0o644), 100))
accessed("sendfile from", "f", lambda: os.sendfile(os.open("out", os.O_RDWR), os.open("f", os.O_RDONLY), 0, 100))
accessed("written", "f", lambda: os.pwrite(os.open("f", os.O_WRONLY), b"x", 0))
os.mkfifo("p")


def fifo():
    fd = os.open("p", os.O_RDWR)
    os.write(fd, b"x")
    os.read(fd, 1)


accessed("a fifo read", "p", fifo)


def utimensat(path, a, m):
    times = (ctypes.c_long * 4)(*a, *m)
    return call("utimensat", AT_FDCWD, path.encode(), times, 0)


# Moments out of reach are brought into it, and nothing breaks.
for sec in (-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, -(2**62), 2**62, -(2**31), -(2**31) - 1, 2**31, 2**33, 2**34, 2**35,
            16299260424, 16299260425, 16299260423, 253402300799, -1, 0):
    for nsec in (0, 1, 999_999_999):
        t(f"{sec}.{nsec:09}", utimensat, "f", (sec, nsec), (sec, nsec))
        s = os.stat("f")
        say("  is", (s.st_atime_ns, s.st_mtime_ns))
