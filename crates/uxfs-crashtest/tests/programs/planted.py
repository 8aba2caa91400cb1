"""Programs with one planted fault each, and their checks.

planted.py run NAME good|bad     does the steps of one program and acknowledges each
planted.py check NAME            judges what a power cut left

Each program is a function `NAME(step, good)`, and `check_NAME(acked)` is its check; `acked` is the number
of acknowledged steps.
"""
import mmap
import os
import sqlite3
import sys

STEPS = 6
SIZE = 5000


def write(path, data, sync=True, flags=os.O_WRONLY | os.O_CREAT):
    fd = os.open(path, flags, 0o644)
    os.write(fd, data)
    if sync:
        os.fsync(fd)
    os.close(fd)


def overwrite(path, data, at, sync=True):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, data, at)
    if sync:
        os.fsync(fd)
    os.close(fd)


def append(path, data, sync=True):
    write(path, data, sync, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def body(step):
    return bytes([65 + step]) * SIZE


def refuse(why):
    sys.exit(why)


def check_files(acked):
    for step in range(acked):
        if read(f"m{step}") != body(step):
            refuse(f"m{step} is lost")


# The content is not synced.
def lost_fsync(step, good):
    write(f"m{step}", body(step), good)
    sync(".")


# The name is not synced.
def lost_directory_fsync(step, good):
    write(f"t{step}", body(step))
    os.rename(f"t{step}", f"m{step}")
    if good:
        sync(".")


# The sync comes before the write.
def fsync_too_soon(step, good):
    fd = os.open(f"m{step}", os.O_WRONLY | os.O_CREAT)
    if not good:
        os.fsync(fd)
    os.write(fd, body(step))
    if good:
        os.fsync(fd)
    os.close(fd)
    sync(".")


# Another file is synced.
def fsync_of_another_file(step, good):
    write(f"m{step}", body(step), False)
    write("other", b"x")
    if good:
        sync(f"m{step}")


# A second name that is not synced.
def link_without_directory_fsync(step, good):
    write(f"t{step}", body(step))
    os.link(f"t{step}", f"m{step}")
    if good:
        sync(".")


def directory_renamed(step, good):
    os.mkdir(f"t{step}")
    write(f"t{step}/file", body(step))
    os.rename(f"t{step}", f"d{step}")
    if good:
        sync(".")


def check_directory_renamed(acked):
    for step in range(acked):
        if read(f"d{step}/file") != body(step):
            refuse(f"d{step} is lost")


# Python's buffer is written after the acknowledgement.
def buffered(step, good):
    file = open(f"m{step}", "wb")
    KEPT.append(file)
    sync(".")
    file.write(body(step)[:4000])
    if good:
        file.flush()
        os.fsync(file.fileno())


KEPT = []


def check_buffered(acked):
    for step in range(acked):
        if read(f"m{step}") != body(step)[:4000]:
            refuse(f"m{step} is lost")


# The new content is renamed over the old one before it is on the disk.
def rename_before_fsync(step, good):
    fd = os.open("new", os.O_WRONLY | os.O_CREAT)
    os.write(fd, body(step))
    if good:
        os.fsync(fd)
    os.rename("new", "config")
    os.fsync(fd)
    os.close(fd)
    sync(".")


def check_config(acked):
    if acked and read("config") not in [body(step) for step in range(acked - 1, STEPS)]:
        refuse("config is neither old nor new")


check_rename_before_fsync = check_config


# The file is emptied, then written.
def truncate_then_write(step, good):
    if not good:
        write("config", body(step), True, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        sync(".")
        return
    rename_before_fsync(step, True)


check_truncate_then_write = check_config


# The old file goes before the new one is there.
def remove_then_rename(step, good):
    write("new", body(step))
    if not good and os.path.exists("config"):
        os.remove("config")
    os.rename("new", "config")
    sync(".")


check_remove_then_rename = check_config


# A record of many sectors is overwritten in its place.
def torn_overwrite(step, good):
    if good:
        rename_before_fsync(step, True)
    elif step == 0:
        write("config", body(step))
        sync(".")
    else:
        overwrite("config", body(step), 0)


check_torn_overwrite = check_config


# The data is changed before the log knows of it.
def log_after_data(step, good):
    if step == 0:
        write("data", b"0" * SIZE)
    entry = b"%d\n" % step
    if good:
        append("log", entry)
    overwrite("data", bytes([65 + step]), step * 512)
    if not good:
        append("log", entry)


def check_log_after_data(acked):
    data, log = read("data") or b"", (read("log") or b"").split(b"\n")
    for step in range(STEPS):
        if data[step * 512 : step * 512 + 1] == bytes([65 + step]) and b"%d" % step not in log:
            refuse(f"the data has step {step}, the log has not")


# The log is not on the disk when the data is changed.
def log_without_fsync(step, good):
    if step == 0:
        write("data", b"0" * SIZE)
        write("log", b"")
        sync(".")
    append("log", b"%d\n" % step, good)
    overwrite("data", bytes([65 + step]), step * 512)


check_log_without_fsync = check_log_after_data


# The index names a file that is not there yet.
def index_before_blob(step, good):
    if not good:
        append("index", b"m%d\n" % step)
    write(f"m{step}", body(step))
    sync(".")
    if good:
        append("index", b"m%d\n" % step)


def check_index_before_blob(acked):
    for name in (read("index") or b"").split():
        if read(name.decode()) != body(int(name[1:])):
            refuse(f"the index names {name.decode()}, which is not there")


# Direct writes are in the disk's cache only.
def direct_without_flush(step, good):
    if step == 0:
        write("direct", b"0" * (4096 * STEPS))
        sync(".")
    page = mmap.mmap(-1, 4096)
    page.write(bytes([65 + step]) * 4096)
    fd = os.open("direct", os.O_WRONLY | os.O_DIRECT)
    os.lseek(fd, step * 4096, os.SEEK_SET)
    os.writev(fd, [page])
    if good:
        os.fdatasync(fd)
    os.close(fd)


def check_pages(name, acked):
    data = read(name) or b""
    for step in range(acked):
        if data[step * 4096 : step * 4096 + 4096] != bytes([65 + step]) * 4096:
            refuse(f"page {step} is lost")


def check_direct_without_flush(acked):
    check_pages("direct", acked)


# A store into a mapping reaches the file system when the kernel likes.
def mmap_without_msync(step, good):
    if step == 0:
        write("mapped", b"0" * (4096 * STEPS))
        sync(".")
        fd = os.open("mapped", os.O_RDWR)
        KEPT.append(mmap.mmap(fd, 4096 * STEPS))
        os.close(fd)
    KEPT[0][step * 4096 : step * 4096 + 4096] = bytes([65 + step]) * 4096
    if good:
        KEPT[0].flush()


def check_mmap_without_msync(acked):
    check_pages("mapped", acked)


def symlink_switched(step, good):
    os.symlink(f"release{step}", "next")
    os.rename("next", "current")
    if good:
        sync(".")


def check_symlink_switched(acked):
    if acked:
        try:
            target = os.readlink("current")
        except FileNotFoundError:
            target = "release-1"
        if int(target[len("release") :]) < acked - 1:
            refuse(f"current leads to {target}")


# A length that was set is not synced.
def truncate_without_fsync(step, good):
    if step == 0:
        write("log", b"x" * SIZE)
        sync(".")
    fd = os.open("log", os.O_WRONLY)
    os.ftruncate(fd, SIZE - 100 * (step + 1))
    if good:
        os.fsync(fd)
    os.close(fd)


def check_truncate_without_fsync(acked):
    if acked and len(read("log")) > SIZE - 100 * acked:
        refuse("what was cut off is there again")


# The copy shares the blocks, so any later sync of the log keeps it: none follows before the acknowledgement.
def copy_without_fsync(step, good):
    if step == 0:
        write("from", body(0))
    source = os.open("from", os.O_RDONLY)
    copy = os.open(f"m{step}", os.O_WRONLY | os.O_CREAT)
    sync(".")
    os.copy_file_range(source, copy, SIZE)
    if good:
        os.fsync(copy)
    os.close(copy)


def check_copy_without_fsync(acked):
    for step in range(acked):
        if read(f"m{step}") != body(0):
            refuse(f"m{step} is no copy")


# What was removed comes back.
def remove_without_directory_fsync(step, good):
    if step == 0:
        for name in range(STEPS):
            write(f"m{name}", body(name))
        sync(".")
    os.remove(f"m{step}")
    if good:
        sync(".")


def check_remove_without_directory_fsync(acked):
    for step in range(acked):
        if os.path.exists(f"m{step}"):
            refuse(f"m{step} is there again")


# The acknowledgement comes before the sync.
def acknowledged_too_soon(step, good):
    write(f"m{step}", body(step), good)
    if not good:
        acknowledge(step)
        sync(f"m{step}")
    sync(".")


def sqlite(step, good):
    if step == 0:
        KEPT.append(sqlite3.connect("db", isolation_level=None))
        KEPT[0].execute("pragma journal_mode=wal")
        KEPT[0].execute("pragma synchronous=" + ("full" if good else "off"))
        KEPT[0].execute("create table t (step integer primary key)")
    KEPT[0].execute("insert into t values (?)", (step,))


def check_sqlite(acked):
    if acked == 0:
        return
    db = sqlite3.connect("db")
    if db.execute("pragma integrity_check").fetchone() != ("ok",):
        refuse("the database is damaged")
    rows = {row for (row,) in db.execute("select step from t")}
    if not rows >= set(range(acked)):
        refuse(f"of {acked} acknowledged rows there are {sorted(rows)}")


ACKED = set()


def acknowledge(step):
    if step not in ACKED:
        ACKED.add(step)
        os.write(int(os.environ["UXFS_ACK"]), b"%d\n" % step)


def main():
    what, name = sys.argv[1:3]
    if what == "run":
        for step in range(STEPS):
            globals()[name](step, sys.argv[3] == "good")
            acknowledge(step)
    else:
        with open(os.environ["UXFS_ACKED"]) as file:
            acked = len(file.readlines())
        globals().get("check_" + name, check_files)(acked)


main()
