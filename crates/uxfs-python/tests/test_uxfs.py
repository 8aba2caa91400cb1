"""The package as it is installed from its wheel. `tools/wheel --test` runs this.

xfs_repair judges every volume that a test leaves.
"""

import doctest
import errno
import gc
import io
import os
import random
import shutil
import stat
import subprocess
import tarfile
import tempfile
import threading
import unittest
import warnings

import uxfs
import uxfs._volume


def repair(image):
    done = subprocess.run(["xfs_repair", "-n", image], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class OnVolume(unittest.TestCase):
    """Tests on a volume of their own."""

    def setUp(self):
        self.host = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.host)
        self.image = os.path.join(self.host, "disk.img")
        self.volume = uxfs.Volume.mkfs(self.image, "64M", unsupported=True, label="tests")

    def tearDown(self):
        self.volume.close()
        repair(self.image)
        report = uxfs.check(self.image)
        self.assertTrue(report["clean"], report["text"])


class Calls(OnVolume):
    def test_names_and_attributes(self):
        volume = self.volume
        volume.makedirs("a/b/c")
        with self.assertRaises(FileExistsError):
            volume.makedirs("a/b")
        volume.makedirs("a/b", exist_ok=True)
        volume.write_text("a/file", "text \u00e9")
        self.assertEqual(volume.read_text("/a/file"), "text \u00e9")
        volume.symlink("file", "a/link")
        volume.link("a/file", "a/b/again")
        self.assertEqual(volume.readlink("a/link"), "file")
        self.assertEqual(volume.readlink(b"a/link"), b"file")
        self.assertEqual(volume.stat("a/link").st_nlink, 2)
        self.assertTrue(stat.S_ISLNK(volume.lstat("a/link").st_mode))
        volume.chmod("a/file", 0o4711)
        volume.chown("a/file", 7, -1)
        volume.utime("a/file", ns=(-5, 1_700_000_000_123_456_789))
        found = volume.stat("a/file")
        # A new owner takes the set-user-ID bit away.
        self.assertEqual((found.st_mode & 0o7777, found.st_uid, found.st_gid), (0o711, 7, 0))
        self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (-5, 1_700_000_000_123_456_789))
        self.assertEqual(sorted(volume.listdir("a")), ["b", "file", "link"])
        kinds = {e.name: (e.is_dir(), e.is_file(), e.is_symlink()) for e in volume.scandir("a")}
        self.assertEqual(kinds["link"], (False, True, True))
        self.assertEqual(kinds["b"], (True, False, False))
        walked = [(top, sorted(dirs), sorted(files)) for top, dirs, files in volume.walk("a")]
        self.assertEqual(walked[0], ("a", ["b"], ["file", "link"]))
        volume.setxattr("a/file", "user.color", b"blue")
        self.assertEqual(volume.listxattr("a/link"), ["user.color"])
        self.assertEqual(volume.getxattr("a/file", "user.color"), b"blue")
        volume.removexattr("a/file", "user.color")
        volume.rename("a/file", "moved")
        volume.remove("a/link")
        volume.rmtree("a")
        self.assertEqual(volume.listdir(), ["moved"])
        volume.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        self.assertEqual(volume.stat("null").st_rdev, os.makedev(1, 3))
        self.assertEqual(volume.statfs().label, "tests")

    def test_errors_are_those_of_os(self):
        cases = [
            (FileNotFoundError, errno.ENOENT, lambda v: v.stat("none")),
            (IsADirectoryError, errno.EISDIR, lambda v: v.remove("d")),
            (NotADirectoryError, errno.ENOTDIR, lambda v: v.listdir("f")),
            (FileExistsError, errno.EEXIST, lambda v: v.mkdir("d")),
            (OSError, errno.ENOTEMPTY, lambda v: v.rmdir("d")),
            (OSError, errno.ENAMETOOLONG, lambda v: v.mkdir("n" * 256)),
            (OSError, errno.EINVAL, lambda v: v.readlink("f")),
            (OSError, errno.ENODATA, lambda v: v.getxattr("f", "user.none")),
        ]
        self.volume.makedirs("d/e")
        self.volume.write_bytes("f", b"")
        for kind, number, call in cases:
            with self.assertRaises(kind) as caught:
                call(self.volume)
            self.assertEqual(caught.exception.errno, number)
        with self.assertRaises(FileNotFoundError) as caught:
            self.volume.open("none/x")
        self.assertEqual(caught.exception.filename, "none/x")
        with self.assertRaises(FileNotFoundError):
            uxfs.Volume.open_image(os.path.join(self.host, "none"))
        with self.assertRaises(OSError):
            uxfs.Volume.open_image(self.image)  # Open already.

    def test_names_of_any_bytes(self):
        name = bytes(range(1, 256)).replace(b"/", b"")
        self.volume.write_bytes(name, b"x")
        self.assertEqual(self.volume.listdir(b"/"), [name])
        self.assertEqual(self.volume.read_bytes(os.fsdecode(name)), b"x")

    def test_trees_in_and_out(self):
        tree = os.path.join(self.host, "tree")
        os.makedirs(os.path.join(tree, "d", "e"))
        for name, data in [("one", b"1" * 5000), ("d/two", b""), ("d/e/three", os.urandom(200_000))]:
            with open(os.path.join(tree, name), "wb") as file:
                file.write(data)
        os.symlink("../one", os.path.join(tree, "d/link"))
        self.volume.copy_in(tree, "/tree")
        back = os.path.join(self.host, "back")
        self.volume.copy_out("/tree", back)
        subprocess.run(["diff", "-r", "--no-dereference", tree, back], check=True)
        archive = os.path.join(self.host, "tree.tar")
        entries, data = self.volume.export(archive, "/tree")
        with tarfile.open(archive) as tar:
            self.assertEqual(len(tar.getnames()), entries)
        self.assertEqual(data, 205_000)
        second = os.path.join(self.host, "second.img")
        done = uxfs.import_tree(archive, second)
        self.assertEqual((done["entries"], done["warnings"]), (entries, []))
        with uxfs.Volume.open_image(second, read_only=True) as volume:
            self.assertEqual(volume.stat("d/e/three").st_size, 200_000)
            with self.assertRaises(OSError) as caught:
                volume.mkdir("x")
            self.assertEqual(caught.exception.errno, errno.EROFS)
        repair(second)

    def test_tickets(self):
        self.volume.write_bytes("f", b"data")
        ticket = self.volume.ticket()
        self.volume.wait(ticket)
        self.assertTrue(self.volume.is_durable(ticket))
        with self.volume.open("f", "ab") as file:
            file.write(b"more")
            ticket = file.ticket()
        self.volume.wait(ticket)
        self.assertEqual(self.volume.read_bytes("f"), b"datamore")

    def test_threads(self):
        def work(number):
            for round in range(50):
                self.volume.write_text(f"{number}-{round}", str(number) * round)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(self.volume.listdir()), 200)
        self.assertEqual(self.volume.read_text("3-49"), "3" * 49)


class Files(OnVolume):
    def test_files_are_those_of_open(self):
        """The same random calls on a file of the host and on one of the volume."""
        for seed, mode in enumerate(["r+b", "w+b", "a+b", "x+b", "rb"]):
            random_calls = random.Random(seed)
            path = os.path.join(self.host, mode)
            if mode != "x+b":
                with open(path, "wb") as file:
                    file.write(b"start" * 100)
                self.volume.write_bytes(mode, b"start" * 100)
            # Positions of unwritten appends depend on the buffer's size.
            for buffering in (0, 4096):
                if mode == "x+b" and buffering:
                    continue
                with open(path, mode, buffering) as theirs, self.volume.open(
                    mode, mode, buffering
                ) as ours:
                    for step in range(200):
                        at = f"{mode}, seed {seed}, step {step}"
                        what = random_calls.randrange(6)
                        size = random_calls.randrange(3000)
                        call = [
                            lambda f: f.read(size),
                            lambda f: f.write(bytes([step % 256]) * size),
                            lambda f: f.seek(size),
                            lambda f: f.seek(-min(size, 10), os.SEEK_END),
                            lambda f: f.tell(),
                            lambda f: f.truncate(size) if step % 5 == 0 else f.readinto(bytearray(9)),
                        ][what]
                        outcome = []
                        for file in (theirs, ours):
                            try:
                                outcome.append(call(file))
                            except (OSError, io.UnsupportedOperation) as error:
                                outcome.append(type(error))
                        self.assertEqual(outcome[0], outcome[1], at)
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), self.volume.read_bytes(mode), mode)

    def test_text(self):
        with self.volume.open("t", "w", newline="\r\n") as file:
            file.write("one\ntwo\n")
            file.fsync()
        self.assertEqual(self.volume.read_bytes("t"), b"one\r\ntwo\r\n")
        with self.volume.open("t") as file:
            self.assertEqual(list(file), ["one\n", "two\n"])
        with self.assertRaises(ValueError):
            self.volume.open("t", "rw")
        with self.assertRaises(ValueError):
            self.volume.open("t", "q")
        raw = self.volume.open("t", "rb", 0)
        raw.close()
        with self.assertRaises(ValueError):
            raw.read()


class Ends(unittest.TestCase):
    def setUp(self):
        self.host = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.host)
        self.image = os.path.join(self.host, "disk.img")

    def test_a_forgotten_volume_is_closed_with_a_warning(self):
        volume = uxfs.Volume.mkfs(self.image, "300M")
        volume.write_text("kept", "yes")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del volume
            gc.collect()
        self.assertEqual([one.category for one in caught], [ResourceWarning])
        with uxfs.Volume.open_image(self.image) as volume:
            self.assertEqual(volume.read_text("kept"), "yes")
        with self.assertRaises(ValueError):
            volume.listdir()
        volume.close()
        repair(self.image)

    def test_options_of_mkfs(self):
        options = {"b": "size=1k", "m": "rmapbt=1", "i": "size=512"}
        with uxfs.Volume.mkfs(self.image, 300 << 20, options=options) as volume:
            self.assertEqual(volume.statfs().block_size, 1024)
        with self.assertRaises(FileExistsError):
            uxfs.Volume.mkfs(self.image, "300M")
        with self.assertRaises(ValueError):
            uxfs.Volume.mkfs(self.image + "2", "300M", options={"b": "size=what"})
        self.assertFalse(os.path.exists(self.image + "2"))

    def test_damage_is_found(self):
        uxfs.Volume.mkfs(self.image, "300M").close()
        with open(self.image, "r+b") as file:
            file.seek(512 + 40)
            file.write(b"\xff" * 8)
        report = uxfs.check(self.image)
        self.assertFalse(report["clean"])
        self.assertTrue(report["findings"])


def load_tests(_loader, tests, _pattern):
    for module in (uxfs, uxfs._volume):
        tests.addTests(doctest.DocTestSuite(module))
    return tests


if __name__ == "__main__":
    unittest.main()
