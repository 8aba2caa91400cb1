//! `cp` in all directions, and its protection against hostile trees.

use crate::fixture::{Fixture, UNREAD};

/// Everything about a tree except inode numbers: listing, content, attributes, ACLs.
fn describe(fixture: &Fixture, dir: &str) -> String {
    fixture.sh(&format!(
        "cd {dir}; find . -printf '{UNREAD}' | awk '{{ if ($1==\"d\") $5=\"-\"; print }}' | LC_ALL=C sort; \
         find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; \
         getfattr -hRd -m - . | cat; getfacl -R . | cat"
    ))
}

#[test]
fn a_tree_survives_the_round_trip_unchanged() {
    let fixture = Fixture::with_image(&[]);
    fixture.image("b.img", &["-m", "rmapbt=1,reflink=0", "-b", "size=1k"]);
    fixture.tree();
    fixture.sh(
        "setfacl -m u:1234:rw t/sparse; setfacl -d -m g:77:rx t/empty; touch -m -d '2020-05-05' t",
    );
    let before = describe(&fixture, "t");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    fixture.uxfs(&["cp", "-a", "a.img:/t", "b.img:/copy"]).good();
    fixture.uxfs(&["cp", "-a", "b.img:/copy", "b.img:/again"]).good();
    fixture.uxfs(&["cp", "-aT", "b.img:/again", "back"]).good();
    assert_eq!(describe(&fixture, "back"), before);
    fixture.check("a.img");
    fixture.check("b.img");
}

#[test]
fn holes_stay_holes() {
    let fixture = Fixture::with_image(&[]);
    fixture
        .sh("truncate -s 64M h; printf data | dd of=h bs=1 seek=20000000 conv=notrunc 2>/dev/null");
    fixture.uxfs(&["cp", "h", "a.img:/h"]).good();
    let blocks: u64 =
        fixture.uxfs(&["stat", "-c", "%b", "a.img:/h"]).good().trim().parse().unwrap();
    assert!(blocks <= 16, "{blocks} blocks of 512 bytes");
    fixture.uxfs(&["cp", "a.img:/h", "back"]).good();
    fixture.sh("cmp h back; test $(stat -c %b back) -le 64");
    fixture.check("a.img");
}

#[test]
fn the_forms_of_the_command_line() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("printf one >one; printf two >two; mkdir d; printf x >d/x; ln -s one link");
    let exists = |path: &str| fixture.uxfs(&["stat", path]).code == 0;
    fixture.uxfs(&["cp", "one", "a.img:/renamed"]).good();
    fixture.uxfs(&["mkdir", "a.img:/dir"]).good();
    fixture.uxfs(&["cp", "one", "two", "a.img:/dir"]).good();
    fixture.uxfs(&["cp", "-t", "a.img:/dir", "link"]).good();
    assert_eq!(
        fixture.uxfs(&["cat", "a.img:/renamed", "a.img:/dir/two", "a.img:/dir/link"]).good(),
        "onetwoone"
    );
    assert!(fixture.uxfs(&["cp", "d", "a.img:/"]).bad(1).contains("-r was not given"));
    fixture.uxfs(&["cp", "-r", "d", "link", "a.img:/dir"]).good();
    assert_eq!(fixture.uxfs(&["stat", "-c", "%F", "a.img:/dir/link"]).good(), "symbolic link\n");
    fixture.uxfs(&["cp", "one", "two", "a.img:/renamed"]).bad(1);
    fixture.uxfs(&["cp", "-n", "two", "a.img:/renamed"]).good();
    assert_eq!(fixture.uxfs(&["cat", "a.img:/renamed"]).good(), "one");
    fixture.uxfs(&["cp", "two", "a.img:/renamed"]).good();
    assert_eq!(fixture.uxfs(&["cat", "a.img:/renamed"]).good(), "two");
    fixture.uxfs(&["cp", "-T", "one", "a.img:/dir"]).bad(1);
    fixture.uxfs(&["cp", "-r", "d", "a.img:/renamed"]).bad(1);
    fixture.uxfs(&["cp", "none", "one", "a.img:/dir"]).bad(1);
    assert!(exists("a.img:/dir/one"));
    fixture.uxfs(&["cp", "one", "two"]).bad(1);
    let same = fixture.uxfs(&["cp", "a.img:/renamed", "a.img:/renamed"]).bad(1);
    assert!(same.contains("same file"), "{same}");
    let itself = fixture.uxfs(&["cp", "-r", "a.img:/dir", "a.img:/dir/below"]).bad(1);
    assert!(itself.contains("into itself"), "{itself}");
    fixture.check("a.img");
}

#[test]
fn ordinary_copies_follow_umask_and_belong_to_the_caller() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("printf x >x; chmod 777 x; touch -d 2001-01-01 x");
    fixture.sh(&format!("umask 027; {} cp x a.img:/x; cp x y", env!("CARGO_BIN_EXE_uxfs")));
    let real = fixture.sh("stat -c '%a %u %g' y");
    assert_eq!(fixture.uxfs(&["stat", "-c", "%a %u %g", "a.img:/x"]).good(), real);
    assert!(!fixture.uxfs(&["stat", "-c", "%y", "a.img:/x"]).good().starts_with("2001"));
    fixture.uxfs(&["cp", "--preserve=timestamps", "x", "a.img:/t"]).good();
    assert!(fixture.uxfs(&["stat", "-c", "%y", "a.img:/t"]).good().starts_with("2001"));
}

#[test]
fn cp_does_not_write_through_links() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/dir outside; printf new >t/dir/file; printf new >t/plain; printf old >outside/target");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
    // On the host, links have the names that the copy uses.
    fixture.sh(
        "mkdir -p out/t; ln -s ../../outside out/t/dir; ln -s ../../outside/target out/t/plain",
    );
    let words = fixture.uxfs(&["cp", "-a", "a.img:/t", "out"]).bad(1);
    assert!(words.contains("out/t/dir") || words.contains("a.img:/t/dir"), "{words}");
    assert_eq!(fixture.sh("ls outside; cat outside/target"), "target\nold");
    // A file replaces the link; cp does not write through the link.
    assert_eq!(fixture.sh("stat -c %F out/t/plain; cat out/t/plain"), "regular file\nnew");
    // The first copy out of the image creates the link; the second must not write through it.
    fixture.uxfs(&["mkdir", "a.img:/one"]).good();
    fixture
        .uxfs(&["ln", "-s", &fixture.path("outside").display().to_string(), "a.img:/one/dir"])
        .good();
    fixture.uxfs(&["cp", "-aT", "a.img:/one", "out2"]).good();
    fixture.uxfs(&["cp", "-aT", "a.img:/t", "out2"]).bad(1);
    assert_eq!(fixture.sh("ls outside"), "target\n");
}

#[test]
fn hostile_names_are_not_followed() {
    for hostile in ["../../ev", "/etc/abc", "a/b/c/de"] {
        let fixture = Fixture::with_image(&[]);
        fixture
            .sh("mkdir -p t/d; printf x >t/d/abcdefgh; mkdir -p deep/out; printf keep >deep/kept");
        fixture.uxfs(&["cp", "-a", "t", "a.img:/"]).good();
        let inode = fixture.uxfs(&["stat", "-c", "%i", "a.img:/t/d"]).good();
        let goto = format!("inode {}", inode.trim());
        let write = format!("write -d u3.sfdir3.list[0].name \"{hostile}\"");
        let _ = uxfs_oracle::db_write(&fixture.path("a.img"), &[&goto, &write]);
        let before = fixture.sh("find . ! -name '*.img' | sort");
        fixture.uxfs(&["cp", "-a", "a.img:/t", "deep/out/t"]).bad(1);
        fixture.uxfs(&["export", "a.img", "-o", "x.tar"]).bad(1);
        let after =
            fixture.sh("find . ! -name '*.img' ! -path './deep/out/*' ! -name x.tar | sort");
        assert_eq!(before, after, "{hostile}");
    }
}

#[test]
fn cp_follows_a_link_that_is_an_operand() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("printf new >f; printf old >real; ln -s real link; ln -s nothing dangling");
    fixture.uxfs(&["cp", "f", "a.img:/f"]).good();
    fixture.uxfs(&["cp", "a.img:/f", "link"]).good();
    assert_eq!(fixture.sh("cat real; stat -c %F link"), "newsymbolic link\n");
    fixture.uxfs(&["cp", "a.img:/f", "dangling"]).bad(1);
}
