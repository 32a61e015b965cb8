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
    /// A host and a port, and what its server wants to see.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The token.
        token: Option<String>,
        /// The files for TLS. Without TLS anyone on the network between can read and change what is sent.
        tls: Option<TlsFiles>,
    },
}

/// The files of a connection with TLS, all in the form PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authorities that the server's certificate may come from; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its private key, if it shows one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Address {
    /// From a text: `duramen://[TOKEN@]HOST[:PORT][?token_file=FILE]`, `HOST:PORT`, `unix:PATH`, or the
    /// directory of a database. With TLS: `duramens://`, behind the question mark also `ca=FILE`, `cert=FILE`
    /// and `key=FILE`, with an `&` between.
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
        for (scheme, tls) in [("duramen://", None), ("duramens://", Some(TlsFiles::default()))] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return url(text, rest, tls);
            }
        }
        if text.contains("://") {
            return Err(wrong(text, "only duramen:// and duramens:// are understood"));
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
                Ok(Address::Tcp { host, port, token: None, tls: None })
            }
            None => Ok(Address::Directory(text.into())),
        }
    }

    /// The same address with a token, if it is of TCP and has none.
    #[must_use]
    pub fn or_token(self, given: Option<String>) -> Address {
        match self {
            Address::Tcp { host, port, token, tls } => {
                Address::Tcp { host, port, token: token.or(given), tls }
            }
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

fn url(text: &str, rest: &str, tls: Option<TlsFiles>) -> Result<Address> {
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, query)| (rest, query));
    let (token, rest) =
        rest.rsplit_once('@').map_or((None, rest), |(token, rest)| (Some(token.to_owned()), rest));
    let (host, port) = host_and_port(text, rest.trim_end_matches('/'))?;
    let mut files = [("token_file", None), ("ca", None), ("cert", None), ("key", None)];
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, path) = part.split_once('=').unwrap_or((part, ""));
        let file = files.iter_mut().find(|(known, file)| *known == name && file.is_none());
        match file {
            Some((_, file)) if !path.is_empty() => *file = Some(PathBuf::from(path)),
            _ => {
                let why = "behind the question mark only token_file=FILE is understood, and with duramens:// ca=FILE, cert=FILE and key=FILE, each once";
                return Err(wrong(text, why));
            }
        }
    }
    let [token_file, ca, cert, key] = files.map(|(_, file)| file);
    let token = match token_file {
        Some(_) if token.is_some() => return Err(wrong(text, "it has a token and the file of one")),
        Some(path) => Some(read_token(&path)?),
        None => token,
    };
    let tls = match (tls, cert, key) {
        (None, None, None) if ca.is_none() => None,
        (None, ..) => return Err(wrong(text, "certificates are for TLS: it begins with duramens://")),
        (Some(_), Some(cert), Some(key)) => Some(TlsFiles { ca, identity: Some((cert, key)) }),
        (Some(_), None, None) => Some(TlsFiles { ca, identity: None }),
        (Some(_), ..) => return Err(wrong(text, "cert=FILE and key=FILE belong together")),
    };
    Ok(Address::Tcp { host, port, token, tls })
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
        .with_hint("an address is duramen://HOST:PORT, duramens://HOST:PORT with TLS, HOST:PORT, unix:PATH, or the directory of a database")
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
        Address::Tcp { host: host.to_owned(), port, token: token.map(str::to_owned), tls: None }
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
        let with = |ca: Option<&str>, identity: Option<(&str, &str)>| Address::Tcp {
            host: "shop".to_owned(),
            port: PORT,
            token: None,
            tls: Some(TlsFiles {
                ca: ca.map(PathBuf::from),
                identity: identity.map(|(cert, key)| (cert.into(), key.into())),
            }),
        };
        assert_eq!(of("duramens://shop"), with(None, None));
        assert_eq!(of("duramens://shop?ca=/a/b=c.pem"), with(Some("/a/b=c.pem"), None));
        assert_eq!(of("duramens://shop/?key=k&ca=a&cert=c"), with(Some("a"), Some(("c", "k"))));
        for wrong in [
            "127.0.0.1:7420?token_file=none",
            "unix:",
            "http://shop",
            "duramen://",
            "duramen://:80",
            "shop:port",
            "shop:65536",
            "duramen://a?b=c",
            "duramen://a?ca=b",
            "duramens://a?cert=b",
            "duramens://a?ca=b&ca=c",
            "duramens://t@a?token_file=b",
        ] {
            let error = Address::parse(wrong).expect_err(wrong);
            assert_eq!(error.code(), Code::InvalidArgument, "{wrong}");
        }
        let error = Address::parse("duramen://secret@shop:port").expect_err("no port");
        assert!(!error.message().contains("secret"), "{error}");
    }
}
