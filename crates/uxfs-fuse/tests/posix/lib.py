"""What the topics of the conformance suite share.

A topic runs in an empty directory and prints a line for each thing it tries: what it tried, and what
came of it. The same lines must come from a volume mounted by uxfs and by the kernel. So nothing is
printed that may differ between two runs: no inode numbers, no moments.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100


def say(label, value):
    print(f"{label}: {value}")
    sys.stdout.flush()


def name_of(error):
    return errno.errorcode.get(error, str(error))


def t(label, f, *args, **kwargs):
    """Tries a call and tells how it went; gives its result."""
    try:
        result = f(*args, **kwargs)
    except OSError as error:
        say(label, name_of(error.errno))
        return None
    shown = "ok" if result is None else result
    if isinstance(result, bytes) and len(result) > 40:
        shown = f"{len(result)} bytes, {result[:8]!r}…"
    say(label, shown)
    return result


def q(label, f, *args, **kwargs):
    """The same for a call whose result is nobody's business, such as a descriptor."""
    try:
        result = f(*args, **kwargs)
    except OSError as error:
        say(label, name_of(error.errno))
        return None
    say(label, "ok")
    return result


def c(label, name, *args):
    """Tries a function of the C library."""
    result = getattr(libc, name)(*args)
    say(label, name_of(ctypes.get_errno()) if result == -1 else "ok" if result == 0 else result)
    return result


def call(name, *args):
    """A function of the C library that raises."""
    result = getattr(libc, name)(*args)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def user(uid, gid, f, groups=()):
    """Runs something as somebody else, in a process of its own."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups(list(groups))
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            f()
            code = 0
        except BaseException as error:  # printed, and compared
            say("failed", repr(error))
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.waitpid(pid, 0)


def look(label, path, follow=False):
    """What stat tells that is the same everywhere."""
    try:
        s = os.stat(path) if follow else os.lstat(path)
    except OSError as error:
        return say(label, name_of(error.errno))
    size = s.st_size if not stat.S_ISDIR(s.st_mode) else "-"
    rdev = f" {os.major(s.st_rdev)},{os.minor(s.st_rdev)}" if s.st_rdev else ""
    say(label, f"{stat.filemode(s.st_mode)} {s.st_nlink} {s.st_uid}:{s.st_gid} {size}{rdev}")


def then(label, path, f, *args, **kwargs):
    """Tries a call, and tells in the same line what a file is afterwards."""
    try:
        f(*args, **kwargs)
        result = "ok"
    except OSError as error:
        result = name_of(error.errno)
    s = os.lstat(path)
    say(label, f"{result}, then {stat.filemode(s.st_mode)} {s.st_uid}:{s.st_gid} {s.st_size}")


def write(path, data=b"", mode=0o644):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as file:
        return file.read()


FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


def free_inodes(fd):
    """Waits until the kernel has freed the inodes of removed files, which a freeze of the volume does. A
    mount of uxfs refuses to be frozen this way; the numbers show when it has freed them."""
    try:
        fcntl.ioctl(fd, FIFREEZE, 0)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        return
    fcntl.ioctl(fd, FITHAW, 0)


def used():
    """Blocks and inodes in use, once everything is settled."""
    fd = os.open(".", os.O_RDONLY)
    os.fsync(fd)
    free_inodes(fd)
    os.close(fd)
    # What was set aside meanwhile is given back a little later.
    seen, same = None, 0
    # A limit against hanging only.
    for _ in range(20000):
        s = os.statvfs(".")
        now = (s.f_blocks - s.f_bfree, s.f_files - s.f_ffree)
        same = same + 1 if now == seen else 0
        seen = now
        if same == 5:
            break
        time.sleep(0.03)
    return seen


def settled():
    """What other topics wrote has its blocks: the kernel is asked by syncfs, a mount, which that does not
    reach, by fsync of its root."""
    for path in (".", ".."):
        fd = os.open(path, os.O_RDONLY)
        call("syncfs", fd)
        os.fsync(fd)
        os.close(fd)
    used()
