"""Cached data is not stale after a change: attributes, access lists, content.

Each change goes another way than the look at it: by another name, another descriptor, past the cache, or
by an ioctl. Everything that is looked at afterwards was looked at just before, so that it is cached.
"""
import fcntl
import mmap
import time

from lib import *

P = 4096
GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
FIELDS = ("mode", "nlink", "uid", "gid", "size", "mtime_ns", "ctime_ns")


def fields(path):
    s = os.lstat(path)
    return {name.removesuffix("_ns"): getattr(s, f"st_{name}") for name in FIELDS}


def changes(label, f, *paths):
    """Which attributes of these files a call changes."""
    before = [fields(path) for path in paths]
    # Longer than the kernel's clock ticks.
    time.sleep(0.02)
    try:
        f()
        said = "ok"
    except OSError as error:
        said = name_of(error.errno)
    after = [fields(path) for path in paths]
    changed = [[name for name in was if was[name] != now[name]] for was, now in zip(before, after)]
    say(label, f"{said}, {'; '.join(' '.join(each) or 'nothing' for each in changed)}")


def opened(path, flags=os.O_RDONLY):
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def with_fd(path, f, flags=os.O_RDONLY):
    fd = opened(path, flags)
    try:
        return f(fd)
    finally:
        os.close(fd)


def set_flags(path, flags):
    with_fd(path, lambda fd: fcntl.ioctl(fd, SETFLAGS, struct.pack("l", flags)))


def set_xattr_struct(path, project=None, extsize=None):
    def change(fd):
        words = list(struct.unpack("7I", fcntl.ioctl(fd, FSGETXATTR, bytes(28))))
        if project is not None:
            words[3] = project
        if extsize is not None:
            words[0], words[1] = words[0] | 0x800, extsize
        fcntl.ioctl(fd, FSSETXATTR, struct.pack("7I", *words))

    with_fd(path, change)


# Ioctls.
write("f")
os.mkdir("d")
os.link("f", "d/other")
changes("chattr +d", lambda: set_flags("f", 0x40), "f", "d/other")
changes("chattr -d", lambda: set_flags("f", 0), "f")
changes("chattr by another name", lambda: set_flags("d/other", 0x40), "f")
changes("chattr of a directory", lambda: set_flags("d", 0x40), "d")
changes("chattr of nothing new", lambda: set_flags("f", 0x40), "f")
changes("project", lambda: set_xattr_struct("f", project=7), "f", "d/other")
changes("project of a directory", lambda: set_xattr_struct("d", project=7), "d")
changes("project that it has", lambda: set_xattr_struct("f", project=7), "f")
changes("extent size", lambda: set_xattr_struct("f", extsize=65536), "f")
changes("flags that are unknown", lambda: set_flags("f", 0x4000), "f")
root = os.getcwd()
changes("label", lambda: with_fd(root, lambda fd: fcntl.ioctl(fd, 0x41009432, b"x".ljust(256, b"\0"))), "f", "d")
with_fd(root, lambda fd: fcntl.ioctl(fd, 0x41009432, bytes(256)))
class Fsx(ctypes.Structure):
    _fields_ = [("xflags", ctypes.c_uint64), ("extsize", ctypes.c_uint32), ("nextents", ctypes.c_uint32),
                ("projid", ctypes.c_uint32), ("cowextsize", ctypes.c_uint32)]


def file_setattr(path):
    fsx = Fsx()
    call("syscall", 468, AT_FDCWD, path.encode(), ctypes.byref(fsx), ctypes.sizeof(fsx), 0)
    fsx.projid += 1
    call("syscall", 469, AT_FDCWD, path.encode(), ctypes.byref(fsx), ctypes.sizeof(fsx), 0)


changes("file_setattr", lambda: file_setattr("f"), "f", "d/other")

# Names.
changes("link", lambda: os.link("f", "second"), "f", "d/other", ".")
changes("unlink", lambda: os.unlink("second"), "f", "d/other", ".")
changes("rename to another directory", lambda: os.rename("d/other", "third"), "f", "d", ".")
changes("rename over a name of itself", lambda: os.rename("third", "f"), "f", ".")
os.rename("f", "d/one")
os.link("d/one", "f")
write("g")
os.link("g", "h")
changes("rename over another file", lambda: os.rename("d/one", "g"), "f", "h", "d", ".")
EXCHANGE, WHITEOUT = 2, 4
renameat2 = lambda a, b, how: call("renameat2", AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), how)
os.mkdir("e")
write("e/in")
changes("exchange of a file and a directory", lambda: renameat2("d", "e/in", EXCHANGE), ".", "e", "e/in")
look("what lies there", "d")
renameat2("d", "e/in", EXCHANGE)
inside = os.open("d", os.O_RDONLY)
changes("a directory moves", lambda: os.rename("d", "e/d"), ".", "e", f"/proc/self/fd/{inside}/.")
changes("and back", lambda: os.rename("e/d", "d"), ".", "e", f"/proc/self/fd/{inside}/.")
changes("rename with a whiteout", lambda: renameat2("e/in", "d/in", WHITEOUT), "e", "d")
look("the whiteout", "e/in")
os.unlink("e/in")
os.symlink("f", "l")
say("a link leads to", os.readlink("l"))
os.unlink("l")
os.symlink("elsewhere", "l")
say("the new one leads to", os.readlink("l"))
say("a name that was not there", os.path.exists("d/late"))
os.link("f", "d/late")
say("is there by another way", os.path.exists("d/late") and sorted(os.listdir("d")))
os.unlink("d/late")
say("and gone", os.path.exists("d/late") or sorted(os.listdir("d")))

# Attributes and access lists.
changes("setxattr", lambda: os.setxattr("f", "user.x", b"1"), "f", "g")
changes("removexattr", lambda: os.removexattr("f", "user.x"), "f")
ACL = "system.posix_acl_access"


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
lists = [acl((1, 7, NOBODY), (2, p, 1000), (4, 5, NOBODY), (16, 7, NOBODY), (32, 0, NOBODY)) for p in (5, 6)]
changes("an access list", lambda: os.setxattr("f", ACL, lists[0]), "f", "g")
say("may be read", os.getxattr("f", ACL) == lists[0])
raw = os.getxattr("f", "trusted.SGI_ACL_FILE")
os.setxattr("f", ACL, lists[1])
say("the next one may be", os.getxattr("f", ACL) == lists[1])
changes("the first in XFS' own coding", lambda: os.setxattr("f", "trusted.SGI_ACL_FILE", raw), "f")
say("is current", os.getxattr("f", ACL) == lists[0])
os.setxattr("f", ACL, lists[1])
os.setxattr("f", "trusted.SGI_ACL_FILE", raw)
say("is current at once", os.getxattr("f", ACL) == lists[0])
os.removexattr("f", "trusted.SGI_ACL_FILE")
t("is gone at once", os.getxattr, "f", ACL)
os.setxattr("f", ACL, lists[0])
changes("taken away in XFS' own coding", lambda: os.removexattr("f", "trusted.SGI_ACL_FILE"), "f")
t("is gone", os.getxattr, "f", ACL)
changes("chmod by another name", lambda: os.chmod("g", 0o640), "f")
changes("chown by another name", lambda: os.chown("g", 5, 6), "f")


# Content.
def cached(path="f", size=64 * P):
    """Fills a file, and has the kernel cache what is in it."""
    write(path, bytes(range(1, 65)) * (size // 64))
    with_fd(path, os.fsync)
    return read(path)


def past(path="f"):
    """What is in a file, read past the cache."""
    fd = opened(path, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(fd).st_size
    room = mmap.mmap(-1, -(-size // P) * P or P)
    done = os.preadv(fd, [room], 0)
    os.close(fd)
    return room[: min(done, size)]


def agrees(label, f, *paths, writable=False):
    """After a call a descriptor that has read before, a mapping and the device say the same."""
    before = cached()
    fd = opened("f", os.O_RDWR)
    m = mmap.mmap(fd, len(before), prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    m[:]
    changes(label, f, "f", *paths)
    now = os.pread(fd, 1 << 20, 0)
    seen = m[: len(now)] if len(now) < len(before) else m[:]
    say("  all say so", (now == past(), now[: len(seen)] == seen, now != before))
    m.close()
    os.close(fd)


block = mmap.mmap(-1, 4 * P)
block.write(b"d" * 4 * P)
os.link("f", "name")
write("src", b"s" * 64 * P)
with_fd("src", os.fsync)


def direct(at):
    with_fd("f", lambda fd: os.pwritev(fd, [block], at), os.O_WRONLY | os.O_DIRECT)


def copy(at, to, length, source="src"):
    a, b = opened(source), opened("f", os.O_WRONLY)
    while length > 0:
        n = os.copy_file_range(a, b, length, at, to)
        at, to, length = at + n, to + n, length - n
    os.close(a)
    os.close(b)


KEEP, PUNCH, ZERO = 1, 2, 16
space = lambda mode, at, n: with_fd("f", lambda fd: call("fallocate", fd, mode, ctypes.c_long(at), ctypes.c_long(n)), os.O_WRONLY)
for writable in (False, True):
    words = "mapped for writing: " if writable else ""
    agrees(f"{words}written past the cache", lambda: direct(P), writable=writable)
    agrees(f"{words}written past the cache, longer", lambda: direct(62 * P), writable=writable)
    agrees(f"{words}written by another name", lambda: with_fd("name", lambda fd: os.pwrite(fd, b"other", 5000), os.O_WRONLY), "name", writable=writable)
    agrees(f"{words}truncated by another name", lambda: os.truncate("name", 10 * P + 5), "name", writable=writable)
    agrees(f"{words}lengthened by another name", lambda: os.truncate("name", 70 * P), "name", writable=writable) if not writable else None
    agrees(f"{words}blocks shared into it", lambda: copy(0, 3 * P, 5 * P), writable=writable)
    agrees(f"{words}bytes copied into it", lambda: copy(17, 5001, 3001), writable=writable)
    agrees(f"{words}copied to its end", lambda: copy(0, 64 * P, P), writable=writable)
    agrees(f"{words}a hole punched", lambda: space(KEEP | PUNCH, P + 100, 5 * P), writable=writable)
    agrees(f"{words}zeroed", lambda: space(KEEP | ZERO, 3 * P + 7, 2 * P), writable=writable)
    agrees(f"{words}zeroed beyond the end", lambda: space(ZERO, 63 * P, 2 * P), writable=writable)
agrees("space beyond the end", lambda: space(0, 64 * P, P))
agrees("space kept beyond the end", lambda: space(KEEP, 65 * P, P))
agrees("emptied when opened", lambda: os.close(opened("name", os.O_WRONLY | os.O_TRUNC)))

# Copied from what is in the cache only.
cached()
with_fd("f", lambda fd: os.pwrite(fd, b"fresh", 2 * P), os.O_WRONLY)
write("copy")
a, b = opened("f"), opened("copy", os.O_RDWR)
t("what was just written is copied", lambda: os.copy_file_range(a, b, 4 * P, 0, 0))
say("it is there", os.pread(b, 5, 2 * P))
m = mmap.mmap(opened("f", os.O_RDWR), 64 * P)
m[3 * P : 3 * P + 6] = b"mapped"
t("what was just stored is copied", lambda: os.copy_file_range(a, b, 4 * P, 0, 0))
say("it is there", os.pread(b, 6, 3 * P))
say("and past the cache", past()[3 * P : 3 * P + 6])


# Asynchronous writes past the cache.
class Iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw", ctypes.c_int), ("op", ctypes.c_uint16),
                ("prio", ctypes.c_int16), ("fd", ctypes.c_uint32), ("buf", ctypes.c_uint64), ("nbytes", ctypes.c_uint64),
                ("offset", ctypes.c_int64), ("more", ctypes.c_uint64 * 2)]


def aio(places):
    """Writes `block` to these places of `f`, all at once."""
    context = ctypes.c_ulong(0)
    call("syscall", 206, 64, ctypes.byref(context))
    fd = opened("f", os.O_WRONLY | os.O_DIRECT)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    all = [Iocb(op=1, fd=fd, buf=address, nbytes=4 * P, offset=at) for at in places]
    pointers = (ctypes.POINTER(Iocb) * len(all))(*map(ctypes.pointer, all))
    call("syscall", 209, context, len(all), pointers)
    events = (ctypes.c_int64 * (4 * len(all)))()
    call("syscall", 208, context, len(all), len(all), events, None)
    call("syscall", 207, context)
    os.close(fd)
    results = {events[4 * n + 2] for n in range(len(all))}
    if results != {4 * P}:
        raise OSError(errno.EIO, str(results))


agrees("written past the cache, asynchronously", lambda: aio([P, 20 * P, 40 * P]))
agrees("and longer", lambda: aio([4 * P, 61 * P, 64 * P]))
