//! `describe`: objects in a readable form. Rules are lines, and each object is followed by what else the datastore
//! knows about it: the endpoints that a policy selects, the policies that apply to an endpoint, the blocks of a pool or
//! a node.
//!
//! - this file: reads the datastore.
//! - [`page`]: an object and those facts as text; pure.
//! - [`rules`]: a rule as a line; pure.

mod page;
mod rules;

use super::get::read;
use super::labels::Labels;
use super::target::{Identity, Namespaces, from_words};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::ipam::usage;
use crate::kinds::Words;
use crate::version_gate::Access;
use ::explain::{Cluster, World};
use api::document::Checks;
use api::{Kind, Resource};
use client::{Client, ListQuery};
use model::ListOptions;
use page::Facts;

/// The kinds that determine which policy applies to which endpoint.
const OF_POLICY: [Kind; 9] = [
    Kind::GlobalNetworkPolicy,
    Kind::HostEndpoint,
    Kind::NetworkPolicy,
    Kind::Profile,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::Tier,
    Kind::WorkloadEndpoint,
];

/// Flags of `describe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  # The rules of a policy, and the endpoints that it selects.\n  \
                        calicoctl describe networkpolicy allow-web -n shop\n\n  \
                        # All pools, with their blocks.\n  calicoctl describe ippools\n\n  \
                        # The policies that apply to endpoints with a label.\n  calicoctl describe wep -A -l app=web")]
pub(crate) struct DescribeArgs {
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
    /// Only objects with these labels: app=web,tier!=db,env in (a,b), or a selector of Calico's language.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Show the resources of all namespaces.
    #[arg(long, short = 'A', visible_short_alias = 'a')]
    pub all_namespaces: bool,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `describe`.
///
/// # Errors
/// When something could not be read; the rest is still printed.
pub(crate) async fn run(args: &DescribeArgs, context: &mut Context) -> Result<()> {
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: args.all_namespaces };
    let labels = Labels::parse(args.selector.as_deref())?;
    let targets = match args.files.is_given() {
        false => from_words(&args.words, namespaces)?,
        true => {
            let documents = args.files.documents(context, Checks::Structure)?;
            let targets = documents.iter().map(|document| {
                let metadata = document.resource.metadata();
                let namespace = namespaces.resolve(document.kind(), &metadata.namespace)?;
                Ok(Identity { kind: document.kind(), namespace, name: metadata.name.clone() })
            });
            targets.collect::<Result<Vec<_>>>()?
        }
    };
    let client = context.connect_for(&args.config, Access::Read).await?;
    let mut resources = Vec::new();
    let mut problems = Vec::new();
    for target in &targets {
        match read(&client, target).await {
            Ok((answer, unreadable)) => {
                resources
                    .extend(answer.resources().iter().filter(|resource| labels.select(resource)).cloned());
                problems.extend(unreadable);
            }
            Err(refusal) => problems.push(refusal.to_string()),
        }
    }
    let kinds: Vec<Kind> = resources.iter().map(Resource::kind).collect();
    let knowledge = Knowledge::load(&client, &kinds, context).await?;
    let world = knowledge.cluster.as_ref().map(World::new);
    let pages: Vec<String> = resources
        .iter()
        .map(|resource| page::text(resource, &knowledge.facts(resource, world.as_ref())))
        .collect();
    context.print(&pages.join("\n\n"))?;
    if resources.is_empty() && problems.is_empty() {
        context.warn("No resources found");
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(problems.join("\n"))) }
}

/// Context for the objects; only what they need is read.
struct Knowledge {
    cluster: Option<Cluster>,
    usage: Option<usage::Usage>,
}

impl Knowledge {
    async fn load(client: &Client, kinds: &[Kind], context: &mut Context) -> Result<Self> {
        let of_policy = |kind: &Kind| OF_POLICY.contains(kind) && *kind != Kind::Profile;
        let mut knowledge = Self { cluster: None, usage: None };
        if kinds.iter().any(of_policy) {
            knowledge.cluster = Some(cluster(client, context).await?);
        }
        if kinds.iter().any(|kind| matches!(kind, Kind::IPPool | Kind::Node)) {
            match usage::load(client).await {
                Ok(found) => knowledge.usage = Some(found),
                Err(failure) => context.warn(&format!("Note: blocks are not shown: {failure}")),
            }
        }
        Ok(knowledge)
    }

    /// The facts to print beside an object.
    fn facts(&self, resource: &Resource, world: Option<&World<'_>>) -> Facts {
        let (kind, namespace, name) = (resource.kind(), resource.namespace(), resource.name());
        let mut facts = Facts::default();
        if let Some(world) = world {
            facts.endpoints = world.endpoints_of(kind, namespace, name);
            facts.policies = world.policies_of(kind, namespace, name);
        }
        if let (Kind::Tier, Some(cluster)) = (kind, &self.cluster) {
            let members = cluster.resources().filter(|policy| tier_of(policy) == Some(name));
            facts.members = Some(members.map(|policy| Identity::of(policy).to_string()).collect());
        }
        if let Some(usage) = &self.usage {
            let pools = usage.pools.iter();
            facts.pool = pools.clone().find(|pool| kind == Kind::IPPool && pool.name == name).cloned();
            if kind == Kind::Node {
                let blocks = pools.flat_map(|pool| &pool.blocks).filter(|block| block.owner == name);
                facts.blocks = Some(blocks.cloned().collect());
            }
        }
        facts
    }
}

fn tier_of(resource: &Resource) -> Option<&str> {
    match resource {
        Resource::NetworkPolicy(object) => Some(&object.spec.tier),
        Resource::GlobalNetworkPolicy(object) => Some(&object.spec.tier),
        Resource::StagedNetworkPolicy(object) => Some(&object.spec.tier),
        Resource::StagedGlobalNetworkPolicy(object) => Some(&object.spec.tier),
        _ => None,
    }
}

/// Reads policies and endpoints, as far as this user may read them.
async fn cluster(client: &Client, context: &mut Context) -> Result<Cluster> {
    let mut cluster = Cluster::new();
    for kind in OF_POLICY {
        match client.list_any(kind, &ListQuery::all()).await {
            Ok(list) => list.items.into_iter().for_each(|resource| cluster.add(resource)),
            Err(error @ (client::Error::DoesNotExist { .. } | client::Error::Unauthorized { .. })) => {
                context.warn(&format!("Note: {kind} objects cannot be read, and are not looked at: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if client.backend().is_kubernetes()
        && let Ok(list) =
            client.backend().list(&ListOptions::resources(Kind::KubernetesNetworkPolicy), None).await
    {
        for resource in list.items.iter().filter_map(model::KvPair::as_resource) {
            cluster.add(resource.clone());
        }
    }
    cluster.complete();
    Ok(cluster)
}
