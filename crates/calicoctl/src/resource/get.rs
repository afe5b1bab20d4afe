//! `get`: objects by name, all of a kind, or those of a file, in any format.

use super::operations::Refusal;
use super::target::{Identity, Namespaces, from_words};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::kinds::Settings;
use crate::output::{Answer, Format};
use crate::version_gate::Access;
use api::document::Checks;
use api::{BGPConfigurationSpec, Kind, Resource};
use client::{Client, ListQuery};
use futures::StreamExt as _;

/// How many objects are asked for at once.
const PARALLEL: usize = 32;

/// The AS number where the cluster has not been given one.
const DEFAULT_AS_NUMBER: &str = "64512";

/// Flags of `get`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Output formats: ps (default), wide, yaml, json, name, custom-columns=A,B, go-template=TEMPLATE, \
                        go-template-file=FILE\n\n\
                        Examples:\n  # All policies of the default namespace, as a table.\n  calicoctl get policy\n\n  \
                        # Two policies as YAML.\n  calicoctl get -o yaml policy my-policy-1 my-policy-2"
)]
pub struct GetArgs {
    /// The type of the objects, then names; all objects of the type without names.
    #[arg(value_name = "KIND [NAME...]", conflicts_with = "filename")]
    pub words: Vec<String>,
    /// Where the objects are named.
    #[command(flatten)]
    pub files: FileFlags,
    /// Output format.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "ps")]
    pub output: String,
    /// The namespace of resources that do not say theirs; `default` without this flag.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Show the resources of all namespaces.
    #[arg(long, short = 'A', visible_short_alias = 'a')]
    pub all_namespaces: bool,
    /// Leave out what only means something in this cluster (uid, version, times, namespace); only for resources that are
    /// asked for by name.
    #[arg(long)]
    pub export: bool,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `get`.
///
/// # Errors
/// What could not be read; the rest is printed all the same.
pub async fn run(args: &GetArgs, context: &mut Context) -> Result<()> {
    let format = Format::parse(&args.output)?;
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: args.all_namespaces };
    let targets = match &args.files.filename {
        None => from_words(&args.words, namespaces)?,
        Some(path) => {
            let mut targets = Vec::new();
            for document in args.files.documents(context, path, Checks::Structure)? {
                let metadata = document.resource.metadata();
                let namespace = namespaces.resolve(document.kind(), &metadata.namespace)?;
                targets.push(Identity { kind: document.kind(), namespace, name: metadata.name.clone() });
            }
            targets
        }
    };
    let opened = context.open(&args.config).await?;
    // The version is asked for at the same time, so that it costs no wait of its own; when the datastore does not answer
    // that, the rest is not waited for either.
    let answers = async {
        let requests = targets.iter().map(|target| read(&opened.client, target));
        Ok(futures::stream::iter(requests).buffered(PARALLEL).collect::<Vec<_>>().await)
    };
    let (information, outcomes) = futures::future::try_join(opened.cluster_information(), answers).await?;
    context.check_version(information.as_ref(), Access::Read)?;

    let mut answers = Vec::new();
    let mut problems = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok((answer, unreadable)) => {
                answers.push(answer);
                problems.extend(unreadable);
            }
            Err(refusal) => problems.push(refusal.to_string()),
        }
    }
    let has_names = args.files.filename.is_none() && targets.iter().all(|target| !target.name.is_empty());
    if args.export && has_names {
        answers.iter_mut().for_each(strip);
    }
    let mut settings = Settings::default();
    if format.shows_as_number(&answers) {
        settings.as_number = as_number(&opened.client).await;
    }
    let with_namespace = args.all_namespaces || args.namespace.is_some();
    let text = format.render(&answers, with_namespace, &settings)?;
    context.print(&text)?;
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(problems.join("\n"))) }
}

/// Reads one object or all of a kind; also says which entries could not be read.
async fn read(client: &Client, target: &Identity) -> std::result::Result<(Answer, Vec<String>), Refusal> {
    let Identity { kind, namespace, name } = target;
    if !name.is_empty() {
        if namespace.is_empty() && kind.is_namespaced() {
            return Err(Refusal::Text(
                "cannot use --all-namespace flag for getting a single resource".to_owned(),
            ));
        }
        let resource = client.get_any(*kind, namespace, name, None).await?;
        return Ok((Answer::One(Box::new(resource)), Vec::new()));
    }
    let query = if namespace.is_empty() { ListQuery::all() } else { ListQuery::in_namespace(namespace) };
    let mut list = client.list_any(*kind, &query).await?;
    if *kind == Kind::Tier {
        list.items.sort_by(|one, other| tier_order(one).total_cmp(&tier_order(other)));
    }
    // An entry that cannot be read is there all the same: whoever sees the list must know of it.
    let unreadable = list
        .invalid
        .iter()
        .map(|entry| format!("failed to parse datastore entry {}: {}", entry.key, entry.reason));
    let unreadable = unreadable.collect();
    Ok((Answer::List { kind: *kind, items: list.items, revision: list.revision }, unreadable))
}

/// The order of a tier; tiers without one come last.
fn tier_order(resource: &Resource) -> f64 {
    match resource {
        Resource::Tier(tier) => tier.spec.order.map_or(f64::INFINITY, |order| order.0),
        _ => f64::INFINITY,
    }
}

/// Removes what only means something in the cluster that the object comes from.
fn strip(answer: &mut Answer) {
    let Answer::One(resource) = answer else { return };
    let metadata = resource.metadata_mut();
    metadata.namespace.clear();
    metadata.uid.clear();
    metadata.resource_version.clear();
    metadata.creation_timestamp = None;
    metadata.deletion_timestamp = None;
    metadata.deletion_grace_period_seconds = None;
}

/// The AS number of nodes without one of their own.
async fn as_number(client: &Client) -> String {
    match client.resource::<BGPConfigurationSpec>().get("", "default").await {
        Ok(configuration) => configuration
            .spec
            .as_number
            .map_or_else(|| DEFAULT_AS_NUMBER.to_owned(), |number| number.to_string()),
        Err(error) if error.is_does_not_exist() => DEFAULT_AS_NUMBER.to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
