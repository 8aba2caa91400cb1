"""O_DIRECT and O_SYNC beside the page cache."""
import mmap

from lib import *

P = 4096
page = mmap.mmap(-1, 4 * P)
page.write(b"d" * 4 * P)
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
t("write", os.pwritev, fd, [page], 0)
say("size", os.fstat(fd).st_size)
cached = os.open("f", os.O_RDWR)
say("seen through the cache", os.pread(cached, 4, P))
os.pwrite(cached, b"cached", 2 * P)
into = mmap.mmap(-1, 4 * P)
t("read", os.preadv, fd, [into], 0)
say("the cache's is seen", into[2 * P : 2 * P + 6])
page[0:6] = b"direct"
t("overwrite", os.pwritev, fd, [memoryview(page)[:P]], 0)
say("the cache sees it", os.pread(cached, 6, 0))
t("read at the end", os.preadv, fd, [into], 4 * P)
t("beyond a hole", os.pwritev, fd, [memoryview(page)[:P]], 64 * P)
say("a hole reads zeroes", os.pread(cached, 3, 32 * P))
for flag in ("O_SYNC", "O_DSYNC"):
    s = os.open(flag, os.O_RDWR | os.O_CREAT | getattr(os, flag), 0o644)
    t(flag, os.write, s, b"x" * 10000)
    t("read back", lambda: len(os.pread(s, 20000, 0)))
t("fsync", os.fsync, cached)
t("fdatasync", os.fdatasync, cached)
d = os.open(".", os.O_RDONLY)
t("fsync of a directory", os.fsync, d)
