//! Loads the cluster that queries are about: the contents of the datastore or of a directory of manifests, with further
//! manifests on top.

use super::places::Places;
use crate::context::{ConfigFlag, Context};
use crate::datastore::tolerant_yaml;
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use crate::version_gate::Access;
use ::explain::{Cluster, ToHost};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where the cluster comes from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SourceFlags {
    /// Read manifests (Kubernetes' and Calico's) from this file or directory and those below it, not the datastore.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::AnyPath)]
    pub offline: Option<PathBuf>,
    /// Evaluate these manifests on top, as if they were applied. May be given several times.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub with: Vec<PathBuf>,
    /// The namespace of names without one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// What happens to packets from pods to their own node, where the nodes' environment sets it: Drop, Accept or Return.
    #[arg(long, value_name = "ACTION")]
    pub default_endpoint_to_host_action: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// The clusters that a query is about.
pub(crate) struct Loaded {
    /// The places of objects in files.
    pub(crate) places: Places,
    /// The cluster to explain.
    pub(crate) wanted: Cluster,
    /// The cluster without the further manifests, if there are any.
    pub(crate) stored: Option<Cluster>,
}

impl SourceFlags {
    /// Reads the cluster, and warns about problems in it.
    pub(crate) async fn load(&self, context: &mut Context) -> Result<Loaded> {
        let mut places = Places::default();
        let mut stored = match &self.offline {
            Some(path) => {
                let mut cluster = Cluster::new();
                add_files(&mut cluster, &mut places, context, path)?;
                cluster
            }
            None => {
                let client = context.connect_for(&self.config, Access::Read).await?;
                explain_source::read(&client).await.map_err(|error| Failure::from(error.source))?
            }
        };
        if let Some(name) = &self.default_endpoint_to_host_action {
            let action = ToHost::from_name(name).ok_or_else(|| {
                Failure::new(format!("'{name}' is not an action: one of Drop, Accept, Return"))
            })?;
            stored.set_endpoint_to_host_action(action);
        }
        let before = stored.clone();
        for path in &self.with {
            add_files(&mut stored, &mut places, context, path)?;
        }
        stored.complete();
        let has_more = !self.with.is_empty();
        for problem in stored.problems() {
            context.warn(&format!("Warning: {problem}"));
        }
        for note in stored.notes() {
            context.warn(&format!("Note: {note}"));
        }
        let before = has_more.then(|| {
            let mut before = before;
            before.complete();
            before
        });
        Ok(Loaded { places, wanted: stored, stored: before })
    }
}

fn add_files(cluster: &mut Cluster, places: &mut Places, context: &mut Context, path: &Path) -> Result<()> {
    let files = FileFlags { filename: vec![path.to_owned()], recursive: true, skip_empty: true };
    let mut found = false;
    for (name, text) in files.texts(context)? {
        let wrong = |reason: String| Failure::new(format!("{name}: {reason}"));
        for (document, lines) in tolerant_yaml::documents_with_lines(&text).map_err(wrong)? {
            // Directories hold other YAML beside manifests: settings of tools, values of charts.
            if !is_manifest(&document) {
                context.warn(&format!(
                    "Note: {name} contains a document without kind and apiVersion, which is skipped"
                ));
                continue;
            }
            found = true;
            places.add(&name, &document, &lines);
            cluster.add_manifest(document).map_err(|error| wrong(error.to_string()))?;
        }
    }
    if found { Ok(()) } else { Err(Failure::new(format!("no resources specified in {}", path.display()))) }
}

fn is_manifest(document: &Value) -> bool {
    match document {
        Value::Array(items) => items.iter().all(is_manifest),
        other => {
            other.get("kind").is_some_and(Value::is_string)
                && other.get("apiVersion").is_some_and(Value::is_string)
        }
    }
}
