"""Who may do what: modes, owners, sticky directories, umask."""
from lib import *

os.umask(0o022)
os.mkdir("shared", 0o777)
os.chmod("shared", 0o1777)
os.mkdir("closed", 0o700)
write("closed/f", b"x")
write("mine", b"root's", 0o600)
write("all", b"everybody's", 0o644)
look("mkdir with umask", "shared")
look("create with umask", "all")


def other():
    q("open 0600 of root for reading", os.open, "mine", os.O_RDONLY)
    q("open 0644 of root for reading", os.open, "all", os.O_RDONLY)
    q("open 0644 of root for writing", os.open, "all", os.O_WRONLY)
    q("path through a closed directory", os.stat, "closed/f")
    t("chmod of another's", os.chmod, "all", 0o777)
    t("chown of another's", os.chown, "all", 1000, 1000)
    t("truncate of another's", os.truncate, "all", 0)
    t("utime of another's", os.utime, "all")
    t("utime of another's to a moment", os.utime, "all", (1, 1))
    t("mkdir in another's", os.mkdir, "new")
    t("unlink in another's", os.unlink, "all")
    t("access", os.access, "mine", os.R_OK)
    write("shared/one", b"1")
    t("chown of mine to another", os.chown, "shared/one", 1001, -1)
    t("chgrp of mine to a group of mine", os.chown, "shared/one", -1, 2000)
    t("chgrp of mine to another's group", os.chown, "shared/one", -1, 3000)
    t("mknod of a device", os.mknod, "shared/dev", 0o660 | stat.S_IFCHR, os.makedev(1, 3))
    t("mknod of a fifo", os.mknod, "shared/fifo", 0o660 | stat.S_IFIFO)


def third():
    t("sticky: unlink another's", os.unlink, "shared/one")
    t("sticky: rename another's", os.rename, "shared/one", "shared/two")
    t("sticky: rename over another's", rename_over)


def rename_over():
    write("shared/three", b"3")
    os.rename("shared/three", "shared/one")


user(1000, 1000, other, [2000])
user(1001, 1001, third)
user(1000, 1000, lambda: t("sticky: unlink my own", os.unlink, "shared/one"))
os.umask(0)
write("open", b"", 0o666)
look("create without umask", "open")
t("mknod by root", os.mknod, "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
look("a device", "null")
t("mknod of a block device", os.mknod, "disk", 0o660 | stat.S_IFBLK, os.makedev(253, 300))
look("a block device", "disk")
t("mknod of a socket", os.mknod, "socket", 0o755 | stat.S_IFSOCK)
look("a socket", "socket")
for name in sorted(os.listdir("shared")):
    look(name, f"shared/{name}")
