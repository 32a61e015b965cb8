//! Where a server is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use duramen::error::{Code, Error, Result};
use duramen_proto::discovery::{self, PORT, Serving};

/// Where a server is.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// The directory of a database: its server is found by the files there.
    Directory(PathBuf),
    /// A Unix socket.
    Socket(PathBuf),
    /// A host and a port, and the token for it.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The token.
        token: Option<String>,
    },
}

impl Address {
    /// From a text: `duramen://[TOKEN@]HOST[:PORT][?token_file=FILE]`, `HOST:PORT`, `unix:PATH`, or the
    /// directory of a database.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it is none of them; `System` (E1001) if the token's file cannot be read.
    pub fn parse(text: &str) -> Result<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong(text, "it names no socket")),
                path => Ok(Address::Socket(path.into())),
            };
        }
        if let Some(rest) = text.strip_prefix("duramen://") {
            return url(text, rest);
        }
        if text.contains("://") {
            return Err(wrong(text, "only duramen:// is understood"));
        }
        if text.contains("?token_file=") && !Path::new(text).exists() {
            return Err(wrong(text, "before an address with a token stands duramen://"));
        }
        if Path::new(text).is_dir() || text.contains('/') {
            return Ok(Address::Directory(text.into()));
        }
        match text.rsplit_once(':') {
            Some(_) => {
                let (host, port) = host_and_port(text, text)?;
                Ok(Address::Tcp { host, port, token: None })
            }
            None => Ok(Address::Directory(text.into())),
        }
    }

    /// The same address with a token, if it is of TCP and has none.
    #[must_use]
    pub fn or_token(self, given: Option<String>) -> Address {
        match self {
            Address::Tcp { host, port, token } => Address::Tcp { host, port, token: token.or(given) },
            other => other,
        }
    }
}

impl std::fmt::Debug for Address {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({self})")
    }
}

impl std::fmt::Display for Address {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Directory(path) => write!(f, "{}", path.display()),
            Address::Socket(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

fn url(text: &str, rest: &str) -> Result<Address> {
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (token, rest) =
        rest.rsplit_once('@').map_or((None, rest), |(token, rest)| (Some(token.to_owned()), rest));
    let (host, port) = host_and_port(text, rest.trim_end_matches('/'))?;
    let token = match query {
        None => token,
        Some(query) => match query.split_once('=') {
            Some(("token_file", path)) if token.is_none() => Some(read_token(Path::new(path))?),
            _ => return Err(wrong(text, "after the question mark only token_file=FILE is understood")),
        },
    };
    Ok(Address::Tcp { host, port, token })
}

fn host_and_port(text: &str, of: &str) -> Result<(String, u16)> {
    let (host, port) = match of.strip_prefix('[') {
        // Addresses of version 6 have colons.
        Some(rest) => rest.split_once(']').ok_or_else(|| wrong(text, "a bracket is not closed"))?,
        None => of.find(':').map_or((of, ""), |at| of.split_at(at)),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| wrong(text, "its port is no number from 0 to 65535"))?,
        None if port.is_empty() => PORT,
        None => return Err(wrong(text, "a colon and a port follow the host")),
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(wrong(text, "it names no host"));
    }
    Ok((host.to_owned(), port))
}

fn wrong(text: &str, why: &str) -> Error {
    // A token in it is not repeated.
    let shown = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
    Error::invalid(format!("{shown} is no address of a server: {why}"))
        .with_hint("an address is duramen://HOST:PORT, HOST:PORT, unix:PATH, or the directory of a database")
}

/// The token in a file.
///
/// # Errors
/// `System` (E1001) if it cannot be read.
pub(crate) fn read_token(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|error| Error::io("read the token in", path, &error))?;
    Ok(text.trim_end().to_owned())
}

/// How the database in a directory is served; `None` if its files name no server.
///
/// # Errors
/// `System` (E1001) if they cannot be read.
pub(crate) fn serving(directory: &Path) -> Result<Option<Serving>> {
    let path = directory.join(discovery::FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Serving::parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let what = format!("the database {} is another user's: {error}", directory.display());
            Err(Error::new(Code::Forbidden, what)
                .with_hint("run the command as the user to whom the database belongs (`ls -ld`)"))
        }
        Err(error) => Err(Error::io("read", &path, &error)),
    }
}

/// No process serves the database in a directory.
pub(crate) fn not_served(directory: &Path) -> Error {
    let shown = directory.display();
    Error::new(Code::Unreachable, format!("no process serves the database {shown}")).with_hint(format!(
        "`duramen serve {shown}` serves it; a program does by `duramen_server::local(&db)?`"
    ))
}

#[cfg(test)]
mod tests {
    //! An address that is misread is another server.
    use super::*;

    fn tcp(host: &str, port: u16, token: Option<&str>) -> Address {
        Address::Tcp { host: host.to_owned(), port, token: token.map(str::to_owned) }
    }

    #[test]
    fn addresses_are_read() {
        let of = |text: &str| Address::parse(text).expect(text);
        assert_eq!(of("unix:/run/a b.sock"), Address::Socket("/run/a b.sock".into()));
        assert_eq!(of("localhost:7420"), tcp("localhost", 7420, None));
        assert_eq!(of("[::1]:80"), tcp("::1", 80, None));
        assert_eq!(of("duramen://shop"), tcp("shop", PORT, None));
        assert_eq!(of("duramen://dur_1_a-b@shop:9/"), tcp("shop", 9, Some("dur_1_a-b")));
        assert_eq!(of("shop.duramen"), Address::Directory("shop.duramen".into()));
        assert_eq!(of("/srv/a:b"), Address::Directory("/srv/a:b".into()));
        assert_eq!(of("duramen://secret@shop:9").to_string(), "shop:9");
        assert_eq!(of("[::1]:80").to_string(), "[::1]:80");
        for wrong in [
            "127.0.0.1:7420?token_file=none",
            "unix:",
            "http://shop",
            "duramen://",
            "duramen://:80",
            "shop:port",
            "shop:65536",
            "duramen://a?b=c",
        ] {
            let error = Address::parse(wrong).expect_err(wrong);
            assert_eq!(error.code(), Code::InvalidArgument, "{wrong}");
        }
        let error = Address::parse("duramen://secret@shop:port").expect_err("no port");
        assert!(!error.message().contains("secret"), "{error}");
    }
}
