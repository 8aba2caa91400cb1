"""Listing: places that stay good, entries that come and go."""
from lib import *


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = libc.closedir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


def entries(d):
    while True:
        found = libc.readdir(d)
        if not found:
            return
        yield found.contents.name, found.contents.type


os.mkdir("d")
for n in range(3000):
    write(f"d/file{n:05}")
os.mkdir("d/sub")
os.symlink("x", "d/link")
d = libc.opendir(b"d")
places, names = [], []
while True:
    place = libc.telldir(d)
    found = libc.readdir(d)
    if not found:
        break
    places.append(place)
    names.append((found.contents.name, found.contents.type))
say("number", len(names))
say("all different", len(set(names)) == len(names) and len(set(places)) == len(places))
say("types", sorted({kind for _, kind in names}))
wrong = 0
for n in range(0, len(names), 97):
    libc.seekdir(d, places[n])
    found = libc.readdir(d).contents
    wrong += (found.name, found.type) != names[n]
say("wrong after seekdir", wrong)
middle = len(names) // 2
libc.seekdir(d, places[middle])
rest = {name for name, _ in names[middle:]}
for n, (name, _) in enumerate(names):
    if n % 3 == 0 and name.startswith(b"file"):
        os.unlink(b"d/" + name)
for n in range(500):
    write(f"d/new{n:05}")
seen = [name for name, _ in entries(d)]
left = {name for n, (name, _) in enumerate(names[middle:], middle)
        if n % 3 != 0 or not name.startswith(b"file")}
say("what stayed is seen once", sorted(left - set(seen)) == [] and len(seen) == len(set(seen)))
say("nothing else but new ones", all(n in rest or n.startswith(b"new") for n in seen))
libc.rewinddir(d)
say("anew", sum(1 for _ in entries(d)))
d2 = libc.opendir(b"d")
gone = 0
for name, kind in entries(d2):
    if kind == 8:
        os.unlink(b"d/" + name)
        gone += 1
say("removed while listed", gone)
say("left", sorted(os.listdir("d")))
look("the directory", "d")
t("dot and dotdot", lambda: [n for n, _ in entries(libc.opendir(b"d"))][:2])
say("d_ino", all(e.inode() == os.lstat(e.path).st_ino for e in os.scandir("d")))


def parent_of(path):
    d = libc.opendir(path)
    # To the end: a kernel keeps whole listings.
    inos = {}
    while found := libc.readdir(d):
        inos[found.contents.name] = found.contents.ino
    libc.closedir(d)
    return inos[b".."]


# Listings that a kernel may keep: one stands at an entry that is removed while others list. What is
# left fills 12 pages of the kernel's cache exactly.
os.mkdir("e")
for n in range(12 * 128 - 2 + 1500):
    write(f"e/{n:05}")
for n in range(3):
    say("listed", len(os.listdir("e")))
d = libc.opendir(b"e")
order = [name for name, _ in entries(d)]
libc.rewinddir(d)
first = []
for name, _ in entries(d):
    first.append(name)
    if len(first) == 1500:
        break
# The library reads ahead of the entries that it returns.
for name in order[1000:2500]:
    os.unlink(b"e/" + name)
kept = {name.encode() for name in os.listdir("e")}
for n in range(3):
    say("listed", len(os.listdir("e")))
rest = {name for name, _ in entries(d)}
say("the first one goes on", kept <= rest | set(first) and not rest & set(first))
libc.closedir(d)
for n in range(3):
    d = libc.opendir(b"e")
    say("again", sum(1 for _ in entries(d)))
    write(f"e/more{n}")
    libc.rewinddir(d)
    say("with a new one", sum(1 for _ in entries(d)))
    os.unlink(f"e/more{n}")
    libc.closedir(d)
say("without it", len(os.listdir("e")))
os.mkdir("from")
os.mkdir("from/moved")
os.mkdir("to")
os.mkdir("to/exchanged")
for n in range(3):
    say("parent", parent_of(b"from/moved") == os.stat("from").st_ino)
    say("another's parent", parent_of(b"to/exchanged") == os.stat("to").st_ino)
call("renameat2", AT_FDCWD, b"from/moved", AT_FDCWD, b"to/exchanged", 2)
for path in ["from/moved", "to/exchanged"] * 3:
    say("parent after an exchange", parent_of(path.encode()) == os.stat(os.path.dirname(path)).st_ino)
os.rename("from/moved", "to/moved")
for n in range(3):
    say("parent after a move", parent_of(b"to/moved") == os.stat("to").st_ino)
