"""copy_file_range, and reading back what was copied."""
from lib import *

P = 4096


def copy(a, b, length, at=0, to=0):
    return os.copy_file_range(a, b, length, at, to)


def whole(a, b, length, at=0, to=0):
    done = 0
    while done < length:
        n = copy(a, b, length - done, at + done, to + done)
        if n == 0:
            break
        done += n
    return done


write("a", bytes(range(256)) * 16 * 40)
a = os.open("a", os.O_RDONLY)
b = os.open("b", os.O_RDWR | os.O_CREAT, 0o644)
size = os.fstat(a).st_size
t("all of it", whole, a, b, size)
say("same", read("a") == read("b"))
t("a part in the middle", whole, a, b, 2 * P, P, 3 * P)
say("same there", os.pread(b, 2 * P, 3 * P) == os.pread(a, 2 * P, P))
t("not aligned", whole, a, b, 5000, 123, 7777)
say("same there", os.pread(b, 5000, 7777) == os.pread(a, 5000, 123))
os.pwrite(b, b"changed", 0)
say("the source is not touched", os.pread(a, 4, 0))
t("beyond the end", copy, a, b, 10, size + 5, 0)
t("across the end", whole, a, b, 10000, size - 100, 0)
t("of nothing", copy, a, b, 0)
t("to a hole", whole, a, b, P, 0, 1 << 30)
say("size", os.fstat(b).st_size)
say("there", os.pread(b, 5, 1 << 30))
t("overlapping in one file", lambda: copy(b, b, 3 * P, 0, P))
t("apart in one file", lambda: whole(b, b, P, 0, 10 * P))
t("to one open for reading", copy, b, a, P)
ap = os.open("b", os.O_WRONLY | os.O_APPEND)
t("to one open for appending", copy, a, ap, P)
os.mkdir("d")
t("from a directory", copy, os.open("d", os.O_RDONLY), b, 10)
