//! TLS between the nodes of a cluster: version 1.3, and both ends show a certificate of the cluster's own
//! authority. A certificate of any other authority counts for nothing, and so does a name that is not the
//! peer's.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use duramen::error::{Error, Result};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// What a node shows to its peers, and which of theirs count.
#[derive(Clone)]
pub struct PeerTls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

impl PeerTls {
    /// Reads files in the form PEM: the certificate of this node with those between it and its authority, its
    /// private key, and the authority of all nodes.
    ///
    /// # Errors
    /// `System` (E1001) if a file cannot be read; `InvalidArgument` (E0201) if it is not what it should be.
    pub fn read(certificate: &Path, key: &Path, authority: &Path) -> Result<PeerTls> {
        let own = certificates(certificate)?;
        let read_key = || PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error));
        let mut roots = RootCertStore::empty();
        for root in certificates(authority)? {
            roots.add(root).map_err(|error| wrong(authority, &error))?;
        }
        let (provider, roots) = (Arc::new(ring::default_provider()), Arc::new(roots));
        let unusable = |error| Error::invalid(format!("TLS cannot be used: {error}"));
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| wrong(authority, &error))?;
        let accepts = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.clone(), read_key()?)
            .map_err(|error| wrong(certificate, &error))?;
        let connects = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .with_root_certificates(roots)
            .with_client_auth_cert(own, read_key()?)
            .map_err(|error| wrong(certificate, &error))?;
        Ok(PeerTls {
            acceptor: TlsAcceptor::from(Arc::new(accepts)),
            connector: TlsConnector::from(Arc::new(connects)),
        })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    /// Connects to the peer at `host:port`, whose certificate must have that name.
    pub(crate) async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        self.connector.connect(name, stream).await
    }
}

/// The certificates in a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, &error))?;
    let all: Vec<_> = all.collect::<std::result::Result<_, _>>().map_err(|error| wrong(path, &error))?;
    if all.is_empty() { Err(wrong(path, &"it has no certificate")) } else { Ok(all) }
}

fn wrong(path: &Path, why: &dyn fmt::Display) -> Error {
    Error::invalid(format!("{} cannot be used for TLS between nodes: {why}", path.display())).with_hint(
        "name files in the form PEM: the node's certificate, its private key, and the authority's certificate",
    )
}
