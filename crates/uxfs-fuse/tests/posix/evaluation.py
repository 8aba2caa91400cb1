"""Access lists evaluated: random lists, modes and users, from a seed; default lists by every umask."""
import random

from lib import *

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 0x10, 0x20
NONE = 0xFFFFFFFF
rng = random.Random(20261121)


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def shown(path, name=ACCESS):
    raw = os.getxattr(path, name)
    entries = [struct.unpack_from("<HHI", raw, at) for at in range(4, len(raw), 8)]
    return " ".join(f"{tag:x}:{'' if who == NONE else who}:{perm}" for tag, perm, who in entries)


def any_list():
    users = sorted(rng.sample(range(1000, 1006), rng.randrange(0, 4)))
    groups = sorted(rng.sample(range(2000, 2006), rng.randrange(0, 4)))
    perm = lambda: rng.randrange(8)
    entries = [(USER_OBJ, perm(), NONE)] + [(USER, perm(), u) for u in users] + [(GROUP_OBJ, perm(), NONE)]
    entries += [(GROUP, perm(), g) for g in groups]
    if users or groups or rng.random() < 0.3:
        entries.append((MASK, perm(), NONE))
    return acl(*entries, (OTHER, perm(), NONE))


def attempt(f, *args):
    try:
        f(*args)
        return "+"
    except OSError as error:
        return "-" if error.errno == errno.EACCES else name_of(error.errno)


os.umask(0)
USERS = [(1000 + n % 7, 2000 + n % 5, [2000 + (n * 3) % 7, 2000 + (n * 5) % 6]) for n in range(8)]
for n in range(60):
    name = f"f{n}"
    write(name, b"x")
    os.mkdir(f"d{n}")
    write(f"d{n}/in")
    for path in (name, f"d{n}"):
        os.chown(path, rng.randrange(1000, 1006), rng.randrange(2000, 2006))
        os.setxattr(path, ACCESS, any_list())
        if rng.random() < 0.4:
            os.chmod(path, rng.randrange(0o1000))
    look(name, name)
    t("list", shown, name)

    def tries():
        say(f"{os.getuid()}:{os.getgid()} {os.getgroups()}", " ".join((
            attempt(lambda: os.close(os.open(name, os.O_RDONLY))), attempt(lambda: os.close(os.open(name, os.O_WRONLY))),
            attempt(lambda: os.close(os.open(name, os.O_RDWR))),
            "".join("+" if os.access(name, bit) else "-" for bit in (4, 2, 1)),
            attempt(os.listdir, f"d{n}"), attempt(os.stat, f"d{n}/in"),
            attempt(lambda: (os.mkdir(f"d{n}/new"), os.rmdir(f"d{n}/new"))))))

    for uid, gid, groups in rng.sample(USERS, 4):
        user(uid, gid, tries, groups)
# Inheritance.
for n in range(40):
    d = f"i{n}"
    os.umask(0)
    os.mkdir(d, 0o777)
    os.chmod(d, rng.choice((0o777, 0o2777, 0o1777)))
    os.setxattr(d, DEFAULT, any_list())
    mask = rng.randrange(0o1000)
    mode = rng.randrange(0o1000)
    os.umask(mask)
    say("default", f"{shown(d, DEFAULT)} umask {mask:o} mode {mode:o}")
    os.close(os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY, mode))
    os.mkdir(f"{d}/d", mode)
    os.mkfifo(f"{d}/p", mode)
    os.symlink("x", f"{d}/l")
    os.mknod(f"{d}/n", mode | stat.S_IFREG)
    for k in "fdpln":
        look(f"  {k}", f"{d}/{k}")
        t("  access", lambda: os.getxattr(f"{d}/{k}", ACCESS, follow_symlinks=False) and shown(f"{d}/{k}")) if k != "l" else None
    t("  default", shown, f"{d}/d", DEFAULT)
os.umask(0o022)
# How many entries.
write("big")
for count in (20, 25, 26, 100, 500, 1000, 5000, 5461, 5462, 6000, 8000):
    entries = [(USER, 4, 10000 + k) for k in range(count - 4)]
    t(f"{count} entries", os.setxattr, "big", ACCESS, acl((USER_OBJ, 6, NONE), *entries, (GROUP_OBJ, 4, NONE), (MASK, 7, NONE), (OTHER, 4, NONE)))
    t("  there", lambda: len(os.getxattr("big", ACCESS)))
# Wrong ones.
for label, bad in (
    ("twice the same user", acl((USER_OBJ, 6, NONE), (USER, 6, 1), (USER, 6, 1), (GROUP_OBJ, 4, NONE), (MASK, 7, NONE), (OTHER, 4, NONE))),
    ("users out of order", acl((USER_OBJ, 6, NONE), (USER, 6, 2), (USER, 6, 1), (GROUP_OBJ, 4, NONE), (MASK, 7, NONE), (OTHER, 4, NONE))),
    ("two owners", acl((USER_OBJ, 6, NONE), (USER_OBJ, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 4, NONE))),
    ("perm of 8", acl((USER_OBJ, 8, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 4, NONE))),
    ("unknown tag", acl((USER_OBJ, 6, NONE), (3, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 4, NONE))),
    ("user without number", acl((USER_OBJ, 6, NONE), (USER, 6, NONE), (GROUP_OBJ, 4, NONE), (MASK, 7, NONE), (OTHER, 4, NONE))),
    ("owner with a number", acl((USER_OBJ, 6, 5), (GROUP_OBJ, 4, 7), (OTHER, 4, 9))),
    ("empty", acl()), ("nothing", b""), ("a byte more", acl((USER_OBJ, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 4, NONE)) + b"x"),
):
    for name in (ACCESS, DEFAULT):
        os.mkdir("w", 0o755)
        t(f"{label} {name[17:]}", os.setxattr, "w", name, bad)
        t("  then", shown, "w", name)
        look("  mode", "w")
        os.rmdir("w")
# Lists and what follows the mode.
for mode in (0o000, 0o070, 0o777, 0o640, 0o2755, 0o1777):
    write("c")
    os.setxattr("c", ACCESS, acl((USER_OBJ, 6, NONE), (USER, 7, 1), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHER, 4, NONE)))
    os.chmod("c", mode)
    t(f"after {mode:o}", shown, "c")
    look("  mode", "c")
    os.link("c", "c2")
    os.rename("c2", "c3")
    t("  moved", shown, "c3")
    os.unlink("c3")
    os.unlink("c")
# Who may set them.
write("w")
os.chown("w", 1000, 2000)
ok = acl((USER_OBJ, 7, NONE), (USER, 7, 1001), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHER, 4, NONE))
for uid, groups in ((1000, ()), (1000, (2000,)), (1001, ()), (0, ())):
    os.chmod("w", 0o2775)
    user(uid, 1500, lambda: t(f"set by {uid} {groups}", os.setxattr, "w", ACCESS, ok), groups)
    look("  mode", "w")
    user(uid, 1500, lambda: t(f"remove by {uid} {groups}", os.removexattr, "w", ACCESS), groups)
    look("  mode", "w")
