"""Linux' own additions: attribute bits of statx, flags of single reads and writes, unaligned O_DIRECT,
files without a name, leases."""
import fcntl
import mmap

from lib import *

P = 4096
write("f", b"x" * 4 * P)
os.mkdir("d")
fd = os.open("f", os.O_RDWR)
SETFLAGS = 0x40086602


def statx(path, flags=0x100):
    raw = ctypes.create_string_buffer(256)
    call("statx", AT_FDCWD, path.encode(), flags, 0xFFFFF, raw)
    mask, _, bits = struct.unpack_from("=IIQ", raw)
    known = struct.unpack_from("=Q", raw, 56)[0]
    return mask, bits, known


for words, flag, bit in (("immutable", 0x10, 0x10), ("append-only", 0x20, 0x20), ("not to be dumped", 0x40, 0x40)):
    fcntl.ioctl(fd, SETFLAGS, struct.pack("l", flag))
    say(f"statx: {words}", bool(statx("f")[1] & bit))
    fcntl.ioctl(fd, SETFLAGS, struct.pack("l", 0))
    say(f"statx: no more {words}", bool(statx("f")[1] & bit))
say("statx: bits that are known", hex(statx("f")[2] & 0x70))
say("statx: the mount's root", bool(statx("..")[1] & 0x2000))
say("statx: number of the mount", bool(statx("f")[0] & 0x1000))
say("statx: alignment of O_DIRECT", bool(statx("f")[0] & 0x2000))

direct = os.open("f", os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 2 * P)
t("O_DIRECT: a length that is not aligned", os.preadv, direct, [memoryview(page)[:100]], 0)
t("O_DIRECT: a place that is not aligned", os.preadv, direct, [memoryview(page)[:512]], 7)
t("O_DIRECT: memory that is not aligned", os.preadv, direct, [memoryview(page)[3 : 3 + 512]], 0)
t("O_DIRECT: written where nothing is aligned", os.pwritev, direct, [memoryview(page)[3:103]], 7)

read("f")
line = [bytearray(10)]
HIPRI, DSYNC, SYNC, NOWAIT, APPEND = 1, 2, 4, 8, 16
t("RWF_NOWAIT: read", os.preadv, fd, line, 0, NOWAIT)
t("RWF_DSYNC", os.pwritev, fd, line, 0, DSYNC)
t("RWF_SYNC", os.pwritev, fd, line, 0, SYNC)
t("RWF_APPEND", os.pwritev, fd, line, 0, APPEND)
say("length", os.fstat(fd).st_size)
t("RWF_HIPRI: read", os.preadv, fd, line, 0, HIPRI)

write("lease")
for words, how, kind in (("for reading", os.O_RDONLY, fcntl.F_RDLCK), ("for writing", os.O_RDWR, fcntl.F_WRLCK)):
    held = os.open("lease", how)
    t(f"a lease {words}", fcntl.fcntl, held, fcntl.F_SETLEASE, kind)
    t("  lease", fcntl.fcntl, held, fcntl.F_GETLEASE)
    os.close(held)
q("O_TMPFILE", os.open, ".", os.O_TMPFILE | os.O_RDWR, 0o600)
t("sync_file_range", call, "sync_file_range", fd, ctypes.c_long(0), ctypes.c_long(P), 7)
t("readahead", call, "readahead", fd, ctypes.c_long(0), ctypes.c_size_t(P))
t("mapped with MAP_SYNC", lambda: mmap.mmap(fd, P, flags=mmap.MAP_SHARED | 0x80000 | 0x3) and None)
