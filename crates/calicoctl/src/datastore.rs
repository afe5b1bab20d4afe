//! `calicoctl datastore`: moves data between datastores, and between storage formats.
//!
//! - [`lock`]: the flag that makes components wait.
//! - [`export`] and [`import`]: one file with everything, from any store to any store.
//! - [`bundle`], [`ipam_part`], [`tolerant_yaml`]: reading and writing that file.
//! - [`node_names`]: renames nodes to their Kubernetes names.
//! - [`sameness`]: whether a stored object equals the one in the file.
//! - [`policy_names`]: renames policies that releases before v3.32 stored.
//!
//! Transient data (endpoint states, Felix's liveness keys) is not moved: its writers write it again.

pub(crate) mod bundle;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod ipam_part;
pub(crate) mod lock;
pub(crate) mod node_names;
pub(crate) mod policy_names;
pub(crate) mod sameness;
pub(crate) mod tolerant_yaml;

use crate::context::{ConfigFlag, Context};
use crate::failure::Result;
use crate::version_gate::Access;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Manage the datastore: move its contents to another one, rename old policies.
#[derive(Clone, Debug, Args)]
pub(crate) struct DatastoreArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DatastoreCommand,
}

/// What to do with a datastore.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DatastoreCommand {
    /// Move the contents of one datastore to another.
    Migrate(MigrateArgs),
    /// Store policies of releases before v3.32 under their own names, without the old "default." prefix.
    #[command(after_help = "Run this once after an upgrade past v3.32. It may be run again at any time.\n\n\
                            Examples:\n  calicoctl datastore migrate-policy-names")]
    MigratePolicyNames {
        /// Where the datastore is.
        #[command(flatten)]
        config: ConfigFlag,
    },
}

/// Move the contents of one datastore to another: lock, export, import, unlock.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The steps of a migration, with OLD.cfg and NEW.cfg naming the two datastores (etcd, Kubernetes or \
                        embedded, in any direction):\n  \
                        calicoctl datastore migrate lock --config=OLD.cfg\n  \
                        # To Kubernetes; to etcd or an embedded datastore add --keep-node-names.\n  \
                        calicoctl datastore migrate export --config=OLD.cfg > migration.yaml\n  \
                        calicoctl datastore migrate import --config=NEW.cfg -f migration.yaml\n  \
                        # Point every component at the new datastore, then:\n  \
                        calicoctl datastore migrate unlock --config=NEW.cfg"
)]
pub(crate) struct MigrateArgs {
    /// Which step.
    #[command(subcommand)]
    pub command: MigrateCommand,
}

/// The steps of a migration.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Write the contents of a locked datastore to standard output.
    #[command(after_help = "Examples:\n  calicoctl datastore migrate export > migration.yaml")]
    Export(ExportArgs),
    /// Store the contents of an exported file. An interrupted import can be run again.
    #[command(after_help = "Examples:\n  calicoctl datastore migrate import -f migration.yaml")]
    Import(ImportArgs),
    /// Lock the datastore: components stop changing anything, and everything keeps running.
    #[command(after_help = "Examples:\n  calicoctl datastore migrate lock")]
    Lock {
        /// Where the datastore is.
        #[command(flatten)]
        config: ConfigFlag,
    },
    /// Unlock the datastore after a migration, or to abandon one.
    #[command(after_help = "Examples:\n  calicoctl datastore migrate unlock")]
    Unlock {
        /// Where the datastore is.
        #[command(flatten)]
        config: ConfigFlag,
    },
}

/// The flags of an export.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExportArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Keep the names of nodes, even if Kubernetes has other names for them. For a migration to etcd or to an embedded
    /// datastore.
    #[arg(long)]
    pub keep_node_names: bool,
}

/// The flags of an import.
#[derive(Clone, Debug, Args)]
pub(crate) struct ImportArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// The file to import; `-` for standard input.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub filename: PathBuf,
    /// Overwrite objects that differ from the file, and continue despite objects that are not in the file.
    #[arg(long)]
    pub force: bool,
}

/// Runs the command.
///
/// # Errors
/// The failure of the command.
pub(crate) async fn run(args: &DatastoreArgs, context: &mut Context) -> Result<()> {
    match &args.command {
        DatastoreCommand::MigratePolicyNames { config } => policy_names::run(config, context).await,
        DatastoreCommand::Migrate(migrate) => match &migrate.command {
            MigrateCommand::Export(args) => export::run(args, context).await,
            MigrateCommand::Import(args) => import::run(args, context).await,
            MigrateCommand::Lock { config } => {
                let client = context.connect_for(config, Access::Write).await?;
                lock::lock(&client, context).await
            }
            MigrateCommand::Unlock { config } => {
                let client = context.connect_for(config, Access::Write).await?;
                lock::unlock(&client, context).await
            }
        },
    }
}
