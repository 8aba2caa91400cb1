//! `cp` in all directions, and its protection against hostile trees.

use crate::bed::{Bed, UNREAD};

/// Everything about a tree except inode numbers: listing, content, attributes, ACLs.
fn told(bed: &Bed, dir: &str) -> String {
    bed.sh(&format!(
        "cd {dir}; find . -printf '{UNREAD}' | awk '{{ if ($1==\"d\") $5=\"-\"; print }}' | LC_ALL=C sort; \
         find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; \
         getfattr -hRd -m - . | cat; getfacl -R . | cat"
    ))
}

#[test]
fn a_tree_goes_round_unchanged() {
    let bed = Bed::with_image(&[]);
    bed.image("b.img", &["-m", "rmapbt=1,reflink=0", "-b", "size=1k"]);
    bed.tree();
    bed.sh(
        "setfacl -m u:1234:rw t/sparse; setfacl -d -m g:77:rx t/empty; touch -m -d '2020-05-05' t",
    );
    let before = told(&bed, "t");
    bed.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    bed.uxfs(&["cp", "-a", "a.img:/t", "b.img:/copy"]).good();
    bed.uxfs(&["cp", "-a", "b.img:/copy", "b.img:/again"]).good();
    bed.uxfs(&["cp", "-aT", "b.img:/again", "back"]).good();
    assert_eq!(told(&bed, "back"), before);
    bed.check("a.img");
    bed.check("b.img");
}

#[test]
fn holes_stay_holes() {
    let bed = Bed::with_image(&[]);
    bed.sh("truncate -s 64M h; printf data | dd of=h bs=1 seek=20000000 conv=notrunc 2>/dev/null");
    bed.uxfs(&["cp", "h", "a.img:/h"]).good();
    let blocks: u64 = bed.uxfs(&["stat", "-c", "%b", "a.img:/h"]).good().trim().parse().unwrap();
    assert!(blocks <= 16, "{blocks} blocks of 512 bytes");
    bed.uxfs(&["cp", "a.img:/h", "back"]).good();
    bed.sh("cmp h back; test $(stat -c %b back) -le 64");
    bed.check("a.img");
}

#[test]
fn the_forms_of_the_command_line() {
    let bed = Bed::with_image(&[]);
    bed.sh("printf one >one; printf two >two; mkdir d; printf x >d/x; ln -s one link");
    let exists = |path: &str| bed.uxfs(&["stat", path]).code == 0;
    bed.uxfs(&["cp", "one", "a.img:/renamed"]).good();
    bed.uxfs(&["mkdir", "a.img:/dir"]).good();
    bed.uxfs(&["cp", "one", "two", "a.img:/dir"]).good();
    bed.uxfs(&["cp", "-t", "a.img:/dir", "link"]).good();
    assert_eq!(
        bed.uxfs(&["cat", "a.img:/renamed", "a.img:/dir/two", "a.img:/dir/link"]).good(),
        "onetwoone"
    );
    assert!(bed.uxfs(&["cp", "d", "a.img:/"]).bad(1).contains("-r was not given"));
    bed.uxfs(&["cp", "-r", "d", "link", "a.img:/dir"]).good();
    assert_eq!(bed.uxfs(&["stat", "-c", "%F", "a.img:/dir/link"]).good(), "symbolic link\n");
    bed.uxfs(&["cp", "one", "two", "a.img:/renamed"]).bad(1);
    bed.uxfs(&["cp", "-n", "two", "a.img:/renamed"]).good();
    assert_eq!(bed.uxfs(&["cat", "a.img:/renamed"]).good(), "one");
    bed.uxfs(&["cp", "two", "a.img:/renamed"]).good();
    assert_eq!(bed.uxfs(&["cat", "a.img:/renamed"]).good(), "two");
    bed.uxfs(&["cp", "-T", "one", "a.img:/dir"]).bad(1);
    bed.uxfs(&["cp", "-r", "d", "a.img:/renamed"]).bad(1);
    bed.uxfs(&["cp", "none", "one", "a.img:/dir"]).bad(1);
    assert!(exists("a.img:/dir/one"));
    bed.uxfs(&["cp", "one", "two"]).bad(1);
    let same = bed.uxfs(&["cp", "a.img:/renamed", "a.img:/renamed"]).bad(1);
    assert!(same.contains("same file"), "{same}");
    let itself = bed.uxfs(&["cp", "-r", "a.img:/dir", "a.img:/dir/below"]).bad(1);
    assert!(itself.contains("into itself"), "{itself}");
    bed.check("a.img");
}

#[test]
fn ordinary_copies_follow_umask_and_belong_to_the_caller() {
    let bed = Bed::with_image(&[]);
    bed.sh("printf x >x; chmod 777 x; touch -d 2001-01-01 x");
    bed.sh(&format!("umask 027; {} cp x a.img:/x; cp x y", env!("CARGO_BIN_EXE_uxfs")));
    let real = bed.sh("stat -c '%a %u %g' y");
    assert_eq!(bed.uxfs(&["stat", "-c", "%a %u %g", "a.img:/x"]).good(), real);
    assert!(!bed.uxfs(&["stat", "-c", "%y", "a.img:/x"]).good().starts_with("2001"));
    bed.uxfs(&["cp", "--preserve=timestamps", "x", "a.img:/t"]).good();
    assert!(bed.uxfs(&["stat", "-c", "%y", "a.img:/t"]).good().starts_with("2001"));
}

#[test]
fn links_in_the_way_lead_nowhere() {
    let bed = Bed::with_image(&[]);
    bed.sh("mkdir -p t/dir outside; printf new >t/dir/file; printf new >t/plain; printf old >outside/target");
    bed.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    // On the host, links have the names that the copy uses.
    bed.sh("mkdir -p out/t; ln -s ../../outside out/t/dir; ln -s ../../outside/target out/t/plain");
    let words = bed.uxfs(&["cp", "-a", "a.img:/t", "out"]).bad(1);
    assert!(words.contains("out/t/dir") || words.contains("a.img:/t/dir"), "{words}");
    assert_eq!(bed.sh("ls outside; cat outside/target"), "target\nold");
    // A file replaces the link; cp does not write through the link.
    assert_eq!(bed.sh("stat -c %F out/t/plain; cat out/t/plain"), "regular file\nnew");
    // The image contains a link and a file whose path leads through it.
    bed.uxfs(&["mkdir", "a.img:/one"]).good();
    bed.uxfs(&["ln", "-s", &bed.path("outside").display().to_string(), "a.img:/one/dir"]).good();
    bed.uxfs(&["cp", "-aT", "a.img:/one", "out2"]).good();
    bed.uxfs(&["cp", "-aT", "a.img:/t", "out2"]).bad(1);
    assert_eq!(bed.sh("ls outside"), "target\n");
}

#[test]
fn hostile_names_are_not_followed() {
    for hostile in ["../../ev", "/etc/abc", "a/b/c/de"] {
        let bed = Bed::with_image(&[]);
        bed.sh("mkdir -p t/d; printf x >t/d/abcdefgh; mkdir -p deep/out; printf keep >deep/kept");
        bed.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
        let inode = bed.uxfs(&["stat", "-c", "%i", "a.img:/t/d"]).good();
        let goto = format!("inode {}", inode.trim());
        let write = format!("write -d u3.sfdir3.list[0].name \"{hostile}\"");
        let _ = uxfs_oracle::db_write(&bed.path("a.img"), &[&goto, &write]);
        let before = bed.sh("find . ! -name '*.img' | sort");
        bed.uxfs(&["cp", "-a", "a.img:/t", "deep/out/t"]).bad(1);
        bed.uxfs(&["export", "a.img", "-o", "x.tar"]).bad(1);
        let after = bed.sh("find . ! -name '*.img' ! -path './deep/out/*' ! -name x.tar | sort");
        assert_eq!(before, after, "{hostile}");
    }
}

#[test]
fn a_named_link_is_meant() {
    let bed = Bed::with_image(&[]);
    bed.sh("printf new >f; printf old >real; ln -s real link; ln -s nothing dangling");
    bed.uxfs(&["cp", "f", "a.img:/f"]).good();
    bed.uxfs(&["cp", "a.img:/f", "link"]).good();
    assert_eq!(bed.sh("cat real; stat -c %F link"), "newsymbolic link\n");
    bed.uxfs(&["cp", "a.img:/f", "dangling"]).bad(1);
}
