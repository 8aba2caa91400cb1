//! Tests of the examples in the help texts: every command has examples in `--help` and in its manual
//! page, and each example parses.

use clap::Command;

use super::definition;

/// All commands with their full names: `uxfs`, `uxfs xattr`, `uxfs xattr get`, …
fn commands() -> Vec<(String, Command)> {
    let mut todo = vec![("uxfs".to_owned(), definition())];
    let mut all = Vec::new();
    while let Some((path, command)) = todo.pop() {
        // Hidden commands need no examples.
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        todo.extend(shown.map(|below| (format!("{path} {}", below.get_name()), below.clone())));
        all.push((path, command));
    }
    all
}

/// The lines after `Examples:` up to an empty line. A line that ends in a backslash is joined with
/// the next.
fn examples(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let help = help.replace("\\\n", "");
    let lines = help.lines().skip_while(|line| line.trim() != "Examples:").skip(1);
    lines.take_while(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned()).collect()
}

/// The arguments, including the name `uxfs`, that a shell would start `uxfs` with. Of a pipeline,
/// only the part that runs `uxfs` counts.
fn words(line: &str) -> Vec<String> {
    // Two blanks and a bracket begin a remark.
    let line = line.split("  (").next().unwrap_or_default();
    // Every command substitution in the examples yields a number.
    let mut line = line.to_owned();
    while let Some((before, (_, after))) =
        line.split_once("$(").and_then(|(before, rest)| Some((before, rest.split_once(')')?)))
    {
        line = format!("{before}0{after}");
    }
    let mut parts = vec![vec![String::new()]];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            '|' | '&' | '>' | ';' if !quoted => parts.push(vec![String::new()]),
            ' ' if !quoted => parts.last_mut().unwrap().push(String::new()),
            _ => parts.last_mut().unwrap().last_mut().unwrap().push(c),
        }
    }
    let setting = |word: &String| word.contains('=') && word.starts_with(char::is_uppercase);
    let mut cleaned = parts.into_iter().map(|part| {
        let words = part.into_iter().filter(|word| !word.is_empty());
        words.skip_while(setting).collect::<Vec<_>>()
    });
    cleaned.find(|part| part.first().is_some_and(|w| w == "uxfs")).unwrap_or_default()
}

#[test]
fn every_command_has_examples_that_parse() {
    for (path, command) in commands() {
        let examples = examples(&command);
        assert!(!examples.is_empty(), "{path} --help has no examples");
        for example in examples {
            let words = words(&example);
            assert!(words.join(" ").starts_with(&path), "{path}: {example}: of another command");
            let parsed = definition().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{path}: {example}: {}", parsed.unwrap_err());
        }
    }
}

/// Help and manual page are generated from the same definition, and both show the examples.
#[test]
fn examples_are_in_help_and_manual() {
    for (path, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap().replace("\\-", "-");
        for example in examples(&command) {
            // Compare up to the first character that a shell or a manual page escapes.
            let plain = |c: &char| !"'\\%".contains(*c);
            let first: String = example.chars().take_while(plain).take(40).collect();
            assert!(help.contains(&first), "{path} --help lacks {example}");
            assert!(page.contains(&first), "the page of {path} lacks {example}:\n{page}");
        }
    }
}

/// The check itself rejects wrong command lines.
#[test]
fn wrong_examples_are_rejected() {
    let parses = |line: &str| definition().try_get_matches_from(words(line)).is_ok();
    assert!(parses("curl x | uxfs ls 'a b.img:/' > out   (a list)"));
    assert_eq!(words("uxfs ls 'a b.img:/' | wc"), ["uxfs", "ls", "a b.img:/"]);
    assert_eq!(words("cd /x && TZ=UTC uxfs ls -l a.img"), ["uxfs", "ls", "-l", "a.img"]);
    assert_eq!(words("uxfs ls -w $(tput cols) a.img"), ["uxfs", "ls", "-w", "0", "a.img"]);
    assert!(!parses("uxfs ls --no-such-option a.img"));
    assert!(!parses("uxfs nothing"));
    assert!(!parses("ls a.img"));
}
