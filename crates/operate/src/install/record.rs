//! The record of an installation in the cluster itself: options and objects, as a readable config map.

use crate::cluster::{Reference, Target};
use anyhow::{Context as _, Result};
use manifests::{Like, NAMESPACE, Object, Options};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The name of the config map.
const NAME: &str = "tortie-install";

/// The record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The manifest.
    pub like: Like,
    /// The registry of images.
    pub registry: String,
    /// The tag of images.
    pub tag: String,
    /// The settings, in the order in which they were given.
    pub settings: Vec<(String, String)>,
    /// The objects, without definitions.
    pub objects: BTreeSet<Reference>,
}

impl Record {
    /// The record of an installation.
    #[must_use]
    pub fn new(options: &Options, settings: &[(String, String)], objects: &[Object]) -> Self {
        let references = objects
            .iter()
            .filter(|object| object.kind() != "CustomResourceDefinition")
            .map(|object| Reference::of(&object.value));
        Self {
            like: options.like,
            registry: options.registry.clone(),
            tag: options.tag.clone(),
            settings: settings.to_vec(),
            objects: references.collect(),
        }
    }

    /// The reference of its config map.
    #[must_use]
    pub fn reference() -> Reference {
        Reference::new("ConfigMap", NAMESPACE, NAME)
    }

    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or contains values that this version does not know.
    pub async fn read(target: &Target) -> Result<Option<Self>> {
        let Some(object) = target.get(&Self::reference()).await? else { return Ok(None) };
        Self::parse(&object).map(Some)
    }

    fn parse(object: &Value) -> Result<Self> {
        let text = |key: &str| object["data"][key].as_str().unwrap_or_default();
        let like = Like::from_name(text("like")).with_context(|| {
            format!("the config map {NAME} says like: {}, which this version does not know", text("like"))
        })?;
        let settings = text("settings")
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let objects = text("objects").lines().filter_map(|line| {
            let (kind, rest) = line.split_once(' ')?;
            let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
            Some(Reference::new(kind, namespace, name))
        });
        Ok(Self {
            like,
            registry: text("registry").to_owned(),
            tag: text("tag").to_owned(),
            settings: settings.collect(),
            objects: objects.collect(),
        })
    }

    /// Builds the config map.
    #[must_use]
    pub fn object(&self) -> Value {
        let lines = |list: Vec<String>| list.join("\n");
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {
                "like": self.like.name(),
                "registry": self.registry,
                "tag": self.tag,
                "settings": lines(self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect()),
                "objects": lines(self.objects.iter().map(ToString::to_string).collect()),
            },
        })
    }

    /// The objects that the next version no longer has.
    #[must_use]
    pub fn no_longer_in(&self, next: &Self) -> Vec<Reference> {
        self.objects.difference(&next.objects).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back() {
        let mut options = Options::new(Like::CalicoTypha, "registry.example.org/net", "v2");
        options.crds = false;
        let settings = [("mtu".to_owned(), "1400".to_owned()), ("node.env.A".to_owned(), "b=c".to_owned())];
        let record = Record::new(&options, &settings, &manifests::all(&options));
        assert_eq!(Record::parse(&record.object()).unwrap(), record);
        let mut smaller = options.clone();
        smaller.typha = false;
        let next = Record::new(&smaller, &settings, &manifests::all(&smaller));
        let gone: Vec<String> = record.no_longer_in(&next).iter().map(ToString::to_string).collect();
        assert_eq!(
            gone,
            [
                "Deployment kube-system/calico-typha",
                "PodDisruptionBudget kube-system/calico-typha",
                "Service kube-system/calico-typha",
            ]
        );
        assert!(Record::parse(&json!({"data": {"like": "cilium"}})).is_err());
    }
}
