"""Who may do what, by every mode: owner, group, further groups, others, and single capabilities."""
from lib import *

os.umask(0)
DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, CHOWN, MKNOD, SETGID = 1, 2, 3, 4, 0, 27, 6
SYS_ADMIN, LINUX_IMMUTABLE, SETFCAP = 21, 9, 31


def may(path):
    """Letters for what can be done with a file."""
    done = ""
    for letter, flags in (("r", os.O_RDONLY), ("w", os.O_WRONLY), ("b", os.O_RDWR)):
        try:
            os.close(os.open(path, flags))
            done += letter
        except PermissionError:
            done += "-"
    for letter, bit in (("R", os.R_OK), ("W", os.W_OK), ("X", os.X_OK)):
        done += letter if os.access(path, bit) else "-"
    return done


def attempt(f, *args):
    try:
        f(*args)
        return "ok"
    except OSError as error:
        return name_of(error.errno)


def in_dir(path):
    """What can be done in a directory that holds a file, an empty directory and nothing else."""
    return " ".join((
        attempt(os.listdir, path),
        attempt(os.stat, f"{path}/f"),
        attempt(os.stat, f"{path}/none"),
        attempt(os.chdir, path),
        attempt(write, f"{path}/f", b"x"),
        attempt(lambda: (os.mkdir(f"{path}/new"), os.rmdir(f"{path}/new"))),
        attempt(lambda: (os.rename(f"{path}/f", f"{path}/g"), os.rename(f"{path}/g", f"{path}/f"))),
        attempt(lambda: (os.link(f"{path}/f", f"{path}/h"), os.unlink(f"{path}/h"))),
        attempt(lambda: (os.symlink("x", f"{path}/s"), os.unlink(f"{path}/s"))),
    ))


USERS = (
    ("owner", 1000, 1000, ()),
    ("group", 1001, 1000, ()),
    ("further group", 1001, 1001, (7, 1000)),
    ("owner in group", 1000, 5, (1000,)),
    ("other", 1001, 1001, (7,)),
    ("root", 0, 0, ()),
)
for mode in range(8):
    for shift in (6, 3, 0):
        name = f"m{mode}{shift}"
        write(name)
        os.chown(name, 1000, 1000)
        os.chmod(name, mode << shift)
        os.mkdir(f"d{mode}{shift}")
        write(f"d{mode}{shift}/f")
        os.chmod(f"d{mode}{shift}/f", 0o666)
        os.chown(f"d{mode}{shift}/f", 1001, 1001)
        os.chown(f"d{mode}{shift}", 1000, 1000)
        os.chmod(f"d{mode}{shift}", mode << shift)
        for who, uid, gid, groups in USERS:
            here = os.getcwd()
            user(uid, gid, lambda: say(f"{mode << shift:03o} {who}", may(name)), groups)
            user(uid, gid, lambda: say(f"{mode << shift:03o} dir, {who}", in_dir(f"{here}/d{mode}{shift}")), groups)


def with_caps(caps, uid, gid, f, groups=()):
    """Runs something with these capabilities and no others."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(list(groups))
            libc.prctl(8, 1, 0, 0, 0)  # keep them over the change of user
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            bits = sum(1 << cap for cap in caps)
            low, high = bits & 0xFFFFFFFF, bits >> 32
            head = struct.pack("Ii", 0x20080522, 0)
            call("capset", head, struct.pack("6I", low, low, 0, high, high, 0))
            f()
        except BaseException as error:
            say("failed", repr(error))
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)


def fresh(mode=0o6775, uid=1000, gid=1000):
    write("c", b"content")
    os.chown("c", uid, gid)
    os.chmod("c", mode)


def tries():
    say("  open, access", may("c"))
    t("  chmod", os.chmod, "c", 0o2775)
    look("  then", "c")
    t("  chown to another", os.chown, "c", 1002, -1)
    t("  chgrp to another", os.chown, "c", -1, 1003)
    look("  then", "c")
    t("  utime", os.utime, "c", (1, 1))
    t("  mknod", os.mknod, "dev", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    t("  whiteout", os.mknod, "white", 0o600 | stat.S_IFCHR, 0)
    t("  trusted", os.setxattr, "c", "trusted.x", b"y")
    t("  security", os.setxattr, "c", "security.x", b"y")
    t("  sticky", os.unlink, "sticky/f")
    t("  write", lambda: os.write(os.open("c", os.O_WRONLY), b"x"))
    look("  then", "c")


CASES = (
    ("no capability", ()), ("DAC_OVERRIDE", (DAC_OVERRIDE,)), ("DAC_READ_SEARCH", (DAC_READ_SEARCH,)),
    ("FOWNER", (FOWNER,)), ("FSETID", (FSETID,)), ("FOWNER and FSETID", (FOWNER, FSETID)),
    ("CHOWN", (CHOWN,)), ("MKNOD", (MKNOD,)), ("SYS_ADMIN", (SYS_ADMIN,)), ("SETFCAP", (SETFCAP,)),
)
os.mkdir("sticky")
for uid in (0, 1001):
    for label, caps in CASES:
        fresh()
        write("sticky/f")
        os.chmod("sticky", 0o1777)
        os.chown("sticky/f", 1000, 1000)
        os.chown("sticky", 1003, 1003)
        say("as", f"{uid} with {label}")
        with_caps(caps, uid, 1001, tries)
        for name in ("dev", "white"):
            if os.path.lexists(name):
                os.unlink(name)
# Set-ID bits and those who may keep them, by each way to lose them.
for label, caps, groups in (("FSETID", (FSETID,), ()), ("none", (), ()), ("in the group", (), (1000,))):
    for uid in (0, 1000, 1001):
        for mode in (0o6777, 0o6767, 0o2767):
            for what, f in (
                ("write", lambda: os.write(os.open("c", os.O_WRONLY), b"x")),
                ("truncate", lambda: os.truncate("c", 1)),
                ("truncate to the same", lambda: os.truncate("c", 7)),
                ("O_TRUNC", lambda: os.close(os.open("c", os.O_WRONLY | os.O_TRUNC))),
                ("fallocate", lambda: os.posix_fallocate(os.open("c", os.O_WRONLY), 0, 100)),
                ("punch", lambda: call("fallocate", os.open("c", os.O_WRONLY), 3, ctypes.c_long(0), ctypes.c_long(2))),
                ("copy", lambda: os.copy_file_range(os.open("src", os.O_RDONLY), os.open("c", os.O_RDWR), 5)),
                ("chmod", lambda: os.chmod("c", mode | 0o6000)),
                ("chgrp", lambda: os.chown("c", -1, 1000)),
                ("chown of nothing", lambda: os.chown("c", -1, -1)),
            ):
                fresh(mode)
                if not os.path.exists("src"):
                    write("src", b"source")
                with_caps(caps, uid, 1001, lambda: then(f"{what} {mode:o} {uid} {label}", "c", f), groups)
# What is no regular file loses them when it changes hands, and only then.
for kind in (stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR):
    for mode in (0o6777, 0o2767):
        for uid in (0, 1000, 1001):
            os.mknod("special", kind | 0o600, os.makedev(1, 3))
            os.chown("special", 1000, 1000)
            os.chmod("special", mode)
            user(uid, 1001, lambda: t(f"{kind:o} {mode:o} chown by {uid}", os.chown, "special", -1, 1001 if uid else 5))
            look("  then", "special")
            os.unlink("special")
os.mkdir("special")
os.chown("special", 1000, 1000)
os.chmod("special", 0o6777)
user(1000, 1001, lambda: t("a directory", os.chown, "special", -1, 1001))
look("  then", "special")
# By access lists.
for perm, mask in ((7, 7), (7, 5), (5, 7)):
    for tag, who in ((2, 1001), (8, 1001), (8, 7)):
        fresh(0o6771)
        entries = ((1, 7, -1), (4, 1, -1), (0x10, mask, -1), (0x20, 1, -1), (tag, perm, who))
        raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in sorted(entries))
        os.setxattr("c", "system.posix_acl_access", raw)
        os.chmod("c", stat.S_IMODE(os.stat("c").st_mode) | 0o6000)
        with_caps((), 1001, 1001, lambda: t(f"written by list {perm} {mask} {tag} {who}", lambda: os.write(os.open("c", os.O_WRONLY), b"x")), (7,))
        look("  then", "c")
        os.removexattr("c", "system.posix_acl_access")
# New files in set-group-ID directories of somebody's group, or not.
for who, uid, gid, groups in USERS:
    for mode in (0o2777, 0o777):
        os.mkdir("g")
        os.chown("g", 0, 1000)
        os.chmod("g", mode)

        def inside():
            write("g/f", b"", 0o2775)
            os.mkdir("g/d", 0o2775)
            os.mkdir("g/e", 0o700)
            os.mknod("g/p", 0o2775 | stat.S_IFIFO)
            os.symlink("x", "g/l")
            t("  chmod", os.chmod, "g/f", 0o2755)
            t("  chmod of a directory", os.chmod, "g/d", 0o2755)
            os.mkdir("g/d/below")

        user(uid, gid, inside, groups)
        for name in ("f", "d", "d/below", "e", "p", "l"):
            look(f"in {mode:o}, {who}: {name}", f"g/{name}")
        os.rmdir("g/d/below")
        for name in os.listdir("g"):
            os.unlink(f"g/{name}") if name not in "de" else os.rmdir(f"g/{name}")
        os.rmdir("g")
# Sticky directories: who owns the file, the directory, both, neither.
for fo in (1000, 1001):
    for do in (1000, 1001):
        os.mkdir("st")
        write("st/f")
        os.mkdir("st/d")
        write("st/t")
        for p, owner in (("st/f", fo), ("st/d", fo), ("st/t", fo), ("st", do)):
            os.chown(p, owner, owner)
        os.chmod("st", 0o1777)

        def sticky():
            t("  rename away", os.rename, "st/f", "st/g")
            t("  onto it", lambda: (write("st/mine"), os.rename("st/mine", "st/t")))
            t("  rename a directory", os.rename, "st/d", "st/dd")
            t("  rmdir", os.rmdir, "st/d")
            t("  unlink", os.unlink, "st/t")

        say("sticky", f"file of {fo}, directory of {do}")
        user(1000, 1000, sticky)
        import shutil

        shutil.rmtree("st")
# Moving a directory to another parent changes its dotdot: it must be writable itself.
os.mkdir("from")
os.mkdir("to")
os.mkdir("from/dir")
write("from/file")
for p in ("from", "to"):
    os.chmod(p, 0o777)
os.chmod("from/dir", 0o755)
os.chmod("from/file", 0o444)


def moves():
    t("a directory of another's, to another parent", os.rename, "from/dir", "to/dir")
    t("the same inside its parent", os.rename, "from/dir", "from/dir2")
    t("a file of another's", os.rename, "from/file", "to/file")
    t("O_NOATIME of another's", lambda: os.close(os.open("to/file", os.O_RDONLY | os.O_NOATIME)))
    t("hard link to another's", os.link, "to/file", "to/link")
    t("chmod to what it is", os.chmod, "to/file", 0o444)
    t("utime to now of one that I may not write", os.utime, "to/file")
    t("utime with both left out", utime_omit, "to/file")


def utime_omit(path):
    omit = (1 << 30) - 2
    call("utimensat", AT_FDCWD, path.encode(), (ctypes.c_long * 4)(0, omit, 0, omit), 0)


user(1001, 1001, moves)
