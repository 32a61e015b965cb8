//! Connections of attackers: to the socket, and by TLS.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duramen_client::{Address, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::{Wrong, wrong};

/// How long an attacker waits until the server takes something.
const UNTAKEN: Duration = Duration::from_secs(1);

/// How long it waits for the server's part of a handshake.
const SILENCE: Duration = Duration::from_secs(5);

/// The files of a server's certificate.
pub(crate) struct Certificate {
    pub(crate) ca: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    pub(crate) fn in_directory(directory: &Path) -> Certificate {
        let path = |name: &str| directory.join(name);
        Certificate { ca: path("ca.pem"), certificate: path("server.pem"), key: path("server.key") }
    }

    /// Makes an authority, and a certificate of 127.0.0.1.
    pub(crate) fn make(&self) -> Result<(), Wrong> {
        let failed = |error: rcgen::Error| wrong(format!("no certificate: {error}"));
        let write = |path: &Path, text: String| {
            fs::write(path, text).map_err(|error| wrong(format!("{}: {error}", path.display())))
        };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write(&self.ca, params.self_signed(&key).map_err(failed)?.pem())?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().map_err(failed)?;
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).map_err(failed)?;
        write(&self.certificate, params.signed_by(&key, &issuer).map_err(failed)?.pem())?;
        write(&self.key, key.serialize_pem())
    }

    /// The address of its server for good clients.
    pub(crate) fn address(&self, at: SocketAddr, token: &str) -> Address {
        let tls = Some(TlsFiles { ca: Some(self.ca.clone()), identity: None });
        Address::Tcp { host: at.ip().to_string(), port: at.port(), token: Some(token.to_owned()), tls }
    }

    /// What attackers trust.
    pub(crate) fn trust(&self) -> Result<Arc<ClientConfig>, Wrong> {
        let failed = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", self.ca.display()));
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(&self.ca).map_err(|error| failed(&error))?;
        roots.add(ca).map_err(|error| failed(&error))?;
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A connection of an attacker.
pub(super) struct Wire(Box<dyn Ends>);

trait Ends: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Ends for T {}

impl Wire {
    pub(super) fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Wire {
        Wire(Box::new(stream))
    }

    /// By TLS.
    pub(super) async fn tls(stream: TcpStream, config: &Arc<ClientConfig>) -> io::Result<Wire> {
        let name = "127.0.0.1".try_into().map_err(io::Error::other)?;
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        Ok(Wire::new(timeout(SILENCE, connecting).await??))
    }

    /// Sends all of it, or fails if the server takes none of it for long.
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = timeout(UNTAKEN, self.0.write(bytes)).await??;
            bytes = &bytes[sent..];
        }
        timeout(UNTAKEN, self.0.flush()).await?
    }

    /// Reads for some time, or until the server closes the connection; whether it has.
    pub(super) async fn is_closed_within(&mut self, time: Duration) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let closed = async {
            while self.0.read(&mut bytes).await? > 0 {}
            Ok(())
        };
        timeout(time, closed).await.map_or(Ok(false), |closed| closed.map(|()| true))
    }
}
