"""fallocate, by every mode, start and end: what is read afterwards, the length, data and holes."""
import hashlib

from lib import *

KEEP, PUNCH, ZERO = 1, 2, 0x10
B = 4096
BIG = 64 * 1024


def map_of(fd):
    os.fsync(fd)
    size, at, found = os.fstat(fd).st_size, 0, []
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            found.append(name_of(error.errno))
            break
        at = os.lseek(fd, data, os.SEEK_HOLE)
        found.append((data, at))
    return found


for name, mode in (("allocate", 0), ("keep", KEEP), ("punch", PUNCH | KEEP), ("zero", ZERO), ("zero, keep", ZERO | KEEP)):
    for start in (0, 1, B - 1, B, B + 1, 3 * B, 5 * B + 7, 8 * B, 20 * B):
        for length in (1, 10, B - 1, B, B + 1, 3 * B, 7 * B + 9, 30 * B):
            fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.pwrite(fd, bytes(range(1, 252)) * 66, 0)
            os.pwrite(fd, b"behind a hole" * 700, 6 * B + 11)
            os.fsync(fd)
            # Only what is on disk tells: pages in memory count as data to XFS.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                call("fallocate", fd, mode, ctypes.c_long(start), ctypes.c_long(length))
                result = "ok"
            except OSError as error:
                result = name_of(error.errno)
            where = map_of(fd)
            blocks = os.fstat(fd).st_blocks
            content = os.pread(fd, 60 * B, 0)
            digest = hashlib.md5(content).hexdigest()[:8]
            say(f"{name} {start}+{length}", (result, os.fstat(fd).st_size, digest, where, blocks))
            os.close(fd)
# One block after the other, and what it costs.
fd = os.open("g", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 256 * B)
for n in range(0, 256, 2):
    os.pwrite(fd, b"x" * B, n * B)
os.fsync(fd)
say("every other block", (os.fstat(fd).st_blocks, len(map_of(fd))))
call("fallocate", fd, 0, ctypes.c_long(0), ctypes.c_long(256 * B))
say("filled up", os.fstat(fd).st_blocks)
call("fallocate", fd, PUNCH | KEEP, ctypes.c_long(B), ctypes.c_long(254 * B))
say("all but the ends", (os.fstat(fd).st_blocks, map_of(fd)))
os.ftruncate(fd, 0)
os.fsync(fd)
say("nothing", os.fstat(fd).st_blocks)
for at in (0, B, 1 << 30, 1 << 40, 1 << 50, 1 << 60, (1 << 63) - 2 * B):
    t(f"write at {at}", os.pwrite, fd, b"far", at)
say("length", os.fstat(fd).st_size)
for at in (0, B, 1 << 30, 1 << 40, 1 << 50, 1 << 60, (1 << 63) - 2 * B):
    t(f"read at {at}", os.pread, fd, 5, at)
    t(f"data from {at}", os.lseek, fd, at, os.SEEK_DATA)
    t(f"hole from {at}", os.lseek, fd, at, os.SEEK_HOLE)
t("punch all", call, "fallocate", fd, PUNCH | KEEP, ctypes.c_long(0), ctypes.c_long((1 << 63) - 1))
t("data left", os.lseek, fd, 0, os.SEEK_DATA)
t("zero a lot", call, "fallocate", fd, ZERO | KEEP, ctypes.c_long(0), ctypes.c_long(1 << 50))
for n, at in ((1, 1 << 62), (1 << 62, 1), ((1 << 63) - 1, 1), (1, (1 << 63) - 1)):
    t(f"allocate {n} at {at}", call, "fallocate", fd, KEEP, ctypes.c_long(at), ctypes.c_long(n))
