"""Calls on volumes beside those of `os`: what they leave when they fail, and their errors."""

import errno
import multiprocessing
import os
import pickle
import stat
import tarfile
import threading
import time
import unittest

import uxfs
import uxfs._file
from test_uxfs import OnVolume, repair


class Content(OnVolume):
    def test_a_write_of_a_wrong_type_keeps_the_content(self):
        self.volume.write_bytes("f", b"kept")
        with self.assertRaises(TypeError):
            self.volume.write_bytes("f", "text")
        with self.assertRaises(TypeError):
            self.volume.write_bytes("f", memoryview(b"abcdef")[::2])
        self.assertEqual(self.volume.read_bytes("f"), b"kept")
        self.volume.write_bytes("f", bytearray(b"new"))
        self.assertEqual(self.volume.read_bytes("f"), b"new")

    def test_a_file_that_does_not_fit_into_memory(self):
        self.volume.write_bytes("f", b"")
        self.volume.truncate("f", 1 << 62)
        with self.assertRaises(MemoryError):
            self.volume.read_bytes("f")
        with self.volume.open("f", "rb", 0) as file, self.assertRaises(MemoryError):
            file.read(1 << 61)
        self.volume.truncate("f", 3)
        with self.volume.open("f", "rb", 0) as file:
            # Asked for more than there is.
            self.assertEqual(file._native.pread(1 << 61, 0), b"\0\0\0")
            self.assertEqual(file._native.pread(1 << 61, 9), b"")

    def test_threads_share_the_position_of_a_file(self):
        class Slow:
            """A file whose calls end late, so that threads meet in them."""

            def __init__(self, native):
                self.native = native

            def pwrite(self, data, at):
                time.sleep(0.0002)
                return self.native.pwrite(data, at)

            def pread(self, size, at):
                data = self.native.pread(size, at)
                time.sleep(0.0002)
                return data

        letters = [b"a", b"b", b"c", b"d"]

        def together(work):
            threads = [threading.Thread(target=work, args=(one,)) for one in letters]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        with self.volume.open("f", "w+b", 0) as file:
            file._native, kept = Slow(file._native), file._native

            def write(letter):
                for _ in range(100):
                    file.write(letter * 10)

            together(write)
            data = self.volume.read_bytes("f")
            self.assertEqual([data.count(letter) for letter in letters], [1000] * 4)
            file.seek(0)
            seen = []

            def read(_letter):
                for _ in range(100):
                    seen.append(file.read(10))

            together(read)
            self.assertEqual(sorted(seen), sorted(letter * 10 for letter in letters * 100))
            file._native = kept


class Archives(OnVolume):
    def test_a_failed_export_keeps_the_old_archive(self):
        archive = os.path.join(self.host, "backup.tar")
        with open(archive, "wb") as file:
            file.write(b"old")
        os.chmod(archive, 0o640)
        with self.assertRaises(FileNotFoundError) as caught:
            self.volume.export(archive, "/typo")
        self.assertEqual(caught.exception.filename, "/typo")
        self.volume.write_bytes("f", b"file")
        with self.assertRaises(NotADirectoryError):
            self.volume.export(archive, "/f/")
        with open(archive, "rb") as file:
            self.assertEqual(file.read(), b"old")
        link = os.path.join(self.host, "link.tar")
        os.symlink("backup.tar", link)
        self.volume.export(link)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(stat.S_IMODE(os.stat(archive).st_mode), 0o640)
        with tarfile.open(archive) as tar:
            self.assertEqual(len(tar.getnames()), 2)
        self.assertEqual(sorted(os.listdir(self.host)), ["backup.tar", "disk.img", "link.tar"])

    def test_errors_keep_their_number(self):
        self.volume.write_bytes("f", b"x" * 100_000)
        with self.assertRaises(OSError) as caught:
            self.volume.export("/dev/full")
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        tree = os.path.join(self.host, "tree")
        os.mkdir(tree)
        with open(os.path.join(tree, "big"), "wb") as file:
            file.write(os.urandom(40 << 20))
        small = os.path.join(self.host, "small.img")
        uxfs.Volume.mkfs(small, "32M", unsupported=True).close()
        with self.assertRaises(OSError) as caught:
            uxfs.import_tree(tree, small)
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        with self.assertRaises(OSError) as caught:
            uxfs.import_tree(os.path.join(self.host, "none.tar"), small)
        self.assertEqual(caught.exception.errno, errno.ENOENT)


class Tickets(OnVolume):
    def test_a_ticket_is_one_of_its_volume(self):
        other = os.path.join(self.host, "other.img")
        with uxfs.Volume.mkfs(other, "64M", unsupported=True) as volume:
            volume.write_bytes("f", b"x")
            with volume.open("f", "ab") as file:
                tickets = [volume.ticket(), file.ticket()]
            for ticket in tickets:
                volume.wait(ticket)
                for call in (self.volume.wait, self.volume.is_durable):
                    with self.assertRaises(OSError) as caught:
                        call(ticket)
                    self.assertEqual(caught.exception.errno, errno.EINVAL)
        with uxfs.Volume.open_image(other) as volume, self.assertRaises(OSError):
            volume.is_durable(tickets[0])
        repair(other)


def fail(_number):
    raise uxfs.CopyError([("a", "no"), ("b", "nor")])


class Shapes(OnVolume):
    """Each call beside its own of `os`."""

    def both(self, call):
        """Calls with a function from paths to paths, and `os` or the volume."""
        theirs = os.path.join(self.host, "theirs")
        os.makedirs(theirs, exist_ok=True)
        outcomes = []
        for at, calls in ((lambda name: os.path.join(theirs, name), os), (str, self.volume)):
            try:
                outcomes.append(call(at, calls))
            except OSError as error:
                names = [error.filename, error.filename2]
                short = [name and os.path.basename(name) for name in names]
                outcomes.append((type(error), error.errno, short))
        self.assertEqual(outcomes[0], outcomes[1])
        return outcomes[1]

    def test_walk_puts_links_to_directories_among_directories(self):
        def tree(at, calls):
            calls.makedirs(at("top/d/e"))
            for target, name in [("d", "link"), ("none", "broken"), ("loop", "loop"), ("..", "up")]:
                calls.symlink(target, at(f"top/{name}"))
            walked = calls.walk(at("top"))
            return [(os.path.basename(top), sorted(d), sorted(f)) for top, d, f in walked]

        walked = self.both(tree)
        self.assertEqual(walked[0], ("top", ["d", "link", "up"], ["broken", "loop"]))

    def test_scandir_is_for_with(self):
        def scan(at, calls):
            calls.mkdir(at("s"))
            calls.mkdir(at("s/x"))
            with calls.scandir(at("s")) as entries:
                names = [entry.name for entry in entries]
            return names, list(entries)

        self.assertEqual(self.both(scan), (["x"], []))
        # The error comes with the call, not with the first entry.
        self.both(lambda at, calls: calls.scandir(at("none")) and None)

    def test_mknod_makes_a_file_unless_the_mode_says_otherwise(self):
        def make(at, calls):
            calls.mknod(at("m"), 0o644)
            return stat.S_IFMT(calls.stat(at("m")).st_mode)

        self.assertEqual(self.both(make), stat.S_IFREG)
        with self.assertRaises(PermissionError):
            self.volume.mknod("n", stat.S_IFDIR | 0o755)
        self.assertFalse(self.volume.exists("n"))

    def test_errors_of_two_paths_name_both(self):
        for call in ("rename", "link"):
            found = self.both(lambda at, calls: getattr(calls, call)(at("none"), at("new")))
            self.assertEqual(found, (FileNotFoundError, errno.ENOENT, ["none", "new"]))
        found = self.both(lambda at, calls: calls.symlink("target", at("none/new")))
        self.assertEqual(found[2], ["target", "new"])

    def test_a_pool_hands_on_the_error_of_a_copy(self):
        error = pickle.loads(pickle.dumps(uxfs.CopyError([("a", "no")])))
        self.assertEqual((error.failures, error.filename), ([("a", "no")], "a"))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            with self.assertRaises(uxfs.CopyError) as caught:
                pool.map(fail, [1])
        self.assertEqual(len(caught.exception.failures), 2)


if __name__ == "__main__":
    unittest.main()
