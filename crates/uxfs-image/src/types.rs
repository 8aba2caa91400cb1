//! The partition types of GPT that have names: those of the Discoverable Partitions Specification
//! (UAPI group) and some others. Names are those of systemd-repart's `Type=`.

use uxfs::format::Uuid;

/// Name and GUID of each type.
const TYPES: &[(&str, &str)] = &[
    ("esp", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
    ("xbootldr", "bc13c2ff-59e6-4262-a352-b275fd6f7172"),
    ("swap", "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"),
    ("home", "933ac7e1-2eb4-4f13-b844-0e14e2aef915"),
    ("srv", "3b8f8425-20e0-4f3b-907f-1a25a76f98e8"),
    ("var", "4d21b016-b534-45c2-a9fb-5c16e091fd2d"),
    ("tmp", "7ec6f557-3bc5-4aca-b293-16ef5df639d1"),
    ("user-home", "773f91ef-66d4-49b5-bd83-d683bf40ad16"),
    ("linux-generic", "0fc63daf-8483-4772-8e79-3d69d8477de4"),
    ("root-x86", "44479540-f297-41b2-9af7-d131d5f0458a"),
    ("root-x86-64", "4f68bce3-e8cd-4db1-96e7-fbcaf984b709"),
    ("root-arm", "69dad710-2ce4-4e3c-b16c-21a1d49abed3"),
    ("root-arm64", "b921b045-1df0-41c3-af44-4c6f280d3fae"),
    ("root-riscv64", "72ec70a6-cf74-40e6-bd49-4bda08e8f224"),
    ("root-x86-verity", "d13c5d3b-b5d1-422a-b29f-9454fdc89d76"),
    ("root-x86-64-verity", "2c7357ed-ebd2-46d9-aec1-23d437ec2bf5"),
    ("root-arm-verity", "7386cdf2-203c-47a9-a498-f2ecce45a2d6"),
    ("root-arm64-verity", "df3300ce-d69f-4c92-978c-9bfb0f38d820"),
    ("root-riscv64-verity", "b6ed5582-440b-4209-b8da-5ff7c419ea3d"),
    ("usr-x86", "75250d76-8cc6-458e-bd66-bd47cc81a812"),
    ("usr-x86-64", "8484680c-9521-48c6-9c11-b0720656f69e"),
    ("usr-arm", "7d0359a3-02b3-4f0a-865c-654403e70625"),
    ("usr-arm64", "b0e01050-ee5f-4390-949a-9101b17104e9"),
    ("usr-riscv64", "beaec34b-8442-439b-a40b-984381ed097d"),
    ("usr-x86-verity", "8f461b0d-14ee-4e81-9aa9-049b6fb97abd"),
    ("usr-x86-64-verity", "77ff5f63-e7b6-4633-acf4-1565b864c0e6"),
    ("usr-arm-verity", "c215d751-7bcd-4649-be90-6627490a4c05"),
    ("usr-arm64-verity", "6e11a4e7-fbca-4ded-b9e9-e1a512bb664e"),
    ("usr-riscv64-verity", "8f1056be-9b05-47c4-81d6-be53128e5b54"),
    ("bios-boot", "21686148-6449-6e6f-744e-656564454649"),
    ("microsoft-basic-data", "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"),
    ("linux-lvm", "e6d6d379-f507-44c2-a23c-238f2a3df928"),
    ("linux-raid", "a19d880f-05fc-4d3b-a006-743f0f84911e"),
    ("luks", "ca7d7ccb-63ed-4c53-861c-1742536059cc"),
];

/// The type that a name or a GUID means.
pub fn parse(text: &str) -> Option<Uuid> {
    let known = TYPES.iter().find(|(name, _)| *name == text);
    known.map_or(text, |(_, guid)| guid).parse().ok()
}

/// The name of a type; `None` if it has none.
pub fn name(guid: &str) -> Option<&'static str> {
    TYPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(guid)).map(|(name, _)| *name)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_guids_are_unique_and_parse() {
        for (at, (name_there, guid)) in TYPES.iter().enumerate() {
            assert_eq!(parse(name_there).unwrap().to_string(), *guid);
            assert_eq!(name(&guid.to_uppercase()), Some(*name_there));
            assert!(TYPES[..at].iter().all(|other| other.0 != *name_there && other.1 != *guid));
        }
        assert_eq!(parse("root"), None);
    }
}
