//! SELinux labels: `import --file-contexts`, `cp --file-contexts` and `relabel`, with `setfiles` and
//! Debian's policy as the judge.

use std::collections::BTreeMap;

use crate::fixture::Fixture;

const RULES: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// A fixture with a tree `t` that looks like the root of a system.
fn system() -> Fixture {
    let fixture = Fixture::new();
    fixture.sh(
        "mkdir t; cd t; mkdir -p usr/bin usr/sbin usr/lib/systemd/system usr/lib/x86_64-linux-gnu \
         usr/local/lib64/y usr/share/doc etc/ssh etc/init.d etc/systemd/system boot dev proc sys run/lock \
         tmp/inside var/log/journal var/lib/private/x var/run/u var/www home/joe/.ssh home/joe/.config \
         root/.ssh srv mnt/a/b opt/x lost+found; \
         touch usr/bin/bash usr/bin/ls usr/bin/ssh usr/sbin/sshd usr/lib/x86_64-linux-gnu/libc.so.6 \
         usr/lib/systemd/systemd usr/lib/systemd/system/dbus.service usr/local/lib64/y/z.so etc/passwd etc/shadow \
         etc/ssh/sshd_config etc/ssh/ssh_host_rsa_key etc/init.d/cron etc/systemd/system/x.service etc/fstab \
         boot/vmlinuz-6 boot/initrd.img-6 var/log/syslog var/log/wtmp var/run/sshd.pid var/lib/private/x/y \
         home/joe/.ssh/id_rsa home/joe/.bashrc home/joe/file root/.ssh/authorized_keys srv/data mnt/a/b/c \
         opt/x/y.so run/lock/z tmp/inside/f .hidden 'etc/with space'; \
         ln -s usr/bin bin; ln -s usr/lib lib; ln -s vmlinuz-6 boot/vmlinuz; ln -s /proc/mounts etc/mtab; \
         mkfifo dev/initctl var/run/pipe; ln usr/bin/ls usr/bin/dir; chmod 700 root; \
         head -c 200000 /dev/zero | tr '\\0' x >usr/share/doc/big; \
         touch -m -d '2001-01-01' etc/passwd etc .",
    );
    fixture
}

/// Adds a policy to the tree.
fn with_policy(fixture: &Fixture) {
    fixture.sh(&format!(
        "mkdir -p t/etc/selinux/mine/contexts/files; cp {RULES} t/etc/selinux/mine/contexts/files/; \
         cp {RULES}.homedirs {RULES}.subs_dist t/etc/selinux/mine/contexts/files/; \
         echo '/opt/x(/.*)? system_u:object_r:unknown_to_all_t:s0' \
             >t/etc/selinux/mine/contexts/files/file_contexts.local; \
         printf 'SELINUX=enforcing\\nSELINUXTYPE=mine\\n' >t/etc/selinux/config",
    ));
}

type Labels = BTreeMap<String, String>;

/// The labels that `setfiles` gives to the tree by these rules.
fn setfiles(fixture: &Fixture, rules: &str) -> Labels {
    let top = fixture.path("t").display().to_string();
    let out = fixture.sh(&format!("setfiles -nvF -r {top} {rules} {top}"));
    let label = |line: &str| {
        let line = line.strip_prefix("Would relabel ")?;
        let (path, labels) = line.split_once(" from (null) to ")?;
        let path = path.strip_prefix(&top)?;
        Some((if path.is_empty() { "/" } else { path }.to_owned(), labels.to_owned()))
    };
    let mut labels: Labels = out.lines().filter_map(label).collect();
    // setfiles prints a file with several names once.
    let bin = "system_u:object_r:bin_t:s0".to_owned();
    for name in ["/usr/bin/ls", "/usr/bin/dir"] {
        labels.insert(name.to_owned(), bin.clone());
    }
    assert!(labels.len() > 70, "setfiles gives {} labels:\n{out}", labels.len());
    labels
}

/// The labels in an image, without the NUL byte that ends each.
fn labels(fixture: &Fixture, image: &str) -> Labels {
    let script = format!(
        "uxfs find {image}:/ -print0 | xargs -0 -n 1000 {} xattr get -h -n security.selinux -e text 2>/dev/null",
        env!("CARGO_BIN_EXE_uxfs")
    );
    let ran = fixture.bash(&script);
    let mut found = Labels::new();
    let mut path = String::new();
    for line in ran.out.lines() {
        if let Some(name) = line.strip_prefix("# file: ") {
            path = name
                .strip_prefix(image)
                .and_then(|name| name.strip_prefix(':'))
                .unwrap_or_else(|| panic!("{line}"))
                .replace("\\040", " ");
        } else if let Some(value) = line.strip_prefix("security.selinux=\"") {
            let label =
                value.strip_suffix("\\000\"").unwrap_or_else(|| panic!("no NUL byte: {line}"));
            found.insert(path.clone(), label.to_owned());
        }
    }
    found
}

#[track_caller]
fn assert_same(ours: &Labels, theirs: &Labels) {
    let wrong: Vec<_> = theirs
        .keys()
        .chain(ours.keys())
        .filter(|path| ours.get(*path) != theirs.get(*path))
        .map(|path| format!("{path}: {:?}, not {:?}", ours.get(path), theirs.get(path)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imported_trees_have_the_labels_of_setfiles() {
    let fixture = system();
    let theirs = setfiles(&fixture, RULES);
    fixture.sh("tar cf t.tar -C t .; tar cf few.tar -C t etc/passwd usr/bin/bash");
    for (source, image) in [("t", "dir.img"), ("t.tar", "tar.img")] {
        fixture
            .uxfs(&["import", "-q", source, image, "--size", "320m", "--file-contexts", RULES])
            .good();
        fixture.check(image);
        assert_same(&labels(&fixture, image), &theirs);
    }
    // The size that is computed has room for the labels.
    fixture
        .uxfs(&["import", "-q", "t", "small.img", "--headroom", "0", "--file-contexts", RULES])
        .good();
    assert_same(&labels(&fixture, "small.img"), &theirs);
    // Directories without entries, and the root, have labels too.
    fixture.uxfs(&["import", "-q", "few.tar", "few.img", "--file-contexts", RULES]).good();
    let few = labels(&fixture, "few.img");
    let names: Vec<_> = few.keys().map(String::as_str).collect();
    assert_eq!(names, ["/", "/etc", "/etc/passwd", "/usr", "/usr/bin", "/usr/bin/bash"]);
    assert!(few.iter().all(|(path, label)| theirs[path] == *label));
    // Times are those of the tree.
    let times = |image: &str| {
        fixture.uxfs(&["stat", "-c", "%Y", &format!("{image}:/etc"), &format!("{image}:/")]).good()
    };
    assert_eq!(times("dir.img"), fixture.sh("stat -c %Y t/etc t"));
}

#[test]
fn auto_takes_the_policy_of_the_tree() {
    let fixture = system();
    with_policy(&fixture);
    let theirs = setfiles(&fixture, "t/etc/selinux/mine/contexts/files/file_contexts");
    assert!(theirs["/opt/x/y.so"].contains("unknown_to_all_t"));
    fixture.sh(
        "tar cf t.tar -C t .; mkdir top; echo new >top/etc; tar cf low.tar -C t --exclude=./etc .; \
         tar cf high.tar -C t ./etc",
    );
    let import = |args: &[&str]| {
        fixture
            .uxfs(&[&["import", "-q", "--size", "320m", "--file-contexts", "auto"], args].concat())
            .good();
    };
    import(&["t", "dir.img"]);
    import(&["t.tar", "tar.img"]);
    import(&["--layers", "low.tar", "high.tar", "layers.img"]);
    for image in ["dir.img", "tar.img", "layers.img"] {
        fixture.check(image);
        assert_same(&labels(&fixture, image), &theirs);
        // The second pass leaves the times of the source.
        let same = format!("uxfs stat -c %Z {image}:/etc/passwd");
        if image != "dir.img" {
            assert_eq!(
                fixture.bash(&same).good(),
                fixture.bash("uxfs stat -c %Y tar.img:/etc/passwd").good()
            );
        }
    }
    // A tree without a policy is refused, and leaves no image behind.
    fixture.sh("rm -r t/etc/selinux; tar cf none.tar -C t .");
    for source in ["t", "none.tar"] {
        let error = fixture
            .uxfs(&["import", "-q", source, "no.img", "--size", "320m", "--file-contexts", "auto"])
            .bad(1);
        assert!(
            error.contains("no SELinux policy") && error.contains("/etc/selinux/config"),
            "{error}"
        );
        assert!(!fixture.path("no.img").exists());
    }
    // Links in the tree do not lead to the host's policy.
    fixture.sh("ln -s /etc/selinux t/etc/selinux");
    let error = fixture.uxfs(&["import", "-q", "t", "no.img", "--file-contexts", "auto"]).bad(1);
    assert!(error.contains("etc/selinux/config"), "{error}");
}

#[test]
fn the_same_labels_make_the_same_image() {
    let fixture = system();
    with_policy(&fixture);
    fixture.sh("tar cf t.tar -C t .");
    for image in ["a.img", "b.img"] {
        let text = format!(
            "SOURCE_DATE_EPOCH=1700000000 uxfs import -q t.tar {image} --size 320m --file-contexts auto \
             --uuid 12341234-a4ec-4304-a70f-c549ea829da9"
        );
        fixture.bash(&text).good();
    }
    fixture.sh("cmp a.img b.img");
}

#[test]
fn relabel_reports_and_changes_what_setfiles_would() {
    let fixture = system();
    let theirs = setfiles(&fixture, RULES);
    fixture.uxfs(&["import", "-q", "t", "a.img", "--size", "320m"]).good();
    let would = fixture.uxfs(&["relabel", "-nv", "a.img", "--file-contexts", RULES]).good();
    let said = |text: &str, verb: &str| -> Labels {
        let label = |line: &str| {
            let line = line.strip_prefix(verb).unwrap_or_else(|| panic!("{line}"));
            let (path, label) = line.split_once(" from <no context> to ").unwrap();
            (path.strip_prefix("a.img:").unwrap().to_owned(), label.to_owned())
        };
        text.lines().map(label).collect()
    };
    // A file with several names is reported by the first.
    let mut expected = theirs.clone();
    expected.remove("/usr/bin/ls");
    assert_same(&said(&would, "Would relabel "), &expected);
    assert!(labels(&fixture, "a.img").is_empty());
    let did = fixture.uxfs(&["relabel", "-v", "a.img", "--file-contexts", RULES]).good();
    assert_same(&said(&did, "Relabeled "), &expected);
    fixture.check("a.img");
    assert_same(&labels(&fixture, "a.img"), &theirs);
    assert_eq!(fixture.uxfs(&["relabel", "-v", "a.img", "--file-contexts", RULES]).good(), "");
    // What no rule names stays; a wrong label is replaced.
    let wrong = "sys:obj:wrong:s0";
    fixture
        .uxfs(&[
            "xattr",
            "set",
            "-n",
            "security.selinux",
            "-v",
            wrong,
            "a.img:/tmp/inside/f",
            "a.img:/etc/shadow",
            "a.img:/etc/fstab",
        ])
        .good();
    let text = fixture
        .uxfs(&["relabel", "-v", "a.img:/etc/shadow", "a.img:/tmp", "--file-contexts", RULES])
        .good();
    assert_eq!(
        text,
        format!("Relabeled a.img:/etc/shadow from {wrong} to {}\n", theirs["/etc/shadow"])
    );
    let json = fixture.uxfs(&["relabel", "--json", "-n", "a.img", "--file-contexts", RULES]).good();
    let count = theirs.len();
    assert!(
        json.starts_with(
            r#"{"schema":"uxfs.relabel","version":1,"dry_run":true,"files_examined":"#
        ),
        "{json}"
    );
    assert!(
        json.contains(&format!(
            r#"{{"path":"a.img:/etc/fstab","old":"{wrong}","new":"{}"}}"#,
            theirs["/etc/fstab"]
        )),
        "{json} {count}"
    );
    // A path through a link is labelled as the file that it leads to.
    fixture.uxfs(&["relabel", "a.img", "--file-contexts", RULES]).good();
    assert_eq!(
        fixture
            .uxfs(&["relabel", "-nv", "a.img:/bin/bash", "a.img:/bin", "--file-contexts", RULES])
            .good(),
        ""
    );
}

#[test]
fn copies_have_labels() {
    let fixture = system();
    let theirs = setfiles(&fixture, RULES);
    fixture.image("a.img", &[]);
    fixture.sh("mkdir part; cp -a t/etc part/");
    let cp = |args: &[&str]| fixture.uxfs(&[&["cp", "--file-contexts", RULES], args].concat());
    cp(&["-a", "t/usr", "part/etc", "a.img:/"]).good();
    cp(&["-r", "t/var", "a.img:/var"]).good();
    cp(&["t/boot/vmlinuz-6", "a.img:/usr/share/doc"]).good();
    let found = labels(&fixture, "a.img");
    let expected: Labels = theirs
        .into_iter()
        .filter(|(path, _)| {
            ["/usr", "/etc", "/var"]
                .iter()
                .any(|top| path == top || path.starts_with(&format!("{top}/")))
        })
        .chain([("/usr/share/doc/vmlinuz-6".to_owned(), "system_u:object_r:usr_t:s0".to_owned())])
        .collect();
    assert_same(&found, &expected);
    fixture.check("a.img");
    assert!(cp(&["a.img:/etc/passwd", "out"]).bad(1).contains("the target lies in none"));
    // The target's policy.
    with_policy(&fixture);
    fixture.uxfs(&["cp", "-a", "t/etc/selinux", "a.img:/etc/"]).good();
    fixture.uxfs(&["cp", "-r", "--file-contexts", "auto", "t/opt", "a.img:/"]).good();
    assert!(labels(&fixture, "a.img")["/opt/x/y.so"].contains("unknown_to_all_t"));
}

/// A disk's volumes have the labels of an import, whatever their size and their source.
#[test]
fn volumes_of_disks_have_the_labels_of_setfiles() {
    let fixture = system();
    with_policy(&fixture);
    let auto = setfiles(&fixture, "t/etc/selinux/mine/contexts/files/file_contexts");
    let mut given = setfiles(&fixture, RULES);
    let second = "system_u:object_r:of_a_second_file_t:s0";
    given.insert("/etc/passwd".to_owned(), second.to_owned());
    // The description lies elsewhere: its paths are relative to it.
    fixture.sh(&format!(
        "tar cf t.tar -C t .; mkdir spec; cp {RULES} {RULES}.homedirs {RULES}.subs_dist spec/; \
         echo '/etc/passwd -- {second}' >spec/second"
    ));
    let spec = "[[partition]]\ntype='home'\nsize='minimize'\n\
        xfs={source='../t',file-contexts='auto'}\n\
        [[partition]]\ntype='srv'\nsize='320M'\nxfs={source='../t',file-contexts=['file_contexts','second']}\n\
        [[partition]]\ntype='var'\nsize='minimize'\nxfs={source='../t.tar',file-contexts='auto'}\n\
        [[partition]]\ntype='tmp'\nsize='320M'\nxfs={source='../t'}\n\
        [[partition]]\ntype='linux-generic'\nsize='320M'\nxfs={file-contexts=['file_contexts']}\n";
    std::fs::write(fixture.path("spec/disk.toml"), spec).unwrap();
    for image in ["a.img", "b.img"] {
        let build =
            format!("SOURCE_DATE_EPOCH=1700000000 uxfs disk build -q spec/disk.toml -o {image}");
        fixture.bash(&build).good();
    }
    fixture.sh("cmp a.img b.img");
    let volumes = fixture.uxfs(&["disk", "info", "a.img"]).good();
    let mut found = Vec::new();
    for line in volumes.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, name, start] = [0, 2, 3].map(|at| words[at]);
        fixture.sh(&format!("tail -c +$(({start} + 1)) a.img >p{number}.img"));
        found.push((name.to_owned(), labels(&fixture, &format!("p{number}.img"))));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["home", "srv", "var", "tmp", "linux-generic"]);
    assert_same(&found[0].1, &auto);
    assert_same(&found[1].1, &given);
    assert_same(&found[2].1, &auto);
    assert!(found[3].1.is_empty());
    let root = [("/".to_owned(), "system_u:object_r:root_t:s0".to_owned())];
    assert_same(&found[4].1, &root.into());
}

#[test]
fn errors_name_file_and_line() {
    let fixture = system();
    fixture.sh("printf '/.* u:r:t\\n/bad( u:r:t\\n' >rules; printf '/(.+.+)+[?!] u:r:t\\n' >bomb; echo x >t/usr/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    let import = |rules: &str| {
        fixture.uxfs(&["import", "-q", "t", "a.img", "--size", "320m", "--file-contexts", rules])
    };
    assert!(import("rules").bad(1).contains("rules, line 2: '/bad(' is not a regular expression"));
    assert!(import("bomb").bad(1).contains("bomb, line 1: matching"));
    assert!(import("absent").bad(1).contains("absent: No such file"));
    assert!(import("auto,rules").bad(1).contains("auto cannot be combined"));
    assert!(!fixture.path("a.img").exists());
}
