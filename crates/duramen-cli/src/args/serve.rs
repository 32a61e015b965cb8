//! The arguments of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{DatabaseArgs, NodeArgs};

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Listen on this address; may be repeated; beside what a service manager hands over (LISTEN_FDS).
    /// Without either: on 127.0.0.1:7420, or another port if that one is taken. One that other machines
    /// reach, such as 0.0.0.0:7420, needs TLS and a user
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket_only")]
    pub(crate) listen: Vec<SocketAddr>,

    /// Listen on the socket in the directory of the database only
    #[arg(long)]
    pub(crate) socket_only: bool,

    /// The certificate of the server for TLS, and those between it and its authority (PEM). It is read again
    /// when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "socket_only")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The authorities of clients' certificates (PEM): a client with a certificate is the user that has one
    /// of its names by `user add --cert`
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Let other machines connect without TLS: anyone on the network between can read and change what is sent
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) no_tls: bool,

    /// Let every client that connects by TCP do everything, without a token
    #[arg(long)]
    pub(crate) no_auth: bool,

    /// Allow a file system in memory, which survives no power cut
    #[arg(long)]
    pub(crate) allow_tmpfs: bool,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}
