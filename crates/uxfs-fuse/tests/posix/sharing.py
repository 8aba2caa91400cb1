"""Blocks of two files in one: cloned, compared and shared, exchanged, and taken apart again."""
import fcntl

from lib import *

P = 4096
FICLONE, FICLONERANGE, FIDEDUPERANGE = 0x40049409, 0x4020940D, 0xC0189436
EXCHANGE_RANGE = 0x40285881
KEEP, UNSHARE = 1, 0x40

for name, byte in (("a", b"a"), ("same", b"a"), ("other", b"o")):
    write(name, byte * 8 * P)
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
a, same, other = (os.open(name, os.O_RDWR) for name in ("a", "same", "other"))
new = os.open("new", os.O_RDWR | os.O_CREAT, 0o644)


def dedupe(source, at, length, to, to_at):
    room = bytearray(struct.pack("QQHHI", at, length, 1, 0, 0) + struct.pack("qQQiI", to, to_at, 0, 0, 0))
    fcntl.ioctl(source, FIDEDUPERANGE, room)
    _, _, done, status, _ = struct.unpack_from("qQQiI", room, 24)
    if status < 0:
        raise OSError(-status, "dedupe")
    return (done, "same" if status == 0 else "differ")


def fallocate(fd, mode, at, length):
    call("fallocate", fd, mode, ctypes.c_long(at), ctypes.c_long(length))


def exchange(one, two, length):
    fcntl.ioctl(two, EXCHANGE_RANGE, struct.pack("iIQQQQ", one, 0, 0, 0, length, 0))


q("clone", fcntl.ioctl, new, FICLONE, a)
q("clone of a range", fcntl.ioctl, new, FICLONERANGE, struct.pack("qQQQ", a, 0, 2 * P, 2 * P))
t("dedupe of what is the same", dedupe, a, 0, 4 * P, same, 0)
t("dedupe of what differs", dedupe, a, 0, 4 * P, other, 0)
t("blocks copied", os.copy_file_range, a, new, 8 * P, 0, 0)
say("the same", os.pread(new, 8 * P, 0) == b"a" * 8 * P)
t("unshare", fallocate, new, UNSHARE, 0, 4 * P)
t("unshare, the length kept", fallocate, new, UNSHARE | KEEP, 4 * P, 8 * P)
t("exchange of ranges", exchange, a, other, 4 * P)
say("contents", [os.pread(fd, 1, 0) for fd in (same, new)])
os.pwrite(new, b"changed", 0)
say("the source is not touched", os.pread(a, 7, P))
rename = lambda how: call("renameat2", AT_FDCWD, b"a", AT_FDCWD, b"other", how)
t("names exchanged", rename, 2)
say("so that", (os.path.samestat(os.stat("a"), os.fstat(other)), os.path.samestat(os.stat("other"), os.fstat(a))))
t("exchanged with nothing", lambda: call("renameat2", AT_FDCWD, b"a", AT_FDCWD, b"none", 2))
