"""Appending, vectors, flags of single writes, and calls that move data between descriptors."""
import threading

from lib import *

RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND = 1, 2, 4, 8, 16


def appender(path, letter, count, size):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    for _ in range(count):
        os.write(fd, letter * size)
    os.close(fd)


write("f")
pids = []
for letter in b"abcd":
    pid = os.fork()
    if pid == 0:
        appender("f", bytes([letter]), 200, 37)
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
data = read("f")
records = [data[n : n + 37] for n in range(0, len(data), 37)]
say("four at once", (len(data), all(len(set(r)) == 1 for r in records), [data.count(bytes([x])) for x in b"abcd"]))
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
t("vectors", os.pwritev, fd, [b"one", b"", b"two", b"three"], 5)
t("read", os.pread, fd, 100, 0)
into = [bytearray(2), bytearray(4), bytearray(100)]
t("into vectors", os.preadv, fd, into, 0)
say("they hold", [bytes(b[:12]) for b in into])
for label, flag in (("DSYNC", RWF_DSYNC), ("SYNC", RWF_SYNC), ("APPEND", RWF_APPEND), ("unknown", 0x1000)):
    t(f"RWF_{label}", os.pwritev, fd, [label.encode()], 0, flag)
    t("read", os.pread, fd, 100, 0)
t("HIPRI", os.pwritev, fd, [b"h"], 0, RWF_HIPRI)
t("position", os.lseek, fd, 0, os.SEEK_CUR)
t("end", os.lseek, fd, -3, os.SEEK_END)
t("write there", os.write, fd, b"END+")
t("read", os.pread, fd, 100, 0)
ap = os.open("f", os.O_RDWR | os.O_APPEND)
t("its position", os.lseek, ap, 0, os.SEEK_CUR)
t("append", os.write, ap, b"!")
say("moves to the end", os.lseek(ap, 0, os.SEEK_CUR) == os.fstat(ap).st_size)
os.ftruncate(ap, 3)
t("append after a cut", os.write, ap, b"?")
t("read", read, "f")
t("fcntl takes it away", lambda: __import__("fcntl").fcntl(ap, 4, os.O_RDWR) and None)
t("pwrite", os.pwrite, ap, b"0", 0)
t("read", read, "f")
sync = os.open("s", os.O_RDWR | os.O_CREAT | os.O_SYNC | os.O_APPEND, 0o644)
t("O_SYNC and O_APPEND", lambda: [os.write(sync, b"x" * 5000) for _ in range(3)])
t("size", lambda: os.fstat(sync).st_size)
# Moving data.
write("src", bytes(range(256)) * 1000)
src = os.open("src", os.O_RDONLY)
dst = os.open("dst", os.O_RDWR | os.O_CREAT, 0o644)


def all_of(f):
    done = 0
    while True:
        n = f()
        if n == 0:
            return done
        done += n


t("sendfile", all_of, lambda: os.sendfile(dst, src, None, 100_000))
say("same", read("src") == read("dst"))
r, w = os.pipe()
os.ftruncate(dst, 0)
os.lseek(src, 0, 0)
os.lseek(dst, 0, 0)


def through():
    n = os.splice(src, w, 50_000)
    left = n
    while left:
        left -= os.splice(r, dst, left)
    return n


t("splice", all_of, through)
say("same", read("src") == read("dst"))
os.write(w, b"piped")
t("splice to an offset", os.splice, r, dst, 5, None, 3)
t("read", os.pread, dst, 10, 0)
os.write(w, b"x")
t("splice to O_APPEND", os.splice, r, os.open("dst", os.O_WRONLY | os.O_APPEND), 1)
t("advice", os.posix_fadvise, src, 0, 0, os.POSIX_FADV_DONTNEED)
t("read again", lambda: hash(os.pread(src, 300_000, 0)) == hash(read("src")))
t("sync_file_range", lambda: call("sync_file_range", dst, ctypes.c_long(0), ctypes.c_long(4096), 7))
# One that reads while another writes: always whole bytes of what was written.
size = 1 << 18
rw = os.open("race", os.O_RDWR | os.O_CREAT, 0o644)
os.write(rw, b"0" * size)
stop = threading.Event()
odd = []


def reader():
    mine = os.open("race", os.O_RDONLY)
    while not stop.is_set():
        got = os.pread(mine, size, 0)
        if len(got) != size or not set(got) <= set(b"0123456789"):
            odd.append((len(got), bytes(set(got))[:8]))


thread = threading.Thread(target=reader)
thread.start()
for n in range(60):
    os.pwrite(rw, b"%d" % (n % 10) * size, 0)
stop.set()
thread.join()
say("read while written", odd[:3])
# Growing and cutting while another appends.
os.ftruncate(rw, 0)
stop.clear()


def cutter():
    mine = os.open("race", os.O_WRONLY)
    while not stop.is_set():
        os.ftruncate(mine, 1000)


thread = threading.Thread(target=cutter)
thread.start()
a = os.open("race", os.O_WRONLY | os.O_APPEND)
for n in range(300):
    os.write(a, b"9" * 3001)
stop.set()
thread.join()
os.ftruncate(rw, 50_000)
say("cut while appended", sorted(set(os.pread(rw, 60_000, 0)) - set(b"9\0")) == [])
