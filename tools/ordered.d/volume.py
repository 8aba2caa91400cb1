"""A uxfs volume in a file, mounted in the foreground by a server of this process.

1. The host's kernel mounts nothing: uxfs serves the volume.
2. `ended` ends every server, also after an error.

Used by tools/ordered-rates and tools/ordered-aging; parts of it by tools/remote.d.
"""
import json
import os
import re
import subprocess
import sys
import time

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The server has this long to mount, and to write everything when it ends.
PATIENCE = 600


def fail(why):
    """Ends the program with a message."""
    sys.exit(why)


def need(*pairs):
    """Installs what is missing of COMMAND:PACKAGE, as tools/setup does."""
    script = 'set -euo pipefail; . "$0/setup"; need_packages "$@"'
    if subprocess.run(["bash", "-c", script, TOOLS, *pairs], stdout=sys.stderr).returncode:
        fail("packages are missing; see above")


def uxfs_command():
    """The uxfs to run: that of the variable UXFS, or the release build."""
    path = os.environ.get("UXFS", os.path.join(os.path.dirname(TOOLS), "target/release/uxfs"))
    if not os.access(path, os.X_OK):
        fail(f"{path}: no such program; build it (cargo build --release -p uxfs-cli), or set UXFS")
    return os.path.abspath(path)


class Volume:
    """A volume and its mount point, both in a directory of the host."""

    def __init__(self, home, name, size, options):
        self.uxfs = uxfs_command()
        self.image = os.path.join(home, name + ".img")
        self.dir = os.path.join(home, name)
        self.log = os.path.join(home, name + ".log")
        self.options = options
        self.server = None
        os.mkdir(self.dir)
        with open(self.image, "xb") as image:
            image.truncate(size)
        subprocess.run([self.uxfs, "mkfs", "-q", self.image], check=True)

    def mount(self):
        """Mounts the volume."""
        words = ",".join(["allow_other", *self.options])
        with open(self.log, "ab") as log:
            self.server = subprocess.Popen(
                [self.uxfs, "mount", "-f", "-o", words, self.image, self.dir], stderr=log)
        for _ in range(PATIENCE * 20):
            if os.path.ismount(self.dir):
                return
            if self.server.poll() is not None:
                break
            time.sleep(0.05)
        fail(f"{self.image} was not mounted; see {self.log}")

    def unmount(self):
        """Unmounts the volume and waits until everything is written."""
        subprocess.run([self.uxfs, "umount", self.dir], check=True)
        if self.server.wait(PATIENCE):
            fail(f"{self.image}: the mount did not end well; see {self.log}")
        self.server = None

    def remount_cold(self):
        """Mounts the volume again, with nothing of it in any cache."""
        self.unmount()
        with open(self.image, "rb") as image:
            os.fsync(image.fileno())
            os.posix_fadvise(image.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.mount()

    def durable(self):
        """Makes everything so far durable."""
        subprocess.run([self.uxfs, "sync", self.dir], check=True)

    def told(self, command):
        """The JSON of `uxfs status` or `uxfs stats`."""
        done = subprocess.run([self.uxfs, command, "--json", self.dir],
                              check=True, capture_output=True)
        return json.loads(done.stdout)

    def sound(self):
        """Unmounts the volume; xfs_repair must find nothing."""
        self.unmount()
        if subprocess.run(["xfs_repair", "-n", self.image], capture_output=True).returncode:
            fail(f"xfs_repair -n finds errors in {self.image}")

    def extents(self, inodes):
        """Of each inode of the unmounted volume: extents, and blocks of its extent tree, by xfs_db."""
        found = {}
        for ino in inodes:
            done = subprocess.run(
                ["xfs_db", "-r", "-c", f"inode {ino}", "-c", "print core.nblocks", "-c", "bmap -d",
                 self.image], check=True, capture_output=True, text=True)
            blocks = int(re.search(r"core\.nblocks = (\d+)", done.stdout)[1])
            counts = [int(n) for n in re.findall(r"^data offset .* count (\d+) ", done.stdout, re.M)]
            found[ino] = (len(counts), blocks - sum(counts))
        return found

    def ended(self):
        """Ends the server, whatever it does."""
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        subprocess.run(["umount", "-l", self.dir], capture_output=True)
