//! `get`: prints objects by name, all of a kind, or those of a file, in any format.

use super::labels::Labels;
use super::operations::Refusal;
use super::target::{Identity, Namespaces, from_words};
use super::watch;
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::kinds::{Settings, Words};
use crate::output::{Answer, FORMATS, Format};
use crate::version_gate::Access;
use api::document::Checks;
use api::{BGPConfigurationSpec, Kind, Resource};
use client::{Client, DatastoreType, ListQuery};
use futures::StreamExt as _;
use model::{IpamConfig, Key, Value};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// How many objects are read at once.
const PARALLEL: usize = 32;

/// The AS number of clusters that do not set one.
const DEFAULT_AS_NUMBER: &str = "64512";

/// Flags of `get`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Output formats: ps (default), wide, yaml, json, name, custom-columns=A,B, go-template=TEMPLATE, \
                        go-template-file=FILE, jsonpath=TEMPLATE, jsonpath-file=FILE (as kubectl's)\n\n\
                        Examples:\n  # All policies of the default namespace, as a table.\n  calicoctl get policy\n\n  \
                        # Two policies as YAML.\n  calicoctl get -o yaml policy my-policy-1 my-policy-2\n\n  \
                        # By label, and every change until Ctrl-C.\n  calicoctl get weps -A -l app=web --watch\n\n  \
                        # One field of each.\n  \
                        calicoctl get ippools -o jsonpath='{range .items[*]}{.spec.cidr}{\"\\n\"}{end}'"
)]
pub(crate) struct GetArgs {
    /// The type of the objects, then names; all objects of the type without names.
    #[arg(
        value_name = "KIND [NAME...]",
        conflicts_with = "filename",
        value_parser = Words::Kinds,
        hide_possible_values = true
    )]
    pub words: Vec<String>,
    /// Where the objects are named.
    #[command(flatten)]
    pub files: FileFlags,
    /// Output format.
    #[arg(
        long,
        short = 'o',
        value_name = "OUTPUT FORMAT",
        default_value = "ps",
        value_parser = Words::of(FORMATS),
        hide_possible_values = true
    )]
    pub output: String,
    /// Only objects with these labels: app=web,tier!=db,env in (a,b), or a selector of Calico's language.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// After showing the objects, keep watching and show each change.
    #[arg(long, short = 'w', conflicts_with_all = ["filename", "export"])]
    pub watch: bool,
    /// Show only changes from now on.
    #[arg(long, conflicts_with_all = ["filename", "export"])]
    pub watch_only: bool,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Show the resources of all namespaces.
    #[arg(long, short = 'A', visible_short_alias = 'a')]
    pub all_namespaces: bool,
    /// Leave out fields that only apply to this cluster (uid, version, times, namespace); only for resources that are
    /// requested by name.
    #[arg(long)]
    pub export: bool,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `get`.
///
/// # Errors
/// When something could not be read; the rest is still printed.
pub(crate) async fn run(args: &GetArgs, context: &mut Context) -> Result<()> {
    let format = Format::parse(&args.output)?;
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: args.all_namespaces };
    let labels = Labels::parse(args.selector.as_deref())?;
    let targets = match args.files.is_given() {
        false => from_words(&args.words, namespaces)?,
        true => {
            let mut targets = Vec::new();
            for document in args.files.documents(context, Checks::Structure)? {
                let metadata = document.resource.metadata();
                let namespace = namespaces.resolve(document.kind(), &metadata.namespace)?;
                targets.push(Identity { kind: document.kind(), namespace, name: metadata.name.clone() });
            }
            targets
        }
    };
    if args.selector.is_some() && targets.iter().any(|target| !target.name.is_empty()) {
        return Err(Failure::new("name cannot be provided when a selector is specified"));
    }
    if args.watch || args.watch_only {
        return follow(args, &targets, &format, &labels, context).await;
    }
    let opened = context.open(&args.config).await?;
    // The version is read at the same time, so that it adds no latency; if the datastore does not answer that request,
    // the rest is not waited for either.
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
            Ok((mut answer, unreadable)) => {
                if let Answer::List { items, .. } = &mut answer {
                    items.retain(|item| labels.select(item));
                }
                answers.push(answer);
                problems.extend(unreadable);
            }
            Err(refusal) => problems.push(refusal.to_string()),
        }
    }
    let has_names = !args.files.is_given() && targets.iter().all(|target| !target.name.is_empty());
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

/// Runs `get --watch`.
async fn follow(
    args: &GetArgs,
    targets: &[Identity],
    format: &Format,
    labels: &Labels,
    context: &mut Context,
) -> Result<()> {
    let config = context.client_config(&args.config)?;
    if config.datastore_type == DatastoreType::Embedded && !is_served(Path::new(&config.embedded_path)) {
        return Err(Failure::new(format!(
            "an embedded store has one user at a time, so nothing could change during a watch: serve it with `tortie \
             datastore --data-dir {}`",
            config.embedded_path
        )));
    }
    let opened = context.open(&args.config).await?;
    let information = opened.cluster_information().await?;
    context.check_version(information.as_ref(), Access::Read)?;
    let mut settings = Settings::default();
    let of_kind =
        |target: &Identity| Answer::List { kind: target.kind, items: Vec::new(), revision: String::new() };
    if format.shows_as_number(&targets.iter().map(of_kind).collect::<Vec<_>>()) {
        settings.as_number = as_number(&opened.client).await;
    }
    watch::run(args, targets, format, labels, &opened, settings, context).await
}

/// Whether a server for an embedded store is running.
fn is_served(folder: &Path) -> bool {
    UnixStream::connect(kvstore_engine::socket_path(folder)).is_ok()
}

/// Reads one object or all of a kind, and reports which entries could not be read.
pub(super) async fn read(
    client: &Client,
    target: &Identity,
) -> std::result::Result<(Answer, Vec<String>), Refusal> {
    let Identity { kind, namespace, name } = target;
    if !name.is_empty() {
        if namespace.is_empty() && kind.is_namespaced() {
            return Err(Refusal::Text(
                "cannot use --all-namespace flag for getting a single resource".to_owned(),
            ));
        }
        let resource = match client.get_any(*kind, namespace, name, None).await {
            Err(error)
                if error.is_does_not_exist()
                    && *kind == Kind::IPAMConfiguration
                    && name == api::words::GLOBAL_NAME =>
            {
                settings_in_force(client).await?.ok_or(error)?
            }
            outcome => outcome?,
        };
        return Ok((Answer::One(Box::new(resource)), Vec::new()));
    }
    let query = if namespace.is_empty() { ListQuery::all() } else { ListQuery::in_namespace(namespace) };
    let mut list = client.list_any(*kind, &query).await?;
    if *kind == Kind::IPAMConfiguration && list.items.is_empty() && list.invalid.is_empty() {
        list.items.extend(settings_in_force(client).await?);
    }
    if *kind == Kind::Tier {
        list.items.sort_by(|one, other| tier_order(one).total_cmp(&tier_order(other)));
    }
    // An unreadable entry still exists: users of the list must know.
    let unreadable = list
        .invalid
        .iter()
        .map(|entry| format!("failed to parse datastore entry {}: {}", entry.key, entry.reason));
    let unreadable = unreadable.collect();
    Ok((Answer::List { kind: *kind, items: list.items, revision: list.revision }, unreadable))
}

/// The effective settings of address management where no object holds them: `ipam configure` and migrations write only
/// the record that address management reads. `None` if there is no such record.
async fn settings_in_force(client: &Client) -> std::result::Result<Option<Resource>, Refusal> {
    let record: IpamConfig = match client.backend().get(&Key::IpamConfig, None).await {
        Ok(entry) => match entry.value {
            Value::IpamConfig(record) => record,
            _ => return Ok(None),
        },
        Err(error) if error.is_does_not_exist() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut spec = serde_json::json!({
        "strictAffinity": record.strict_affinity,
        "autoAllocateBlocks": record.auto_allocate_blocks,
        "maxBlocksPerHost": record.max_blocks_per_host,
        "ipCooldownSeconds": record.ip_cooldown_seconds,
    });
    if let Some(persistence) = &record.kubevirt_vm_address_persistence {
        spec["kubeVirtVMAddressPersistence"] = persistence.as_str().into();
    }
    let value = serde_json::json!({"metadata": {"name": api::words::GLOBAL_NAME}, "spec": spec});
    let resource = Resource::from_value(Kind::IPAMConfiguration, value);
    resource.map(Some).map_err(|error| Refusal::Text(error.to_string()))
}

/// The order of a tier; tiers without an order come last.
fn tier_order(resource: &Resource) -> f64 {
    match resource {
        Resource::Tier(tier) => tier.spec.order.map_or(f64::INFINITY, |order| order.0),
        _ => f64::INFINITY,
    }
}

/// Removes fields that only apply to the cluster that the object comes from.
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

/// The AS number for nodes that have none of their own.
async fn as_number(client: &Client) -> String {
    match client.resource::<BGPConfigurationSpec>().get("", api::words::GLOBAL_NAME).await {
        Ok(configuration) => configuration
            .spec
            .as_number
            .map_or_else(|| DEFAULT_AS_NUMBER.to_owned(), |number| number.to_string()),
        Err(error) if error.is_does_not_exist() => DEFAULT_AS_NUMBER.to_owned(),
        Err(_) => "unknown".to_owned(),
    }
}
