//! All objects of an installation, in the order in which they are applied, and as text.

use crate::options::{Like, Options};
use crate::{apiserver, config, controllers, flows, node, roles, typha, webhooks};
use api::yaml;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// One object, with a sentence that describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its purpose; empty if its name is enough.
    pub about: &'static str,
    /// The object.
    pub value: Value,
}

impl Object {
    pub(crate) fn new(about: &'static str, value: Value) -> Self {
        Self { about, value }
    }

    /// An object that needs no description.
    pub(crate) fn plain(value: Value) -> Self {
        Self::new("", value)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The containers of its pods, including init containers.
    pub fn containers(&self) -> impl Iterator<Item = &Value> {
        ["initContainers", "containers"]
            .into_iter()
            .filter_map(|list| self.value.pointer(&format!("/spec/template/spec/{list}"))?.as_array())
            .flatten()
    }
}

/// All objects: definitions first, then what others refer to, then workloads.
#[must_use]
pub fn all(options: &Options) -> Vec<Object> {
    let mut objects = Vec::new();
    if options.crds {
        let definitions = if options.v3_definitions { api::crds::all_v3() } else { api::crds::all() };
        objects.extend(definitions.into_iter().map(Object::plain));
    }
    objects.extend(without_crds(options));
    objects
}

/// All objects except the definitions.
#[must_use]
pub fn without_crds(options: &Options) -> Vec<Object> {
    let mut objects = roles::objects(options);
    if options.like == Like::CalicoEtcd {
        objects.push(config::etcd_secret(options));
    }
    objects.push(config::config_map(options));
    objects.extend(config::endpoint(options));
    if options.typha {
        objects.extend(typha::objects(options));
    }
    if let (true, Some(address)) = (options.goldmane, &options.goldmane_address) {
        objects.extend(flows::goldmane(options, address));
        if options.whisker {
            objects.extend(flows::whisker(options, address));
        }
    }
    objects.push(node::daemon_set(options));
    objects.extend(controllers::objects(options));
    if let (true, Some(authority)) = (options.apiserver, &options.apiserver_authority) {
        objects.extend(apiserver::objects(options, authority));
    }
    if let (true, Some(authority)) = (options.v3_definitions, &options.webhooks_authority) {
        objects.extend(webhooks::objects(options, authority));
    }
    objects
}

/// Objects as a stream of YAML documents under a heading; the same bytes each time.
#[must_use]
pub fn to_yaml(heading: &str, objects: &[Object]) -> String {
    let mut text = String::new();
    for line in heading.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# {line}");
    }
    for object in objects {
        text.push_str("---\n");
        if !object.about.is_empty() {
            let _ = writeln!(text, "# {}", object.about);
        }
        text.push_str(&yaml::to_string(&object.value));
    }
    text
}

/// The heading of a generated manifest.
#[must_use]
pub fn heading(options: &Options) -> String {
    format!(
        "Made by `tortie manifests --like {}`. Apply with: kubectl apply --server-side -f FILE\n\
         Names are those of Calico's {}.yaml: going from one to the other is a change of images.",
        options.like.name(),
        options.like.name()
    )
}

/// The images that objects name.
#[must_use]
pub fn images(objects: &[Object]) -> BTreeSet<String> {
    let containers = objects.iter().flat_map(Object::containers);
    containers.filter_map(|container| container["image"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
