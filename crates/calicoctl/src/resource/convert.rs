//! `convert`: files of Calico's first API version and Kubernetes' network policies, as objects of the current version.
//!
//! Objects that are current already are passed through. Calico's own tool has dropped this command; it stays here for
//! users who still have old files. Workload endpoints of the first version are refused: orchestrators create them, not
//! users.

mod names;
mod v1;

use crate::context::{ConfigFlag, Context};
use crate::datastore::tolerant_yaml;
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::kinds::Settings;
use crate::output::{Answer, Format};
use api::kind::API_VERSION;
use api::{Kind, NetworkPolicy, Resource};
use serde_json::Value;

/// The prefix of the names of policies that represent Kubernetes policies.
const KUBERNETES_POLICY: &str = "knp.default.";

/// Flags of `convert`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  # Print policy.yaml in the current version.\n  calicoctl convert -f ./policy.yaml -o yaml\n\n  \
                        # Convert what comes in on stdin.\n  cat policy.json | calicoctl convert -f -"
)]
pub(crate) struct ConvertArgs {
    /// Where the objects come from.
    #[command(flatten)]
    pub files: FileFlags,
    /// Output format: yaml or json.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "yaml")]
    pub output: String,
    /// Do not check the converted resources.
    #[arg(long)]
    pub ignore_validation: bool,
    /// Accepted for consistency; no connection is made.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `convert`.
///
/// # Errors
/// When an object cannot be converted.
pub(crate) fn run(args: &ConvertArgs, context: &mut Context) -> Result<()> {
    let format = match Format::parse(&args.output)? {
        format @ (Format::Yaml | Format::Json) => format,
        _ => return Err(Failure::new(format!("unrecognized output format '{}'", args.output))),
    };
    let mut answers = Vec::new();
    for (name, text) in args.files.texts(context)? {
        let wrong = |reason: String| Failure::new(format!("failed to execute command: {name}: {reason}"));
        let mut objects = Vec::new();
        for document in tolerant_yaml::documents(&text).map_err(wrong)? {
            flatten(document, &mut objects);
        }
        if objects.is_empty() && !args.files.skip_empty {
            return Err(Failure::new(format!("no resources specified in file {name}")));
        }
        for object in objects {
            let (resource, problems) = converted(&object).map_err(wrong)?;
            for problem in problems {
                context.warn(&format!("Warning: {name}: {problem}"));
            }
            if !args.ignore_validation {
                validate(&resource).map_err(wrong)?;
            }
            answers.push(Answer::One(Box::new(resource)));
        }
    }
    let text = format.render(&answers, false, &Settings::default())?;
    context.print(&text)?;
    if format == Format::Json { context.print("\n") } else { Ok(()) }
}

/// Appends the objects of a document: itself, the items of a list object, or the items of a bare list.
fn flatten(value: Value, objects: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, objects)),
        Value::Object(mut fields) => {
            let is_list =
                fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
            match fields.remove("items") {
                Some(Value::Array(items)) if is_list => {
                    items.into_iter().for_each(|item| flatten(item, objects));
                }
                Some(other) => {
                    fields.insert("items".to_owned(), other);
                    objects.push(Value::Object(fields));
                }
                None => objects.push(Value::Object(fields)),
            }
        }
        other => objects.push(other),
    }
}

fn validate(resource: &Resource) -> std::result::Result<(), String> {
    let mut checked = resource.clone();
    checked.set_defaults();
    // A Kubernetes policy keeps its name, whose prefix is reserved for Kubernetes.
    checked.validate().map_err(|errors| format!("the converted object is not valid: {errors}"))
}

/// The object in the current version, and the list of what was left out.
fn converted(object: &Value) -> std::result::Result<(Resource, Vec<String>), String> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let unknown = || format!("unknown resource type ({kind}) and/or version ({version})");
    match version {
        API_VERSION => {
            let kind = Kind::from_name(kind)
                .filter(|kind| crate::kinds::entry_of(*kind).is_some())
                .ok_or_else(unknown)?;
            let resource = Resource::from_value(kind, object.clone()).map_err(|error| error.to_string())?;
            Ok((resource, Vec::new()))
        }
        "networking.k8s.io/v1" | "extensions/v1beta1" if kind == "NetworkPolicy" => kubernetes_policy(object),
        "v1" => {
            let (kind, value) = v1::convert(kind, object)?.ok_or_else(unknown)?;
            let resource = Resource::from_value(kind, value).map_err(|error| error.to_string())?;
            Ok((resource, Vec::new()))
        }
        _ => Err(unknown()),
    }
}

fn kubernetes_policy(object: &Value) -> std::result::Result<(Resource, Vec<String>), String> {
    let policy = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let (policy, problems) = explain::strict_kubernetes_policy(policy).map_err(|error| error.to_string())?;
    let namespace = if policy.metadata.namespace.is_empty() { "default" } else { &policy.metadata.namespace };
    let name = format!("{KUBERNETES_POLICY}{}", policy.metadata.name);
    let result = NetworkPolicy::new(namespace, &name, policy.spec.0.clone());
    Ok((result.into(), problems))
}
