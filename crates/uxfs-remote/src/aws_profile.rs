//! Credentials and settings of a profile, from the files that Amazon's own tools write.
//!
//! 1. What the environment says wins: a profile is read only for what is missing there.
//! 2. No value is in a message.
//!
//! Called by [`crate::cloud`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use object_store::aws::AmazonS3ConfigKey as Key;

/// Keys of a profile that are taken, and what in the environment replaces each.
const TAKEN: [(&str, Key, &[&str]); 7] = [
    ("aws_access_key_id", Key::AccessKeyId, &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]),
    (
        "aws_secret_access_key",
        Key::SecretAccessKey,
        &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"],
    ),
    ("aws_session_token", Key::Token, &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]),
    (
        "web_identity_token_file",
        Key::WebIdentityTokenFile,
        &["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"],
    ),
    ("role_arn", Key::RoleArn, &["AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN"]),
    ("region", Key::Region, &["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ("endpoint_url", Key::Endpoint, &["AWS_ENDPOINT", "AWS_ENDPOINT_URL"]),
];

/// Keys of ways to credentials that are not followed.
const NOT_FOLLOWED: [&str; 4] =
    ["sso_session", "sso_start_url", "credential_process", "source_profile"];

/// What a profile says.
type Profile = BTreeMap<String, String>;

/// Reads the section of a profile from the text of a file.
fn section(text: &str, names: &[String], profile: &mut Profile) {
    let mut is_ours = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_ours = names.iter().any(|ours| ours == name.trim());
            continue;
        }
        // What is indented belongs to the key before it.
        let is_key = is_ours && !line.starts_with([' ', '\t', '#', ';']);
        if let Some((key, value)) = line.split_once('=').filter(|_| is_key) {
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
            profile.entry(key).or_insert(value);
        }
    }
}

fn of_files(credentials: &Path, config: &Path, name: &str) -> Profile {
    let mut profile = Profile::new();
    // A file that is missing says nothing.
    let text = |file: &Path| std::fs::read_to_string(file).unwrap_or_default();
    section(&text(credentials), &[name.to_owned()], &mut profile);
    let mut names = vec![format!("profile {name}")];
    if name == "default" {
        names.push(name.to_owned());
    }
    section(&text(config), &names, &mut profile);
    profile
}

/// The settings of a profile that `environment` does not replace.
fn settings(
    profile: &Profile,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(Key, String)>, String> {
    let is_set = |name: &&str| environment(name).is_some_and(|value| !value.is_empty());
    let has_credentials = ["aws_access_key_id", "web_identity_token_file"]
        .iter()
        .any(|key| profile.contains_key(*key));
    let follows = NOT_FOLLOWED.iter().find(|key| profile.contains_key(**key));
    let known = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"].iter().any(is_set);
    if let Some(key) = follows.filter(|_| !has_credentials && !known) {
        return Err(format!(
            "the profile gets its credentials by '{key}', which is not followed: run eval \"$(aws configure \
             export-credentials --format env)\" first"
        ));
    }
    let taken = TAKEN.iter().filter(|(_, _, names)| !names.iter().any(is_set));
    let value = |(name, key, _): &(&str, Key, &[&str])| Some((*key, profile.get(*name)?.clone()));
    Ok(taken.filter_map(value).collect())
}

/// The settings of the profile that the environment names, or of the usual one.
///
/// # Errors
/// If the profile is named and says nothing, or gets its credentials in a way that is not followed.
pub(crate) fn of_environment() -> Result<Vec<(Key, String)>, String> {
    let environment = |name: &str| std::env::var(name).ok();
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    let dir = home.map(|home| PathBuf::from(home).join(".aws")).unwrap_or_default();
    let file = |name: &str, usual: &str| {
        std::env::var_os(name).map_or_else(|| dir.join(usual), PathBuf::from)
    };
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let config = file("AWS_CONFIG_FILE", "config");
    let named = environment("AWS_PROFILE").filter(|name| !name.is_empty());
    let profile = of_files(&credentials, &config, named.as_deref().unwrap_or("default"));
    match named.filter(|_| profile.is_empty()) {
        Some(name) => Err(format!(
            "there is no profile '{name}' (AWS_PROFILE) in {} or {}",
            credentials.display(),
            config.display()
        )),
        None => settings(&profile, &environment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = one\naws_secret_access_key=s1\n\n[ work ]\n\
                               # a comment\naws_access_key_id=two\naws_secret_access_key = s=2\n";
    const CONFIG: &str = "[default]\nregion = r0\n[profile work]\nregion=r1\ns3 =\n  endpoint_url = nested\n\
                          endpoint_url = http://e\n[profile login]\nsso_session = x\nregion = r2\n";

    fn of(name: &str, environment: &[(&str, &str)]) -> Result<Vec<(Key, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        let (credentials, config) = (dir.path().join("c"), dir.path().join("f"));
        std::fs::write(&credentials, CREDENTIALS).unwrap();
        std::fs::write(&config, CONFIG).unwrap();
        let value = |wanted: &str| {
            environment.iter().find(|(name, _)| *name == wanted).map(|(_, v)| (*v).to_owned())
        };
        settings(&of_files(&credentials, &config, name), &value)
    }

    #[test]
    fn a_profile_says_what_the_environment_does_not() {
        let work = of("work", &[]).unwrap();
        let value = |key: Key| work.iter().find(|(k, _)| *k == key).map(|(_, v)| v.as_str());
        assert_eq!(value(Key::AccessKeyId), Some("two"));
        assert_eq!(value(Key::SecretAccessKey), Some("s=2"));
        assert_eq!((value(Key::Region), value(Key::Endpoint)), (Some("r1"), Some("http://e")));
        let usual = of("default", &[("AWS_ACCESS_KEY_ID", "mine")]).unwrap();
        assert_eq!(usual, [(Key::Region, "r0".into())]);
        assert!(of("work", &[("AWS_REGION", "x")]).unwrap().iter().all(|(k, _)| *k != Key::Region));
        assert_eq!(of("other", &[]).unwrap(), []);
    }

    #[test]
    fn what_is_not_followed_is_named() {
        assert!(of("login", &[]).unwrap_err().contains("sso_session"));
        assert!(of("login", &[("AWS_ACCESS_KEY_ID", "mine")]).is_ok());
    }
}
