"""Immutable and append-only files and directories: every call that they stop, and those that they let pass."""
import fcntl
import mmap

from lib import *

IMMUTABLE, APPEND = 0x10, 0x20
KEEP, PUNCH, ZERO = 1, 2, 0x10


def set_flags(path, value):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, 0x40086602, struct.pack("L", value))
    finally:
        os.close(fd)


def fallocate(mode, start=0):
    fd = os.open("f", os.O_RDWR | os.O_APPEND)
    try:
        call("fallocate", fd, mode, ctypes.c_long(start), ctypes.c_long(4096))
    finally:
        os.close(fd)


def opened(flags, f):
    fd = os.open("f", flags)
    try:
        return f(fd)
    finally:
        os.close(fd)


os.mkdir("d")
os.mkdir("d/sub")
write("d/in", b"x")
write("f", b"0123456789")
write("src", b"source")
os.setxattr("f", "user.k", b"v")
before = os.open("f", os.O_RDWR)
for label, flag in (("immutable", IMMUTABLE), ("append-only", APPEND), ("both", IMMUTABLE | APPEND)):
    set_flags("f", flag)
    set_flags("d", flag)
    for what, f in (
        ("write", lambda: opened(os.O_WRONLY, lambda fd: os.write(fd, b"x"))),
        ("append", lambda: opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"+"))),
        ("pwrite to O_APPEND", lambda: opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.pwrite(fd, b"+", 0))),
        ("O_TRUNC", lambda: opened(os.O_WRONLY | os.O_TRUNC, lambda fd: None)),
        ("O_TRUNC|O_APPEND", lambda: opened(os.O_WRONLY | os.O_TRUNC | os.O_APPEND, lambda fd: None)),
        ("O_RDONLY|O_TRUNC", lambda: opened(os.O_RDONLY | os.O_TRUNC, lambda fd: None)),
        ("O_NOATIME", lambda: opened(os.O_RDONLY | os.O_NOATIME, lambda fd: None)),
        ("read", lambda: len(read("f")) > 0), ("truncate", lambda: os.truncate("f", 3)), ("truncate up", lambda: os.truncate("f", 1000)),
        ("chmod", lambda: os.chmod("f", 0o600)), ("chown", lambda: os.chown("f", 1, 1)), ("chown of nothing", lambda: os.chown("f", -1, -1)),
        ("utime", lambda: os.utime("f", (1, 1))), ("utime to now", lambda: os.utime("f")),
        ("setxattr", lambda: os.setxattr("f", "user.x", b"")), ("removexattr", lambda: os.removexattr("f", "user.k")),
        ("getxattr", lambda: os.getxattr("f", "user.k")),
        ("access list", lambda: os.setxattr("f", "system.posix_acl_access", struct.pack("<IHHiHHiHHi", 2, 1, 6, -1, 4, 4, -1, 0x20, 4, -1))),
        ("link", lambda: os.link("f", "f2")), ("unlink", lambda: os.unlink("f")), ("rename", lambda: os.rename("f", "f3")),
        ("rename onto", lambda: (write("other"), os.rename("other", "f"))), ("exchange", lambda: call("renameat2", AT_FDCWD, b"f", AT_FDCWD, b"src", 2)),
        ("allocate", lambda: fallocate(0)), ("allocate, keep", lambda: fallocate(KEEP)), ("punch", lambda: fallocate(KEEP | PUNCH)), ("zero", lambda: fallocate(ZERO)),
        ("copy to", lambda: opened(os.O_RDWR, lambda fd: os.copy_file_range(os.open("src", os.O_RDONLY), fd, 3))),
        ("project", lambda: fcntl.ioctl(os.open("f", os.O_RDONLY), 0x401C5820, struct.pack("IIIII8x", 8 if flag == IMMUTABLE else 0x10, 0, 0, 7, 0)) and None),
        ("directory: create", lambda: write("d/new")), ("directory: mkdir", lambda: os.mkdir("d/newd")), ("directory: symlink", lambda: os.symlink("x", "d/newl")),
        ("directory: link", lambda: os.link("src", "d/newh")), ("directory: unlink", lambda: os.unlink("d/in")), ("directory: rmdir", lambda: os.rmdir("d/sub")),
        ("directory: rename inside", lambda: os.rename("d/in", "d/in2")), ("directory: rename away", lambda: os.rename("d/in", "in")),
        ("directory: rename into", lambda: os.rename("src", "d/src")), ("directory: rename itself", lambda: os.rename("d", "d2")),
        ("directory: write to a file inside", lambda: write("d/in", b"changed")), ("directory: chmod of a file inside", lambda: os.chmod("d/in", 0o600)),
        ("directory: chmod", lambda: os.chmod("d", 0o755)), ("directory: setxattr", lambda: os.setxattr("d", "user.x", b"")),
        ("directory: utime", lambda: os.utime("d")), ("directory: list", lambda: sorted(os.listdir("d"))),
        ("directory: rmdir itself", lambda: os.rmdir("d")),
    ):
        t(f"{label}: {what}", f)
    look(f"{label}: f", "f")
    set_flags("f", 0)
    set_flags("d", 0)
    for name in ("other", "f2", "f3"):
        if os.path.lexists(name):
            os.unlink(name) if name != "f3" else os.rename("f3", "f")
    if os.path.lexists("d/src"):
        os.rename("d/src", "src")
