"""Access lists: kept, obeyed, inherited, in step with the mode."""
from lib import *

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 0x10, 0x20
NONE = 0xFFFFFFFF


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def shown(path, name=ACCESS):
    raw = os.getxattr(path, name)
    entries = [struct.unpack_from("<HHI", raw, at) for at in range(4, len(raw), 8)]
    return [(tag, perm, "-" if who == NONE else who) for tag, perm, who in entries]


def minimal(u, g, o):
    return acl((USER_OBJ, u, NONE), (GROUP_OBJ, g, NONE), (OTHER, o, NONE))


os.umask(0o022)
write("f", b"x", 0o640)
t("none yet", os.getxattr, "f", ACCESS)
named = acl((USER_OBJ, 6, NONE), (USER, 6, 1000), (GROUP_OBJ, 4, NONE), (GROUP, 2, 2000), (MASK, 6, NONE), (OTHER, 0, NONE))
t("set", os.setxattr, "f", ACCESS, named)
t("get", shown, "f")
look("the mode follows", "f")


def tries(label):
    q(f"{label}: read", os.open, "f", os.O_RDONLY)
    q(f"{label}: write", os.open, "f", os.O_WRONLY)


user(1000, 1000, lambda: tries("named user"))
user(1001, 2000, lambda: tries("named group"))
user(1001, 1001, lambda: tries("somebody else"))
user(1001, 0, lambda: tries("owning group"))
t("chmod", os.chmod, "f", 0o604)
t("the mask follows", shown, "f")
user(1000, 1000, lambda: tries("named user, masked"))
t("minimal", os.setxattr, "f", ACCESS, minimal(6, 4, 4))
t("is the mode and nothing else", os.getxattr, "f", ACCESS)
look("the mode", "f")
for label, bad in (
    ("no mask", acl((USER_OBJ, 6, NONE), (USER, 6, 1000), (GROUP_OBJ, 4, NONE), (OTHER, 0, NONE))),
    ("no owner", acl((GROUP_OBJ, 4, NONE), (OTHER, 0, NONE))),
    ("wrong order", acl((GROUP_OBJ, 4, NONE), (USER_OBJ, 6, NONE), (OTHER, 0, NONE))),
    ("too short", b"\2\0\0"),
    ("wrong version", struct.pack("<I", 9) + named[4:]),
):
    t(label, os.setxattr, "f", ACCESS, bad)
t("default list of a file", os.setxattr, "f", DEFAULT, named)
os.mkdir("d", 0o755)
default = acl((USER_OBJ, 7, NONE), (USER, 7, 1000), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHER, 1, NONE))
t("default list of a directory", os.setxattr, "d", DEFAULT, default)
look("its mode stays", "d")
write("d/file", b"", 0o666)
os.mkdir("d/sub", 0o777)
os.symlink("x", "d/link")
os.mkfifo("d/fifo", 0o600)
for name in ("file", "sub", "fifo"):
    look(f"inherited by {name}", f"d/{name}")
    t("access", shown, f"d/{name}")
t("default of sub", shown, "d/sub", DEFAULT)
t("default of file", os.getxattr, "d/file", DEFAULT)
write("d/small", b"", 0o600)
look("less asked for", "d/small")
t("the mask", shown, "d/small")
t("remove the default", os.removexattr, "d", DEFAULT)
write("d/after", b"", 0o666)
look("the umask again", "d/after")
os.chown("f", 1000, 1000)
user(1001, 1001, lambda: t("another's list", os.setxattr, "f", ACCESS, named))
user(1000, 1000, lambda: t("my list", os.setxattr, "f", ACCESS, named))
t("remove", os.removexattr, "f", ACCESS)
t("gone", os.getxattr, "f", ACCESS)
look("the mode stays", "f")
os.chown("f", 1000, 3000)
os.chmod("f", 0o2755)
user(1000, 1000, lambda: t("list of a set-group-ID file of another group", os.setxattr, "f", ACCESS, minimal(7, 5, 5)))
look("the bit", "f")
