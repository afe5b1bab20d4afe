//! `patch`: changes parts of one object in place.

mod strategic;

use super::operations::{self, Refusal};
use super::target::{Identity, Namespaces, from_words};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::kinds::Words;
use crate::resource::diff;
use crate::version_gate::Access;
use api::Resource;
use api::document::{Checks, read};
use client::Client;
use serde_json::Value;

/// How often a patch is retried after a conflict.
const ATTEMPTS: usize = 5;

/// Flags of `patch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  # Make a node a route reflector.\n  calicoctl patch node node-0 \
                        --patch '{\"spec\":{\"bgp\": {\"routeReflectorClusterID\": \"224.0.0.1\"}}}'\n\n  # Remove a field, if it exists.\n  \
                        calicoctl patch ippool pool1 --type=merge -p '{\"spec\": {\"disabled\": null}}'")]
pub(crate) struct PatchArgs {
    /// The type of the object.
    #[arg(value_parser = Words::Kinds, hide_possible_values = true)]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The patch, as JSON.
    #[arg(long, short = 'p', value_name = "PATCH")]
    pub patch: String,
    /// Format of patch type: strategic (maps are merged, lists replaced unless the type says how to merge them), merge
    /// (RFC 7386), json (RFC 6902).
    #[arg(
        long,
        short = 't',
        value_name = "TYPE",
        default_value = "strategic",
        value_parser = Words::of(&["strategic", "merge", "json"]),
        hide_possible_values = true
    )]
    pub r#type: String,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Show what would change, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// A parsed patch.
enum Patch {
    Strategic(Value),
    Merge(Value),
    Json(json_patch::Patch),
}

impl Patch {
    fn parse(kind: &str, text: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| {
            Failure::new(format!("hit error: the patch is not valid JSON: {error}"))
        };
        Ok(match kind {
            "strategic" => Self::Strategic(serde_json::from_str(text).map_err(wrong)?),
            "merge" => Self::Merge(serde_json::from_str(text).map_err(wrong)?),
            "json" => Self::Json(serde_json::from_str(text).map_err(wrong)?),
            other => {
                return Err(Failure::new(format!(
                    "unknown patch type '{other}', expected one of: strategic, merge, json"
                )));
            }
        })
    }

    fn apply(&self, object: &mut Value) -> std::result::Result<(), String> {
        match self {
            Self::Strategic(patch) => strategic::apply(object, patch)
                .map_err(|reason| format!("performing strategic merge patch: {reason}")),
            Self::Merge(patch) => {
                json_patch::merge(object, patch);
                Ok(())
            }
            Self::Json(patch) => {
                json_patch::patch(object, patch).map_err(|error| format!("performing json patch: {error}"))
            }
        }
    }
}

/// Runs `patch`.
///
/// # Errors
/// When the patch is invalid, or the object cannot be changed.
pub(crate) async fn run(args: &PatchArgs, context: &mut Context) -> Result<()> {
    let patch = Patch::parse(&args.r#type, &args.patch)?;
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    let targets = from_words(&[args.kind.clone(), args.name.clone()], namespaces)?;
    let [target] = targets.as_slice() else { return Err(Failure::new("patch takes one object")) };
    let client = context.connect_for(&args.config, Access::Write).await?;
    let hit = |text: String| Failure::new(format!("hit error: {text}"));
    let mut attempt = 1;
    loop {
        let stored = stored(&client, target).await.map_err(|refusal| hit(refusal.to_string()))?;
        let patched = patched(&stored, &patch).map_err(hit)?;
        if args.dry_run {
            let text = diff::changes(&stored, &patched, context.surroundings.colours)?;
            context.print(&text)?;
            return context.print("Dry run: nothing was written\n");
        }
        match client.update_any(patched).await {
            Ok(_) => return context.print(&format!("Successfully patched 1 '{}' resource\n", target.kind)),
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            Err(error) => {
                return Err(hit(format!("updating existing resource: {}", Refusal::from(error))));
            }
        }
    }
}

async fn stored(client: &Client, target: &Identity) -> operations::Outcome {
    Ok(client.get_any(target.kind, &target.namespace, &target.name, None).await?)
}

/// Applies the patch; the result is parsed as strictly as a user's file.
fn patched(stored: &Resource, patch: &Patch) -> std::result::Result<Resource, String> {
    let mut value =
        serde_json::to_value(stored).map_err(|error| format!("marshalling original resource: {error}"))?;
    patch.apply(&mut value)?;
    let text = serde_json::to_vec_pretty(&value).map_err(|error| error.to_string())?;
    let documents = read("the patched object", &text, Checks::Structure)
        .map_err(|mistakes| format!("creating resource from patched data: {mistakes}"))?;
    let document = documents.into_iter().next().ok_or("invalid number of patched resources: 0")?;
    let identity = Identity::of(stored);
    if Identity::of(&document.resource) != identity {
        return Err(format!("a patch cannot change the kind, namespace or name of {identity}"));
    }
    Ok(document.resource)
}
