//! Connecting: to a socket, to a host, or to the process that serves a directory.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen_proto::discovery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};
use tower::service_fn;

use crate::address::{self, Address, TlsFiles};

const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Connecting with the handshake of TLS may take this long. A service manager takes connections before it has
/// started the server, and a port without TLS may never answer the handshake.
const ANSWER_MAX: Duration = Duration::from_secs(15);

const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// What a server may send of an answer that is not read yet.
const STREAM_WINDOW: u32 = 1 << 20;

/// What it may send of all of them. The calls of a connection share it: it has room for as many streams as a
/// server takes, so that answers which a program does not read, such as those of a scan or a watch, never
/// keep out those that it waits for.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;

/// A connection, and the token that its calls carry.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) channel: Channel,
    pub(crate) token: Option<String>,
}

/// Connects to an address.
///
/// # Errors
/// `Unreachable` (E1111) if nothing answers there.
pub(crate) async fn connect(address: &Address) -> Result<Connected> {
    match address {
        Address::Socket(path) => by_socket(path).await,
        Address::Tcp { host, port, token, tls } => by_tcp(host, *port, token.clone(), tls.as_ref()).await,
        Address::Directory(directory) => by_directory(directory).await,
    }
}

/// By the socket only. At an address of a server that was killed another process may listen, and would be
/// told the token.
async fn by_directory(directory: &Path) -> Result<Connected> {
    let Some(serving) = address::serving(directory)? else { return Err(address::not_served(directory)) };
    if !serving.socket {
        let shown = serving.addresses.join(", ");
        let what = format!("the server of {} has no socket, and listens on {shown}", directory.display());
        return Err(Error::new(Code::Unreachable, what).with_hint(
            "name that address, and the token in serve.token: `--at duramen://HOST:PORT?token_file=FILE`",
        ));
    }
    match by_socket(&discovery::socket_of(directory)).await {
        // A server that was killed leaves its files behind.
        Err(error) if error.code() == Code::Unreachable => Err(address::not_served(directory)),
        connected => connected,
    }
}

fn endpoint(text: String) -> Result<Endpoint> {
    let endpoint = Endpoint::from_shared(text)
        .map_err(|error| Error::invalid(format!("the address cannot be used: {error}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT))
}

async fn by_tcp(host: &str, port: u16, token: Option<String>, tls: Option<&TlsFiles>) -> Result<Connected> {
    let shown = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = endpoint(format!("{scheme}://{shown}"))?;
    if let Some(files) = tls {
        endpoint = endpoint.tls_config(read_tls(files)?).map_err(|error| {
            Error::invalid(format!("the files of TLS cannot be used: {}", why(&error)))
                .with_hint("name certificates and keys in the form PEM: `?ca=FILE&cert=FILE&key=FILE`")
        })?;
    }
    let silent = |_| unreachable(&shown, "it takes connections, and says nothing");
    let channel = timeout(ANSWER_MAX, endpoint.connect()).await.map_err(silent)?;
    let channel = channel.map_err(|error| match why(&error) {
        why if is_of_own_certificate(&why) => refused_certificate(&shown, &why),
        why if why.contains("certificate") => {
            unreachable(&shown, &why).with_hint(
                "name the file of the authority of the server's certificate, `duramens://HOST:PORT?ca=FILE`, and the host as the certificate does",
            )
        }
        why if tls.is_none() => unreachable(&shown, &why).with_hint(
            "look whether `duramen serve` runs there, and whether the address is right; a server with TLS is duramens://HOST:PORT",
        ),
        why => unreachable(&shown, &why),
    })?;
    Ok(Connected { channel, token })
}

fn read_tls(files: &TlsFiles) -> Result<ClientTlsConfig> {
    let read = |path: &Path| fs::read(path).map_err(|error| Error::io("read", path, &error));
    let config = ClientTlsConfig::new();
    let config = match &files.ca {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.with_native_roots(),
    };
    Ok(match &files.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(read(certificate)?, read(key)?)),
        None => config,
    })
}

async fn by_socket(path: &Path) -> Result<Connected> {
    // Opened here, because the channel hides why it failed; later ones are the channel's own.
    let first = open_socket(path).await.map_err(|error| refused(path, &error))?;
    let (owned, first) = (path.to_owned(), Mutex::new(Some(first)));
    let connector = service_fn(move |_: Uri| {
        let (path, first) = (owned.clone(), first.lock().unwrap_or_else(PoisonError::into_inner).take());
        async move {
            let stream = match first {
                Some(stream) => stream,
                None => open_socket(&path).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    // The name of the host is not used.
    let channel = endpoint("http://duramen".to_owned())?.connect_with_connector(connector).await;
    let channel = channel.map_err(|error| unreachable(&path.display().to_string(), &why(&error)))?;
    Ok(Connected { channel, token: None })
}

/// Names of sockets are short. Where the path is too long, its directory is named by the open file.
async fn open_socket(path: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return UnixStream::connect(path).await;
    };
    if !discovery::is_too_long(path) {
        return UnixStream::connect(path).await;
    }
    let opened = fs::File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(name);
    UnixStream::connect(short).await
}

fn refused(path: &Path, error: &io::Error) -> Error {
    let shown = path.display();
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!("the socket {shown} is another user's: {error}");
        return Error::new(Code::Forbidden, message)
            .with_hint("run the command as the user to whom the database belongs (`ls -l`)");
    }
    unreachable(&shown.to_string(), &error.to_string())
}

/// Whether a server has refused the certificate of this client: it says so by an alert. Of its own
/// certificate nothing was received.
pub(crate) fn is_of_own_certificate(why: &str) -> bool {
    let alert = why.split("received fatal alert: ").nth(1).unwrap_or_default();
    ["Certificate", "UnknownCA", "AccessDenied"].iter().any(|word| alert.contains(word))
}

pub(crate) fn refused_certificate(shown: &str, why: &str) -> Error {
    let what = format!("the server at {shown} refuses the certificate of this client: {why}");
    Error::new(Code::Unauthenticated, what).with_hint(
        "see when it ends (`openssl x509 -in FILE -noout -enddate`), and whether its authority is in the server's --tls-client-ca",
    )
}

fn unreachable(shown: &str, why: &str) -> Error {
    Error::new(Code::Unreachable, format!("no server answers at {shown}: {why}"))
        .with_hint("look whether `duramen serve` runs there, and whether the address is right")
}

/// The innermost cause, which says most.
pub(crate) fn why(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
