"""The errno of each call that cannot be."""
import fcntl
import resource
import signal
import socket
import threading

from lib import *

os.umask(0o022)
write("f", b"0123456789")
os.mkdir("d")
os.mkdir("full")
write("full/x")
os.symlink("f", "l")
os.symlink("d", "ld")
os.symlink("none", "dangling")
os.symlink("loop1", "loop2")
os.symlink("loop2", "loop1")
os.mkfifo("p")
socket.socket(socket.AF_UNIX).bind("s")
ro = os.open("f", os.O_RDONLY)
wo = os.open("f", os.O_WRONLY)
rw = os.open("f", os.O_RDWR)
dd = os.open("d", os.O_RDONLY)
op = os.open("f", os.O_PATH)
closed = os.dup(ro)
os.close(closed)
P = ctypes.c_long
# Descriptors that will not do.
for label, fd in (("closed", closed), ("O_RDONLY", ro), ("O_WRONLY", wo), ("directory", dd), ("O_PATH", op)):
    t(f"{label}: read", os.read, fd, 3)
    t(f"{label}: pread", os.pread, fd, 3, 0)
    t(f"{label}: write", os.write, fd, b"")
    t(f"{label}: pwrite", os.pwrite, fd, b"ab", 0)
    t(f"{label}: pread before the start", os.pread, fd, 3, -1)
    t(f"{label}: pwrite before the start", os.pwrite, fd, b"x", -1)
    t(f"{label}: ftruncate", os.ftruncate, fd, 10)
    t(f"{label}: fallocate", lambda: call("fallocate", fd, 0, P(0), P(10)))
    t(f"{label}: punch", lambda: call("fallocate", fd, 3, P(0), P(10)))
    t(f"{label}: fsync", os.fsync, fd)
    t(f"{label}: fdatasync", os.fdatasync, fd)
    t(f"{label}: fchmod", os.fchmod, fd, 0o644)
    t(f"{label}: fchown", os.fchown, fd, -1, -1)
    q(f"{label}: fstat", os.fstat, fd)
    q(f"{label}: fstatvfs", os.fstatvfs, fd)
    t(f"{label}: utime", os.utime, fd, (1, 1))
    t(f"{label}: setxattr", os.setxattr, fd, "user.e", b"1")
    t(f"{label}: getxattr", os.getxattr, fd, "user.e")
    t(f"{label}: listxattr", os.listxattr, fd)
    t(f"{label}: removexattr", os.removexattr, fd, "user.e")
    t(f"{label}: seek", os.lseek, fd, 0, os.SEEK_SET)
    t(f"{label}: seek before the start", os.lseek, fd, -1, os.SEEK_SET)
    t(f"{label}: seek, no such whence", os.lseek, fd, 0, 9)
    q(f"{label}: getdents", os.listdir, fd)
    t(f"{label}: flock", fcntl.flock, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    t(f"{label}: lock for writing", fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    t(f"{label}: lock for reading", fcntl.lockf, fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    t(f"{label}: unlock", fcntl.lockf, fd, fcntl.LOCK_UN)
    t(f"{label}: fchdir", lambda: (os.fchdir(fd), os.chdir("..")) and None)
    q(f"{label}: openat", lambda: os.close(os.open("x", os.O_RDONLY, dir_fd=fd)))
    t(f"{label}: mkdirat", lambda: (os.mkdir("new", dir_fd=fd), os.rmdir("new", dir_fd=fd)) and None)
    t(f"{label}: readahead", lambda: call("readahead", fd, P(0), P(10)))
    t(f"{label}: fadvise", os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_WILLNEED)
    t(f"{label}: sync_file_range", lambda: call("sync_file_range", fd, P(0), P(0), 7))
    t(f"{label}: copy from", os.copy_file_range, fd, rw, 2, 0, 4)
    t(f"{label}: copy to", os.copy_file_range, ro, fd, 2, 0, 4)
    t(f"{label}: sendfile from", os.sendfile, rw, fd, 0, 2)
    t(f"{label}: unknown ioctl", fcntl.ioctl, fd, 0x5413)
    t(f"{label}: unknown ioctl with data", fcntl.ioctl, fd, 0xC0185A7F, bytes(24))
# Paths that will not do.
PATHS = ("", "none", "none/x", "f/x", "f/", "f/.", "d/", "d/.", "d/..", "l/", "l/x", "ld/", "ld/.", "dangling", "dangling/",
         "loop1", "loop1/x", "n" * 255, "n" * 256, "d/" + "n" * 256, "n" * 256 + "/x", "./" * 2047 + "f", "./" * 2048 + "f",
         "p", "p/x", "s", "s/x", "full", "full/x", "l", "ld", ".", "..", "/proc/self/none")
CALLS = (
    ("stat", lambda p: os.stat(p) and None), ("lstat", lambda p: os.lstat(p) and None),
    ("open", lambda p: os.close(os.open(p, os.O_RDONLY | os.O_NONBLOCK))),
    ("open to write", lambda p: os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK))),
    ("open O_DIRECTORY", lambda p: os.close(os.open(p, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK))),
    ("open O_NOFOLLOW", lambda p: os.close(os.open(p, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))),
    ("open O_CREAT|O_EXCL", lambda p: (os.close(os.open(p, os.O_RDWR | os.O_CREAT | os.O_EXCL)), os.unlink(p)) and None),
    ("open O_CREAT|O_DIRECTORY", lambda p: os.close(os.open(p, os.O_RDONLY | os.O_CREAT | os.O_DIRECTORY | os.O_NONBLOCK))),
    ("open O_PATH", lambda p: os.close(os.open(p, os.O_PATH))),
    ("open O_PATH|O_NOFOLLOW", lambda p: os.close(os.open(p, os.O_PATH | os.O_NOFOLLOW))),
    ("truncate", lambda p: os.truncate(p, 5)), ("truncate below 0", lambda p: os.truncate(p, -1)),
    ("chmod", lambda p: os.chmod(p, os.stat(p).st_mode & 0o7777)), ("chown", lambda p: os.chown(p, -1, -1)),
    ("lchown", lambda p: os.chown(p, -1, -1, follow_symlinks=False)),
    ("utime", lambda p: os.utime(p, (1, 1))), ("access", lambda p: os.access(p, os.R_OK)),
    ("readlink", lambda p: os.readlink(p) and None), ("mkdir", lambda p: (os.mkdir(p), os.rmdir(p)) and None),
    ("mknod", lambda p: (os.mknod(p, 0o600 | stat.S_IFREG), os.unlink(p)) and None),
    ("mkfifo", lambda p: (os.mkfifo(p), os.unlink(p)) and None),
    ("symlink", lambda p: (os.symlink("x", p), os.unlink(p)) and None),
    ("link to", lambda p: (os.link("f", p), os.unlink(p)) and None),
    ("link from", lambda p: (os.link(p, "new", follow_symlinks=False), os.unlink("new")) and None),
    ("rename to", lambda p: (os.rename("moves", p), os.rename(p, "moves")) and None),
    ("rename from", lambda p: (os.rename(p, "new"), os.rename("new", p)) and None),
    ("rename of a directory to", lambda p: (os.rename("movesd", p), os.rename(p, "movesd")) and None),
    ("getxattr", lambda p: os.getxattr(p, "user.no")), ("setxattr", lambda p: os.setxattr(p, "user.p", b"")),
    ("listxattr", lambda p: os.listxattr(p)), ("removexattr", lambda p: os.removexattr(p, "user.p")),
    ("statvfs", lambda p: os.statvfs(p) and None), ("chdir", lambda p: (os.chdir(p), os.chdir(HERE)) and None),
    ("listdir", lambda p: os.listdir(p) and None),
)
HERE = os.getcwd()
write("moves")
os.mkdir("movesd")
for path in PATHS:
    shown = path if len(path) < 20 else f"{path[:5]}…{len(path)}"
    for label, f in CALLS:
        t(f"{label} {shown!r}", f, path)
for path in PATHS:
    shown = path if len(path) < 20 else f"{path[:5]}…{len(path)}"
    if path in (".", "..", "full", "full/x", "p", "s", "l", "ld", "d/", "d/.", "d/..", "ld/", "ld/."):
        continue
    t(f"unlink {shown!r}", os.unlink, path)
    t(f"rmdir {shown!r}", os.rmdir, path)
    if not os.path.lexists("f"):
        write("f", b"0123456789")
    if not os.path.lexists("dangling"):
        os.symlink("none", "dangling")
    for a, b in (("loop1", "loop2"), ("loop2", "loop1")):
        if not os.path.lexists(a):
            os.symlink(b, a)
for path in (".", "..", "full", "d/.", "d/..", "ld/", "ld/.", "full/x/"):
    t(f"unlink {path}", os.unlink, path)
    t(f"rmdir {path}", os.rmdir, path)
# Flags that do not go together, or that nobody knows.
for label, flags in (("O_TRUNC|O_RDONLY", os.O_TRUNC), ("3", 3), ("O_EXCL alone", os.O_EXCL), ("O_DIRECT", os.O_DIRECT),
                     ("unknown", 0x8000000), ("O_TMPFILE on a file", os.O_TMPFILE | os.O_RDWR), ("O_TMPFILE to read", os.O_TMPFILE)):
    write("g", b"g")
    q(f"open with {label}", lambda: os.close(os.open("g", flags)))
    look("  then", "g")
for mode in (stat.S_IFDIR, stat.S_IFLNK, 0o130000, 0o170000, 0):
    t(f"mknod of {mode:o}", os.mknod, "made", mode | 0o600)
    look("  then", "made")
    if os.path.lexists("made"):
        os.unlink("made")
t("rmdir of the working directory", lambda: (os.mkdir("cwd"), os.chdir("cwd"), os.rmdir("../cwd")) and None)
t("getcwd there", os.getcwd)
t("mkdir there", os.mkdir, "x")
t("listdir there", os.listdir, ".")
q("stat there", os.stat, ".")
q("dotdot from there", os.stat, "..")
os.chdir(HERE)
t("rename to another file system", os.rename, "f", "/proc/x")
t("link to another file system", os.link, "f", "/dev/shm/x")
t("exchange with nothing", lambda: call("renameat2", AT_FDCWD, b"f", AT_FDCWD, b"none", 2))
t("open of a socket", os.open, "s", os.O_RDONLY)
t("xattr flags", os.setxattr, "f", "user.x", b"", 3)
t("xattr flags unknown", os.setxattr, "f", "user.x", b"", 8)
t("xattr name of 0", os.getxattr, "f", "")
t("chmod of all bits", os.chmod, "f", 0o177777)
look("  then", "f")
t("ids out of range", os.chown, "f", 2**32 - 2, 2**32 - 2)
look("  then", "f")
# Executables.
import shutil

shutil.copy("/bin/true", "true")
t("run", lambda: os.spawnv(os.P_WAIT, "./true", ["true"]))
held = os.open("true", os.O_WRONLY)


def run():
    try:
        os.execv("./true", ["true"])
    except OSError as error:
        say("run of what is open for writing", name_of(error.errno))


user(0, 0, run)
os.close(held)
shutil.copy("/bin/sleep", "sleep")
child = os.spawnv(os.P_NOWAIT, "./sleep", ["sleep", "36000"])
import time

while True:
    if os.readlink(f"/proc/{child}/exe").endswith("/errnos/sleep"):
        break
    time.sleep(0.02)
q("open for writing of what runs", os.open, "sleep", os.O_WRONLY)
t("truncate of what runs", os.truncate, "sleep", 0)
t("unlink of what runs", os.unlink, "sleep")
os.kill(child, 9)
os.waitpid(child, 0)
os.chmod("true", 0o644)
user(0, 0, lambda: t("run without permission", os.execv, "./true", ["true"]))
user(0, 0, lambda: t("run of a directory", os.execv, "./d", ["d"]))
user(0, 0, lambda: t("run of a file of no format", lambda: (os.chmod("g", 0o755), os.execv("./g", ["g"]))))
write("script", b"#!/none\n", 0o755)
user(0, 0, lambda: t("run of a script of nothing", os.execv, "./script", ["script"]))
# Memory that is not there.
for label, name, args in (
    ("read into nowhere", "pread", (ro, ctypes.c_void_p(8), 4, P(0))),
    ("write from nowhere", "pwrite", (wo, ctypes.c_void_p(8), 4, P(0))),
    ("stat of nowhere", "access", (ctypes.c_void_p(8), 0)),
    ("xattr from nowhere", "setxattr", (b"f", b"user.z", ctypes.c_void_p(8), 4, 0)),
    ("xattr to nowhere", "getxattr", (b"f", b"user.p", ctypes.c_void_p(8), 4)),
    ("mkdir of nowhere", "mkdir", (ctypes.c_void_p(8), 0o755)),
):
    t(label, call, name, *args)
t("vectors of nothing", os.preadv, ro, [], 0)
t("too many vectors", os.pwritev, wo, [b"x"] * 1025, 0)
t("dup of closed", os.dup, closed)
