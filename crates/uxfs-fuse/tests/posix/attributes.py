"""Extended attributes on every kind of file, by every namespace, up to what there is room for."""
from lib import *

os.umask(0o022)
write("file")
os.mkdir("dir")
os.symlink("file", "link")
os.mkfifo("fifo")
os.mknod("null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
os.mknod("socket", 0o666 | stat.S_IFSOCK)
os.mkdir("sticky")
os.chmod("sticky", 0o1777)
for name in ("file", "dir", "fifo", "null", "socket", "sticky"):
    os.chmod(name, stat.S_IMODE(os.stat(name).st_mode) | 0o666)
SPACES = ("user.x", "trusted.x", "security.x", "security.selinux", "security.capability", "security.ima", "security.evm", "system.x",
          "system.posix_acl_access", "system.posix_acl_default", "other.x", "user", "user.", "trusted.", "x", "trusted.overlay.opaque",
          "system.richacl", "btrfs.x", "osx.x", "user.\u00e9", "USER.x")


def each(who):
    for path in ("file", "dir", "link", "fifo", "null", "socket", "sticky"):
        for name in SPACES:
            t(f"{who}: set {name} of {path}", lambda: os.setxattr(path, name, b"value", follow_symlinks=False))
            t(f"{who}: get", lambda: os.getxattr(path, name, follow_symlinks=False))
        t(f"{who}: list of {path}", lambda: sorted(os.listxattr(path, follow_symlinks=False)))
        for name in SPACES:
            t(f"{who}: remove {name} of {path}", lambda: os.removexattr(path, name, follow_symlinks=False))


each("root")
user(1000, 1000, lambda: each("other"))
for path in ("file", "dir"):
    os.chown(path, 1000, 1000)
user(1000, 1000, lambda: each("owner"))
# By permission of the file.
for mode in (0o000, 0o200, 0o400, 0o600):
    write("m", b"")
    os.chmod("m", 0o600)
    os.setxattr("m", "user.a", b"1")
    os.chown("m", 1000, 1000)
    os.chmod("m", mode)

    def tries():
        t(f"{mode:o}: get", os.getxattr, "m", "user.a")
        t(f"{mode:o}: set", os.setxattr, "m", "user.b", b"2")
        t(f"{mode:o}: list", lambda: sorted(os.listxattr("m")))
        t(f"{mode:o}: remove", os.removexattr, "m", "user.a")

    user(1000, 1000, tries)
    user(1001, 1001, tries)
    os.unlink("m")
# Sizes.
write("s")
for size in (0, 1, 30, 31, 200, 255, 256, 300, 1000, 2000, 3000, 4000, 4095, 4096, 5000, 16384, 65535, 65536, 65537, 100000):
    t(f"{size} bytes", os.setxattr, "s", "user.v", b"v" * size)
    t("  there", lambda: len(os.getxattr("s", "user.v")))
for length in (1, 50, 100, 200, 249, 250, 251):
    t(f"name of {length}", os.setxattr, "s", "user." + "n" * length, b"1")
    t("  there", os.getxattr, "s", "user." + "n" * length)
t("names", lambda: [len(n) for n in sorted(os.listxattr("s"))])
os.mkdir("many")
for n in range(300):
    os.setxattr("many", f"user.{n:0200}", b"x" * (n % 50))
t("names of 64 KiB", lambda: len(os.listxattr("many")))
for n in range(300, 400):
    os.setxattr("many", f"user.{n:0200}", b"")
t("more than 64 KiB", lambda: len(os.listxattr("many")))
t("one of them", os.getxattr, "many", f"user.{333:0200}")
for n in range(400):
    os.removexattr("many", f"user.{n:0200}")
t("none", os.listxattr, "many")
room = ctypes.create_string_buffer(70000)
os.setxattr("s", "user.r", b"0123456789")
for size in (0, 1, 9, 10, 11, 65536, 65537, 70000):
    c(f"room of {size}", "getxattr", b"s", b"user.r", room, size)
    c("room for the names", "listxattr", b"s", room, size)
# Long values in turn, kept apart from the file's other attributes.
for n in range(30):
    os.setxattr("s", "user.turn", bytes([n]) * (n * 2100 % 60000))
    os.setxattr("s", f"user.k{n % 3}", bytes([n]) * n)
say("the last", (len(os.getxattr("s", "user.turn")), [len(os.getxattr("s", f"user.k{k}")) for k in range(3)]))
