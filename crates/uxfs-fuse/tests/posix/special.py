"""Fifos, sockets, devices, programs, and watching: what is not data."""
import select
import shutil
import socket
import subprocess

from lib import *

os.umask(0o022)
os.mkfifo("fifo")
r = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
w = os.open("fifo", os.O_WRONLY)
os.write(w, b"through")
t("fifo", os.read, r, 10)
os.unlink("fifo")
os.write(w, b"without a name")
t("fifo without a name", os.read, r, 20)
os.close(w)
t("its end", os.read, r, 10)
server = socket.socket(socket.AF_UNIX)
server.bind("socket")
server.listen(1)
look("socket", "socket")
t("bound twice", socket.socket(socket.AF_UNIX).bind, "socket")
client = socket.socket(socket.AF_UNIX)
t("connect", client.connect, "socket")
client.send(b"hello")
t("said", lambda: server.accept()[0].recv(10))
os.rename("socket", "moved")
t("connect to it moved", socket.socket(socket.AF_UNIX).connect, "moved")
server.close()
t("connect to a dead one", socket.socket(socket.AF_UNIX).connect, "moved")
os.chmod("moved", 0o600)
user(1000, 1000, lambda: t("connect to another's", socket.socket(socket.AF_UNIX).connect, "moved"))
for name, mode, dev in (("null", stat.S_IFCHR, (1, 3)), ("zero", stat.S_IFCHR, (1, 5)), ("full", stat.S_IFCHR, (1, 7)), ("none", stat.S_IFCHR, (240, 77)), ("noblock", stat.S_IFBLK, (240, 77))):
    os.mknod(name, mode | 0o666, os.makedev(*dev))
t("null", lambda: (os.write(os.open("null", os.O_WRONLY), b"x"), os.read(os.open("null", os.O_RDONLY), 5)))
t("zero", lambda: os.read(os.open("zero", os.O_RDONLY), 5))
t("full", lambda: os.write(os.open("full", os.O_WRONLY), b"x"))
q("a device that is not there", os.open, "none", os.O_RDONLY)
q("a block device that is not there", os.open, "noblock", os.O_RDONLY)
for major, minor in ((0, 0), (255, 255), (256, 1), (511, 1048575), (4095, 1048575), (1, 256), (1, 65536)):
    t(f"device {major},{minor}", os.mknod, "dev", stat.S_IFBLK | 0o600, os.makedev(major, minor))
    look("  is", "dev")
    if os.path.lexists("dev"):
        os.unlink("dev")
# Programs.
for name in ("id", "sh"):
    shutil.copy(shutil.which(name), name)


def runs(*args):
    p = subprocess.run(args, capture_output=True, text=True)
    return p.returncode, p.stdout.strip()[:100], bool(p.stderr)


t("a program", runs, "./id", "-u")
os.chown("id", 1234, 4321)
for mode in (0o755, 0o4755, 0o2755, 0o6755, 0o4644):
    os.chmod("id", mode)
    user(1000, 1000, lambda: t(f"{mode:o}: uid, gid", lambda: (runs("./id", "-u"), runs("./id", "-g"), runs("./id", "-ru"))))
os.chmod("id", 0o711)
user(1000, 1000, lambda: t("one that may be run and not read", runs, "./id", "-u"))
user(1000, 1000, lambda: q("read of it", os.open, "id", os.O_RDONLY))
write("script", b"#!./sh\necho said $0\n", 0o755)
t("a script", runs, "./script")
os.symlink("script", "sl")
t("through a link", runs, "./sl")
os.setxattr("id", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0))
t("a program with a capability", lambda: os.getxattr("id", "security.capability"))
with open("big", "wb") as big:
    big.write(open("/bin/bash", "rb").read())
os.chmod("big", 0o755)
t("a larger one", runs, "./big", "-c", "echo $((6*7))")
# Watching.
libc.inotify_init1(0)
fd = libc.inotify_init1(0o4000)
os.mkdir("w")
libc.inotify_add_watch(fd, b"w", 0xFFF)


def events():
    try:
        raw = os.read(fd, 65536)
    except BlockingIOError:
        return []
    at, seen = 0, []
    while at < len(raw):
        _, mask, _, length = struct.unpack_from("iIII", raw, at)
        seen.append((hex(mask), raw[at + 16 : at + 16 + length].rstrip(b"\0")))
        at += 16 + length
    return seen


for label, f in (
    ("create", lambda: os.close(os.open("w/a", os.O_CREAT | os.O_WRONLY))),
    ("write", lambda: write("w/a", b"x")), ("read", lambda: read("w/a")), ("chmod", lambda: os.chmod("w/a", 0o600)),
    ("rename", lambda: os.rename("w/a", "w/b")), ("link", lambda: os.link("w/b", "w/c")), ("unlink", lambda: os.unlink("w/b")),
    ("mkdir", lambda: os.mkdir("w/d")), ("rmdir", lambda: os.rmdir("w/d")), ("truncate", lambda: os.truncate("w/c", 0)),
    ("setxattr", lambda: os.setxattr("w/c", "user.x", b"")), ("list", lambda: os.listdir("w")),
    ("utime", lambda: os.utime("w/c")), ("move away", lambda: os.rename("w/c", "away")),
):
    f()
    say(f"watch: {label}", events())
ep = select.epoll()
try:
    ep.register(os.open("away", os.O_RDONLY), 1)
    say("epoll of a file", "ok")
except OSError as error:
    say("epoll of a file", name_of(error.errno))
say("poll of a file", [e for _, e in (lambda p: (p.register(os.open("away", os.O_RDONLY), 5), p.poll(0))[1])(select.poll())])
