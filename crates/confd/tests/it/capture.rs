//! One situation of Calico's confd: its objects, and the files that it wrote.
//!
//! A capture is one text of many files: each begins with a line `-- NAME --`.

use anyhow::{Context as _, Result, bail};
use api::document::{Checks, read};
use bgp::{BgpState, LocalPeer, ObjectName, Password, Settings, service, slice};
use model::{Key, ResourceKey, Value, decode};
use std::collections::BTreeMap;
use std::path::Path;

/// A situation.
pub(crate) struct Capture {
    pub(crate) name: String,
    files: BTreeMap<String, String>,
}

/// One of its objects, or another input of the state.
pub(crate) enum Fact {
    Resource(ResourceKey, Box<api::Resource>),
    Affinity(model::BlockAffinityKey, model::BlockAffinity),
    Service(ObjectName, bgp::Service),
    Slice(ObjectName, bgp::Slice),
    Secret(String, BTreeMap<String, Password>),
    LocalPeer(String, LocalPeer),
}

impl Fact {
    /// Sets it, or removes it.
    pub(crate) fn apply(&self, state: &mut BgpState, present: bool) {
        match self {
            Self::Resource(key, resource) => {
                state.set_resource(key, present.then_some(resource));
            }
            Self::Affinity(key, affinity) => state.set_affinity(key, present.then_some(affinity)),
            Self::Service(name, service) => state.set_service(name, present.then(|| service.clone())),
            Self::Slice(name, slice) => state.set_slice(name, present.then(|| slice.clone())),
            Self::Secret(name, keys) => state.set_secret(name, present.then(|| keys.clone())),
            Self::LocalPeer(file, peer) => state.set_local_peer(file, present.then(|| peer.clone())),
        }
    }
}

impl Capture {
    /// All captures, by number.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let mut captures = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
            captures.push(Self { name, files: unpack(&std::fs::read_to_string(&path)?)? });
        }
        captures.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(captures)
    }

    /// The capture with this number.
    pub(crate) fn numbered(number: &str) -> Result<Self> {
        let mut all = Self::all()?.into_iter();
        all.find(|capture| capture.name.starts_with(number)).context("no such capture")
    }

    /// A file that Calico wrote.
    pub(crate) fn written(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(String::as_str)
    }

    fn variable(&self, name: &str) -> Option<String> {
        let env = self.files.get("env")?;
        env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    }

    /// The settings from the node's environment.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            node: self.variable("NODENAME").expect("every capture has a node name").into(),
            kubernetes_node: self.variable("CALICO_K8S_NODE_REF"),
            router_id: self.variable("CALICO_ROUTER_ID").unwrap_or_default(),
            advertise_cluster_ips: self.variable("CALICO_ADVERTISE_CLUSTER_IPS"),
            use_pod_cidr: false,
        }
    }

    /// All inputs of the capture.
    pub(crate) fn facts(&self) -> Result<Vec<Fact>> {
        let mut facts = Vec::new();
        let yaml = self.files.get("input.yaml").context("input.yaml")?;
        // A part that only contains comments is not a document.
        let yaml: String =
            yaml.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let documents = read(&self.name, yaml.as_bytes(), Checks::Structure)
            .map_err(|errors| anyhow::anyhow!("{}: {errors:?}", self.name))?;
        for document in documents {
            let name = document.resource.metadata().name.clone();
            let key = ResourceKey { kind: document.kind(), namespace: String::new(), name };
            facts.push(Fact::Resource(key, Box::new(document.resource)));
        }
        for line in self.files.get("input.kv").map_or("", |text| text).lines() {
            let (path, value) = line.split_once('\t').context("a key and a value")?;
            let key = Key::parse(path).with_context(|| format!("not a key: {path}"))?;
            match (decode(&key, value.as_bytes())?, key) {
                (Value::Resource(resource), Key::Resource(key)) => {
                    facts.push(Fact::Resource(key, Box::new(resource)));
                }
                (Value::BlockAffinity(affinity), Key::BlockAffinity(key)) => {
                    facts.push(Fact::Affinity(key, affinity));
                }
                (_, key) => bail!("what is {key:?}?"),
            }
        }
        self.kubernetes(&mut facts)?;
        for (name, text) in &self.files {
            if let Some(file) = name.strip_prefix("endpoint-status/")
                && let Some(peer) = LocalPeer::from_status(text.as_bytes()).map_err(anyhow::Error::msg)?
            {
                facts.push(Fact::LocalPeer(file.to_owned(), peer));
            }
        }
        Ok(facts)
    }

    fn kubernetes(&self, facts: &mut Vec<Fact>) -> Result<()> {
        let namespace = self.variable("NAMESPACE").unwrap_or_else(|| "kube-system".to_owned());
        for document in self.files.get("kube.yaml").map_or("", |text| text).split("\n---\n") {
            if document.trim().is_empty() {
                continue;
            }
            let object: serde_json::Value = serde_json::from_str(document)?;
            let text =
                |pointer: &str| object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default();
            let name = ObjectName {
                namespace: text("/metadata/namespace").to_owned(),
                name: text("/metadata/name").to_owned(),
            };
            match text("/kind") {
                "Service" => {
                    let object: api::kubernetes::service::Service = serde_json::from_str(document)?;
                    facts.push(Fact::Service(name, service(&object.spec, &object.status)));
                }
                "EndpointSlice" => {
                    let object = api::kubernetes::service::EndpointSlice::from_json(document.as_bytes())?;
                    let slice = slice(&object.metadata, &object.content).context("a slice of a service")?;
                    facts.push(Fact::Slice(name, slice));
                }
                "Secret" if name.namespace == namespace => {
                    let data = object.pointer("/data").and_then(|data| data.as_object()).context("data")?;
                    let mut keys = BTreeMap::new();
                    for (key, value) in data {
                        let value = value.as_str().context("text")?;
                        let bytes = data_encoding::BASE64.decode(value.as_bytes())?;
                        keys.insert(key.clone(), Password::new(String::from_utf8(bytes)?));
                    }
                    facts.push(Fact::Secret(name.name, keys));
                }
                "Secret" => {}
                kind => bail!("what is a {kind}?"),
            }
        }
        Ok(())
    }

    /// The state after all inputs.
    pub(crate) fn state(&self) -> Result<BgpState> {
        let mut state = BgpState::new(self.settings());
        for fact in self.facts()? {
            fact.apply(&mut state, true);
        }
        Ok(state)
    }
}

fn unpack(text: &str) -> Result<BTreeMap<String, String>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut current = None;
    for line in text.split_inclusive('\n') {
        if let Some(name) = line.strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --\n")) {
            current = Some(files.entry(name.to_owned()).or_default());
        } else {
            current.as_mut().context("text before the first file")?.push_str(line);
        }
    }
    Ok(files)
}
