//! The arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commerce::{Mix, Size};
use crate::growth::Growth;
use crate::workloads::SEED;

/// Plans for each agent, unless a number is given.
const PLANS_PER_AGENT: usize = 100;

/// Duramen beside its rivals, every one at full durability.
#[derive(Debug, Parser)]
#[command(name = "duramen-bench", version)]
pub(crate) struct Words {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures engines side by side and says who won.
    Compare(Compare),
    /// Loads more rows than memory holds, with and without views, by engines whose memory can be bounded.
    Beyond(crate::beyond::Beyond),
    /// Lets agents shop in one shop, kept by each engine, and checks every answer.
    Commerce(Commerce),
    /// Stores typed documents with views, beside raw trees, SQLite, redb and native_db.
    Documents(crate::documents::Documents),
    /// Imports, filters, sums and exports the flights by the command line, beside SQLite's shell.
    #[cfg(feature = "sqlite")]
    Flights(crate::flights::Flights),
    /// Measures databases of growing size.
    Growth(Growth),
    /// Computes, without any engine, what checkpoints would write by several designs.
    #[cfg(feature = "sqlite")]
    Model(crate::model::Model),
    /// Filters, sorts, groups and joins the flights, beside SQLite.
    #[cfg(feature = "sqlite")]
    Queries(crate::queries::Queries),
    /// Stores rows or makes transfers over TCP, beside etcd and PostgreSQL.
    #[cfg(feature = "serve")]
    Serve(crate::serve::Serve),
    /// Scans a collection embedded, by a socket, by TCP and by TLS.
    #[cfg(feature = "serve")]
    ServeScan(crate::serve::ServeScan),
    /// Writes to a cluster while a node joins and is killed, and while one is away.
    #[cfg(feature = "serve")]
    ServeAway(crate::serve::ServeAway),
    /// Serves a database; what `serve` starts.
    #[cfg(feature = "serve")]
    #[command(hide = true)]
    Served {
        /// The directory in which the database is.
        dir: PathBuf,
        /// With the certificate that is there.
        #[arg(long)]
        tls: bool,
    },
    /// Shows the workloads, exactly.
    Workloads,
    /// Shows the engines of this build, the setting of each, and why.
    Engines,
    /// Does one measurement; what `compare` starts.
    #[command(hide = true)]
    Child {
        /// The job as JSON.
        job: String,
    },
}

/// How to compare.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Shorter loops, fewer threads, one round where an engine is slow: under ten minutes.
    #[arg(long)]
    pub quick: bool,
    /// Only these workloads.
    #[arg(long, value_delimiter = ',', value_name = "W1,W3")]
    pub only: Vec<String>,
    /// Only these engines; raw loop and log-only bound always run.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub engines: Vec<String>,
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Allows a directory in memory. A sync costs nothing there: only processor time means something.
    #[arg(long)]
    pub in_memory: bool,
    /// How long a turn of W1 and W2 lasts; 30 reaches a steady state, with checkpoints and recycled segments.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// The numbers of threads of W2.
    #[arg(long, value_delimiter = ',', value_name = "16,64")]
    pub threads: Vec<usize>,
    /// Rounds, in each of which every engine has one turn.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u32,
    /// Writes every figure of every round to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes tables and charts to this file, which any browser opens offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What keys, values and order are drawn from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
    /// Counts each engine's syncs by strace in a run apart, whose times do not count.
    #[arg(long)]
    pub count_syncs: bool,
}

/// How to shop.
#[derive(Debug, Args)]
pub(crate) struct Commerce {
    /// What the shop holds before the run.
    #[arg(long, value_enum, default_value = "medium", value_name = "SIZE")]
    pub size: Size,
    /// What shoppers do.
    #[arg(long, value_enum, default_value = "default", value_name = "MIX")]
    pub mix: Mix,
    /// Agents that follow plans at the same time.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub agents: usize,
    /// Plans in all; 100 an agent unless a number is given.
    #[arg(long, value_name = "N")]
    pub plans: Option<usize>,
    /// Only these engines; `postgres` names both of its forms.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub engines: Vec<String>,
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds, in each of which every engine has one turn: 3, or 1 of size xlarge.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// What rows and plans are drawn from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
    /// Writes every figure of every round to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes tables and charts to this file, which any browser opens offline.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Counts each engine's syncs by strace in a run apart, whose times do not count; load and closing are
    /// among them.
    #[arg(long)]
    pub count_syncs: bool,
}

impl Commerce {
    /// Agents, one at least.
    pub(crate) fn agents(&self) -> usize {
        self.agents.max(1)
    }

    /// Plans in all.
    pub(crate) fn plans(&self) -> usize {
        self.plans.unwrap_or(PLANS_PER_AGENT * self.agents())
    }

    /// Rounds, one at least.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.size == Size::Xlarge { 1 } else { 3 }).max(1)
    }
}
