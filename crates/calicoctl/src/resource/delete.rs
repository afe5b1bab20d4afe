//! `delete`: deletes objects by name, or those of a file.

use super::operations::{self, Refusal};
use super::report::Results;
use super::target::{Identity, Namespaces, from_words};
use super::{diff, pipeline};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::kinds::Words;
use crate::version_gate::Access;
use api::document::Checks;

/// Flags of `delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  # Delete two policies.\n  calicoctl delete policy foo bar\n\n  \
                        # Delete what policy.yaml describes.\n  calicoctl delete -f ./policy.yaml")]
pub(crate) struct DeleteArgs {
    /// The type of the objects, then their names.
    #[arg(
        value_name = "KIND NAME...",
        conflicts_with = "filename",
        value_parser = Words::Kinds,
        hide_possible_values = true
    )]
    pub words: Vec<String>,
    /// Where the objects are described.
    #[command(flatten)]
    pub files: FileFlags,
    /// Count resources that do not exist as deleted.
    #[arg(long, short = 's')]
    pub skip_not_exists: bool,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Show what would be deleted, and delete nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How many requests may be under way at once.
    #[arg(long, value_name = "COUNT", default_value_t = pipeline::DEFAULT_PARALLEL)]
    pub parallel: usize,
}

/// Runs `delete`.
///
/// # Errors
/// When some objects could not be deleted.
pub(crate) async fn run(args: &DeleteArgs, context: &mut Context) -> Result<()> {
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    // Each object with the version that the file names; any version if it names none.
    let targets: Vec<(Identity, String)> = match args.files.is_given() {
        false => from_words(&args.words, namespaces)?
            .into_iter()
            .map(|identity| (identity, String::new()))
            .collect(),
        true => {
            let mut targets = Vec::new();
            for document in args.files.documents(context, Checks::Structure)? {
                let metadata = document.resource.metadata();
                let namespace = namespaces.resolve(document.kind(), &metadata.namespace)?;
                let identity = Identity { kind: document.kind(), namespace, name: metadata.name.clone() };
                targets.push((identity, metadata.resource_version.clone()));
            }
            targets
        }
    };
    if !args.files.is_given() && targets.iter().any(|(identity, _)| identity.name.is_empty()) {
        return Err(Failure::new("resource name may not be empty: name the objects to delete"));
    }
    if targets.is_empty() {
        return context.print("No resources specified\n");
    }
    let client = context.connect_for(&args.config, Access::Write).await?;
    let identities: Vec<Identity> = targets.iter().map(|(identity, _)| identity.clone()).collect();
    if args.dry_run {
        return diff::preview_delete(&identities, args.skip_not_exists, &client, context).await;
    }
    let (client, slots) = (&client, &targets);
    let work = |index: usize| async move {
        let (identity, revision): &(Identity, String) = &slots[index];
        match operations::delete(client, identity, revision).await {
            Err(refusal) if args.skip_not_exists && refusal.is_does_not_exist() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    };
    let outcomes: Vec<std::result::Result<(), Refusal>> =
        pipeline::run(context, &identities, pipeline::Direction::Deleting, args.parallel, work).await;
    let kinds = identities.iter().map(|identity| identity.kind).collect();
    Results::of(kinds, outcomes).delete(context)
}
