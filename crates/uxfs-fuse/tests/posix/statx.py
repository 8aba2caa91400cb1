"""Results of statx and ioctls, and ioctls that are refused."""
import fcntl

from lib import *

STATX = struct.Struct("=IIQIIIHxxQQQQ")


def statx(path, flags=0, mask=0xFFF):
    raw = ctypes.create_string_buffer(256)
    call("statx", AT_FDCWD, path.encode(), flags, mask, raw)
    fields = STATX.unpack_from(raw)
    born = struct.unpack_from("=qI", raw, 0x50)
    return fields, born


write("f", b"0123456789")
os.mkdir("d")
fields, born = statx("f")
say("fields reported", hex(fields[0] & 0x7FF))
say("birth time reported", bool(fields[0] & 0x800))
for flags, label in ((0x2000, "FORCE_SYNC"), (0x4000, "DONT_SYNC"), (0x1000, "EMPTY_PATH"), (0x6000, "both"), (0x10, "unknown")):
    t(label, lambda: statx("f", flags)[0][7] == os.stat("f").st_ino)
say("links, owner, size", (fields[3], fields[4], fields[5], fields[8]))
fd = os.open("f", os.O_RDWR)
dd = os.open("d", os.O_RDONLY)
for label, cmd, room in (
    ("FIGETBSZ", 2, 4), ("FIONREAD", 0x541B, 4), ("FIBMAP", 1, 4), ("FIEMAP", 0xC020660B, 32), ("FICLONE", 0x40049409, None),
    ("GETVERSION", 0x80087601, None), ("FS_IOC_GETFSUUID", 0x80111500, 17), ("GETLABEL", 0x81009431, 256),
    ("XFS_IOC_FSGEOMETRY", 0x8100587E, 256), ("XFS_IOC_DIOINFO", 0x800C581E, 12), ("XFS_IOC_FSCOUNTS", 0x80205871, 32),
    ("FS_IOC_GETFLAGS", 0x80086601, 8), ("FS_IOC_FSGETXATTR", 0x801C581F, 28), ("BLKGETSIZE64", 0x80081272, 8), ("TCGETS", 0x5401, 64),
    ("encryption policy", 0x400C6615, 12), ("verity", 0xC0046686, 4),
):
    for what, which in (("file", fd), ("directory", dd)):
        if room is None:
            q(f"{label} of a {what}", fcntl.ioctl, which, cmd, fd if label == "FICLONE" else bytes(8))
        else:
            q(f"{label} of a {what}", fcntl.ioctl, which, cmd, bytes(room))
t("block size", lambda: struct.unpack("i", fcntl.ioctl(fd, 2, bytes(4)))[0])
os.lseek(fd, 3, 0)
t("left to read", lambda: struct.unpack("i", fcntl.ioctl(fd, 0x541B, bytes(4)))[0])
label = lambda: fcntl.ioctl(dd, 0x81009431, bytes(256)).rstrip(b"\0")
t("label", label)
t("set", lambda: fcntl.ioctl(dd, 0x41009432, b"twelve bytes".ljust(256, b"\0")) and None)
t("label", label)
t("too long", lambda: fcntl.ioctl(dd, 0x41009432, b"thirteen bytes".ljust(256, b"\0")) and None)
t("taken away", lambda: fcntl.ioctl(dd, 0x41009432, bytes(256)) and None)
t("label", label)
user(1000, 1000, lambda: t("label by another", lambda: fcntl.ioctl(os.open("d", os.O_RDONLY), 0x41009432, b"x".ljust(256, b"\0"))))
q("statfs", os.statvfs, "f")
say("file systems differ", os.stat("/proc").st_dev != os.stat(".").st_dev)
say("pathconf", [os.pathconf(".", name) for name in ("PC_NAME_MAX", "PC_PATH_MAX", "PC_LINK_MAX", "PC_CHOWN_RESTRICTED", "PC_NO_TRUNC")])
