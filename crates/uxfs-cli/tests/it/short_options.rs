//! An option letter has the meaning that it has in the program a command is modelled on. Without a
//! model, it has the same meaning in every command.

use std::collections::BTreeMap;

use crate::fixture::Fixture;

/// A letter's long name; empty if it has none.
type Letters = BTreeMap<char, String>;

/// Commands and the programs they are modelled on. Other commands have no model.
const MODELS: [(&str, &str); 44] = [
    ("mkfs", "mkfs.xfs --help"),
    ("import", "mkfs.xfs --help"),
    ("ls", "ls --help"),
    ("stat", "stat --help"),
    ("cat", "cat --help"),
    ("cp", "cp --help"),
    ("find", "find --help"),
    ("mkdir", "mkdir --help"),
    ("rm", "rm --help"),
    ("rmdir", "rmdir --help"),
    ("mv", "mv --help"),
    ("ln", "ln --help"),
    ("chmod", "chmod --help"),
    ("chown", "chown --help"),
    ("touch", "touch --help"),
    ("tee", "tee --help"),
    ("mknod", "mknod --help"),
    ("readlink", "readlink --help"),
    ("du", "du --help"),
    ("df", "df --help"),
    ("truncate", "truncate --help"),
    ("fallocate", "fallocate --help"),
    ("sync", "sync --help"),
    ("chattr", "chattr --help"),
    ("lsattr", "lsattr --help"),
    ("extsize", "xfs_io -c 'help extsize' -c quit /dev/null"),
    ("cowextsize", "xfs_io -c 'help cowextsize' -c quit /dev/null"),
    ("xattr get", "getfattr --help"),
    ("xattr set", "setfattr --help"),
    ("xattr list", "getfattr --help"),
    ("xattr remove", "setfattr --help"),
    ("mount", "mount --help"),
    ("umount", "umount --help"),
    ("check", "xfs_repair --help"),
    ("fsck", "e2fsck"),
    ("repair", "xfs_repair --help"),
    ("quota report", "xfs_quota -x -c 'help report'"),
    ("quota state", "xfs_quota -x -c 'help state'"),
    ("quota limit", "xfs_quota -x -c 'help limit' | tr '[]| ' '\\n'"),
    ("quota on", "xfs_quota -x -c 'help enable'"),
    ("quota off", "xfs_quota -x -c 'help off'"),
    ("relabel", "setfiles -h"),
    ("metadump", "xfs_metadump"),
    ("mdrestore", "xfs_mdrestore"),
];

/// Letters that mean the same in every command whose model leaves them free.
const OWN: [(char, &str); 4] = [('h', "help"), ('o', "options"), ('q', "quiet"), ('v', "verbose")];

/// Exceptions: letters whose meaning differs from the model or from [`OWN`], and the reason.
const EXCEPTIONS: [(&str, char, &str); 10] = [
    (
        "mount",
        'f',
        "servers of FUSE stay in the foreground with -f, as sshfs; --fake is no use here",
    ),
    (
        "export",
        'o',
        "a file to write is -o FILE to everybody; the volume's options have no letter here",
    ),
    ("disk build", 'o', "a file to write is -o FILE to everybody; there is no volume to open"),
    ("disk build", 'f', "makes a new image in place of an old one, as mkfs and import"),
    ("metadump", 'v', "the dump's version, as xfs_metadump 7 has it"),
    ("defrag", 'n', "changes nothing, as -n of xfs_repair; xfs_fsr has no such option"),
    (
        "defrag",
        'r',
        "descends, as btrfs filesystem defragment; xfs_fsr takes whole volumes or files",
    ),
    ("fallocate", 'u', "util-linux has no way to unshare; xfs_io's is the command funshare"),
    ("extsize", 's', "xfs_io takes the size as an operand; truncate's letter"),
    ("cowextsize", 's', "xfs_io takes the size as an operand; truncate's letter"),
];

/// The letters that a help text describes, each with the long name beside it. Usage lines such as
/// `[-RVadlpv]` count too, without long names.
fn letters(help: &str) -> Letters {
    let mut found = Letters::new();
    for line in help.lines() {
        let mut short = Vec::new();
        let mut long = String::new();
        let words = line.trim_start().split([' ', '\t']).filter(|word| !word.is_empty());
        for word in words.map(|word| word.trim_end_matches(',')) {
            let mut chars = word.chars();
            match (chars.next(), chars.next(), chars.next()) {
                (Some('-'), Some('-'), Some(_)) => {
                    let name = word[2..].split(['=', '[', '<']).next().unwrap_or_default();
                    if long.is_empty() {
                        long = name.to_owned();
                    }
                }
                (Some('-'), Some(letter), None) if letter.is_ascii_alphanumeric() => {
                    short.push(letter);
                }
                // `-c=OPTION` and the like.
                (Some('-'), Some(letter), Some('=')) => short.push(letter),
                _ => break,
            }
        }
        for letter in short {
            found.insert(letter, long.clone());
        }
        for usage in line.split(['[', '{']).skip(1).filter_map(|part| part.strip_prefix('-')) {
            let run = usage.split([' ', ']', '|', '}']).next().unwrap_or_default();
            if run.chars().all(|c| c.is_ascii_alphanumeric()) {
                for letter in run.chars() {
                    found.entry(letter).or_default();
                }
            }
        }
    }
    found
}

/// The subcommands of a command, from its help.
fn below(help: &str) -> Vec<String> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Every command with its letters.
fn commands(fixture: &Fixture) -> Vec<(String, Letters)> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = fixture.uxfs(&words).good();
        let names = below(&help);
        if names.is_empty() {
            let options = help.split_once("Options:").map_or("", |(_, rest)| rest);
            let options = options.split("Examples:").next().unwrap_or_default();
            found.push((command, letters(options)));
        } else {
            open.extend(names.iter().map(|name| format!("{command} {name}").trim().to_owned()));
        }
    }
    found.sort();
    found
}

#[test]
fn short_options_have_the_meaning_of_the_model() {
    let fixture = Fixture::new();
    let commands = commands(&fixture);
    assert!(commands.len() > 40, "{commands:?}");
    let mut table: BTreeMap<char, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut excused = Vec::new();
    for (command, letters_of_ours) in &commands {
        let model = MODELS.iter().find(|(name, _)| name == command).map(|(_, line)| {
            let help = fixture.sh(&format!("{line} 2>&1 || true"));
            let found = letters(&help);
            assert!(!found.is_empty(), "{line}: {help}");
            found
        });
        for (letter, ours) in letters_of_ours {
            let meaning = if ours.is_empty() { "(no long name)" } else { ours };
            table
                .entry(*letter)
                .or_default()
                .entry(meaning.to_owned())
                .or_default()
                .push(command.clone());
            let theirs = model.as_ref().and_then(|model| model.get(letter));
            let own = OWN.iter().any(|(own, name)| own == letter && name == ours);
            let good = match theirs {
                Some(theirs) => ours == theirs || ours.is_empty() || theirs.is_empty(),
                None => own,
            };
            if good {
                continue;
            }
            match EXCEPTIONS.iter().find(|(name, own, _)| name == command && own == letter) {
                Some(exception) => excused.push(exception.0),
                None => wrong.push(format!("{command} -{letter}, --{ours}; the model: {theirs:?}")),
            }
        }
    }
    println!("letter  meaning              commands");
    for (letter, meanings) in &table {
        for (meaning, commands) in meanings {
            println!("{letter:>6}  {meaning:<20} {}", commands.join(", "));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Each exception must exist.
    assert_eq!(excused.len(), EXCEPTIONS.len(), "{excused:?}");
}

/// Tests the parser of help texts.
#[test]
fn short_options_are_read_from_help_texts() {
    let found = letters(
        "  -a, --all   all\n  -R, -r, --recursive\n  -1  one\nUsage: x [-H] [-pq] [-n name|-d]\n\
         \x20     --only-long\n  -t STAMP  use it -z\n  -c, --format=FORMAT",
    );
    let long = |letter| found.get(&letter).map(String::as_str);
    assert_eq!(
        (long('a'), long('R'), long('r')),
        (Some("all"), Some("recursive"), Some("recursive"))
    );
    assert_eq!(
        (long('1'), long('H'), long('q'), long('n')),
        (Some(""), Some(""), Some(""), Some(""))
    );
    assert_eq!((long('t'), long('z'), long('c')), (Some(""), None, Some("format")));
}

#[test]
fn every_command_has_a_page_and_examples() {
    let fixture = Fixture::new();
    fixture.uxfs(&["man", "pages"]).good();
    let pages = fixture.sh("ls pages");
    for (command, _) in commands(&fixture) {
        let page = format!("uxfs-{}.1\n", command.replace(' ', "-"));
        assert!(pages.contains(&page) || command == "man", "{page}: {pages}");
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = fixture.uxfs(&words).good();
        assert!(help.contains("Examples:") || command.contains(' '), "{command}: {help}");
        let (first, _) = command.split_once(' ').unwrap_or((&command, ""));
        for shell in ["bash", "zsh", "fish"] {
            assert!(
                fixture.uxfs(&["completions", shell]).good().contains(first),
                "{shell}: {first}"
            );
        }
    }
}
