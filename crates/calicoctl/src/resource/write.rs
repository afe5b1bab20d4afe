//! `create`, `apply`, `replace` and `validate`: objects from files are written to the datastore, or only checked.

use super::batch::Batching;
use super::labels::Labels;
use super::operations::{self, Outcome, Refusal};
use super::prune::{self, PruneFlags};
use super::report::{Results, Verb};
use super::target::{Identity, Namespaces};
use super::{diff, pipeline};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::version_gate::Access;
use api::Resource;
use api::document::{self, Checks, Document};
use client::{Client, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The flags that the writing commands share.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriteFlags {
    /// Where the objects come from.
    #[command(flatten)]
    pub files: FileFlags,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Show what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How many requests may be under way at once.
    #[arg(long, value_name = "COUNT", default_value_t = pipeline::DEFAULT_PARALLEL)]
    pub parallel: usize,
}

/// Flags of `create`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Create what policy.yaml describes.\n  calicoctl create -f ./policy.yaml\n\n  \
                        # The same from a pipe.\n  cat policy.json | calicoctl create -f -"
)]
pub(crate) struct CreateArgs {
    /// The shared flags.
    #[command(flatten)]
    pub flags: WriteFlags,
    /// Count resources that exist already as created, and leave them as they are.
    #[arg(long)]
    pub skip_exists: bool,
}

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Bring the datastore in line with policy.yaml.\n  calicoctl apply -f ./policy.yaml\n\n  \
                        # See first what would change.\n  calicoctl apply --dry-run -R -f ./policies\n\n  \
                        # Keep a folder and the datastore in line: what was removed from the folder is deleted.\n  \
                        calicoctl apply -R -f ./policies --applyset=policies --prune"
)]
pub(crate) struct ApplyArgs {
    /// The shared flags.
    #[command(flatten)]
    pub flags: WriteFlags,
    /// Sets, and what is not in them any more.
    #[command(flatten)]
    pub prune: PruneFlags,
}

/// Flags of `replace`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Update what policy.yaml describes.\n  calicoctl replace -f ./policy.yaml"
)]
pub(crate) struct ReplaceArgs {
    /// The shared flags.
    #[command(flatten)]
    pub flags: WriteFlags,
}

/// Flags of `validate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Check the files of a directory, without any datastore.\n  calicoctl validate -R -f ./policies"
)]
pub(crate) struct ValidateArgs {
    /// Where the objects come from.
    #[command(flatten)]
    pub files: FileFlags,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Accepted for consistency; no connection is made.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Which of the writing commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Fail if the object exists.
    Create {
        /// Count an existing object as created instead.
        skip_exists: bool,
    },
    /// Create or update.
    Apply,
    /// Fail if the object does not exist.
    Replace,
}

impl Action {
    fn verb(self) -> Verb {
        match self {
            Self::Create { .. } => Verb { plain: "create", past: "created" },
            Self::Apply => Verb { plain: "apply", past: "applied" },
            Self::Replace => Verb { plain: "replace", past: "replaced" },
        }
    }

    async fn run(self, client: &Client, resource: &Resource) -> Outcome {
        match self {
            Self::Create { skip_exists } => match operations::create(client, resource).await {
                Err(refusal) if skip_exists && refusal.is_already_exists() => Ok(resource.clone()),
                outcome => outcome,
            },
            Self::Apply => operations::apply(client, resource).await,
            Self::Replace => operations::update(client, resource).await,
        }
    }
}

/// Runs `create`.
///
/// # Errors
/// When an object could not be created.
pub(crate) async fn create(args: &CreateArgs, context: &mut Context) -> Result<()> {
    run(Action::Create { skip_exists: args.skip_exists }, &args.flags, &PruneFlags::default(), context).await
}

/// Runs `apply`.
///
/// # Errors
/// When an object could not be applied.
pub(crate) async fn apply(args: &ApplyArgs, context: &mut Context) -> Result<()> {
    run(Action::Apply, &args.flags, &args.prune, context).await
}

/// Runs `replace`.
///
/// # Errors
/// When an object could not be replaced.
pub(crate) async fn replace(args: &ReplaceArgs, context: &mut Context) -> Result<()> {
    run(Action::Replace, &args.flags, &PruneFlags::default(), context).await
}

/// Runs `validate`.
///
/// # Errors
/// When an object is not valid.
pub(crate) fn validate(args: &ValidateArgs, context: &mut Context) -> Result<()> {
    let documents = read(&args.files, context)?;
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    let mut outcomes = Vec::with_capacity(documents.len());
    for document in &documents {
        let outcome = placed(document, namespaces).and_then(|mut resource| {
            resource.set_defaults();
            Ok(resource.validate().map_err(Error::Validation)?)
        });
        outcomes.push(outcome);
    }
    show_places(&documents, &mut outcomes, context);
    let kinds = documents.iter().map(Document::kind).collect();
    Results::of(kinds, outcomes).write(Verb { plain: "validate", past: "validated" }, context)
}

async fn run(
    action: Action,
    flags: &WriteFlags,
    prune_flags: &PruneFlags,
    context: &mut Context,
) -> Result<()> {
    let documents = read(&flags.files, context)?;
    let namespaces = Namespaces { flag: flags.namespace.as_deref(), all: false };
    let input = Input::new(documents, namespaces, prune_flags)?;
    if input.documents.is_empty() {
        return context.print("No resources specified\n");
    }
    let client = context.connect_for(&flags.config, Access::Write).await?;
    if flags.dry_run {
        return diff::preview(action, input, &client, flags.parallel, context).await.map(|_| ());
    }
    let Input { documents, resources, pruning } = input;
    // Users with few rights may be able to write their objects without being able to do this.
    if let Err(error) = client.ensure_initialized("", "").await {
        tracing::info!(%error, "unable to initialize datastore");
    }
    let identities: Vec<Identity> = documents
        .iter()
        .zip(&resources)
        .map(|(document, resource)| Identity::of(resource.as_ref().unwrap_or(&document.resource)))
        .collect();
    warn_of_repetitions(&identities, context);
    // With `--parallel 1`, requests must be sent one per object, too.
    let batches = flags.parallel > 1 && action != Action::Replace && documents.len() > 1;
    let client =
        if batches { Client::new(Arc::new(Batching::new(Arc::clone(client.backend())))) } else { client };
    let (client, slots) = (&client, &resources);
    let outcomes = pipeline::run(
        context,
        &identities,
        pipeline::Direction::Writing,
        flags.parallel,
        |index| async move {
            match &slots[index] {
                Ok(resource) => Some(action.run(client, resource).await),
                Err(_) => None,
            }
        },
    )
    .await;
    let mut outcomes: Vec<std::result::Result<(), Refusal>> = outcomes
        .into_iter()
        .zip(resources)
        .map(|(outcome, resource)| match (outcome, resource) {
            (Some(outcome), _) => outcome.map(|_| ()),
            (None, Ok(_)) => Ok(()),
            (None, Err(refusal)) => Err(refusal),
        })
        .collect();
    show_places(&documents, &mut outcomes, context);
    let kinds = documents.iter().map(Document::kind).collect();
    Results::of(kinds, outcomes).write(action.verb(), context)?;
    // Only an input that was applied completely determines what does not belong to the set.
    match pruning {
        Some(pruning) => {
            let found = pruning.candidates(client).await?;
            prune::delete(client, &found, flags.parallel, context).await
        }
        None => Ok(()),
    }
}

/// The objects to write, and those to prune.
pub(crate) struct Input {
    /// The selected documents.
    pub documents: Vec<Document>,
    /// Their objects, in their namespaces and with the mark of their set.
    pub resources: Vec<Outcome>,
    /// What to prune, if requested.
    pub pruning: Option<Pruning>,
}

pub(crate) struct Pruning {
    set: String,
    labels: Labels,
    present: BTreeSet<Identity>,
}

impl Pruning {
    /// The members of the set that are not in the input.
    ///
    /// # Errors
    /// When a kind cannot be listed.
    pub(crate) async fn candidates(&self, client: &Client) -> Result<prune::Candidates> {
        prune::candidates(client, &self.set, &self.labels, &self.present).await
    }
}

impl Input {
    /// Selects the objects of the documents, sets their namespaces and marks them.
    ///
    /// # Errors
    /// When the flags are wrong, or there is nothing to compare the set with.
    pub(crate) fn new(
        documents: Vec<Document>,
        namespaces: Namespaces<'_>,
        flags: &PruneFlags,
    ) -> Result<Self> {
        let set = flags.set()?;
        let labels = Labels::parse(flags.selector.as_deref())?;
        // Everything in the files is kept when pruning, selected or not.
        let placed_of = |document: &Document| placed(document, namespaces);
        let present = documents
            .iter()
            .map(|document| Identity::of(placed_of(document).as_ref().unwrap_or(&document.resource)))
            .collect();
        let documents: Vec<Document> =
            documents.into_iter().filter(|document| labels.select(&document.resource)).collect();
        let mut resources: Vec<Outcome> = documents.iter().map(placed_of).collect();
        let Some(set) = set else { return Ok(Self { documents, resources, pruning: None }) };
        if flags.prune && documents.is_empty() {
            return Err(Failure::new(format!(
                "nothing to apply: the whole set {set} would be pruned; delete its resources with `calicoctl delete`"
            )));
        }
        resources.iter_mut().flatten().for_each(|resource| prune::mark(resource, set));
        let pruning = flags.prune.then(|| Pruning { set: set.to_owned(), labels, present });
        Ok(Self { documents, resources, pruning })
    }
}

/// Warns about objects that are in the input more than once: that is rarely intended.
fn warn_of_repetitions(identities: &[Identity], context: &mut Context) {
    let mut counts: BTreeMap<&Identity, usize> = BTreeMap::new();
    for identity in identities {
        *counts.entry(identity).or_default() += 1;
    }
    for (identity, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
        context
            .warn(&format!("Warning: {identity} is in the input {count} times; they are written in order"));
    }
}

/// Shows the refused fields in the users' files, grouped by file. Mistakes that were shown before are not repeated.
pub(crate) fn show_places(
    documents: &[Document],
    outcomes: &mut [std::result::Result<(), Refusal>],
    context: &mut Context,
) {
    let refused = documents.iter().zip(&*outcomes).filter_map(|(document, outcome)| match outcome {
        Err(Refusal::Store(error)) => match &**error {
            Error::Validation(errors) => Some((document, errors)),
            _ => None,
        },
        _ => None,
    });
    for mistakes in document::diagnose(refused) {
        context.warn(&format!("{mistakes}\n"));
    }
    for outcome in outcomes {
        if let Err(Refusal::Store(error)) = outcome
            && let Error::Validation(errors) = &**error
        {
            *outcome = Err(Refusal::Shown(errors.as_slice().len()));
        }
    }
}

fn read(files: &FileFlags, context: &mut Context) -> Result<Vec<Document>> {
    files.documents(context, Checks::Everything)
}

/// The object of a document, in its namespace.
///
/// # Errors
/// When the namespaces contradict each other.
pub(crate) fn placed(document: &Document, namespaces: Namespaces<'_>) -> Outcome {
    let mut resource = document.resource.clone();
    let namespace = namespaces
        .resolve(resource.kind(), resource.namespace())
        .map_err(|failure| Refusal::Text(failure.message().to_owned()))?;
    resource.metadata_mut().namespace = namespace;
    Ok(resource)
}
