"""A directory of 100,000 entries: listed, found again by place, thinned out, emptied."""
import random

from lib import *

COUNT = 100_000
rng = random.Random(5)


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = libc.closedir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
os.mkdir("d")
write("d/0")
# Names of one file: what is tried here is the directory.
for n in range(1, COUNT):
    os.link("d/0", f"d/{n}")
look("names", "d/0")
d = libc.opendir(b"d")
places = {}
while True:
    place = libc.telldir(d)
    found = libc.readdir(d)
    if not found:
        break
    places[found.contents.name] = place
say("listed", len(places))
say("all there", all(b"%d" % n in places for n in range(COUNT)))
some = rng.sample(sorted(places), 300)
wrong = 0
for name in some:
    libc.seekdir(d, places[name])
    wrong += libc.readdir(d).contents.name != name
say("wrong after seekdir", wrong)
gone = {b"%d" % n for n in range(1, COUNT) if n % 3 == 1}
for name in gone:
    os.unlink(b"d/" + name)
wrong = 0
for name in some:
    if name not in gone:
        libc.seekdir(d, places[name])
        wrong += libc.readdir(d).contents.name != name
say("wrong after others went", wrong)
libc.rewinddir(d)
left = set()
twice = 0
while True:
    found = libc.readdir(d)
    if not found:
        break
    twice += found.contents.name in left
    left.add(found.contents.name)
say("twice", twice)
say("left", len(left))
say("right ones", left == set(places) - gone)
say("found", sum(os.path.exists(b"d/%d" % n) for n in range(0, COUNT, 50)))
libc.closedir(d)
# Removed while it is listed, as rm does.
for entry in os.scandir("d"):
    os.unlink(entry.path)
say("empty", os.listdir("d"))
t("rmdir", os.rmdir, "d")
