//! Image builds: reproducible images, changed owners, manifests and container images.

use crate::fixture::{EVERYTHING, Fixture};

const UUID: &str = "12341234-a4ec-4304-a70f-c549ea829da9";

fn exe() -> &'static str {
    env!("CARGO_BIN_EXE_uxfs")
}

/// The files of an image, one sorted line per file.
fn listed(fixture: &Fixture, image: &str, format: &str) -> Vec<String> {
    let text = fixture.uxfs(&["find", &format!("{image}:/"), "-printf", format]).good();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Asserts that the listing has exactly one line for the file, and that it equals `line`.
#[track_caller]
fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|other| other == line), "no line '{line}' in {lines:#?}");
}

/// Files without a signature are no less worth than others; a file of zeroes is a size.
#[test]
fn what_holds_data_is_not_overwritten_unasked() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("head -c 100000 /dev/urandom >photo; truncate -s 400M sized; \
                cp sized late; printf x | dd of=late bs=1 seek=200M conv=notrunc status=none; \
                sha256sum photo late >sums");
    for name in ["photo", "late"] {
        let words = fixture.uxfs(&["import", "-q", "t", name]).bad(1);
        assert!(words.contains(name) && words.contains("Use the -f option"), "{words}");
    }
    fixture.sh("sha256sum -c --quiet sums");
    fixture.uxfs(&["import", "-q", "t", "sized"]).good();
    assert_eq!(std::fs::metadata(fixture.path("sized")).unwrap().len(), 400 << 20);
    fixture.check("sized");
    fixture.uxfs(&["import", "-q", "-f", "t", "photo"]).good();
    fixture.check("photo");
}

/// An image in the tree that it is made of is no part of it, whatever its format.
#[test]
fn an_image_is_not_imported_into_itself() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("mkdir t/out");
    for (image, options) in [
        ("t/a.img", ""),
        ("t/out/b.zst", "--output raw.zst"),
        ("t/a.qcow2", ""),
        ("t/packed.qcow2", "--output qcow2 --compress"),
    ] {
        let common = format!("--uuid {UUID} --size 320M {options}");
        let epoch = "export SOURCE_DATE_EPOCH=1580000000";
        let made = |before: &str| {
            fixture.sh(&format!(
                "{epoch}; {before}; {} import -q -f t {image} {common} 2>words; sha256sum {image}",
                exe()
            ))
        };
        let first = made("true");
        // A qcow2 image that is overwritten keeps its clusters.
        let again = made(if options.is_empty() { "rm t/a.*" } else { "true" });
        assert_eq!(again, first, "{image}");
        if options.is_empty() {
            let files = listed(&fixture, image, "%p\\n");
            assert!(files.iter().all(|name| !name.contains(":/a.")), "{files:?}");
        } else {
            let words = fixture.sh("cat words");
            let inside = image.trim_start_matches("t/");
            let said = format!("uxfs: import: {inside}: left out, because it is the image\n");
            assert_eq!(words, said, "{image}");
        }
        fixture.sh(&format!("rm {image}"));
    }
}

#[test]
fn directories_without_an_entry_have_the_owner_that_is_asked_for() {
    let fixture = Fixture::new();
    fixture.sh("mkdir -p a/b; echo 1 >a/b/f; tar cf t.tar a/b/f");
    fixture.uxfs(&["import", "-q", "--owner", "1000:2000", "t.tar", "a.img"]).good();
    fixture.uxfs(&["import", "-q", "--map-uid", "0:77", "t.tar", "b.img"]).good();
    has(&listed(&fixture, "a.img", "%p %U:%G\\n"), "a.img:/a/b 1000:2000");
    has(&listed(&fixture, "b.img", "%p %U:%G\\n"), "b.img:/a/b 77:0");
}

#[test]
fn a_hard_link_to_nothing_names_its_target() {
    let fixture = Fixture::new();
    fixture.sh("echo 1 >f; ln f g; tar cf t.tar f g; tar --delete -f t.tar f");
    let words = fixture.uxfs(&["import", "-q", "t.tar", "a.img"]).bad(1);
    assert!(words.contains("g: is another name of f, which is not there"), "{words}");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let fixture = Fixture::new();
    fixture.tree();
    // A copy whose names were created in another order and at another time, and archives of the tree.
    fixture.sh("setfacl -m u:1234:rw t/file; rm t/odd* 2>/dev/null || true; \
         tar -C t --sort=name --format=pax --pax-option=delete=atime,delete=ctime \
         --xattrs --acls -S -cf t.tar .; gzip -k t.tar; xz -k t.tar; zstd -q t.tar; \
         mkdir copy; (cd t; find . -mindepth 1 ! -type d -links 1 -print0 | LC_ALL=C sort -rz \
         | tar --null -T - --xattrs --acls -S -cf ../part.tar); \
         tar -C copy --xattrs --acls -xpf part.tar; tar -C copy --xattrs --acls -xpf t.tar; \
         touch -m -d '2020-05-05 05:05:05' copy");
    for options in ["", "-m rmapbt=1", "-b size=1k -i sparse=0", "-n parent=1"] {
        let common = format!("--uuid {UUID} --size 320M -L same {options}");
        let import = |source: &str, image: &str, around: &str| {
            fixture.sh(&format!(
                "export SOURCE_DATE_EPOCH=1580000000; {around}; {} import -q {source} {image} {common}",
                exe()
            ));
        };
        import("t", "one.img", "true");
        // The other checkers do not know parent pointers.
        if options.contains("parent") {
            fixture.uxfs(&["check", "-q", "one.img"]).good();
        } else {
            fixture.check("one.img");
        }
        for (source, around) in [
            ("copy", "umask 077; sleep 1.1"),
            ("$OLDPWD/t", "mkdir -p away; cd away; export TZ=Pacific/Apia"),
            ("t.tar", "true"),
            ("t.tar.gz", "sleep 0.4"),
            ("t.tar.xz", "ulimit -c 0"),
            ("- <t.tar.zst", "true"),
        ] {
            let image = if around.contains("cd away") { "../two.img" } else { "two.img" };
            import(source, image, around);
            fixture.sh(&format!(
                "cmp one.img two.img || (echo {source} {options}; false); rm two.img"
            ));
        }
        fixture.sh("rm one.img");
    }
}

/// Several threads write the data of an import, and each write to a qcow2 image may take new clusters.
#[test]
fn the_same_input_gives_the_same_qcow2_image() {
    let fixture = Fixture::new();
    fixture.sh("mkdir t; for n in $(seq 24); do mkdir t/$n; \
         head -c ${n}00001 /dev/urandom >t/$n/small; head -c 5000001 /dev/urandom >t/$n/large; done; \
         tar -C t --sort=name -cf t.tar .");
    let import = |source: &str, image: &str, options: &str| {
        fixture.sh(&format!(
            "SOURCE_DATE_EPOCH=1580000000 {} import -q {source} {image} --uuid {UUID} --size 320M {options}",
            exe()
        ));
    };
    import("t.tar", "one.qcow2", "");
    fixture.sh("qemu-img check -q one.qcow2; qemu-img convert -O raw one.qcow2 one.img");
    import("t.tar", "two.img", "");
    fixture.sh("cmp one.img two.img; rm one.img two.img");
    for (source, image, options) in [
        ("t.tar", "two.qcow2", ""),
        ("- <t.tar", "two.qcow2", ""),
        ("t.tar", "two.disk", "--output qcow2"),
    ] {
        for _ in 0..3 {
            import(source, image, options);
            fixture.sh(&format!(
                "cmp one.qcow2 {image} || (echo {source} {options}; false); rm {image}"
            ));
        }
    }
}

#[test]
fn times_are_bounded_by_the_epoch() {
    let fixture = Fixture::new();
    fixture.sh("mkdir t; touch -d '2001-02-03 04:05:06.5 UTC' t/old; touch t/new; mkdir t/dir");
    fixture.sh("touch -d '2002-02-02 UTC' t");
    let import = |epoch: &str, image: &str| {
        let env = format!("export SOURCE_DATE_EPOCH={epoch}");
        fixture.sh(&format!("{env}; {} import -q t {image} --size 320M --uuid {UUID}", exe()));
        listed(&fixture, image, "%P %T@ %A@ %C@\\n")
    };
    let lines = import("1000000000", "a.img");
    let epoch = "1000000000.0000000000";
    let old = "981173106.5000000000";
    has(&lines, &format!("old {old} {old} {old}"));
    has(&lines, &format!("new {epoch} {epoch} {epoch}"));
    has(&lines, &format!("dir {epoch} {epoch} {epoch}"));
    has(&lines, &format!(" {epoch} {epoch} {epoch}"));
    let text = format!(
        "! SOURCE_DATE_EPOCH=soon {} import -q t b.img 2>words; grep -q SOURCE_DATE_EPOCH words",
        exe()
    );
    fixture.sh(&text);
    // Importing twice into an existing image is reproducible too.
    for copy in ["b.img", "c.img"] {
        fixture.sh(&format!(
            "cp --sparse=always a.img {copy}; mkdir -p more; touch more/file; \
             SOURCE_DATE_EPOCH=5 {} import -q more {copy}; sleep 0.1",
            exe()
        ));
    }
    fixture.sh("cmp b.img c.img; ! cmp -s a.img b.img");
    fixture.check("b.img");
    // mkfs without an import.
    for image in ["d.img", "e.img"] {
        let make = format!("{} mkfs -q -d size=320m -m uuid={UUID} {image}", exe());
        fixture.sh(&format!("export SOURCE_DATE_EPOCH=7; {make}; sleep 0.1"));
    }
    fixture.sh("cmp d.img e.img");
}

#[test]
fn an_ordinary_user_makes_an_image_owned_by_root() {
    let fixture = Fixture::new();
    fixture.sh(
        "mkdir t; echo x >t/file; ln -s file t/link; mkfifo t/fifo; setfacl -m u:1001:r t/file",
    );
    let root = fixture.sh("id -u").trim() == "0";
    // If root runs the test, use the user `nobody`.
    let (user, prefix) = if root {
        let nobody = "65534";
        fixture.sh(&format!("cp {} uxfs; chmod 755 uxfs .; chown -R {nobody}:{nobody} .", exe()));
        (
            nobody.to_owned(),
            format!("setpriv --reuid {nobody} --regid {nobody} --clear-groups ./uxfs"),
        )
    } else {
        (fixture.sh("id -u").trim().to_owned(), exe().to_owned())
    };
    let group = if root { user.clone() } else { fixture.sh("id -g").trim().to_owned() };
    for (options, uid, gid) in [
        ("", user.as_str(), group.as_str()),
        ("--owner 0:0", "0", "0"),
        ("--owner root:root", "0", "0"),
        ("--owner 12 --group 34", "12", "34"),
        ("--group 34", user.as_str(), "34"),
        (&format!("--map-uid {user}:5"), "5", group.as_str()),
        (&format!("--map-uid {user}:6 --map-gid 0:100000:65536"), "6", ""),
    ] {
        fixture.sh(&format!("{prefix} import -q t a.img -f --size 320M {options}"));
        let lines = listed(&fixture, "a.img", "%P %U %G\\n");
        for name in ["", "file", "link", "fifo"] {
            let gid = if gid.is_empty() {
                group.parse::<u32>().map_or(0, |id| id + 100_000).to_string()
            } else {
                gid.to_owned()
            };
            has(&lines, &format!("{name} {uid} {gid}"));
        }
    }
    fixture.check("a.img");
    let map = format!("{prefix} import -q t a.img -f --size 320M --map-uid 1001:2002");
    fixture.sh(&map);
    fixture.uxfs(&["export", "a.img", "-o", "a.tar"]).good();
    assert!(fixture.sh("tar --acls -tvvf a.tar file | cat").contains("user:2002:r--"));
    for bad in ["--map-uid 1", "--map-uid 1:2:0", "--map-gid 4294967295:0", "--owner no-such-user"]
    {
        let args = ["import", "t", "b.img"].into_iter().chain(bad.split(' '));
        fixture.uxfs(&args.collect::<Vec<_>>()).bad(2);
    }
}

/// A manifest with one file of each kind.
const MANIFEST: &str = r"/ 0 40755 4 1 2 0 1600000000.5 - - - user.root=yes
/early 0 @100644 2 0 0 0 0.0 /dir/data - -
/dir 0 42750 2 3 4 0 1600000001.0 - - - trusted.overlay.opaque=y
/dir/data 10 104755 2 5 6 0 -1.7 obj/one - - security.capability=\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00
/inline 12 100600 1 0 0 0 1600000002.123456789 - a\x20b\n\\c\t\r\x00\xff=- - user.a\x3db=c=d user.empty=
/sparse 3145733 100644 1 0 0 0 0.0 obj/sparse - -
/verified 11 100644 1 0 0 0 0.0 hello - 1e2eaa4202d750a41174ee454970b92c1bc2f925b1e35076d8c7d5f56362ba64
/hole 1099511627776 100644 1 0 0 0 0.0 - - -
/link 4 120777 1 0 0 0 0.0 ../a\x20target - -
/char 0 20666 1 0 0 259 0.0 - - -
/block 0 60660 1 0 6 286327664 0.0 - - -
/fifo 0 10644 1 0 0 0 0.0 - - -
/socket 0 140644 1 0 0 0 0.0 - - -
/n\xc3\xa4me 0 100644 1 4294967294 70000 0 0.0 - - -";

#[test]
fn a_manifest_describes_every_kind_of_file() {
    let fixture = Fixture::new();
    fixture.sh("mkdir -p base/obj; printf 0123456789 >base/obj/one; printf start >base/obj/sparse; \
         truncate -s 3M base/obj/sparse; printf abcde >>base/obj/sparse; printf 'hello world' >base/hello");
    std::fs::write(fixture.path("tree.dump"), MANIFEST).unwrap();
    fixture.uxfs(&["import", "-q", "--manifest", "tree.dump", "base", "a.img"]).good();
    fixture.check("a.img");
    let lines = listed(&fixture, "a.img", "%y %m %U %G %s %T@ %n %l %P\\n");
    for line in [
        "f 4755 5 6 10 -1.9999999930 2  dir/data",
        "f 4755 5 6 10 -1.9999999930 2  early",
        "f 600 0 0 12 1600000002.1234567890 1  inline",
        "f 644 0 0 3145733 0.0000000000 1  sparse",
        "f 644 0 0 1099511627776 0.0000000000 1  hole",
        "l 777 0 0 11 0.0000000000 1 ../a target link",
        "c 666 0 0 0 0.0000000000 1  char",
        "b 660 0 6 0 0.0000000000 1  block",
        "p 644 0 0 0 0.0000000000 1  fifo",
        "s 644 0 0 0 0.0000000000 1  socket",
    ] {
        let line = line.replace("-1.9999999930", "-0.9999999930");
        has(&lines, &line);
    }
    assert_eq!(lines.len(), 14);
    assert_eq!(fixture.uxfs(&["cat", "a.img:/early"]).good(), "0123456789");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/inline"]).good(), "a b\n\\c\t\\x0d\\x00\\xff=-");
    fixture.sh(&format!("{} cat a.img:/sparse | cmp - base/obj/sparse", exe()));
    let blocks = fixture.uxfs(&["find", "a.img:/sparse", "-printf", "%b"]).good();
    assert!(blocks.parse::<u64>().unwrap() <= 64, "{blocks}");
    let list = "tar --numeric-owner -tvf a.tar 2>words; grep -ao 'SCHILY.xattr[^=]*' a.tar";
    fixture.uxfs(&["export", "a.img", "-o", "a.tar"]).good();
    let output = fixture.sh(list);
    for part in [
        "1,3",
        "259,70000",
        "user.root",
        "trusted.overlay.opaque",
        "security.capability",
        "user.a%3Db",
        "user.empty",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn a_bad_manifest_names_the_line() {
    let fixture = Fixture::new();
    fixture.sh("mkdir -p base/sub; printf 0123456789 >base/one; ln -s /etc/passwd base/link; \
         ln -s /etc base/away; mkfifo base/fifo; printf secret >outside");
    for (line, words) in [
        ("/a 11 100644 1 0 0 0 0.0 one - -", "10 bytes"),
        ("/a 10 100644 1 0 0 0 0.0 ../outside - -", "'..'"),
        ("/a 10 100644 1 0 0 0 0.0 link - -", "payload 'link'"),
        ("/a 10 100644 1 0 0 0 0.0 away/passwd - -", "payload 'away/passwd'"),
        ("/a 0 100644 1 0 0 0 0.0 fifo - -", "not a regular file"),
        ("/a 0 100644 1 0 0 0 0.0 sub - -", "not a regular file"),
        ("/a 10 100644 1 0 0 0 0.0 none - -", "payload 'none'"),
        ("/a 10 100644 1 0 0 0 0.0 one x -", "both"),
        ("/a 2 100644 1 0 0 0 0.0 - xyz -", "3 bytes"),
        (
            "/a 10 100644 1 0 0 0 0.0 one - \
             1e2eaa4202d750a41174ee454970b92c1bc2f925b1e35076d8c7d5f56362ba64",
            "does not match its DIGEST",
        ),
        ("/a 10 100644 1 0 0 0 0.0 one - 1e2e", "not a digest"),
        ("/a 0 @100644 1 0 0 0 0.0 /a - -", "itself"),
        ("/a 0 @100644 1 0 0 0 0.0 - - -", "target"),
        ("/a 0 120777 1 0 0 0 0.0 - - -", "target"),
        ("/a 0 644 1 0 0 0 0.0 - - -", "no kind"),
        ("/.. 0 100644 1 0 0 0 0.0 - - -", "'..'"),
        ("/ 0 100644 1 0 0 0 0.0 - - -", "root"),
        ("/a 0", "fields"),
    ] {
        let text = format!("/ 0 40755 1 0 0 0 0.0 - - -\n{line}\n");
        std::fs::write(fixture.path("bad.dump"), text).unwrap();
        let args = ["import", "-q", "-f", "--manifest", "bad.dump", "base", "a.img"];
        let said = fixture.uxfs(&args).bad(1);
        assert!(said.contains(words) && said.contains("line 2"), "{line}: {said}");
        assert!(!fixture.path("a.img").exists(), "{line}: an image was made");
    }
    // Errors that only the volume can find.
    for (line, words) in [
        ("/a 0 @100644 1 0 0 0 0.0 /none - -", "a: "),
        ("/a 9300000000000000000 100644 1 0 0 0 0.0 - - -", "a: "),
    ] {
        std::fs::write(fixture.path("bad.dump"), line).unwrap();
        let args = ["import", "-q", "-f", "--manifest", "bad.dump", "base", "a.img"];
        let said = fixture.uxfs(&args).bad(1);
        assert!(said.contains(words), "{line}: {said}");
    }
}

/// Makes three layers and, in `want`, the tree that results from them.
fn layers(fixture: &Fixture) {
    fixture.sh(
        "mkdir -p l1/keep l1/opaque/sub l1/gone/deep l1/swap-dir/in l1/attrs l1/real; cd l1; \
         echo 1 >keep/one; echo 1 >opaque/old; echo 1 >opaque/sub/old; echo 1 >gone/deep/file; \
         echo 1 >swap-file; echo 1 >swap-dir/in/file; echo 1 >linked; ln linked keep/second; \
         ln -s real to-real; ln -s real was-link; echo 1 >real/file; echo 1 >removed; \
         echo 1 >back; setfattr -n user.old -v 1 attrs; setfattr -n user.both -v 1 attrs; \
         echo 1 >.wh.not-hidden-yet; rm .wh.not-hidden-yet; touch -d 2001-01-01 keep/one; \
         find . -depth -type d -exec touch -d 2001-01-01 {} +; cd ..; \
         mkdir -p l2/opaque l2/swap-file l2/attrs l2/was-link l2/.wh..wh.plnk; cd l2; \
         echo 2 >opaque/new; touch opaque/.wh..wh..opq; touch .wh.gone .wh.removed .wh.never; \
         echo 2 >swap-dir; echo 2 >swap-file/now-dir; echo 2 >was-link/file; \
         touch .wh.back; echo 2 >back; setfattr -n user.both -v 2 attrs; \
         echo x >.wh..wh.plnk/1.2; chmod 711 attrs; \
         find . -depth -type d -exec touch -d 2002-02-02 {} +; cd ..; \
         mkdir -p l3/keep l3/to-real l3/opaque; cd l3; \
         echo 3 >to-real/file; touch keep/.wh.second; echo 3 >opaque/third; \
         find . -depth -type d -exec touch -d 2003-03-03 {} +; cd ..",
    );
    // Whiteouts at the end are unusual but allowed; also a hard link to a file of a lower layer.
    fixture.sh("tar -C l1 --xattrs --format=pax -cf l1.tar .; \
         (cd l2; find . | grep -v '/\\.wh\\.'; find . | grep '/\\.wh\\.') >names; \
         tar -C l2 --xattrs --format=pax --no-recursion -T names -cf l2.tar; gzip l2.tar; \
         cp l1/linked l3/linked; ln l3/linked l3/third; \
         tar -C l3 --xattrs --format=pax -cf l3.tar ./linked ./third; \
         tar -C l3 --delete -f l3.tar ./linked; \
         (cd l3; rm linked third); touch -d 2003-03-03 l3; \
         tar -C l3 --xattrs --format=pax -rf l3.tar keep/.wh.second opaque/third to-real; \
         zstd -q l3.tar");
    fixture.sh(
        "cp -a l1 want; cd want; rm -r opaque/* gone removed back swap-file swap-dir was-link \
         keep/second to-real; ln linked third; setfattr -x user.old attrs; \
         cp -a ../l2/opaque/new opaque/; cp -a ../l2/swap-file ../l2/swap-dir ../l2/back ../l2/was-link .; \
         setfattr -n user.both -v 2 attrs; chmod 711 attrs; cp -a ../l3/opaque/third opaque/; \
         cp -a ../l3/to-real .; touch -r ../l2/attrs attrs; touch -r ../l2/opaque opaque; \
         touch -r ../l1/keep keep; touch -r ../l2 .",
    );
}

const LAYERED: &str = "%y %m %s %T@ %n %l %P\\n";

#[test]
fn layers_are_applied_in_their_order() {
    let fixture = Fixture::new();
    layers(&fixture);
    fixture.uxfs(&["import", "-q", "want", "want.img", "--size", "320M"]).good();
    let want = listed(&fixture, "want.img", LAYERED);
    fixture
        .uxfs(&["import", "-q", "--layers", "l1.tar", "l2.tar.gz", "l3.tar.zst", "a.img"])
        .good();
    fixture.check("a.img");
    assert_eq!(listed(&fixture, "a.img", LAYERED), want);
    let both = |image: &str| {
        fixture.sh(&format!("rm -f x.tar; {} export {image} -o x.tar; mkdir -p x-{image}", exe()));
        fixture.sh(&format!("tar -C x-{image} --xattrs --acls -xpf x.tar"));
    };
    both("want.img");
    both("a.img");
    fixture.sh("diff -r x-want.img x-a.img");
    let attributes = fixture.sh("cd x-a.img; getfattr -hRd -m - . | cat");
    assert_eq!(attributes, fixture.sh("cd x-want.img; getfattr -hRd -m - . | cat"));
    // Add the layers one by one to an existing image.
    for layer in ["l1.tar", "l2.tar.gz", "l3.tar.zst"] {
        fixture.uxfs(&["import", "-q", "--layers", layer, "b.img"]).good();
        fixture.check("b.img");
    }
    assert_eq!(listed(&fixture, "b.img", LAYERED), want);
    // Without --layers they are ordinary archives.
    fixture.uxfs(&["import", "-q", "l2.tar.gz", "c.img"]).good();
    has(&listed(&fixture, "c.img", "%P\\n"), "opaque/.wh..wh..opq");
    fixture.uxfs(&["import", "-q", "l1.tar", "l2.tar.gz", "d.img"]).bad(1);
    fixture.uxfs(&["import", "-q", "--layers", "l1.tar", "-", "d.img"]).bad(1);
    fixture.sh("mkdir bad; touch bad/.wh.; tar -C bad -cf bad.tar .");
    let said = fixture.uxfs(&["import", "-q", "--layers", "l1.tar", "bad.tar", "d.img"]).bad(1);
    assert!(said.contains("names nothing"), "{said}");
}

/// Shell functions that make an OCI layout.
pub(crate) const OCI: &str = r#"
blob() { # FILE: into the layout; sets digest and size
    digest=$(sha256sum <"$1"); digest=${digest%% *}; size=$(stat -c %s "$1")
    mkdir -p oci/blobs/sha256; cp "$1" oci/blobs/sha256/$digest
}
descriptor() { # TYPE [MORE]
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%s%s}' "$1" $digest $size "$2"
}
M=application/vnd.oci.image
image() { # ARCH LAYER...: sets digest and size of the manifest
    arch=$1; shift; list=; ids=
    for layer; do
        blob $layer
        case $layer in *.gz) type=tar+gzip;; *.zst) type=tar+zstd;; *) type=tar;; esac
        list="$list${list:+,}$(descriptor $M.layer.v1.$type)"; ids="$ids${ids:+,}\"sha256:0\""
    done
    printf '{"os":"linux","architecture":"%s","rootfs":{"type":"layers","diff_ids":[%s]}}' \
        $arch "$ids" >config; blob config; config=$(descriptor $M.config.v1+json)
    printf '{"schemaVersion":2,"config":%s,"layers":[%s]}' "$config" "$list" >manifest
    blob manifest
}
index() { printf '{"schemaVersion":2,"manifests":[%s]}' "$1" >oci/index.json; }
tag() { printf ',"annotations":{"org.opencontainers.image.ref.name":"%s"}' $1; }
mkdir -p oci; echo '{"imageLayoutVersion":"1.0.0"}' >oci/oci-layout
"#;

#[test]
fn container_images_are_imported_from_oci_layouts() {
    let fixture = Fixture::new();
    layers(&fixture);
    let oci = |text: &str| fixture.sh(&format!("{OCI}\n{text}"));
    oci(
        "image amd64 l1.tar l2.tar.gz l3.tar.zst; index \"$(descriptor $M.manifest.v1+json \"$(tag 12)\")\"",
    );
    fixture.uxfs(&["import", "-q", "want", "want.img", "--size", "320M"]).good();
    let want = listed(&fixture, "want.img", LAYERED);
    for name in ["oci:oci", "oci:oci:12"] {
        fixture.uxfs(&["import", "-q", "-f", name, "a.img"]).good();
        assert_eq!(listed(&fixture, "a.img", LAYERED), want, "{name}");
    }
    fixture.check("a.img");
    fixture.uxfs(&["import", "-q", "-f", "--platform", "linux/amd64", "oci:oci", "a.img"]).good();
    let refused = |args: &[&str], words: &str| {
        let said = fixture.uxfs(&[&["import", "-q", "-f"], args, &["b.img"]].concat()).bad(1);
        assert!(said.contains(words), "{words}: {said}");
        assert!(!fixture.path("b.img").exists(), "{words}: an image was made");
    };
    refused(&["oci:oci:13"], "'12'");
    refused(&["oci:l1"], "oci-layout");
    refused(&["--platform", "linux/s390x", "oci:oci"], "only for linux/amd64");
    // Several, in an index of an index.
    oci(
        "image s390x l1.tar; A=$(descriptor $M.manifest.v1+json ',\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}'); \
         image arm64 l2.tar.gz; B=$(descriptor $M.manifest.v1+json ',\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\",\"variant\":\"v8\"}'); \
         printf '{\"manifests\":[%s,%s]}' \"$A\" \"$B\" >inner; blob inner; \
         C=$(descriptor $M.index.v1+json \"$(tag multi)\"); \
         image amd64 l3.tar.zst; index \"$C,$(descriptor $M.manifest.v1+json \"$(tag single)\")\"",
    );
    for (platform, name) in [("linux/s390x", "gone/deep/file"), ("linux/arm64/v8", "swap-dir")] {
        fixture
            .uxfs(&["import", "-q", "-f", "--platform", platform, "oci:oci:multi", "a.img"])
            .good();
        has(&listed(&fixture, "a.img", "%P\\n"), name);
    }
    refused(&["--platform", "linux/arm64/v9", "oci:oci"], "linux/arm64/v8");
    refused(&["--platform", "linux/amd64", "oci:oci:multi"], "linux/s390x");
    refused(&["oci:oci:none"], "'single'");
    // One manifest that two entries of an index name, each for a platform.
    oci(
        "image s390x l1.tar; for p in s390x arm64; do all=\"$all,$(descriptor $M.manifest.v1+json \",\\\"platform\\\":{\\\"os\\\":\\\"linux\\\",\\\"architecture\\\":\\\"$p\\\"}\")\"; done; index \"${all#,}\"",
    );
    for platform in ["linux/s390x", "linux/arm64"] {
        fixture.uxfs(&["import", "-q", "-f", "--platform", platform, "oci:oci", "a.img"]).good();
        has(&listed(&fixture, "a.img", "%P\\n"), "gone/deep/file");
    }
    refused(&["--platform", "linux/riscv64", "oci:oci"], "only for linux/s390x, linux/arm64");
    // Damaged layouts.
    let damaged = |change: &str, words: &str| {
        fixture.sh("rm -rf oci");
        oci(&format!("image amd64 l1.tar; {change} index \"$(descriptor $M.manifest.v1+json)\""));
        refused(&["oci:oci"], words);
    };
    damaged("printf X | dd of=oci/blobs/sha256/$digest conv=notrunc status=none;", "damaged");
    damaged(
        "l=$(sha256sum <l1.tar); printf X | dd of=oci/blobs/sha256/${l%% *} bs=1 seek=9999 conv=notrunc status=none;",
        "damaged",
    );
    damaged(
        "l=$(sha256sum <l1.tar); truncate -s 1M oci/blobs/sha256/${l%% *};",
        "its descriptor says",
    );
    damaged("rm oci/blobs/sha256/$digest;", "opening");
    damaged("digest=../../l1;", "digest");
    damaged("size=7;", "its descriptor says");
    damaged("sed -i 's/tar\"/tar+encrypted\"/' manifest; blob manifest;", "not a tar archive");
    damaged("sed -i 's/layers/lairs/' manifest; blob manifest;", "'layers'");
    damaged("truncate -s 5M manifest; blob manifest;", "longer than");
    damaged("printf '[[[' >manifest; blob manifest;", "JSON");
}

#[test]
fn archive_bombs_are_refused_early() {
    let fixture = Fixture::new();
    // A header claims 8 TiB that the archive does not have.
    fixture.sh(
        "truncate -s 8T huge; tar --format=gnu -cf - huge 2>/dev/null | head -c 2000000 | zstd -q -o huge.zst; \
         echo x >f; (tar -cf - f; head -c 3G /dev/zero) | zstd -q -o tail.zst; rm huge",
    );
    let said = fixture.uxfs(&["import", "-q", "huge.zst", "a.img", "--size", "320M"]).bad(1);
    assert!(said.contains("huge") && said.contains("no space"), "{said}");
    let said = fixture.uxfs(&["import", "-q", "huge.zst", "b.img"]).bad(1);
    assert!(said.contains("room"), "{said}");
    assert!(!fixture.path("b.img").exists());
    let said = fixture.uxfs(&["import", "-q", "tail.zst", "a.img", "--size", "320M"]).bad(1);
    assert!(said.contains("unpacks to more"), "{said}");
    // The refused import does not fill an existing volume.
    fixture.image("a.img", &[]);
    fixture.uxfs(&["import", "-q", "tail.zst", "a.img"]).bad(1);
    let kept: u64 = fixture.sh("stat -c %b a.img").trim().parse().unwrap();
    assert!(kept * 512 < 128 << 20, "{kept} blocks");
}

/// A manifest and a layer keep everything that an archive keeps.
#[test]
fn manifests_and_layers_keep_everything_that_archives_keep() {
    let fixture = Fixture::new();
    fixture.tree();
    fixture.sh("tar -C t --xattrs --acls -S --format=pax -cf t.tar .");
    fixture.uxfs(&["import", "-q", "t.tar", "a.img", "--size", "320M"]).good();
    fixture.uxfs(&["import", "-q", "--layers", "t.tar", "b.img", "--size", "320M"]).good();
    assert_eq!(listed(&fixture, "a.img", EVERYTHING), listed(&fixture, "b.img", EVERYTHING));
}
