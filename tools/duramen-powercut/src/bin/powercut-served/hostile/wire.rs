//! Connections of attackers: to the socket, and by TLS.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duramen_client::{Address, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::{Wrong, wrong};

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
pub(super) enum Wire {
    Socket(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// By TLS.
    pub(super) fn tls(stream: TcpStream, config: &Arc<ClientConfig>) -> io::Result<Wire> {
        let name = "127.0.0.1".try_into().map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Wire::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    pub(super) fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Wire::Socket(stream) => stream.set_read_timeout(Some(time)),
            Wire::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Wire::Tls(stream) => stream.sock.set_read_timeout(Some(time)),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Socket(stream) => stream.read(bytes),
            Wire::Tcp(stream) => stream.read(bytes),
            Wire::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Socket(stream) => stream.write(bytes),
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Socket(stream) => stream.flush(),
            Wire::Tcp(stream) => stream.flush(),
            Wire::Tls(stream) => stream.flush(),
        }
    }
}
