//! What is refused, and what is left when a build ends early: nothing.

use std::process::{Command, Stdio};

use super::{describe, sources};
use crate::fixture::Fixture;

#[test]
fn wrong_descriptions_are_refused_before_anything_is_written() {
    let fixture = sources();
    fixture.sh("mkdir case links; touch case/Name case/nAME; ln -s x links/link");
    let root = "[[partition]]\ntype='root-x86-64'\nsize='300M'\n";
    let home = "[[partition]]\ntype='home'\nsize='300M'\n";
    let long = "x".repeat(37);
    let hashed = |option: &str| {
        format!(
            "\n{root}xfs={{mkfs=[{option}]}}\n[[partition]]\ntype='root-x86-64-verity'\nverity={{data='root-x86-64'}}\n"
        )
    };
    fixture.sh("echo '/.* u:r:t:s0' >good; printf '/.* u:r:t\\n/bad( u:r:t\\n' >bad");
    let labelled = |rules: &str| format!("{home}xfs.file-contexts={rules}\nxfs.source='t'\n");
    for (spec, says) in [
        ("", "disk.toml:1: a disk has 1 to 128 partitions"),
        ("[[partition]]\ntype='esp'\nsise='1M'\n", "disk.toml:3: unknown field `sise`"),
        ("[disk\n", "disk.toml:1:"),
        ("[[partition]]\ntype='root'\nsize='1M'\n", "'root' is neither a GUID nor a type"),
        (
            &format!("{root}\n{root}name='b'\n"),
            "disk.toml:5: partition 2 'b': has the type root-x86-64",
        ),
        (&format!("{home}{home}"), "has the name home of partition 1"),
        (&format!("{root}name='{long}'\n"), "has 1 to 36 characters (UTF-16), not 37"),
        (&format!("{root}uuid='x'\n"), "a UUID is 32 hexadecimal digits"),
        (
            &format!(
                "{root}uuid='0a0b0c0d-1111-4222-8333-444455556666'\n{home}uuid='0A0B0C0D-1111-4222-8333-444455556666'\n"
            ),
            "has the UUID 0a0b0c0d-1111-4222-8333-444455556666 of partition 1",
        ),
        (
            &format!(
                "{root}xfs={{uuid='0a0b0c0d-1111-4222-8333-444455556666'}}\n{home}xfs={{uuid='0a0b0c0d-1111-4222-8333-444455556666'}}\n"
            ),
            "has the volume UUID",
        ),
        (&format!("{root}xfs={{label='l'}}\n{home}xfs={{label='l'}}\n"), "has the volume label l"),
        (&format!("{root}xfs={{label='thirteen char'}}\n"), "more than 12 bytes"),
        (&format!("{root}xfs={{source='none'}}\n"), "none: No such file"),
        (&format!("{root}xfs={{source='t',layers=['t']}}\n"), "give 'source', 'layers'"),
        (&format!("{root}xfs={{source='t',owner='root'}}\n"), "is not UID or UID:GID"),
        (&format!("{root}xfs={{source='t',map-uid=['1']}}\n"), "not of the form FROM:TO"),
        (&format!("{root}xfs={{mkfs=['-m nothing=1']}}\n"), "nothing"),
        (&format!("{root}xfs={{mkfs=['rmapbt=1']}}\n"), "is not of the form"),
        (&format!("{root}xfs={{}}\nfile='blob'\n"), "more than one content"),
        ("[[partition]]\ntype='home'\nsize='8M'\nxfs={source='t'}\n", "partition 1 'home'"),
        ("[[partition]]\ntype='home'\nxfs={source='t'}\n", "give its size"),
        ("[[partition]]\ntype='home'\n", "has no content: give its size"),
        ("[[partition]]\ntype='home'\nsize=1000\n", "not a multiple of 4096"),
        ("[[partition]]\ntype='home'\nsize='1M'\nstart='1000K'\n", "no multiple of 1 MiB"),
        ("[[partition]]\ntype='home'\nsize='1M'\nstart=0\n", "no multiple of 1 MiB"),
        (&format!("{root}start='4M'\n{home}start='10M'\n"), "overlaps partition 1"),
        (&format!("[disk]\nsize='300M'\n{root}"), "the disk has 314572800 bytes"),
        (&format!("[disk]\nsize='0'\n{root}"), "the disk has 0 bytes"),
        (
            "[disk]\nsize='9M'\n[[partition]]\ntype='home'\nsize='rest'\nxfs={}\n",
            "partition 1 'home'",
        ),
        ("[[partition]]\ntype='home'\nsize='rest'\n", "\"rest\" is for the last partition"),
        (
            "[[partition]]\ntype='home'\nsize='99999T'\n[[partition]]\ntype='srv'\nsize='9999999T'\n",
            "no room",
        ),
        ("[[partition]]\ntype='home'\nsize='512K'\nfile='blob'\n", "blob has 700001 bytes"),
        ("[[partition]]\ntype='home'\nfile='t'\n", "is not a file with content"),
        (
            "[[partition]]\ntype='esp'\nsize='1M'\nfat={source='esp'}\n",
            "no FAT16 volume has 1048576",
        ),
        (
            "[[partition]]\ntype='esp'\nsize='40M'\nfat={files={'a/../b'='blob'}}\n",
            "not a path in a volume",
        ),
        ("[[partition]]\ntype='esp'\nsize='40M'\nfat={source='case'}\n", "FAT ignores case"),
        (
            "[[partition]]\ntype='esp'\nsize='40M'\nfat={source='links'}\n",
            "holds only files and directories",
        ),
        ("[[partition]]\ntype='esp'\nsize='40M'\nfat={label='lower'}\n", "a FAT label has"),
        ("[[partition]]\ntype='esp'\nsize='40M'\nfat={bits=12}\n", "16 or 32 bits"),
        (
            "[[partition]]\ntype='esp'\nsize='4M'\nfat={source='t/many',files={'x'='big'}}\n",
            "clusters",
        ),
        (
            &format!("{root}[[partition]]\ntype='root-x86-64-verity'\nverity={{data='none'}}\n"),
            "no partition is named",
        ),
        (
            &format!(
                "{root}[[partition]]\ntype='root-x86-64-verity'\nverity={{data='root-x86-64',salt='0'}}\n"
            ),
            "hexadecimal",
        ),
        (
            "[[partition]]\ntype='root-x86-64-verity'\nverity={data='root-x86-64-verity'}\n",
            "a hash tree itself",
        ),
        (
            &hashed("'-s size=512'"),
            "disk.toml:2: partition 1 'root-x86-64': xfs: mkfs: sectors of 512 bytes, but partition 2 is its hash tree",
        ),
        (&hashed("'-d sectsize=2048'"), "less than 4096 from dm-verity; leave out -s size"),
        (&hashed("'-l sectsize=512'"), "sectors of the log of 512 bytes"),
        (&hashed("'-b size=1024'"), "blocks of 1024 bytes"),
        (
            &labelled("'rules'"),
            "disk.toml:4: invalid value: string \"rules\", expected \"auto\", or a list",
        ),
        (&labelled("[]"), "disk.toml:4: invalid length 0"),
        (&labelled("['good','auto']"), "disk.toml:4: \"auto\" stands alone"),
        (
            &labelled("['good','bad']"),
            "disk.toml:1: partition 1 'home': xfs: file-contexts: bad, line 2: '/bad(' is not a regular expression",
        ),
        (&labelled("['absent']"), "xfs: file-contexts: absent: No such file"),
        (&labelled("'auto'"), "xfs: file-contexts: the tree has no SELinux policy"),
        (&format!("{home}xfs.file-contexts='auto'\n"), "there is no source"),
    ] {
        if spec.contains("'big'") {
            fixture.sh("head -c 8000000 /dev/zero >big");
        }
        describe(&fixture, spec);
        let before = fixture.sh("ls -A");
        let said = fixture.uxfs(&["disk", "build", "disk.toml", "-o", "d.img"]).bad(1);
        assert!(said.contains(says), "{spec}\n{said}\nnot: {says}");
        assert_eq!(fixture.sh("ls -A"), before, "{spec}");
    }
}

#[test]
fn outputs_are_protected() {
    let fixture = sources();
    let build = |output: &str| fixture.uxfs(&["disk", "build", "disk.toml", "-o", output]);
    fixture.sh("echo mine >d.img; mkdir dir; mkfifo fifo");
    assert!(build("d.img").bad(1).contains("use the -f option"));
    assert!(build("dir").bad(1).contains("not a regular file"));
    assert!(build("fifo").bad(1).contains("not a regular file"));
    assert!(build("x.vmdk").bad(1).contains("does not write vmdk"));
    assert!(build("none/x.img").bad(1).contains("no such file"));
    // A volume that is too small for its tree: found late, and the old output stays.
    let spec = "[[partition]]\ntype='home'\nsize='32M'\nxfs={source='large'}\n";
    describe(&fixture, spec);
    fixture.sh("mkdir large; head -c 40000000 /dev/urandom >large/file");
    let said = fixture.uxfs(&["disk", "build", "-f", "disk.toml", "-o", "d.img"]).bad(1);
    assert!(said.contains("partition 1 'home'"), "{said}");
    assert_eq!(fixture.sh("cat d.img; ls -A | grep '^\\.' || true"), "mine\n");
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let fixture = Fixture::new();
    fixture.sh("mkdir t; head -c 50000000 /dev/urandom >t/file");
    let spec = "[[partition]]\ntype='home'\nsize='minimize'\nxfs={source='t'}\n\
                [[partition]]\ntype='srv'\nsize='300M'\nxfs={source='t'}\n";
    describe(&fixture, spec);
    let mut child = Command::new(env!("CARGO_BIN_EXE_uxfs"))
        .args(["disk", "build", "disk.toml", "--compress", "-o", "d.qcow2"])
        .current_dir(fixture.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while fixture.sh("ls -A | grep '^\\.d' || true").is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "ended without a work directory");
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let code = child.wait().unwrap().code();
    let left = fixture.sh("ls -A");
    match code {
        Some(130) => assert_eq!(left, "disk.toml\nt\n"),
        // It was faster than the signal.
        Some(0) => assert_eq!(left, "d.qcow2\ndisk.toml\nt\n"),
        other => panic!("{other:?}: {left}"),
    }
}
