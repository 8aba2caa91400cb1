"""Holes, preallocation, and how they are found."""
from lib import *

K = 1 << 10
BLOCK = 64 * K
KEEP, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 0x10, 0x20, 0x40


def fallocate(fd, mode, at, length):
    call("fallocate", fd, mode, ctypes.c_long(at), ctypes.c_long(length))


def map_of(fd):
    """Data and holes as lseek tells them, and what is read."""
    os.fsync(fd)
    size, at, found = os.fstat(fd).st_size, 0, []
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            found.append(name_of(error.errno))
            break
        at = os.lseek(fd, data, os.SEEK_HOLE)
        found.append((data // K, at // K))
    content = os.pread(fd, 1 << 21, 0)
    # Pages that were read are data to XFS, where blocks are unwritten.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    ones = [n for n in range(0, len(content), BLOCK) if content[n] != 0]
    return size // K, found, [n // K for n in ones]


fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
say("empty", map_of(fd))
os.pwrite(fd, b"a" * BLOCK, 4 * BLOCK)
say("data behind a hole", map_of(fd))
t("allocate", fallocate, fd, 0, 0, 2 * BLOCK)
say("unwritten is a hole", map_of(fd))
os.pwrite(fd, b"b" * BLOCK, 0)
say("written", map_of(fd))
t("allocate beyond the end", fallocate, fd, KEEP, 10 * BLOCK, BLOCK)
say("the length stays", map_of(fd))
t("allocate, and grow", fallocate, fd, 0, 6 * BLOCK, BLOCK)
say("longer", map_of(fd))
t("punch", fallocate, fd, PUNCH | KEEP, 4 * BLOCK, BLOCK)
say("punched", map_of(fd))
t("punch without keeping the size", fallocate, fd, PUNCH, 0, BLOCK)
os.pwrite(fd, b"c" * 4 * BLOCK, 0)
t("punch a part of blocks", fallocate, fd, PUNCH | KEEP, BLOCK + 100, 2 * BLOCK)
say("zeroed and punched", (map_of(fd), os.pread(fd, 3, BLOCK + 99), os.pread(fd, 3, 3 * BLOCK + 98)))
t("zero", fallocate, fd, ZERO, 0, BLOCK)
say("zeroed", map_of(fd))
t("zero beyond the end", fallocate, fd, ZERO, 8 * BLOCK, BLOCK)
say("longer again", map_of(fd))
t("length 0", fallocate, fd, 0, 0, 0)
t("negative offset", fallocate, fd, 0, -1, 10)
t("too far", fallocate, fd, 0, (1 << 63) - 10, 100)
t("collapse", fallocate, fd, COLLAPSE, 0, BLOCK)
t("insert", fallocate, fd, INSERT, 0, BLOCK)
t("unknown mode", fallocate, fd, 0x4000, 0, BLOCK)
t("more than there is", fallocate, fd, 0, 0, 1 << 45)
for whence in (os.SEEK_DATA, os.SEEK_HOLE):
    for at in (-1, 0, 1 << 40):
        t(f"seek {whence} {at}", os.lseek, fd, at, whence)
size = os.fstat(fd).st_size
t("seek for a hole at the end", os.lseek, fd, size, os.SEEK_HOLE)
t("seek for a hole before the end", lambda: os.lseek(fd, size - 1, os.SEEK_HOLE) <= size)
ro = os.open("f", os.O_RDONLY)
t("allocate for one who reads", fallocate, ro, 0, 0, BLOCK)
os.mkdir("d")
q("allocate for a directory", fallocate, os.open("d", os.O_RDONLY), 0, 0, BLOCK)
