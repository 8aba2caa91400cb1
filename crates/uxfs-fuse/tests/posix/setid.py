"""Set-ID bits and capabilities: who loses them, and when."""
from lib import *

os.umask(0)


def fresh(mode, name="f"):
    write(name, b"content")
    os.chown(name, 1000, 1000)
    os.chmod(name, mode)


def append(name="f"):
    fd = os.open(name, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"more")
    os.close(fd)


for mode in (0o6777, 0o4755, 0o2755, 0o2745, 0o6666):
    fresh(mode)
    append()
    look(f"{mode:o} written by root", "f")
    fresh(mode)
    os.chmod("f", mode | 0o2)
    user(1001, 1001, append)
    look(f"{mode:o} written by another", "f")
    fresh(mode)
    user(1000, 1000, append)
    look(f"{mode:o} written by its owner", "f")
    fresh(mode)
    user(1000, 1000, lambda: os.truncate("f", 3))
    look(f"{mode:o} truncated by its owner", "f")
    fresh(mode)
    os.truncate("f", 3)
    look(f"{mode:o} truncated by root", "f")
    fresh(mode)
    os.chown("f", 1001, 1001)
    look(f"{mode:o} given away by root", "f")
    fresh(mode)
    user(1000, 1000, lambda: os.chown("f", -1, 2000), [2000])
    look(f"{mode:o} group changed by its owner", "f")
fresh(0o755)
user(1000, 1000, lambda: t("chmod 2755 of a file of my group", os.chmod, "f", 0o2755))
look("then", "f")
os.chown("f", 1000, 3000)
user(1000, 1000, lambda: t("chmod 2755 of a file of another group", os.chmod, "f", 0o2755))
look("then", "f")

CAP = struct.pack("<IIIII", 0x02000000, 0x400, 0, 0, 0)
fresh(0o755)
os.setxattr("f", "security.capability", CAP)
t("a capability", os.getxattr, "f", "security.capability")
append()
t("after a write", os.getxattr, "f", "security.capability")
os.setxattr("f", "security.capability", CAP)
os.chown("f", 1001, -1)
t("after a change of owner", os.getxattr, "f", "security.capability")
os.setxattr("f", "security.capability", CAP)
os.truncate("f", 1)
t("after a truncation", os.getxattr, "f", "security.capability")

os.mkdir("dir")
os.chown("dir", 0, 2000)
os.chmod("dir", 0o2777)


def inside():
    write("dir/file")
    os.mkdir("dir/sub")
    os.symlink("x", "dir/link")
    write("dir/exec", b"", 0o2775)


user(1000, 1000, inside)
for name in ("file", "sub", "link", "exec"):
    look(f"set-group-ID directory: {name}", f"dir/{name}")
