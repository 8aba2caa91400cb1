"""All that rename can meet, and its flags."""
from lib import *

KINDS = ["file", "dir", "full", "link", "fifo", "none"]
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


def make(kind, name):
    if kind == "file":
        write(name, b"f")
    elif kind == "dir":
        os.mkdir(name)
    elif kind == "full":
        os.mkdir(name)
        write(f"{name}/in", b"")
    elif kind == "link":
        os.symlink("nowhere", name)
    elif kind == "fifo":
        os.mkfifo(name)


def clear(name):
    if os.path.isdir(name) and not os.path.islink(name):
        for inner in os.listdir(name):
            clear(f"{name}/{inner}")
        os.rmdir(name)
    elif os.path.lexists(name):
        os.unlink(name)


def rename2(a, b, flags):
    call("renameat2", AT_FDCWD, a.encode(), AT_FDCWD, b.encode(), flags)


os.mkdir("other")
for flags in (0, NOREPLACE, EXCHANGE):
    for a in KINDS:
        for b in KINDS:
            for to in ("b", "other/b"):
                make(a, "a")
                make(b, to)
                t(f"{flags} {a} to {b} {to}", rename2, "a", to, flags)
                look("  a", "a")
                look("  b", to)
                clear("a")
                clear(to)
look("other", "other")
os.mkdir("d")
os.mkdir("d/e")
t("into itself", os.rename, "d", "d/x")
t("into its own below", os.rename, "d", "d/e/x")
t("onto what it is in", os.rename, "d/e", "d")
t("exchange with its own below", rename2, "d", "d/e", EXCHANGE)
t("dot", os.rename, "d/.", "x")
t("to dot", os.rename, "d", "d/e/.")
t("to itself", os.rename, "d", "d")
write("one", b"1")
os.link("one", "same")
t("two names of one file", os.rename, "one", "same")
look("both stay", "one")
t("not replaced by its other name", rename2, "one", "same", NOREPLACE)
t("exchanged with its other name", rename2, "one", "same", EXCHANGE)
t("noreplace and exchange", rename2, "one", "two", NOREPLACE | EXCHANGE)
t("unknown flag", rename2, "one", "two", 64)
t("whiteout", rename2, "one", "two", WHITEOUT)
look("what is left", "one")
look("what moved", "two")
t("whiteout onto another", rename2, "same", "two", WHITEOUT)
look("what is left of it", "same")
write("three", b"3")
t("whiteout, not to replace", rename2, "three", "two", WHITEOUT | NOREPLACE)
t("whiteout of a directory", rename2, "d", "other/d", WHITEOUT)
look("what is left of that", "d")
look("its parent", "other")
t("long name", os.rename, "two", "n" * 256)
t("longest name", os.rename, "two", "n" * 255)
t("trailing slash of a file", os.rename, "n" * 255, "x/")
t("directory with a trailing slash", os.rename, "other/", "renamed/")
look("there", "renamed")
# What is left behind is a device 0:0, whatever moved, and whatever it moved onto.
os.mkdir("there")
for a in KINDS:
    for b in KINDS:
        for to in ("b", "there/b"):
            for flags in (WHITEOUT, WHITEOUT | NOREPLACE, WHITEOUT | EXCHANGE):
                make(a, "a")
                make(b, to)
                t(f"{flags} {a} to {b} {to}", rename2, "a", to, flags)
                look("  a", "a")
                look("  b", to)
                clear("a")
                clear(to)
look("there", "there")


def not_root():
    write("pub/mine")
    t("whiteout, not privileged", rename2, "pub/mine", "pub/moved", WHITEOUT)
    look("left", "pub/mine")


os.mkdir("pub")
os.chmod("pub", 0o777)
user(1000, 1000, not_root)
# While they are open, and while they are somebody's working directory.
write("open1", b"one")
write("open2", b"two")
first, second = os.open("open1", os.O_RDWR), os.open("open2", os.O_RDWR)
rename2("open1", "open2", EXCHANGE)
say("exchanged while open", (os.pread(first, 3, 0), os.pread(second, 3, 0), read("open1"), read("open2")))
os.rename("open1", "open2")
say("replaced while open", (os.fstat(first).st_nlink, os.fstat(second).st_nlink, os.pwrite(first, b"ONE", 0), os.pread(first, 3, 0), read("open2")))
os.makedirs("x/y/z")
os.makedirs("v/w")
os.chdir("x/y/z")
rename2("../../../x/y", "../../../v/w", EXCHANGE)
say("the working directory", os.getcwd().rsplit("/", 3)[1:])
say("dotdot", os.listdir(".."))
os.chdir("../../..")
t("rmdir of what moved away", os.rmdir, "x/y")
look("x", "x")
look("v", "v")
look("v/w", "v/w")
