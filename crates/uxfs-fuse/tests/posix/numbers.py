"""statfs, inode numbers and generations, sizes of things."""
from lib import *

s = os.statvfs(".")
say("block sizes", (s.f_bsize, s.f_frsize))
say("name", s.f_namemax)
say("used", s.f_blocks > s.f_bfree > 0 and s.f_bfree >= s.f_bavail > 0)
say("inodes", s.f_files > s.f_ffree > 0)
settled()
before = used()[0]
fd = os.open("big", os.O_RDWR | os.O_CREAT, 0o644)
# Not by writing behind the end: the kernel would allocate ahead.
os.ftruncate(fd, 8 << 20)
os.pwrite(fd, b"x" * (8 << 20), 0)
os.fsync(fd)
taken = used()[0] - before
say("blocks of the volume", 2040 <= taken <= 2100)
say("blocks of the file", os.fstat(fd).st_blocks)
os.ftruncate(fd, 4097)
os.fsync(fd)
say("after a cut", os.fstat(fd).st_blocks)
say("block size to use", os.fstat(fd).st_blksize)
write("small", b"x")
say("inode is kept", os.stat("small").st_ino == os.stat("small").st_ino)
os.rename("small", "moved")
first = os.stat("moved").st_ino
os.link("moved", "again")
say("one inode, two names", os.stat("again").st_ino == first)
say("root above", os.stat("..").st_ino != os.stat(".").st_ino)
os.mkdir("d")
say("dotdot", os.stat("d/..").st_ino == os.stat(".").st_ino)
