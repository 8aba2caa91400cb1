//! `mkfs`, `info`, `label`, completions and manual pages.

use crate::bed::Bed;

fn program(name: &str) -> String {
    uxfs_oracle::program(name, "xfsprogs").display().to_string()
}

#[test]
fn mkfs_prints_what_mkfs_prints() {
    let bed = Bed::new();
    for options in [
        "-d size=400m",
        "-d size=1g,agcount=7 -l size=80m -i size=1024",
        "-b size=1k -d size=400m -n size=8k",
        "-m rmapbt=1,reflink=0 -i nrext64=1 -d size=500m -L label",
        "-d size=2t,su=64k,sw=4",
    ] {
        let real = bed.sh(&format!(
            "{} -N -d file,name=x.img {options} | grep -v ^Discard",
            program("mkfs.xfs")
        ));
        let args: Vec<&str> =
            ["mkfs", "-N"].into_iter().chain(options.split(' ')).chain(["x.img"]).collect();
        assert_eq!(bed.uxfs(&args).good(), real, "{options}");
    }
}

#[test]
fn mkfs_makes_files_and_refuses_what_is_there() {
    let bed = Bed::new();
    bed.uxfs(&["mkfs", "none.img"]).bad(1);
    bed.uxfs(&["mkfs", "-d", "size=400m", "a.img"]).good();
    bed.check("a.img");
    assert_eq!(bed.sh("stat -c %s a.img"), "419430400\n");
    let words = bed.uxfs(&["mkfs", "a.img"]).bad(1);
    assert!(words.contains("a.img appears to contain an existing filesystem (xfs).\n"), "{words}");
    assert!(words.contains("Use the -f option to force overwrite."), "{words}");
    bed.uxfs(&["mkfs", "-f", "-q", "-b", "size=2k", "a.img"]).good();
    bed.check("a.img");
    let info = bed.uxfs(&["info", "a.img"]).good();
    assert!(info.contains("bsize=2048   blocks=204800"), "{info}");
    let words = bed.uxfs(&["mkfs", "-d", "size=100m", "small.img"]).bad(1);
    assert!(words.contains("must be larger than 300MB"), "{words}");
    assert!(!bed.path("small.img").exists());
    bed.uxfs(&["mkfs", "-q", "--unsupported", "-d", "size=32m", "small.img"]).good();
    bed.check("small.img");
    bed.uxfs(&["mkfs", "-d", "agcount=x", "-f", "a.img"]).bad(1);
}

#[test]
fn mkfs_by_its_other_name() {
    let bed = Bed::new();
    bed.sh(&format!(
        "ln -s {} mkfs.uxfs; ./mkfs.uxfs -q -d size=400m a.img",
        env!("CARGO_BIN_EXE_uxfs")
    ));
    bed.check("a.img");
}

#[test]
fn info_prints_what_xfs_info_prints() {
    let bed = Bed::with_image(&["-m", "rmapbt=1", "-L", "here"]);
    let real = bed.sh(&format!("{} -r -c info a.img", program("xfs_db")));
    assert_eq!(bed.uxfs(&["info", "a.img"]).good(), real);
}

#[test]
fn labels() {
    let bed = Bed::with_image(&[]);
    assert_eq!(bed.uxfs(&["label", "a.img"]).good(), "label = \"\"\n");
    assert_eq!(bed.uxfs(&["label", "a.img", "new"]).good(), "new label = \"new\"\n");
    assert_eq!(bed.uxfs(&["label", "a.img"]).good(), "label = \"new\"\n");
    assert_eq!(bed.sh(&format!("{} -r -c label a.img", program("xfs_db"))), "label = \"new\"\n");
    bed.check("a.img");
    bed.uxfs(&["label", "a.img", "--", "--"]).good();
    assert_eq!(bed.uxfs(&["label", "a.img"]).good(), "label = \"\"\n");
    bed.check("a.img");
}

#[test]
fn help_pages_and_completions() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(bed.uxfs(&["completions", shell]).good().contains("import"));
    }
    bed.uxfs(&["man", "pages"]).good();
    let pages = bed.sh("ls pages");
    for command in [
        "mkfs",
        "import",
        "export",
        "ls",
        "stat",
        "cat",
        "cp",
        "find",
        "mkdir",
        "rm",
        "mv",
        "ln",
        "chmod",
        "chown",
        "truncate",
        "xattr",
        "label",
        "info",
        "completions",
    ] {
        assert!(pages.contains(&format!("uxfs-{command}.1\n")), "{command}: {pages}");
        let help = bed.uxfs(&[command, "--help"]).good();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(bed.uxfs(&["--version"]).good().starts_with("uxfs "));
}
