"""A program that has a directory, processes, mounts and a network of its own.

1. All of them end with the program, however it ends: its processes with their namespace, the mounts with the
   last process. A signal to the first process ends the others.
2. The first process only waits, and removes the directory.

Used by tools/ceph-rbd and tools/s3-servers.
"""
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "ordered.d"))
from volume import fail, need, uxfs_command  # noqa: F401 (for those that use this)

NEWNS, NEWPID, NEWNET = 0x00020000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
# A step that takes longer hangs. No step passes or fails by its duration otherwise.
PATIENCE = 300


def unshare(flags):
    if LIBC.unshare(flags):
        fail(f"no namespaces of its own: {os.strerror(ctypes.get_errno())}")


def alone(name, keep, prepare=None):
    """Goes on in a process that is alone, and returns its directory. With `keep` the directory stays. `prepare` is
    called with the directory first, while there is a network."""
    if os.geteuid():
        fail(f"tools/{name} needs root: it makes namespaces")
    need("ip:iproute2", "mount:mount", "fusermount3:fuse3")
    os.environ["UXFS"] = uxfs_command()
    home = tempfile.mkdtemp(prefix=name + ".")
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    child = None
    try:
        if prepare:
            prepare(home)
        unshare(NEWPID)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            return inside(home, signals)
        _, status = os.waitpid(child, 0)
        child = None
        code = os.waitstatus_to_exitcode(status)
    finally:
        # Never in the child: it has returned, with `child` zero.
        if child != 0:
            for number in signals:
                signal.signal(number, signal.SIG_IGN)
            if child:
                os.kill(child, signal.SIGKILL)
                # It is gone when all processes of its namespace are.
                os.waitpid(child, 0)
            if keep:
                print(f"what there was is in {home}", file=sys.stderr)
            else:
                shutil.rmtree(home)
    sys.exit(code)


def inside(home, signals):
    """The first process of the namespace."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    unshare(NEWNS | NEWNET)
    done("mount", "--make-rprivate", "/")
    done("mount", "-t", "proc", "proc", "/proc")
    # uxfs notes its mounts below /run.
    done("mount", "-t", "tmpfs", "run", "/run")
    done("ip", "link", "set", "lo", "up")
    for variable in [name for name in os.environ if name.startswith(("XDG_", "AWS_", "CEPH_", "UXFS_"))]:
        del os.environ[variable]
    os.environ.update(HOME=home, LC_ALL="C.UTF-8")
    os.chdir(home)
    return home


def done(*words, **options):
    """Runs a command that must succeed, and returns what it prints."""
    ran = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                         **options)
    if ran.returncode:
        fail(f"`{' '.join(words)}` failed with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def started(log, *words, **options):
    """Starts a process, which says what it has to say in a file."""
    with open(log + ".log", "ab") as out:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)


def killed(process):
    process.kill()
    process.wait()


def until(what, holds, process=None):
    """Waits until something holds; `process` must live meanwhile."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if process and process.poll() is not None:
            fail(f"{what}: {process.args[0]} ended with {process.returncode}")
        if time.monotonic() > end:
            fail(f"{what}: not within {PATIENCE} seconds")
        time.sleep(0.05)
