//! The arguments of `duramen user` and `duramen token`.

use clap::{Args, Subcommand};

use super::DatabaseArgs;

/// The longest that a token can be valid.
const DAYS_MAX: u64 = 36_500;

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    pub(crate) what: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user: it may do what its rights say, and nothing else
    Add(UserRightsArgs),
    /// Give a user other rights and certificates, in the place of those that it has, at once
    Set(UserRightsArgs),
    /// Drop a user and its tokens, at once
    Drop(UserNamedArgs),
    /// List the users and their rights
    List(UsersListArgs),
}

impl UserArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            UserCommand::Add(args) | UserCommand::Set(args) => &mut args.database,
            UserCommand::Drop(args) => &mut args.database,
            UserCommand::List(args) => &mut args.database,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct UserRightsArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The name of the user
    pub(crate) name: String,

    /// What it may do: `reader`, `writer`, `schema`, `consumer`, `operator`, `backup` or `admin`; the first
    /// four also on names, as `writer=collection:orders` or `reader=kv:sessions*`, with `collection`, `kv`,
    /// `blob`, `bytes` or `consumer`. Repeat it for several
    #[arg(long = "right", value_name = "RIGHT")]
    pub(crate) rights: Vec<String>,

    /// A name of DNS or a URI: a client with a certificate of this name, signed by an authority of `serve
    /// --tls-client-ca`, is this user. Repeat it for several
    #[arg(long = "cert", value_name = "NAME")]
    pub(crate) certificates: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UserNamedArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The name of the user
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct UsersListArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) what: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for a user, and print it: the database keeps its hash only
    Add(TokenAddArgs),
    /// End a token, at once
    Revoke(TokenRevokeArgs),
    /// List the tokens, without their secrets
    List(UsersListArgs),
}

impl TokenArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            TokenCommand::Add(args) => &mut args.database,
            TokenCommand::Revoke(args) => &mut args.database,
            TokenCommand::List(args) => &mut args.database,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TokenAddArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The name of the user
    pub(crate) user: String,

    /// It is valid for so many days
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub(crate) days: u64,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,

    /// The id of the token, as `token list` prints it: not its text
    pub(crate) id: String,
}
