"""Mappings, and whether they and calls see the same."""
import mmap

from lib import *

P = 4096
fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 4 * P)
shared = mmap.mmap(fd, 4 * P)
private = mmap.mmap(fd, 4 * P, mmap.MAP_PRIVATE)
os.pwrite(fd, b"written", P)
say("a write is seen", shared[P : P + 7])
shared[0:6] = b"mapped"
say("a store is seen", os.pread(fd, 6, 0))
private[0:7] = b"private"
say("a private one is not", os.pread(fd, 7, 0))
shared.flush()
say("after msync", os.pread(fd, 6, 0))
other = os.open("f", os.O_RDONLY)
say("through another descriptor", os.pread(other, 6, 0))
os.ftruncate(fd, P + 3)
say("cut in a page", shared[P : P + 5])
os.ftruncate(fd, 4 * P)
say("grown again", shared[P : P + 7])
shared[3 * P : 3 * P + 4] = b"tail"
shared.close()
os.close(fd)
say("after the mapping is gone", read("f")[3 * P : 3 * P + 4])
fd = os.open("f", os.O_RDWR)
late = mmap.mmap(fd, 4 * P)
os.close(fd)
os.unlink("f")
late[0:4] = b"gone"
say("mapped without name and descriptor", late[0:4])
late.close()
write("g", b"x" * P)
fd = os.open("g", os.O_RDONLY)
q("shared for writing of one open for reading", mmap.mmap, fd, P)
reading = mmap.mmap(fd, P, mmap.MAP_SHARED, mmap.PROT_READ)
os.pwrite(os.open("g", os.O_WRONLY), b"new", 0)
say("seen by a reader", reading[:3])
