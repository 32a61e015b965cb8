//! The arguments of `duramen cluster`, and those of `serve` for a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::DatabaseArgs;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) what: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the members, which of them leads, and what one more failure would do
    Status(ClusterOfArgs),
    /// Let another member lead
    Transfer(ClusterNodeArgs),
    /// Remove a member for good: it gets nothing any more, and comes back only as another one
    Remove(ClusterNodeArgs),
    /// Make the database of a node that is stopped a plain one again: it leaves the cluster with its data
    Detach(ClusterOfArgs),
}

impl ClusterArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            ClusterCommand::Status(args) | ClusterCommand::Detach(args) => &mut args.database,
            ClusterCommand::Transfer(args) | ClusterCommand::Remove(args) => &mut args.database,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ClusterOfArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterNodeArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The id of the member, as `cluster status` shows it
    pub(crate) node: u64,
}

/// What `--cluster` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterWord {
    /// Make the database the first node of a new cluster; a node goes on
    Init,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Serve the database as a node of a cluster, and make it the first one if it is none yet
    #[arg(long, value_enum, value_name = "WORD", conflicts_with = "join")]
    pub(crate) cluster: Option<ClusterWord>,

    /// Serve the database as a node of the cluster that has a peer port at this address; may be repeated. A
    /// directory that does not exist is filled with a copy first. A node goes on
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "wal")]
    pub(crate) join: Vec<String>,

    /// Listen for other nodes on this address; 127.0.0.1:7421 without it. One that other machines reach needs
    /// --peer-cert, --peer-key and --peer-ca
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) peer_listen: Option<SocketAddr>,

    /// Where the other nodes reach this one, if that is not the address of --peer-listen
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) peer_address: Option<String>,

    /// Where clients reach this node, if that is not the first address of --listen
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) serve_address: Option<String>,

    /// The certificate of this node for TLS between nodes, and those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["peer_key", "peer_ca"])]
    pub(crate) peer_cert: Option<PathBuf>,

    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "peer_cert")]
    pub(crate) peer_key: Option<PathBuf>,

    /// The authority of all nodes' certificates (PEM): a program with one of its certificates can read and
    /// change everything
    #[arg(long, value_name = "FILE", requires = "peer_cert")]
    pub(crate) peer_ca: Option<PathBuf>,

    /// Milliseconds between two heartbeats of a leader. A round trip and a sync must take less. A leader that
    /// is gone is replaced after about ten
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(20..=60_000))]
    pub(crate) heartbeat: Option<u64>,

    /// MiB of Raft's log that this node keeps for members that lack entries. One that lacks more copies the
    /// state, which takes longer
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) keep_log: Option<u64>,
}

impl NodeArgs {
    /// Whether the database is served as a node.
    pub(crate) fn is_node(&self) -> bool {
        let has_peers = self.peer_listen.is_some() || self.peer_address.is_some() || self.peer_cert.is_some();
        let is_tuned = self.heartbeat.is_some() || self.keep_log.is_some();
        self.cluster.is_some() || !self.join.is_empty() || has_peers || is_tuned
    }
}
