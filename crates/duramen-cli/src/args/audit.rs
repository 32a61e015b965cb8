//! The arguments of `duramen audit`.

use clap::{Args, Subcommand};

use super::DatabaseArgs;

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) what: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Read the audit, and tell whether a line was changed, taken out, moved or cut off
    Verify(AuditVerifyArgs),
}

impl AuditArgs {
    pub(crate) fn database_mut(&mut self) -> &mut DatabaseArgs {
        match &mut self.what {
            AuditCommand::Verify(args) => &mut args.database,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
}
