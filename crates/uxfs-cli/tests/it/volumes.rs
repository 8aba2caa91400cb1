//! `mkfs`, `info`, `label`, completions and manual pages.

use crate::fixture::Fixture;

fn program(name: &str) -> String {
    uxfs_oracle::program(name, "xfsprogs").display().to_string()
}

#[test]
fn mkfs_prints_the_table_of_mkfs_xfs() {
    let fixture = Fixture::new();
    for options in [
        "-d size=400m",
        "-d size=1g,agcount=7 -l size=80m -i size=1024",
        "-b size=1k -d size=400m -n size=8k",
        "-m rmapbt=1,reflink=0 -i nrext64=1 -d size=500m -L label",
        "-d size=2t,su=64k,sw=4",
    ] {
        let real = fixture.sh(&format!(
            "{} -N -d file,name=x.img {options} | grep -v ^Discard",
            program("mkfs.xfs")
        ));
        let args: Vec<&str> =
            ["mkfs", "-N"].into_iter().chain(options.split(' ')).chain(["x.img"]).collect();
        assert_eq!(fixture.uxfs(&args).good(), real, "{options}");
    }
}

#[test]
fn mkfs_makes_files_and_refuses_existing_content() {
    let fixture = Fixture::new();
    fixture.uxfs(&["mkfs", "none.img"]).bad(1);
    fixture.uxfs(&["mkfs", "-d", "size=400m", "a.img"]).good();
    fixture.check("a.img");
    assert_eq!(fixture.sh("stat -c %s a.img"), "419430400\n");
    let words = fixture.uxfs(&["mkfs", "a.img"]).bad(1);
    assert!(words.contains("a.img appears to contain an existing filesystem (xfs).\n"), "{words}");
    assert!(words.contains("Use the -f option to force overwrite."), "{words}");
    fixture.uxfs(&["mkfs", "-f", "-q", "-b", "size=2k", "a.img"]).good();
    fixture.check("a.img");
    let info = fixture.uxfs(&["info", "a.img"]).good();
    assert!(info.contains("bsize=2048   blocks=204800"), "{info}");
    let words = fixture.uxfs(&["mkfs", "-d", "size=100m", "small.img"]).bad(1);
    assert!(words.contains("must be larger than 300MB"), "{words}");
    assert!(!fixture.path("small.img").exists());
    fixture.uxfs(&["mkfs", "-q", "--unsupported", "-d", "size=32m", "small.img"]).good();
    fixture.check("small.img");
    fixture.uxfs(&["mkfs", "-d", "agcount=x", "-f", "a.img"]).bad(1);
}

/// The features of the primary superblock of a volume that mkfs makes with these options.
fn features(fixture: &Fixture, options: &[&str]) -> String {
    fixture.uxfs(&[&["mkfs", "-q", "-f", "-d", "size=320m"], options, &["a.img"]].concat()).good();
    fixture.check("a.img");
    let newer = uxfs_oracle::Xfsprogs::Current;
    newer.db(&fixture.path("a.img"), &["sb 0", "print features_ro_compat features_incompat"])
}

#[test]
fn mkfs_takes_presets_and_option_files() {
    let fixture = Fixture::new();
    let words = |ro: &str, incompat: &str| {
        format!("features_ro_compat = {ro}\nfeatures_incompat = {incompat}\n")
    };
    assert_eq!(features(&fixture, &["--preset", "lts-5.10"]), words("0x5", "0x3"));
    assert_eq!(features(&fixture, &["--preset", "lts_6.12"]), words("0xf", "0x2b"));
    assert_eq!(features(&fixture, &["--preset", "default"]), words("0xf", "0xeb"));
    let given = ["--preset", "lts-6.12", "-m", "rmapbt=0"];
    assert_eq!(features(&fixture, &given), words("0xd", "0x2b"));
    std::fs::write(fixture.path("one.conf"), "[metadata]\nbigtime=0\n").unwrap();
    std::fs::write(fixture.path("two.conf"), "; mine\n[metadata]\nbigtime=1\nreflink=0\n").unwrap();
    assert_eq!(features(&fixture, &["-c", "options=one.conf"]), words("0xd", "0x3"));
    let both = ["-c", "options=one.conf,defaults=two.conf"];
    assert_eq!(features(&fixture, &both), words("0x9", "0x3"));
    // Defaults of an option file override those of a preset.
    let all = ["--preset", "lts-4.19", "-c", "defaults=two.conf", "-m", "reflink=1"];
    assert_eq!(features(&fixture, &all), words("0x5", "0xb"));
    for (options, said) in [
        (&["-c", "options=one.conf", "-m", "bigtime=1"][..], "-m bigtime option respecified"),
        (&["-c", "options=one.conf", "-c", "options=two.conf"], "-c options option respecified"),
        (&["-c", "options=none.conf"], "none.conf: option file: No such file"),
        (&["-c", "makecfg=new.conf"], "unknown option -c makecfg=new.conf"),
        (&["--preset", "lts-2.6"], "lts-5.10"),
    ] {
        let args = [&["mkfs", "-N", "-d", "size=400m"], options, &["b.img"]].concat();
        let words = fixture.uxfs(&args).bad(1);
        assert!(words.contains(said), "{options:?}: {words}");
    }
}

#[test]
fn mkfs_runs_as_mkfs_uxfs() {
    let fixture = Fixture::new();
    fixture.sh(&format!(
        "ln -s {} mkfs.uxfs; ./mkfs.uxfs -q -d size=400m a.img",
        env!("CARGO_BIN_EXE_uxfs")
    ));
    fixture.check("a.img");
}

#[test]
fn info_prints_the_table_of_xfs_info() {
    let fixture = Fixture::with_image(&["-m", "rmapbt=1", "-L", "here"]);
    let real = fixture.sh(&format!("{} -r -c info a.img", program("xfs_db")));
    assert_eq!(fixture.uxfs(&["info", "a.img"]).good(), real);
}

#[test]
fn label_shows_sets_and_clears_labels() {
    let fixture = Fixture::with_image(&[]);
    assert_eq!(fixture.uxfs(&["label", "a.img"]).good(), "label = \"\"\n");
    assert_eq!(fixture.uxfs(&["label", "a.img", "new"]).good(), "new label = \"new\"\n");
    assert_eq!(fixture.uxfs(&["label", "a.img"]).good(), "label = \"new\"\n");
    assert_eq!(
        fixture.sh(&format!("{} -r -c label a.img", program("xfs_db"))),
        "label = \"new\"\n"
    );
    fixture.check("a.img");
    fixture.uxfs(&["label", "a.img", "--", "--"]).good();
    assert_eq!(fixture.uxfs(&["label", "a.img"]).good(), "label = \"\"\n");
    fixture.check("a.img");
}

#[test]
fn help_pages_and_completions() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(fixture.uxfs(&["completions", shell]).good().contains("import"));
    }
    fixture.uxfs(&["man", "pages"]).good();
    let pages = fixture.sh("ls pages");
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
        let help = fixture.uxfs(&[command, "--help"]).good();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    assert!(fixture.uxfs(&["--version"]).good().starts_with("uxfs "));
}
