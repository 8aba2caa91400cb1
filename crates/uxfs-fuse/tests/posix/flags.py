"""Inode flags by the standard ioctls: immutable, append only, project."""
import fcntl

from lib import *

GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGET, FSSET = 0x801C581F, 0x401C5820
IMMUTABLE, APPEND, NODUMP, NOATIME, COMPR = 0x10, 0x20, 0x40, 0x80, 0x4


def flags(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return hex(struct.unpack("L", fcntl.ioctl(fd, GETFLAGS, bytes(8)))[0])
    finally:
        os.close(fd)


def set_flags(path, value):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SETFLAGS, struct.pack("L", value))
    finally:
        os.close(fd)


def fsx(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        raw = fcntl.ioctl(fd, FSGET, bytes(28))
    finally:
        os.close(fd)
    return struct.unpack("IIIII8x", raw)


def set_fsx(path, xflags, extsize, projid):
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FSSET, struct.pack("IIIII8x", xflags, extsize, 0, projid, 0))
    finally:
        os.close(fd)


write("f", b"content")
os.mkdir("d")
t("none", flags, "f")
t("nodump and noatime", set_flags, "f", NODUMP | NOATIME)
t("flags", flags, "f")
t("one that XFS does not have", set_flags, "f", COMPR)
t("immutable", set_flags, "f", IMMUTABLE)
t("flags", flags, "f")
t("truncate", os.truncate, "f", 0)
t("unlink", os.unlink, "f")
t("rename", os.rename, "f", "g")
t("link", os.link, "f", "g")
t("chmod", os.chmod, "f", 0o600)
t("utime to now", os.utime, "f")
t("setxattr", os.setxattr, "f", "user.x", b"")
q("open for writing", os.open, "f", os.O_WRONLY)
t("no longer", set_flags, "f", 0)
t("append only", set_flags, "f", APPEND)
t("append", lambda: os.write(os.open("f", os.O_WRONLY | os.O_APPEND), b"more"))
q("open for writing", os.open, "f", os.O_WRONLY)
t("truncate", os.truncate, "f", 0)
t("unlink", os.unlink, "f")
t("no longer", set_flags, "f", 0)
t("immutable directory", set_flags, "d", IMMUTABLE)
t("create", write, "d/x")
t("no longer", set_flags, "d", 0)
t("append-only directory", set_flags, "d", APPEND)
t("create", write, "d/x")
t("unlink", os.unlink, "d/x")
t("no longer", set_flags, "d", 0)
t("project and hint", set_fsx, "f", 0, 0, 42)
t("flags", fsx, "f")
t("inherited", set_fsx, "d", 0x200 | 0x1000, 65536, 7)
t("flags", fsx, "d")
write("d/child")
t("by a child", fsx, "d/child")
t("link from another project", os.link, "f", "d/f")
t("rename from another project", os.rename, "f", "d/f")
t("hint that is no multiple", set_fsx, "d", 0x1000, 1000, 7)


def other():
    t("flags of another's", set_flags, "f", NODUMP)
    write("own/mine")
    t("immutable, not privileged", set_flags, "own/mine", IMMUTABLE)
    t("nodump of mine", set_flags, "own/mine", NODUMP)


os.mkdir("own")
os.chown("own", 1000, 1000)
user(1000, 1000, other)
