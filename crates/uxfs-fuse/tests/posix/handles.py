"""O_PATH, handles, /proc/self/fd: files by other ways than their names."""
from lib import *

write("f", b"content", 0o644)
os.mkdir("d")
write("d/in", b"inside")
os.symlink("f", "l")
p = os.open("f", os.O_PATH)
look_at = lambda label, s: say(label, f"{stat.filemode(s.st_mode)} {s.st_nlink} {s.st_size}")
look_at("fstat", os.fstat(p))
q("opened anew", lambda: os.close(os.open(f"/proc/self/fd/{p}", os.O_RDWR)))
t("chmod through /proc", os.chmod, f"/proc/self/fd/{p}", 0o600)
look("then", "f")
c("linkat with AT_EMPTY_PATH", "linkat", p, b"", AT_FDCWD, b"linked", 0x1000)
look("then", "f")
c("fchownat with AT_EMPTY_PATH", "fchownat", p, b"", 5, 6, 0x1000)
look("then", "f")
c("faccessat", "faccessat", p, b"", 4, 0x1000)
os.unlink("f")
os.unlink("linked")
say("without a name", os.fstat(p).st_nlink)
q("opened anew without a name", lambda: os.close(os.open(f"/proc/self/fd/{p}", os.O_RDONLY)))
t("read through /proc", read, f"/proc/self/fd/{p}")
c("linked back", "linkat", AT_FDCWD, f"/proc/self/fd/{p}".encode(), AT_FDCWD, b"back", 0x400)
os.close(p)
s = os.open("l", os.O_PATH | os.O_NOFOLLOW)
look_at("a link itself", os.fstat(s))
t("its target", lambda: os.readlink("", dir_fd=s))
d = os.open("d", os.O_PATH)
t("a directory as a way", lambda: os.read(os.open("in", os.O_RDONLY, dir_fd=d), 10))
os.rename("d", "e")
t("after it moved", lambda: os.read(os.open("in", os.O_RDONLY, dir_fd=d), 10))
t("make in it", lambda: os.mkdir("made", dir_fd=d))
look("there", "e/made")
# Handles, as NFS servers use them.
MAX = 128


def handle(path, flags=0):
    raw = ctypes.create_string_buffer(struct.pack("Ii", MAX, 0) + bytes(MAX))
    mount = ctypes.c_int()
    call("name_to_handle_at", AT_FDCWD, path.encode(), raw, ctypes.byref(mount), flags)
    return raw


def by_handle(raw, flags=os.O_RDONLY):
    mount = os.open(".", os.O_RDONLY)
    try:
        return call("open_by_handle_at", mount, raw, flags)
    finally:
        os.close(mount)


h, hd = handle("e/in"), handle("e")
t("by its handle", lambda: os.read(by_handle(h), 10))
os.rename("e/in", "e/out")
t("after a rename", lambda: os.read(by_handle(h), 10))
t("of a directory", lambda: sorted(os.listdir(by_handle(hd, os.O_RDONLY | os.O_DIRECTORY))))
t("its parent", lambda: os.fstat(os.open("..", os.O_RDONLY, dir_fd=by_handle(hd, os.O_RDONLY | os.O_DIRECTORY))).st_ino == os.stat(".").st_ino)
os.unlink("e/out")
q("of what is gone", by_handle, h)
small = ctypes.create_string_buffer(struct.pack("Ii", 0, 0))
c("no room", "name_to_handle_at", AT_FDCWD, b"e", small, ctypes.byref(ctypes.c_int()), 0)
for n in range(3):
    write("again", bytes([65 + n]))
    h2 = handle("again")
    os.unlink("again")
    write("again", b"another")
    q(f"a number used again, {n}", by_handle, h2)
    os.unlink("again")
# What stays when a directory moves below one that is open.
os.makedirs("a/b/c")
inner = os.open("a/b/c", os.O_RDONLY)
os.rename("a/b", "moved")
t("dotdot follows", lambda: os.stat("..", dir_fd=inner).st_ino == os.stat("moved").st_ino)
os.chdir("moved/c")
os.rename("../../moved", "../../again")
say("working directory", os.getcwd().rsplit("/", 2)[1:])
