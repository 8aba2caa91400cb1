"""Mappings between processes, beside calls, over holes and ends."""
import mmap
import signal

from lib import *

P = 4096
MS_ASYNC, MS_INVALIDATE, MS_SYNC = 1, 2, 4
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def child(f):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        f()
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 8 * P)
shared = mmap.mmap(fd, 8 * P)


def store():
    mine = mmap.mmap(os.open("f", os.O_RDWR), 8 * P)
    mine[5 * P : 5 * P + 5] = b"child"


say("a child's store", (child(store), shared[5 * P : 5 * P + 5], os.pread(fd, 5, 5 * P)))
say("a child's write", (child(lambda: os.pwrite(fd, b"wrote", 6 * P)), shared[6 * P : 6 * P + 5]))
private = mmap.mmap(fd, 8 * P, mmap.MAP_PRIVATE)
say("private sees", private[5 * P : 5 * P + 5])
private[7 * P : 7 * P + 2] = b"mi"
os.pwrite(fd, b"theirs", 7 * P)
say("private keeps", (private[7 * P : 7 * P + 2], shared[7 * P : 7 * P + 6]))
say("private sees other pages' writes", (os.pwrite(fd, b"late", 4 * P), private[4 * P : 4 * P + 4]))
# The end of the file.
os.ftruncate(fd, 2 * P + 10)
say("a read behind the last page", child(lambda: shared[4 * P]))
say("a read in the last page", child(lambda: shared[2 * P + 100]))
say("a store behind the end in the last page", child(lambda: shared.__setitem__(2 * P + 100, 7)))
shared[2 * P + 200] = 9
shared.flush()
os.ftruncate(fd, 3 * P)
say("is not in the file when it grows", os.pread(fd, P, 2 * P).count(b"\0"))
os.ftruncate(fd, 0)
say("of an empty file", child(lambda: shared[0]))
os.ftruncate(fd, 8 * P)
say("zeroes again", shared[: 8 * P].count(b"\0") == 8 * P)
# Holes and punches.
shared[0:4] = b"hole"
shared.flush()
call("fallocate", fd, 3, ctypes.c_long(0), ctypes.c_long(2 * P))
say("punched below a mapping", shared[0:4])
shared[P : P + 4] = b"fill"
say("filled again", os.pread(fd, 4, P))
call("fallocate", fd, 0x10, ctypes.c_long(0), ctypes.c_long(2 * P))
say("zeroed below a mapping", shared[P : P + 4])
# Direct and mapped.
direct = os.open("f", os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, P)
shared[0:6] = b"mapped"
os.preadv(direct, [page], 0)
say("O_DIRECT reads what was stored", page[0:6])
page[0:6] = b"direct"
os.pwritev(direct, [page], P)
say("O_DIRECT is seen", shared[P : P + 6])
shared[0:3] = b"new"
shared[P : P + 3] = b"new"
page[0:6] = b"halves"
os.pwritev(direct, [page], 0)
say("stored, then O_DIRECT", (shared[0:6], shared[P : P + 6]))
# msync and what is on disk for another reader.
addr = libc.mmap(None, P, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
ctypes.memmove(addr, b"synced", 6)
for label, flags in (("SYNC", MS_SYNC), ("ASYNC", MS_ASYNC), ("INVALIDATE", MS_INVALIDATE), ("both", MS_SYNC | MS_ASYNC)):
    c(f"msync {label}", "msync", addr, P, flags)
c("msync not aligned", "msync", addr + 1, P, MS_SYNC)
say("read", os.pread(fd, 6, 0))
# Protections.
ro, wo = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY)
for label, f in (("O_RDONLY", ro), ("O_WRONLY", wo), ("O_RDWR", fd), ("O_PATH", os.open("f", os.O_PATH)), ("directory", os.open(".", os.O_RDONLY))):
    for kind, flags in (("shared", mmap.MAP_SHARED), ("private", mmap.MAP_PRIVATE)):
        for access, prot in (("r", mmap.PROT_READ), ("w", mmap.PROT_WRITE), ("rx", mmap.PROT_READ | mmap.PROT_EXEC)):
            q(f"{label} {kind} {access}", lambda: mmap.mmap(f, P, flags, prot))
# Many processes store into pages of one file.
os.ftruncate(fd, 64 * P)
many = mmap.mmap(fd, 64 * P)
pids = []
for n in range(4):
    pid = os.fork()
    if pid == 0:
        for at in range(n, 64 * P, 4):
            many[at] = 97 + n
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
say("bytes of four", os.pread(fd, 64 * P, 0) == b"abcd" * 16 * P)
# What was stored is there after everything is closed and forgotten.
many.flush()
many.close()
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
say("read from disk", read("f") == b"abcd" * 16 * P)
# Stores into a new file behind a hole, by the mapping alone.
g = os.open("g", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(g, 1 << 20)
m = mmap.mmap(g, 1 << 20)
for at in range(0, 1 << 20, 3 * P):
    m[at : at + 4] = at.to_bytes(4, "little")
m.close()
os.close(g)
got = read("g")
say("stores into holes", all(got[at : at + 4] == at.to_bytes(4, "little") for at in range(0, 1 << 20, 3 * P)))
# A program runs from a mapping whose file is replaced.
import shutil

shutil.copy("/bin/sleep", "prog")
running = os.spawnv(os.P_NOWAIT, "./prog", ["prog", "0.5"])
while not os.readlink(f"/proc/{running}/exe").endswith("/mappings/prog"):
    pass
shutil.copy("/bin/false", "prog.new")
os.rename("prog.new", "prog")
say("the old one goes on", os.waitpid(running, 0)[1])
say("the new one", os.waitpid(os.spawnv(os.P_NOWAIT, "./prog", ["prog"]), 0)[1] >> 8)
