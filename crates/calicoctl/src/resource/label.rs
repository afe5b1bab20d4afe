//! `label`: sets, changes or removes one label of one object.

use super::operations;
use super::target::{Identity, Namespaces, from_words};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::kinds::Words;
use crate::version_gate::Access;

/// Flags of `label`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Give an endpoint a label.\n  calicoctl label workloadendpoints nginx --namespace=default \
                        app=web\n\n  # Change a label of a node.\n  calicoctl label nodes node1 \
                        cluster=backend --overwrite\n\n  # Remove a label.\n  calicoctl label nodes node1 cluster --remove"
)]
pub(crate) struct LabelArgs {
    /// The type of the object.
    #[arg(value_parser = Words::Kinds, hide_possible_values = true)]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The label: key=value, or the key alone to remove it.
    #[arg(value_name = "KEY=VALUE")]
    pub label: String,
    /// Change the value of an existing label.
    #[arg(long)]
    pub overwrite: bool,
    /// Remove the label.
    #[arg(long, conflicts_with = "overwrite")]
    pub remove: bool,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `label`.
///
/// # Errors
/// When the label cannot be changed.
pub(crate) async fn run(args: &LabelArgs, context: &mut Context) -> Result<()> {
    let LabelArgs { kind, name, label, .. } = args;
    let (key, value) = match label.split_once('=') {
        _ if args.remove => (label.as_str(), ""),
        Some(pair) => pair,
        None => return Err(Failure::new(format!("invalid label {label}"))),
    };
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    let words = [kind.clone(), name.clone()];
    let targets = from_words(&words, namespaces)?;
    let [target] = targets.as_slice() else { return Err(Failure::new("label takes one object")) };
    let client = context.connect_for(&args.config, Access::Write).await?;
    let Identity { kind: target_kind, namespace, name: target_name } = target;
    let mut resource = match client.get_any(*target_kind, namespace, target_name, None).await {
        Ok(resource) => resource,
        Err(error) if error.is_does_not_exist() => {
            return Err(Failure::new(format!("{kind} {name} not found")));
        }
        Err(error) => {
            let refusal = operations::Refusal::from(error);
            return Err(Failure::new(format!("failed to get {kind} {name}, error {refusal}")));
        }
    };
    let labels = &mut resource.metadata_mut().labels;
    let done = if args.remove {
        if labels.remove(key).is_none() {
            return Err(Failure::new(format!(
                "cannot remove label of {kind} {name}, key {key} does not exist"
            )));
        }
        format!("Successfully removed label {key} from {kind} {name}\n")
    } else {
        match labels.insert(key.to_owned(), value.to_owned()) {
            None => format!("Successfully set label {key} on {kind} {name}\n"),
            Some(old) if old == value || args.overwrite => {
                format!("Successfully updated label {key} on {kind} {name}\n")
            }
            Some(_) => {
                return Err(Failure::new(format!(
                    "failed to update label of {kind} {name}, key {key} is already present. please use '--overwrite' to set \
                     a new value"
                )));
            }
        }
    };
    match operations::update(&client, &resource).await {
        Ok(_) => context.print(&done),
        Err(refusal) => {
            Err(Failure::new(format!("failed to update {kind} {name}, label not changed: {refusal}")))
        }
    }
}
