//! The names of partition types: sfdisk knows the GUIDs too.

use super::describe;
use crate::fixture::Fixture;

#[test]
fn types_are_those_that_sfdisk_knows() {
    let fixture = Fixture::new();
    let types = [
        ("esp", "EFI System"),
        ("xbootldr", "Linux extended boot"),
        ("swap", "Linux swap"),
        ("home", "Linux home"),
        ("srv", "Linux server data"),
        ("var", "Linux variable data"),
        ("tmp", "Linux temporary data"),
        ("user-home", "Linux user's home"),
        ("linux-generic", "Linux filesystem"),
        ("root-x86", "Linux root (x86)"),
        ("root-x86-64", "Linux root (x86-64)"),
        ("root-arm", "Linux root (ARM)"),
        ("root-arm64", "Linux root (ARM-64)"),
        ("root-riscv64", "Linux root (RISC-V-64)"),
        ("root-x86-verity", "Linux root verity (x86)"),
        ("root-x86-64-verity", "Linux root verity (x86-64)"),
        ("root-arm-verity", "Linux root verity (ARM)"),
        ("root-arm64-verity", "Linux root verity (ARM-64)"),
        ("root-riscv64-verity", "Linux root verity (RISC-V-64)"),
        ("usr-x86", "Linux /usr (x86)"),
        ("usr-x86-64", "Linux /usr (x86-64)"),
        ("usr-arm", "Linux /usr (ARM)"),
        ("usr-arm64", "Linux /usr (ARM-64)"),
        ("usr-riscv64", "Linux /usr (RISC-V-64)"),
        ("usr-x86-verity", "Linux /usr verity (x86)"),
        ("usr-x86-64-verity", "Linux /usr verity (x86-64)"),
        ("usr-arm-verity", "Linux /usr verity (ARM)"),
        ("usr-arm64-verity", "Linux /usr verity (ARM-64)"),
        ("usr-riscv64-verity", "Linux /usr verity (RISC-V-64)"),
        ("bios-boot", "BIOS boot"),
        ("microsoft-basic-data", "Microsoft basic data"),
        ("linux-lvm", "Linux LVM"),
        ("linux-raid", "Linux RAID"),
        // It does not know this one.
        ("luks", "unknown"),
    ];
    let table = |(name, _): &(&str, &str)| format!("[[partition]]\ntype='{name}'\nsize='1M'\n");
    describe(&fixture, types.iter().map(table).collect::<String>());
    fixture.uxfs(&["disk", "build", "-q", "disk.toml", "-o", "d.img"]).good();
    let list = fixture.sh("sfdisk -q -l -o Type d.img | tail -n +2");
    let printed: Vec<&str> = list.lines().map(str::trim).collect();
    assert_eq!(printed.len(), types.len());
    for (printed, (name, says)) in printed.iter().zip(types) {
        assert!(printed.eq_ignore_ascii_case(says), "{name}: {printed}");
    }
}
