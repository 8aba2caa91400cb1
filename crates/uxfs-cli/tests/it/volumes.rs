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

/// The features of the primary superblock of a volume that mkfs makes with these options.
fn features(bed: &Bed, options: &[&str]) -> String {
    bed.uxfs(&[&["mkfs", "-q", "-f", "-d", "size=320m"], options, &["a.img"]].concat()).good();
    bed.check("a.img");
    let newer = uxfs_oracle::Xfsprogs::Current;
    newer.db(&bed.path("a.img"), &["sb 0", "print features_ro_compat features_incompat"])
}

#[test]
fn mkfs_takes_presets_and_option_files() {
    let bed = Bed::new();
    let words = |ro: &str, incompat: &str| {
        format!("features_ro_compat = {ro}\nfeatures_incompat = {incompat}\n")
    };
    assert_eq!(features(&bed, &["--preset", "lts-5.10"]), words("0x5", "0x3"));
    assert_eq!(features(&bed, &["--preset", "lts_6.12"]), words("0xf", "0x2b"));
    assert_eq!(features(&bed, &["--preset", "default"]), words("0xf", "0xeb"));
    let given = ["--preset", "lts-6.12", "-m", "rmapbt=0"];
    assert_eq!(features(&bed, &given), words("0xd", "0x2b"));
    std::fs::write(bed.path("one.conf"), "[metadata]\nbigtime=0\n").unwrap();
    std::fs::write(bed.path("two.conf"), "; mine\n[metadata]\nbigtime=1\nreflink=0\n").unwrap();
    assert_eq!(features(&bed, &["-c", "options=one.conf"]), words("0xd", "0x3"));
    let both = ["-c", "options=one.conf,defaults=two.conf"];
    assert_eq!(features(&bed, &both), words("0x9", "0x3"));
    // Defaults of an option file override those of a preset.
    let all = ["--preset", "lts-4.19", "-c", "defaults=two.conf", "-m", "reflink=1"];
    assert_eq!(features(&bed, &all), words("0x5", "0xb"));
    for (options, said) in [
        (&["-c", "options=one.conf", "-m", "bigtime=1"][..], "-m bigtime option respecified"),
        (&["-c", "options=one.conf", "-c", "options=two.conf"], "-c options option respecified"),
        (&["-c", "options=none.conf"], "none.conf: option file: No such file"),
        (&["-c", "makecfg=new.conf"], "unknown option -c makecfg=new.conf"),
        (&["--preset", "lts-2.6"], "lts-5.10"),
    ] {
        let args = [&["mkfs", "-N", "-d", "size=400m"], options, &["b.img"]].concat();
        let words = bed.uxfs(&args).bad(1);
        assert!(words.contains(said), "{options:?}: {words}");
    }
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
