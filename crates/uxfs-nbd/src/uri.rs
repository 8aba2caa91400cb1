//! Addresses of exports, as the NBD URI specification writes them.
//!
//! | address | meaning |
//! |---|---|
//! | `nbd://host[:port]/export` | over TCP; port 10809 if none is given |
//! | `nbd+unix:///export?socket=PATH` | over a Unix socket |
//! | `nbds://…`, `nbds+unix://…` | the same by TLS |
//!
//! 1. `%XX` stands for a byte, everywhere behind the scheme.
//! 2. A query parameter that is not known here is refused: to leave one out could mean to leave TLS'
//!    checks out.
//! 3. What is written again ([`Uri`]'s `Display`) names the same export.
//!
//! Parameters besides `socket`: `tls-certificates=DIR` (`ca-cert.pem`, and `client-cert.pem` with
//! `client-key.pem` for servers that want to know the client), `tls-hostname=NAME`, `connections=N`,
//! `timeout=SECONDS`, `reconnect=SECONDS`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::wire::{DEFAULT_PORT, STRING_MAX};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// The path of a socket.
    Unix(PathBuf),
}

/// The address of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Where the server listens.
    pub place: Place,
    /// The name of the export; empty for the server's default.
    pub export: String,
    /// Is TLS required?
    pub tls: bool,
    /// The directory of certificates; `None` for the system's authorities.
    pub certificates: Option<PathBuf>,
    /// The name that the server's certificate has to bear, if not the host's.
    pub tls_hostname: Option<String>,
    /// Most connections to the server.
    pub connections: Option<usize>,
    /// How long a server may stand still.
    pub timeout: Option<Duration>,
    /// How long a lost server is waited for.
    pub reconnect: Option<Duration>,
}

fn invalid(what: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("not an NBD address: {what}"))
}

fn decoded(text: &str) -> io::Result<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()];
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match (digit(digits[0]), digit(digits[1])) {
            // Two digits make at most 255.
            (Some(high), Some(low)) => out.push((16 * high + low) as u8),
            _ => return Err(invalid("a '%' stands without two hexadecimal digits: write %25")),
        }
    }
    Ok(out)
}

fn text(part: &str) -> io::Result<String> {
    String::from_utf8(decoded(part)?).map_err(|_| invalid("a part of it is not UTF-8"))
}

fn path(part: &str) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let bytes = decoded(part)?;
    match bytes.is_empty() || bytes.contains(&0) {
        true => Err(invalid("a path is empty or contains a zero byte")),
        false => Ok(std::ffi::OsString::from_vec(bytes).into()),
    }
}

fn seconds(key: &str, value: &str) -> io::Result<Duration> {
    let bad = || invalid(format!("{key}= is not a number of seconds from 1 to 86400"));
    let number: u64 = value.parse().map_err(|_| bad())?;
    if (1..=86_400).contains(&number) { Ok(Duration::from_secs(number)) } else { Err(bad()) }
}

fn host_and_port(authority: &str) -> io::Result<(String, u16)> {
    if authority.contains('@') {
        return Err(invalid("a user name is of no use to TLS with certificates: leave it out"));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| invalid("']' is missing"))?;
            (host.to_owned(), rest.strip_prefix(':').or((rest.is_empty()).then_some("")))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (text(host)?, Some(port)),
            None => (text(authority)?, Some("")),
        },
    };
    let port = match port {
        Some("") => DEFAULT_PORT,
        Some(digits) => digits.parse().map_err(|_| invalid("the port is not a number"))?,
        None => return Err(invalid("text follows ']'")),
    };
    if host.is_empty() {
        return Err(invalid("the host is missing: nbd://HOST/EXPORT"));
    }
    Ok((host, port))
}

impl FromStr for Uri {
    type Err = io::Error;

    fn from_str(address: &str) -> io::Result<Self> {
        let (scheme, rest) = address.split_once("://").ok_or_else(|| invalid("no '://' in it"))?;
        let (tls, unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(invalid(format!("the scheme '{scheme}' is none of NBD's"))),
        };
        if rest.contains('#') {
            return Err(invalid("a '#' in it: write %23"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = text(export)?;
        if export.len() > STRING_MAX || export.contains('\0') {
            return Err(invalid("the export's name is too long or contains a zero byte"));
        }
        let mut socket = None;
        let mut uri = Self {
            place: Place::Unix(PathBuf::new()),
            export,
            tls,
            certificates: None,
            tls_hostname: None,
            connections: None,
            timeout: None,
            reconnect: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "socket" if unix => socket = Some(path(value)?),
                "tls-certificates" if tls => uri.certificates = Some(path(value)?),
                "tls-hostname" if tls => uri.tls_hostname = Some(text(value)?),
                "connections" => {
                    let number = value.parse().ok().filter(|n| (1..=16).contains(n));
                    let bad = || invalid("connections= is not a number from 1 to 16");
                    uri.connections = Some(number.ok_or_else(bad)?);
                }
                "timeout" => uri.timeout = Some(seconds(key, value)?),
                "reconnect" => uri.reconnect = Some(seconds(key, value)?),
                _ => return Err(invalid(format!("the parameter '{key}' means nothing here"))),
            }
        }
        uri.place = match (unix, socket) {
            (true, Some(socket)) if authority.is_empty() => Place::Unix(socket),
            (true, Some(_)) => {
                return Err(invalid("a host beside a socket: write nbd+unix:///EXPORT"));
            }
            (true, None) => return Err(invalid("socket=PATH is missing")),
            (false, _) => {
                let (host, port) = host_and_port(authority)?;
                Place::Tcp(host, port)
            }
        };
        Ok(uri)
    }
}

impl Uri {
    /// The same export with paths that hold in every directory, if this process is in `dir`.
    #[must_use]
    pub fn absolute(mut self, dir: &Path) -> Self {
        if let Place::Unix(socket) = &mut self.place {
            *socket = dir.join(&*socket);
        }
        self.certificates = self.certificates.map(|path| dir.join(path));
        self
    }

    /// The name that the server's certificate has to bear.
    pub(crate) fn certified(&self) -> &str {
        match (&self.tls_hostname, &self.place) {
            (Some(name), _) => name,
            (None, Place::Tcp(host, _)) => host,
            (None, Place::Unix(_)) => "localhost",
        }
    }
}

/// Bytes as they may stand in an address.
struct Encoded<'a>(&'a [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    write!(f, "{}", char::from(byte))?;
                }
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::ffi::OsStrExt;
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let s = if self.tls { "s" } else { "" };
        let export = Encoded(self.export.as_bytes());
        let mut query = Vec::new();
        match &self.place {
            Place::Tcp(host, port) => {
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "nbd{s}://{open}{host}{close}")?;
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            Place::Unix(socket) => {
                write!(f, "nbd{s}+unix:///{export}")?;
                query.push(("socket", bytes(socket)));
            }
        }
        query.extend(self.certificates.as_ref().map(|dir| ("tls-certificates", bytes(dir))));
        query.extend(self.tls_hostname.as_ref().map(|name| ("tls-hostname", name.clone().into())));
        query.extend(self.connections.map(|n| ("connections", n.to_string().into())));
        query.extend(self.timeout.map(|t| ("timeout", t.as_secs().to_string().into())));
        query.extend(self.reconnect.map(|t| ("reconnect", t.as_secs().to_string().into())));
        for (at, (key, value)) in query.iter().enumerate() {
            write!(f, "{}{key}={}", if at == 0 { '?' } else { '&' }, Encoded(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Uri {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_examples_of_the_specification() {
        for (text, export) in [
            ("nbd://example.com/disk", "disk"),
            ("nbd+unix:///disk?socket=sock", "disk"),
            ("nbd://example.com/", ""),
            ("nbd://example.com", ""),
            ("nbd://example.com//disk", "/disk"),
            ("nbd://example.com/hello%20world", "hello world"),
        ] {
            assert_eq!(parse(text).export, export, "{text}");
        }
        assert_eq!(parse("nbd://h").place, Place::Tcp("h".into(), 10809));
        assert_eq!(parse("nbds://[::1]:1/x").place, Place::Tcp("::1".into(), 1));
        assert!(parse("nbds://h").tls && !parse("nbd://h").tls);
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in [
            "nbd://h/a",
            "nbds://[fe80::1]:99/a%20b?tls-certificates=/etc/pki&tls-hostname=other&connections=3",
            "nbd+unix:///v?socket=/run/x%3F%26.sock&timeout=5&reconnect=7",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        let uri = parse("nbds+unix:///?socket=a.sock&tls-certificates=pki");
        let text = uri.absolute("/d".as_ref()).to_string();
        assert_eq!(text, "nbds+unix:///?socket=/d/a.sock&tls-certificates=/d/pki");
    }

    #[test]
    fn wrong_addresses_are_refused() {
        for text in [
            "nbd:/x",
            "nbd:///x",
            "nbd://h:port/x",
            "nbd://h:99999/x",
            "nbd+unix:///x",
            "nbd://u@h/x",
            "nbd+unix://h/x?socket=s",
            "nbd+unix:///x?socket=",
            "nbd://h/x?socket=s",
            "nbd://h/%2",
            "nbd://h/%00",
            "nbd://h/%ff",
            "nbd://h/x#y",
            "nbd://h/x?tls-certificates=d",
            "nbd://[::1/x",
            "nbds://h/x?tls-verify-peer=false",
            "nbd://h/x?connections=0",
            "nbd://h/x?timeout=0",
            "nbd://[::1]9/x",
        ] {
            assert!(text.parse::<Uri>().is_err(), "{text}");
        }
    }
}
