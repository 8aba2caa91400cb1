"""Deep and long: directories below each other, paths as long as may be, many names of one length."""
from lib import *

here = os.getcwd()
depth = 0
name = "n" * 255
fds = [os.open(".", os.O_RDONLY)]
for level in range(40):
    os.mkdir(name, dir_fd=fds[-1])
    fds.append(os.open(name, os.O_RDONLY, dir_fd=fds[-1]))
os.fchdir(fds[-1])
t("getcwd of 10 KiB", lambda: len(os.getcwd()) > 10000)
write("leaf", b"deep")
t("read there", read, "leaf")
t("dotdot up", lambda: os.stat("../" * 40).st_ino == os.stat(here).st_ino)
t("rename up", os.rename, "leaf", "../" * 40 + "leaf")
os.chdir(here)
t("it is here", read, "leaf")
t("a path of 4095", lambda: os.stat("." + "/" * 4090 + "leaf") and None)
t("a path of 4096", lambda: os.stat("." + "/" * 4091 + "leaf") and None)
for fd in reversed(fds[:-1]):
    os.rmdir(name, dir_fd=fd)
for fd in fds:
    os.close(fd)
say("left", sorted(os.listdir(".")))
# Names that differ little, and names of every length.
os.mkdir("d")
for n in range(1, 256):
    write("d/" + "x" * n)
say("lengths", [len(n) for n in sorted(os.listdir("d"), key=len)] == list(range(1, 256)))
for n in range(1, 256):
    os.unlink("d/" + "x" * n)
for byte in range(1, 256):
    if byte not in (0x2E, 0x2F):
        write(b"d/" + bytes([byte, byte]))
say("bytes", len(os.listdir(b"d")))
t("three dots", os.mkdir, "...")
t("four dots", os.mkdir, "....")
for a, b in (("a", "A"), ("\u00e9", "e\u0301"), ("x ", "x"), ("x.", "x"), (" x", "x"), ("\\", "|")):
    os.mkdir(f"d/{a}{b}")
    t(f"{a!r} and {b!r}", lambda: (write(f"d/{a}{b}/{a}"), os.path.lexists(f"d/{a}{b}/{b}"))[1])
# Many subdirectories, and the link count of the parent.
os.mkdir("many")
for n in range(2000):
    os.mkdir(f"many/{n}")
look("2000 directories", "many")
for n in range(0, 2000, 2):
    os.rmdir(f"many/{n}")
look("1000 directories", "many")
for n in range(1, 2000, 2):
    os.rename(f"many/{n}", f"...//{n}")
look("none", "many")
look("moved", "...")
# Many names of one file.
write("one", b"one")
for n in range(3000):
    os.link("one", f"many/{n}")
look("3001 names", "one")
for n in range(3000):
    os.unlink(f"many/{n}")
look("one name", "one")
# A long chain of links.
os.symlink("one", "s0")
for n in range(1, 45):
    os.symlink(f"s{n - 1}", f"s{n}")
for n in (38, 39, 40, 41, 44):
    t(f"{n + 1} links", read, f"s{n}")
os.symlink("x" * 200 + "/../one", "way")
t("through a directory that is not there", read, "way")
os.symlink(".", "dot")
t("forty times the same", lambda: os.stat("dot/" * 40 + "one") and None)
t("forty-one times", lambda: os.stat("dot/" * 41 + "one") and None)
os.symlink("/", "root")
t("to the root", lambda: os.stat("root/proc") and None)
