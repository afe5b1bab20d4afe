//! `diff` and `--dry-run`: show what would change, as a unified diff of YAML. Nothing is written.

mod unified;

use super::operations::{Refusal, with_metadata_of};
use super::pipeline;
use super::prune::{self, PruneFlags};
use super::report::{Results, Verb};
use super::target::{Identity, Namespaces};
use super::write::{Action, Input, show_places};
use crate::cli::FAILED_WITH_EXIT_CODE;
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::version_gate::Access;
use ::explain::counted;
use api::Resource;
use api::document::{Checks, Document};
use api::schema::{apply_defaults, for_kind, property};
use client::{Client, Error};
use std::collections::BTreeMap;
use unified::unified;

/// Flags of `diff`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0, or 1 for a failure. With --exit-code: 0 for no difference, 1 for differences, 2 for a failure.\n\n\
                  Examples:\n  # Show what applying a directory would change.\n  calicoctl diff -R -f ./policies\n\n  \
                  # Also what `apply --prune` would delete, and an exit code for scripts.\n  \
                  calicoctl diff -R -f ./policies --applyset=policies --prune --exit-code"
)]
pub(crate) struct DiffArgs {
    /// Where the objects come from.
    #[command(flatten)]
    pub files: FileFlags,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Sets, and what is not in them any more.
    #[command(flatten)]
    pub prune: PruneFlags,
    /// Exit with 1 if anything differs, and with 2 after a failure.
    #[arg(long)]
    pub exit_code: bool,
}

/// Runs `diff`.
///
/// # Errors
/// When an object could not be applied; with `--exit-code` also when there are differences.
pub(crate) async fn run(args: &DiffArgs, context: &mut Context) -> Result<()> {
    match (differences(args, context).await, args.exit_code) {
        (Ok(0), _) | (Ok(_), false) => Ok(()),
        (Ok(_), true) => Err(Failure::silent(1)),
        (Err(failure), true) => Err(failure.with_code(FAILED_WITH_EXIT_CODE)),
        (Err(failure), false) => Err(failure),
    }
}

/// Shows the differences and counts them.
async fn differences(args: &DiffArgs, context: &mut Context) -> Result<usize> {
    let documents = args.files.documents(context, Checks::Everything)?;
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    let input = Input::new(documents, namespaces, &args.prune)?;
    if input.documents.is_empty() {
        context.print("No resources specified\n")?;
        return Ok(0);
    }
    let client = context.connect_for(&args.config, Access::Read).await?;
    preview(Action::Apply, input, &client, pipeline::DEFAULT_PARALLEL, context).await
}

/// The outcome that a write would have for one object.
enum Plan {
    Created(String),
    Changed(String),
    Unchanged,
}

/// Shows what a writing command would do, and counts the objects that would be created, changed or pruned.
///
/// # Errors
/// With the errors that the command would fail with.
pub(crate) async fn preview(
    action: Action,
    input: Input,
    client: &Client,
    parallel: usize,
    context: &mut Context,
) -> Result<usize> {
    let Input { documents, resources, pruning } = input;
    let identities: Vec<Identity> = documents
        .iter()
        .zip(&resources)
        .map(|(document, resource)| Identity::of(resource.as_ref().unwrap_or(&document.resource)))
        .collect();
    let colours = context.surroundings.colours;
    let slots = &resources;
    let plans =
        pipeline::run(context, &identities, pipeline::Direction::Writing, parallel, |index| async move {
            match &slots[index] {
                Ok(resource) => Some(plan(action, client, resource, colours).await),
                Err(_) => None,
            }
        })
        .await;
    let mut outcomes = Vec::with_capacity(plans.len());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (plan, resource) in plans.into_iter().zip(resources) {
        let word = match (plan, resource) {
            (Some(Ok(Plan::Created(text))), _) => {
                context.print(&text)?;
                "created"
            }
            (Some(Ok(Plan::Changed(text))), _) => {
                context.print(&text)?;
                "changed"
            }
            (Some(Ok(Plan::Unchanged)), _) | (None, Ok(_)) => "unchanged",
            (Some(Err(refusal)), _) | (None, Err(refusal)) => {
                outcomes.push(Err(refusal));
                continue;
            }
        };
        *counts.entry(word).or_default() += 1;
        outcomes.push(Ok(()));
    }
    let count = |word: &str| counts.get(word).copied().unwrap_or(0);
    context.print(&format!(
        "Dry run: {} would be created, {} changed, {} left unchanged; nothing was written\n",
        counted(count("created"), "resource"),
        count("changed"),
        count("unchanged")
    ))?;
    if outcomes.iter().all(std::result::Result::is_ok) {
        let pruned = match pruning {
            Some(pruning) => preview_prune(&pruning.candidates(client).await?, context)?,
            None => 0,
        };
        return Ok(count("created") + count("changed") + pruned);
    }
    show_places(&documents, &mut outcomes, context);
    let kinds = documents.iter().map(Document::kind).collect();
    let verb = match action {
        Action::Create { .. } => Verb { plain: "create", past: "could have created" },
        Action::Apply => Verb { plain: "apply", past: "could have applied" },
        Action::Replace => Verb { plain: "replace", past: "could have replaced" },
    };
    Results::of(kinds, outcomes).write(verb, context).map(|()| 0)
}

/// Shows which objects would be pruned, and counts them.
fn preview_prune(found: &prune::Candidates, context: &mut Context) -> Result<usize> {
    prune::report_kept(found, context);
    let colours = context.surroundings.colours;
    for resource in &found.doomed {
        let identity = Identity::of(resource).to_string();
        context.print(&unified(&yaml(resource)?, "", &identity, "pruned", colours))?;
    }
    let count = found.doomed.len();
    context
        .print(&format!("Dry run: {} would be pruned; nothing was written\n", counted(count, "resource")))?;
    Ok(count)
}

/// Shows what a delete would do.
///
/// # Errors
/// With the errors that the delete would fail with.
pub(crate) async fn preview_delete(
    identities: &[Identity],
    skip_not_exists: bool,
    client: &Client,
    context: &mut Context,
) -> Result<()> {
    let mut outcomes = Vec::with_capacity(identities.len());
    let mut count = 0;
    for identity in identities {
        let Identity { kind, namespace, name } = identity;
        match client.get_any(*kind, namespace, name, None).await {
            Ok(stored) => {
                let text = yaml(&stored)?;
                let colours = context.surroundings.colours;
                context.print(&unified(&text, "", &identity.to_string(), "deleted", colours))?;
                count += 1;
                outcomes.push(Ok(()));
            }
            Err(error) if skip_not_exists && error.is_does_not_exist() => outcomes.push(Ok(())),
            Err(error) => outcomes.push(Err(Refusal::from(error))),
        }
    }
    context
        .print(&format!("Dry run: {} would be deleted; nothing was written\n", counted(count, "resource")))?;
    let failed: Vec<std::result::Result<(), Refusal>> =
        outcomes.into_iter().filter(std::result::Result::is_err).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Results::of(identities.iter().map(|identity| identity.kind).collect(), failed).delete(context)
}

/// The difference between an object as it is and as it would be.
///
/// # Errors
/// Never for objects of our types; the signature is serde's.
pub(crate) fn changes(stored: &Resource, new: &Resource, colours: bool) -> Result<String> {
    let identity = Identity::of(stored).to_string();
    Ok(unified(&yaml(stored)?, &yaml(new)?, &identity, "new", colours))
}

async fn plan(
    action: Action,
    client: &Client,
    resource: &Resource,
    colours: bool,
) -> std::result::Result<Plan, Refusal> {
    let identity = Identity::of(resource);
    let stored = match client.get_any(identity.kind, &identity.namespace, &identity.name, None).await {
        Ok(stored) => Some(stored),
        Err(error) if error.is_does_not_exist() => None,
        Err(error) => return Err(error.into()),
    };
    let stored = match (action, stored) {
        (Action::Create { skip_exists: true }, Some(_)) => return Ok(Plan::Unchanged),
        (Action::Create { skip_exists: false }, Some(_)) => {
            return Err(Error::AlreadyExists { key: identity.to_string(), existing: None }.into());
        }
        (Action::Replace, None) => {
            return Err(Error::DoesNotExist { key: identity.to_string(), reason: String::new() }.into());
        }
        (_, stored) => stored,
    };
    let new = match &stored {
        Some(stored) => with_metadata_of(stored, resource),
        None => resource.clone(),
    };
    let new = as_stored(new)?;
    new.validate().map_err(Error::Validation)?;
    if let Some(stored) = &stored {
        new.validate_update(stored).map_err(Error::Validation)?;
    }
    let text =
        |resource: &Resource| yaml(resource).map_err(|failure| Refusal::Text(failure.message().to_owned()));
    let (before, after) = (stored.as_ref().map(text).transpose()?, text(&new)?);
    let name = identity.to_string();
    Ok(match before {
        None => Plan::Created(unified("", &after, &name, "new", colours)),
        Some(before) if before == after => Plan::Unchanged,
        Some(before) => Plan::Changed(unified(&before, &after, &name, "new", colours)),
    })
}

/// The object with all fields that storing and reading it would fill in.
fn as_stored(mut resource: Resource) -> std::result::Result<Resource, Refusal> {
    let unreadable = |error: serde_json::Error| Refusal::Text(error.to_string());
    resource.set_defaults();
    let kind = resource.kind();
    if let Some(schema) = property(for_kind(kind), "spec") {
        let mut value = serde_json::to_value(&resource).map_err(unreadable)?;
        if let Some(spec) = value.get_mut("spec") {
            apply_defaults(schema, spec);
        }
        resource = Resource::from_value(kind, value).map_err(unreadable)?;
    }
    resource.set_read_defaults();
    Ok(resource)
}

fn yaml(resource: &Resource) -> Result<String> {
    Ok(api::yaml::to_string(&serde_json::to_value(resource)?))
}
