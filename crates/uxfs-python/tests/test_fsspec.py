"""Volumes as a file system of fsspec. xfs_repair judges every image that a test leaves."""

import errno
import os
import shutil
import tempfile
import unittest

import fsspec

import uxfs
from test_uxfs import repair
from uxfs.fsspec import UxfsFileSystem, close_all


class Fsspec(unittest.TestCase):
    def setUp(self):
        self.host = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.host)
        self.image = os.path.join(self.host, "disk.img")
        self.other = os.path.join(self.host, "other.img")
        for image in (self.image, self.other):
            uxfs.Volume.mkfs(image, "64M", unsupported=True).close()
        self.here, self.there = f"uxfs://{self.image}", f"uxfs://{self.other}"
        self.files = fsspec.filesystem("uxfs")

    def tearDown(self):
        close_all()
        for image in (self.image, self.other):
            repair(image)

    def inside(self, image=None):
        """What `find` finds, as paths in the volume."""
        image = image or self.image
        return [path[len(image) :] for path in self.files.find(image)]

    def links(self, *pairs):
        """Makes links in the image: pairs of target and path."""
        close_all()
        with uxfs.Volume.open_image(self.image) as volume:
            for target, path in pairs:
                volume.symlink(target, path)

    def test_files_and_names(self):
        here = self.here
        with fsspec.open(f"{here}/d/x.txt", "w", auto_mkdir=True) as file:
            file.write("by fsspec")
        with fsspec.open(f"{here}/d/x.txt") as file:
            self.assertEqual(file.read(), b"by fsspec")
        files = fsspec.filesystem("uxfs")
        self.assertEqual(files.cat(f"{here}/d/x.txt"), b"by fsspec")
        files.pipe(f"{here}/d/y", b"1234")
        self.assertEqual(files.cat_file(f"{here}/d/y", 1, 3), b"23")
        files.copy(f"{here}/d/y", f"{here}/z")
        self.assertEqual(files.find(here), [f"{self.image}/{n}" for n in ["d/x.txt", "d/y", "z"]])
        self.assertEqual(files.info(f"{here}/z")["size"], 4)
        self.assertTrue(files.isdir(f"{here}/d") and files.exists(f"{here}/z"))
        files.mv(f"{here}/z", f"{here}/w")
        files.rm(f"{here}/d", recursive=True)
        self.assertEqual(files.ls(here, detail=False), [f"{self.image}/w"])
        local = os.path.join(self.host, "local")
        files.get(f"{here}/w", local)
        files.put(local, f"{here}/again")
        self.assertEqual(files.cat(f"{here}/again"), b"1234")

    def test_walks_do_not_follow_links(self):
        self.files.makedirs(f"{self.here}/d/e")
        self.files.pipe(f"{self.here}/d/f", b"file")
        self.links((".", "d/x"), ("..", "d/y"), ("/d", "d/e/z"), ("f", "d/l"))
        self.assertEqual(self.inside(), ["/d/e/z", "/d/f", "/d/l", "/d/x", "/d/y"])
        listed = {one["name"][len(self.image) :]: one for one in self.files.ls(f"{self.here}/d")}
        self.assertEqual(listed["/d/x"]["type"], "other")
        self.assertEqual((listed["/d/l"]["size"], listed["/d/l"]["destination"]), (4, "f"))
        # One path is followed, as by the file system of the host.
        self.assertEqual(self.files.info(f"{self.here}/d/x")["type"], "directory")
        self.assertEqual(self.files.info(f"{self.here}/d/l")["type"], "file")
        self.assertEqual(len(self.files.ls(f"{self.here}/d/e/z")), 5)
        self.files.get(f"{self.here}/d", os.path.join(self.host, "got"), recursive=True)
        with open(os.path.join(self.host, "got", "l"), "rb") as file:
            self.assertEqual(file.read(), b"file")

    def test_links_that_lead_nowhere_hide_nothing(self):
        self.files.mkdir(f"{self.here}/d")
        self.files.pipe(f"{self.here}/d/f", b"file")
        self.links(("loop", "d/loop"), ("f/x", "d/notdir"), ("none", "d/none"))
        self.assertEqual(self.inside(), ["/d/f", "/d/loop", "/d/none", "/d/notdir"])
        self.assertEqual(self.files.cat(f"{self.here}/d", recursive=True, on_error="omit").keys(),
                         {f"{self.image}/d/f"})

    def test_readers_write_nothing(self):
        self.files.pipe(f"{self.here}/f", b"file")
        reader = UxfsFileSystem(read_only=True)
        for both_open in (True, False):
            if not both_open:
                close_all()
            self.assertEqual(reader.cat(f"{self.here}/f"), b"file")
            for call in (
                lambda: reader.pipe(f"{self.here}/new", b"x"),
                lambda: reader.open(f"{self.here}/f", "ab"),
                lambda: reader.open(f"{self.here}/f", "r+b"),
                lambda: reader.mkdir(f"{self.here}/d"),
                lambda: reader.makedirs(f"{self.here}/d/e"),
                lambda: reader.rm(f"{self.here}/f"),
                lambda: reader.rmdir(f"{self.here}/f"),
                lambda: reader.cp_file(f"{self.here}/f", f"{self.here}/g"),
                lambda: reader.mv(f"{self.here}/f", f"{self.here}/g"),
                lambda: reader.touch(f"{self.here}/t"),
            ):
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertEqual(caught.exception.errno, errno.EROFS)
        # The reader came first: a writer opens the image once more, when no file is open.
        with reader.open(f"{self.here}/f") as file:
            with self.assertRaises(OSError) as caught:
                self.files.pipe(f"{self.here}/g", b"x")
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            self.assertEqual(file.read(), b"file")
        self.files.pipe(f"{self.here}/g", b"x")
        self.assertEqual(reader.find(self.image), [f"{self.image}/f", f"{self.image}/g"])

    def test_transactions(self):
        self.files.pipe({f"{self.here}/f": b"old", f"{self.here}/log": b"one"})
        with self.files.transaction:
            self.files.pipe(f"{self.here}/f", b"new")
            with self.files.open(f"{self.here}/log", "a") as file:
                file.write(",two")
            with self.files.open(f"{self.here}/first", "xb") as file:
                file.write(b"1")
            with self.assertRaises(OSError):
                self.files.open(f"{self.here}/f", "r+b")
            self.assertEqual(self.files.cat(f"{self.here}/f"), b"old")
            self.assertFalse(self.files.exists(f"{self.here}/first"))
        self.assertEqual(self.inside(), ["/f", "/first", "/log"])
        self.assertEqual(self.files.cat(f"{self.here}/f"), b"new")
        self.assertEqual(self.files.cat(f"{self.here}/log"), b"one,two")
        with self.assertRaisesRegex(ValueError, "the cause"):
            with self.files.transaction:
                self.files.pipe(f"{self.here}/f", b"newer")
                self.files.pipe(f"{self.here}/more", b"x")
                raise ValueError("the cause")
        self.assertEqual(self.inside(), ["/f", "/first", "/log"])
        self.assertEqual(self.files.cat(f"{self.here}/f"), b"new")

    def test_files_have_a_size(self):
        self.files.pipe(f"{self.here}/f", b"0123456789\nabc\n")
        self.assertEqual(self.files.cat_file(f"{self.here}/f", start=-4), b"abc\n")
        self.assertEqual(self.files.cat_file(f"{self.here}/f", 3, -5), b"3456789")
        self.assertEqual(self.files.read_block(f"{self.here}/f", 2, 5, b"\n"), b"abc\n"[4:])
        self.assertEqual(self.files.read_block(f"{self.here}/f", 11, 50), b"abc\n")

    def test_trees_between_images(self):
        self.files.makedirs(f"{self.here}/t/empty")
        self.files.mkdir(f"{self.here}/t/d")
        self.files.pipe({f"{self.here}/t/a": b"1", f"{self.here}/t/d/b": b"2"})
        self.links(("a", "t/link"), ("none", "t/d/broken"))
        self.files.copy(f"{self.here}/t/d/b", f"{self.there}/b")
        self.files.copy(f"{self.here}/t", f"{self.there}/copy", recursive=True)
        self.assertEqual(self.inside(self.other), ["/b", "/copy/a", "/copy/d/b", "/copy/link"])
        self.assertTrue(self.files.isdir(f"{self.there}/copy/empty"))
        self.files.mv(f"{self.here}/t", f"{self.there}/moved", recursive=True)
        self.assertEqual(self.inside(), [])
        self.assertEqual(
            self.inside(self.other)[4:],
            ["/moved/a", "/moved/d/b", "/moved/d/broken", "/moved/link"],
        )
        close_all()
        with uxfs.Volume.open_image(self.other, read_only=True) as volume:
            self.assertEqual(volume.readlink("moved/link"), "a")
        # Into a directory, and lists.
        self.files.mkdir(f"{self.here}/into")
        self.files.mv(f"{self.there}/b", f"{self.here}/into/")
        self.files.mv([f"{self.there}/copy/a", f"{self.there}/copy/d"], f"{self.here}/into")
        self.assertEqual(self.inside(), ["/into/a", "/into/b", "/into/d/b"])

    def test_close_all_writes_open_files(self):
        text = self.files.open(f"{self.here}/text", "w")
        text.write("text")
        binary = self.files.open(f"{self.here}/binary", "wb")
        binary.write(b"binary")
        close_all()
        for file in (text, binary):
            file.close()
        self.assertEqual(self.files.cat(f"{self.here}/text"), b"text")
        self.assertEqual(self.files.cat(f"{self.here}/binary"), b"binary")


if __name__ == "__main__":
    unittest.main()
