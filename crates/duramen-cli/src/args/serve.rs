//! The arguments of `serve`.

use std::net::SocketAddr;

use clap::Args;

use super::DatabaseArgs;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// Listen on this address of this machine; may be repeated. Without it: 127.0.0.1:7420, or another port
    /// if that one is taken
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "socket_only")]
    pub(crate) listen: Vec<SocketAddr>,

    /// Listen on the socket in the directory of the database only
    #[arg(long)]
    pub(crate) socket_only: bool,
}
