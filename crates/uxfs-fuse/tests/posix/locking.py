"""Locks between processes: who holds them, who waits, what ends them."""
import fcntl
import signal
import time

from lib import *

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
F_SETLEASE, F_GETLEASE = 1024, 1025
LOCK = struct.Struct("hhqqi4x")
R, W, U = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
NB = fcntl.LOCK_NB


def lock(fd, cmd, kind, start, length, whence=0):
    return LOCK.unpack(fcntl.fcntl(fd, cmd, LOCK.pack(kind, whence, start, length, 0)))


def held(fd, kind, start, length, cmd=fcntl.F_GETLK):
    kind, whence, start, length, pid = lock(fd, cmd, kind, start, length)
    return "free" if kind == U else (kind, whence, start, length, "mine" if pid == os.getpid() else "another's" if pid > 0 else pid)


def child(f):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            f()
        except BaseException as error:
            say("failed", repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


write("f", b"x" * 100)
a = os.open("f", os.O_RDWR)
b = os.open("f", os.O_RDWR)
lock(a, fcntl.F_SETLK, W, 10, 10)
lock(a, fcntl.F_SETLK, R, 30, 0)
for start, length in ((0, 5), (0, 11), (15, 1), (19, 2), (20, 10), (20, 11), (1000, 1), (0, 0)):
    for kind in (R, W):
        child(lambda: say(f"{kind} at {start}+{length}", held(os.open("f", os.O_RDWR), kind, start, length)))
lock(a, fcntl.F_SETLK, U, 12, 4)
child(lambda: say("a hole in a lock", (held(os.open("f", os.O_RDWR), W, 13, 1), held(os.open("f", os.O_RDWR), W, 16, 1))))
lock(a, fcntl.F_SETLK, R, 5, 30)
child(lambda: say("joined", (held(os.open("f", os.O_RDWR), R, 5, 30), held(os.open("f", os.O_RDWR), W, 5, 30))))
say("within a process", (held(b, W, 0, 0), os.close(b))[0])
child(lambda: say("gone with any descriptor", held(os.open("f", os.O_RDWR), W, 0, 0)))
for label, args in (("negative length", (W, 50, -10)), ("negative start", (W, -1, 10)), ("from the end", (W, -10, 5, 2)),
                    ("before the start", (W, 5, -10)), ("overflow", (W, 2**63 - 1, 2)), ("unknown kind", (7, 0, 1)), ("unknown whence", (W, 0, 1, 5))):
    t(label, lambda: lock(a, fcntl.F_SETLK, *args) and None)
child(lambda: say("those", held(os.open("f", os.O_RDWR), W, 0, 0)))
lock(a, fcntl.F_SETLK, U, 0, 0)


def wait_for(f):
    """Waits in a child; tells when it got through."""
    sys.stdout.flush()
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            f()
            os.write(w, b"y")
        except OSError as error:
            os.write(w, name_of(error.errno).encode())
        os._exit(0)
    os.close(w)
    return pid, r


def blocked(r):
    import select

    return not select.select([r], [], [], 0.3)[0]


for label, take, drop, take_other in (
    ("POSIX", lambda: lock(a, fcntl.F_SETLK, W, 0, 10), lambda: lock(a, fcntl.F_SETLK, U, 0, 0),
     lambda: lock(os.open("f", os.O_RDWR), fcntl.F_SETLKW, W, 5, 1)),
    ("OFD", lambda: lock(a, F_OFD_SETLK, W, 0, 10), lambda: lock(a, F_OFD_SETLK, U, 0, 0),
     lambda: lock(os.open("f", os.O_RDWR), F_OFD_SETLKW, W, 5, 1)),
    ("flock", lambda: fcntl.flock(a, fcntl.LOCK_EX), lambda: fcntl.flock(a, fcntl.LOCK_UN),
     lambda: fcntl.flock(os.open("f", os.O_RDWR), fcntl.LOCK_EX)),
    ("POSIX against OFD", lambda: lock(a, F_OFD_SETLK, W, 0, 10), lambda: lock(a, F_OFD_SETLK, U, 0, 0),
     lambda: lock(os.open("f", os.O_RDWR), fcntl.F_SETLKW, W, 5, 1)),
):
    take()
    pid, r = wait_for(take_other)
    say(f"{label}: waits", blocked(r))
    drop()
    say(f"{label}: got it", os.read(r, 10))
    os.waitpid(pid, 0)
    os.close(r)
# One that waits is interrupted.
lock(a, fcntl.F_SETLK, W, 0, 10)


def interrupted():
    def handler(*_):
        raise OSError(errno.EINTR, "interrupted")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    lock(os.open("f", os.O_RDWR), fcntl.F_SETLKW, W, 0, 1)


pid, r = wait_for(interrupted)
say("interrupted", os.read(r, 10))
os.waitpid(pid, 0)
# A deadlock is found.
lock(a, fcntl.F_SETLK, U, 0, 0)
lock(a, fcntl.F_SETLK, W, 0, 1)


def crossing():
    mine = os.open("f", os.O_RDWR)
    lock(mine, fcntl.F_SETLK, W, 1, 1)
    lock(mine, fcntl.F_SETLKW, W, 0, 1)


pid, r = wait_for(crossing)
say("one waits", blocked(r))
t("a deadlock", lambda: lock(a, fcntl.F_SETLKW, W, 1, 1) and None)
lock(a, fcntl.F_SETLK, U, 0, 0)
say("it got through", os.read(r, 10))
os.waitpid(pid, 0)
# A killed holder's locks are gone.
sys.stdout.flush()
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    mine = os.open("f", os.O_RDWR)
    fcntl.flock(mine, fcntl.LOCK_EX)
    lock(mine, fcntl.F_SETLK, W, 0, 0)
    os.write(w, b"x")
    time.sleep(36000)
os.read(r, 1)
t("held by a child", fcntl.flock, a, fcntl.LOCK_EX | NB)
t("its range", lambda: lock(a, fcntl.F_SETLK, R, 0, 1) and None)
os.kill(pid, 9)
os.waitpid(pid, 0)
t("by a dead child", fcntl.flock, a, fcntl.LOCK_EX | NB)
t("its range", lambda: lock(a, fcntl.F_SETLK, R, 0, 1) and None)
# Descriptors that are copied, and OFD locks across fork.
d = os.dup(a)
t("through a copy", fcntl.flock, d, fcntl.LOCK_SH | NB)
child(lambda: t("in a child that has it from me", fcntl.flock, a, fcntl.LOCK_EX | NB))
os.close(a)
e = os.open("f", os.O_RDWR)
t("still held by the copy", fcntl.flock, e, fcntl.LOCK_SH | NB)
os.close(d)
t("with the last copy gone", fcntl.flock, e, fcntl.LOCK_EX | NB)
ro, wo = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY)
for label, fd in (("read only", ro), ("write only", wo)):
    for kind in (R, W):
        t(f"{label} {kind}", lambda: lock(fd, fcntl.F_SETLK, kind, 0, 1) and None)
        t(f"{label} OFD {kind}", lambda: lock(fd, F_OFD_SETLK, kind, 5, 1) and None)
# Leases, and directories.
os.close(ro)
os.close(wo)
os.close(e)
one = os.open("f", os.O_RDONLY)
signal.signal(signal.SIGIO, signal.SIG_IGN)
for kind in (R, W, U):
    t(f"lease {kind}", lambda: fcntl.fcntl(one, F_SETLEASE, kind) and None)
    t("lease", lambda: fcntl.fcntl(one, F_GETLEASE))
os.mkdir("d")
dd = os.open("d", os.O_RDONLY)
t("flock of a directory", fcntl.flock, dd, fcntl.LOCK_EX | NB)
t("by another", fcntl.flock, os.open("d", os.O_RDONLY), fcntl.LOCK_EX | NB)
t("range of a directory", lambda: lock(dd, fcntl.F_SETLK, R, 0, 1) and None)
