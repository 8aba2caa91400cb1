//! Commands that write: after every kind of edit the tree equals coreutils' result, and the checkers
//! find no damage.

use crate::fixture::{EVERYTHING, Fixture};

/// Runs the same edit on the host's tree and in the image. The results must be equal.
#[track_caller]
fn same_edit(fixture: &Fixture, edit: &str) {
    let exe = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh(&edit.replace("U ", "").replace("@", "t"));
    fixture.sh(&edit.replace("U ", &format!("{exe} ")).replace("@", "a.img:/t"));
    compare(fixture, edit);
    fixture.check("a.img");
}

/// Ignores times: the two edits do not run at the same moment.
#[track_caller]
fn compare(fixture: &Fixture, what: &str) {
    let format = "%y %m %U %G %s %n %l %P\\n";
    let list = |start: &str, program: &str| {
        let text = fixture.sh(&format!("{program} {start} -printf '{format}'"));
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| {
                let mut cells: Vec<&str> = line.split(' ').collect();
                if cells[0] == "d" {
                    cells[4] = "-";
                }
                cells.join(" ")
            })
            .collect();
        lines.sort();
        lines
    };
    let exe = env!("CARGO_BIN_EXE_uxfs");
    assert_eq!(list("a.img:/t", &format!("{exe} find")), list("t", "find"), "{what}");
}

#[test]
fn edits_equal_those_of_coreutils() {
    let fixture = Fixture::with_image(&["-m", "rmapbt=1"]);
    fixture.tree_in_image();
    compare(&fixture, "cp -a");
    for edit in [
        "U mkdir @/new @/new2",
        "U mkdir -p @/p/q/r @/p/q",
        "U mkdir -m 750 @/moded; U mkdir -m u=rwx,go= @/moded2; U mkdir -p -m 700 @/pm/x",
        "U ln @/file @/second; U ln -s somewhere @/sym; U ln -sf elsewhere @/sym; U ln -f @/hard @/second",
        "U ln -s a b c @/new",
        "U mv @/second @/third; U mv @/third @/new; U mv -T @/new2 @/new3",
        "U mv -n @/file @/hard; U mv -f @/sparse @/new/third; U mv @/dir @/new",
        "U chmod 640 @/file; U chmod u+x,g-r,o=w @/hard; U chmod -R go-rwx @/many; U chmod +t @/new",
        "U chmod -R u=rwX,go=rX @/new; U chmod g+s @/new; U chmod 755 @/new; U chmod 00755 @/new",
        "U truncate -s 10 @/file; U truncate -s +1M @/hard; U truncate -s 0 @/new/dir/big; U truncate -s %4K @/created",
        "U truncate -s '<3' @/file; U truncate -c -s 5 @/none; U truncate -r @/file @/created",
        "U rm @/file @/link; U rm -d @/empty; U rm -r @/many; U rm -f @/none",
        "U rm -rf @/new @/p @/none",
    ] {
        same_edit(&fixture, edit);
    }
}

#[test]
fn names_of_odd_bytes() {
    let fixture = Fixture::with_image(&[]);
    let exe = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh(&format!("n=$(printf 'a\\377\\nb'); {exe} mkdir \"a.img:/$n\"; {exe} mv \"a.img:/$n\" \"a.img:/$n$n\"; {exe} rm -r \"a.img:/$n$n\""));
    assert_eq!(fixture.uxfs(&["ls", "a.img"]).good(), "");
    fixture.check("a.img");
}

#[test]
fn owners_by_number_and_name() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let owner =
        |name: &str| fixture.uxfs(&["stat", "-c", "%u:%g", &format!("a.img:/t/{name}")]).good();
    fixture.uxfs(&["chown", "1234:4321", "a.img:/t/file"]).good();
    assert_eq!(owner("hard"), "1234:4321\n");
    fixture.uxfs(&["chown", "root", "a.img:/t/file"]).good();
    assert_eq!(owner("file"), "0:4321\n");
    fixture.uxfs(&["chown", ":77", "a.img:/t/file"]).good();
    assert_eq!(owner("file"), "0:77\n");
    fixture.uxfs(&["chown", "-R", "5:6", "a.img:/t/dir", "a.img:/t/many"]).good();
    assert_eq!(owner("dir/up"), "5:6\n");
    assert_eq!(owner("many/a-rather-long-name-149"), "5:6\n");
    fixture.uxfs(&["chown", "-h", "9", "a.img:/t/dangling"]).good();
    assert_eq!(
        owner("dangling"),
        format!("9:{}", owner("dangling").trim().split(':').nth(1).unwrap()) + "\n"
    );
    fixture.uxfs(&["chown", "no-such-user-here", "a.img:/t/file"]).bad(1);
    // A program loses its set-user-ID bit with its owner.
    assert_eq!(fixture.uxfs(&["stat", "-c", "%a", "a.img:/t/file"]).good(), "755\n");
    fixture.check("a.img");
}

#[test]
fn attributes_are_set_and_removed() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let file = "a.img:/t/file";
    fixture.uxfs(&["xattr", "set", "-n", "user.x", "-v", "0x6162", file]).good();
    fixture.uxfs(&["xattr", "set", "-n", "trusted.y", "-v", "0sYWJj", file]).good();
    let long = "v".repeat(5000);
    fixture.uxfs(&["xattr", "set", "-n", "user.long", "-v", &long, file]).good();
    assert_eq!(
        fixture.uxfs(&["xattr", "get", "--only-values", "-n", "user.long", file]).good(),
        long
    );
    let all = fixture.uxfs(&["xattr", "get", "-d", file]).good();
    assert!(all.contains("trusted.y=\"abc\"\n") && all.contains("user.x=\"ab\"\n"), "{all}");
    fixture.check("a.img");
    fixture.uxfs(&["xattr", "remove", "-n", "user.long", file]).good();
    fixture.uxfs(&["xattr", "remove", "-n", "user.long", file]).bad(1);
    fixture.uxfs(&["xattr", "set", "-n", "nonsense", "-v", "x", file]).bad(1);
    fixture.check("a.img");
}

#[test]
fn permissions_and_access_lists_go_together() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir d; printf x >f; setfacl -m u:1234:rwx,g:99:r f; setfacl -d -m u:1234:rwx d");
    fixture.uxfs(&["cp", "-a", "d", "f", "a.img:/"]).good();
    assert_eq!(fixture.uxfs(&["stat", "-c", "%a", "a.img:/f"]).good(), fixture.sh("stat -c %a f"));
    fixture.uxfs(&["chmod", "600", "a.img:/f"]).good();
    fixture.sh("chmod 600 f");
    // A new file inherits its directory's default ACL, on the host and in the image.
    fixture.uxfs(&["mkdir", "a.img:/d/sub"]).good();
    fixture.sh("mkdir d/sub");
    fixture.sh("mkdir back");
    fixture.uxfs(&["cp", "-a", "a.img:/d", "a.img:/f", "back"]).good();
    fixture.sh("getfacl -R d f >one; cd back; getfacl -R d f >../two; cmp ../one ../two");
    fixture.check("a.img");
}

#[test]
fn verbose_output_equals_that_of_coreutils() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("printf x >x");
    let made = fixture.uxfs(&["mkdir", "-pv", "a.img:/a/b"]).good();
    assert_eq!(made, "created directory 'a.img:/a'\ncreated directory 'a.img:/a/b'\n");
    let copied = fixture.uxfs(&["cp", "-v", "x", "a.img:/a"]).good();
    assert_eq!(copied, "'x' -> 'a.img:/a/x'\n");
    let moved = fixture.uxfs(&["mv", "-v", "a.img:/a/x", "a.img:/y"]).good();
    assert_eq!(moved, "renamed 'a.img:/a/x' -> 'a.img:/y'\n");
    let removed = fixture.uxfs(&["rm", "-rv", "a.img:/a", "a.img:/y"]).good();
    assert_eq!(
        removed,
        "removed directory 'a.img:/a/b'\nremoved directory 'a.img:/a'\nremoved 'a.img:/y'\n"
    );
}

#[test]
fn times_survive_to_the_nanosecond() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree();
    let everything = |program: &str, start: &str| {
        let text = fixture.sh(&format!("{program} {start} -printf '{EVERYTHING}'"));
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| {
                let mut cells: Vec<&str> = line.split(' ').collect();
                if cells[0] == "d" {
                    cells[4] = "-";
                }
                cells.join(" ")
            })
            .collect();
        lines.sort();
        lines
    };
    let before = everything("find", "t");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    let exe = format!("{} find", env!("CARGO_BIN_EXE_uxfs"));
    assert_eq!(everything(&exe, "a.img:/t"), before);
}
