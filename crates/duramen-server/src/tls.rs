//! TLS of the listeners: version 1.3, with certificates of clients if there is an authority for them.
//!
//! The files are looked at when a client connects, once a second at most, and read again when they have
//! changed; connections that stand go on. What cannot be read then changes nothing. Sessions are not resumed:
//! each connection shows its certificate anew.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen::error::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConnection, version};
use tokio_rustls::server::TlsStream;

/// A client that has not finished the handshake by then is gone.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// What waits to be written of a connection.
const BUFFER_BYTES: usize = 16 << 10;

/// What a connection holds for TLS: that, and a record that is read, as it comes and as it is.
pub(crate) const TLS_BYTES: usize = BUFFER_BYTES + (36 << 10);

/// The files of a server's certificate.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The certificate, and those between it and its authority, as PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key, as PEM.
    pub(crate) key: PathBuf,
    /// The authorities of clients' certificates, as PEM. Without it clients show none.
    pub(crate) client_ca: Option<PathBuf>,
}

/// What listeners need for TLS.
pub(crate) struct Tls {
    files: Files,
    now: Mutex<Now>,
}

/// What was read last.
struct Now {
    config: Arc<ServerConfig>,
    seen: Vec<Seen>,
    looked: Instant,
}

/// What tells one state of a file from another: device, inode, length, time of change.
type Seen = Option<(u64, u64, u64, i64, i64)>;

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `System` (E1001) if one cannot be read; `InvalidArgument` (E0201) if it is not what it should be.
    pub(crate) fn new(files: Files) -> Result<Tls> {
        let seen = files.seen();
        let config = files.read()?;
        Ok(Tls { files, now: Mutex::new(Now { config, seen, looked: Instant::now() }) })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration for a new connection, of the files as they are.
    async fn config(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.is_due() {
            let tls = Arc::clone(self);
            // A thread that cannot begin leaves it at what there is.
            let _ = tokio::task::spawn_blocking(move || tls.read_again()).await;
        }
        Arc::clone(&self.now().config)
    }

    /// Whether it is time to look at the files; one connection does.
    fn is_due(&self) -> bool {
        let mut now = self.now();
        let is_due = now.looked.elapsed() >= LOOK;
        if is_due {
            now.looked = Instant::now();
        }
        is_due
    }

    fn read_again(&self) {
        let seen = self.files.seen();
        if self.now().seen == seen {
            return;
        }
        // A file that is being written cannot be read yet: the next look tries again.
        if let Ok(config) = self.files.read() {
            let mut now = self.now();
            (now.config, now.seen) = (config, seen);
        }
    }

    /// The handshake with a client, and the names in its certificate.
    ///
    /// # Errors
    /// Why its certificate counts for nothing, and the connection, on which the alert was sent; `None` if it
    /// sent what is no TLS, or took too long.
    pub(crate) async fn accept<I>(
        self: &Arc<Self>,
        stream: I,
    ) -> std::result::Result<(TlsStream<I>, Arc<[String]>), Option<(String, I)>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = async {
            let acceptor = TlsAcceptor::from(self.config().await);
            let limited = |connection: &mut ServerConnection| {
                connection.set_buffer_limit(Some(BUFFER_BYTES));
            };
            acceptor.accept_with(stream, limited).into_fallible().await
        };
        let accepted = timeout(HANDSHAKE_MAX, accepting).await.map_err(|_| None)?;
        let stream =
            accepted.map_err(|(error, stream)| refused_certificate(&error).map(|why| (why, stream)))?;
        let names = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(names_of);
        Ok((stream, names.unwrap_or_default()))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Why a certificate counts for nothing, such as `Expired`; `None` if that is not the error.
fn refused_certificate(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(why)) => Some(format!("{why:?}")),
        _ => None,
    }
}

/// The names of DNS and the URIs in a certificate that was verified.
fn names_of(certificate: &CertificateDer<'_>) -> Arc<[String]> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Arc::default() };
    certificate.valid_dns_names().chain(certificate.valid_uri_names()).map(str::to_owned).collect()
}

impl Files {
    fn seen(&self) -> Vec<Seen> {
        let seen = |path: &PathBuf| {
            let of = fs::metadata(path).ok()?;
            Some((of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec()))
        };
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).map(seen).collect()
    }

    fn read(&self) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(ring::default_provider());
        let certificates = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unreadable(&self.key, "private key without a password", error))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(|error| Error::invalid(format!("TLS cannot be used: {error}")))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in self::certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path, &error.to_string()))?;
                }
                // One without a certificate may have a token.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, &error.to_string()))?)
            }
        };
        let config = builder.with_single_cert(certificates, key);
        let mut config = config.map_err(|error| {
            wrong(&self.certificate, &format!("{error} (its key is {})", self.key.display()))
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// The certificates in a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error| unreadable(path, "certificate", error);
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all = all.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    if all.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn unreadable(path: &Path, what: &str, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(error) => Error::io("read", path, &error),
        pem::Error::NoItemsFound => wrong(path, &format!("it has no {what}")),
        error => wrong(path, &error.to_string()),
    }
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::invalid(format!("{} cannot be used for TLS: {why}", path.display()))
        .with_hint("name files in the form PEM: the certificate and its private key, and the authority's certificate for clients")
}
