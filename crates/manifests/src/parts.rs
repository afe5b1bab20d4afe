//! The building blocks of workloads: variables, mounts, volumes, probes, containers, and rules of roles.

use crate::options::Options;
use serde_json::{Map, Value, json};

/// The source of a variable's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A fixed value.
    Text(String),
    /// A key of a config map.
    Config {
        /// The config map.
        map: &'static str,
        /// Its key.
        key: &'static str,
    },
    /// A field of the pod.
    Field(&'static str),
}

/// A variable of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub source: Source,
}

/// A variable with this value.
pub(crate) fn text(name: &str, value: impl Into<String>) -> Variable {
    Variable { name: name.to_owned(), source: Source::Text(value.into()) }
}

/// A variable with the value of a key of a config map.
pub(crate) fn config(name: &str, map: &'static str, key: &'static str) -> Variable {
    Variable { name: name.to_owned(), source: Source::Config { map, key } }
}

/// A variable with the value of a field of the pod.
pub(crate) fn field(name: &str, path: &'static str) -> Variable {
    Variable { name: name.to_owned(), source: Source::Field(path) }
}

impl Variable {
    pub(crate) fn value(&self) -> Value {
        match &self.source {
            Source::Text(text) => json!({"name": self.name, "value": text}),
            Source::Config { map, key } => {
                json!({"name": self.name, "valueFrom": {"configMapKeyRef": {"name": map, "key": key}}})
            }
            Source::Field(path) => {
                json!({"name": self.name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
            }
        }
    }
}

/// Adds the user's variables to ours: a variable of the same name is replaced in place.
pub(crate) fn with_extra(mut variables: Vec<Variable>, extra: &[(String, String)]) -> Vec<Variable> {
    for (name, value) in extra {
        let wanted = text(name, value.clone());
        match variables.iter_mut().find(|variable| variable.name == *name) {
            Some(variable) => *variable = wanted,
            None => variables.push(wanted),
        }
    }
    variables
}

/// The mount of a volume in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The volume.
    pub volume: &'static str,
    /// The mount path.
    pub path: &'static str,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Whether mounts made inside propagate to the host.
    pub is_shared: bool,
}

/// A mount to read and write.
pub(crate) const fn mount(volume: &'static str, path: &'static str) -> Mount {
    Mount { volume, path, read_only: false, is_shared: false }
}

/// A mount to read.
pub(crate) const fn read_only(volume: &'static str, path: &'static str) -> Mount {
    Mount { volume, path, read_only: true, is_shared: false }
}

/// A mount whose inner mounts propagate to the host.
pub(crate) const fn shared(volume: &'static str, path: &'static str) -> Mount {
    Mount { volume, path, read_only: false, is_shared: true }
}

impl Mount {
    pub(crate) fn value(self) -> Value {
        let mut value = json!({"name": self.volume, "mountPath": self.path});
        if self.read_only {
            value["readOnly"] = json!(true);
        }
        if self.is_shared {
            value["mountPropagation"] = json!("Bidirectional");
        }
        value
    }
}

/// A path of the host as a volume; with an empty kind, its type is not checked.
pub(crate) fn host_path(name: &str, path: &str, kind: &str) -> Value {
    let mut source = json!({"path": path});
    if !kind.is_empty() {
        source["type"] = json!(kind);
    }
    json!({"name": name, "hostPath": source})
}

/// How a container's health is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// By a program in the container.
    Program(&'static [&'static str]),
    /// By HTTP from the node.
    Http {
        /// The path.
        path: &'static str,
        /// The port.
        port: u16,
    },
}

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The check.
    pub asks: Asks,
    /// Seconds between two checks.
    pub period: u32,
    /// Seconds before the first check; 0 for none.
    pub delay: u32,
    /// Failures that count; 0 for the default.
    pub failures: u32,
    /// Seconds to wait for an answer; 0 for the default.
    pub timeout: u32,
}

impl Probe {
    fn value(self) -> Value {
        let mut value = match self.asks {
            Asks::Program(command) => json!({"exec": {"command": command}}),
            Asks::Http { path, port } => {
                json!({"httpGet": {"path": path, "port": port, "host": "localhost"}})
            }
        };
        value["periodSeconds"] = json!(self.period);
        for (name, number) in [
            ("initialDelaySeconds", self.delay),
            ("failureThreshold", self.failures),
            ("timeoutSeconds", self.timeout),
        ] {
            if number > 0 {
                value[name] = json!(number);
            }
        }
        value
    }
}

/// A container.
#[derive(Clone, Debug, Default)]
pub struct Container {
    /// Its name.
    pub name: &'static str,
    /// The whole reference of its image.
    pub image: String,
    /// The command; empty for the image's default.
    pub command: Vec<&'static str>,
    /// Variables.
    pub variables: Vec<Variable>,
    /// Whether the address of the API may come from the config map `kubernetes-services-endpoint`.
    pub takes_endpoint: bool,
    /// Volumes.
    pub mounts: Vec<Mount>,
    /// Whether it runs privileged on the host.
    pub is_privileged: bool,
    /// Resource requests, such as `cpu` and `250m`.
    pub requests: Vec<(&'static str, String)>,
    /// The liveness probe.
    pub liveness: Option<Probe>,
    /// The readiness probe.
    pub readiness: Option<Probe>,
    /// Further fields of the object.
    pub more: Map<String, Value>,
}

impl Container {
    /// Builds the object.
    #[must_use]
    pub fn value(&self, options: &Options) -> Value {
        let mut value = json!({
            "name": self.name,
            "image": self.image,
            "imagePullPolicy": options.pull_policy,
        });
        if !self.command.is_empty() {
            value["command"] = json!(self.command);
        }
        if self.takes_endpoint {
            value["envFrom"] =
                json!([{"configMapRef": {"name": "kubernetes-services-endpoint", "optional": true}}]);
        }
        if !self.variables.is_empty() {
            value["env"] = self.variables.iter().map(Variable::value).collect();
        }
        if !self.mounts.is_empty() {
            value["volumeMounts"] = self.mounts.iter().map(|mount| mount.value()).collect();
        }
        if self.is_privileged {
            value["securityContext"] = json!({"privileged": true});
        }
        if !self.requests.is_empty() {
            let requests: Map<String, Value> =
                self.requests.iter().map(|(name, amount)| ((*name).to_owned(), json!(amount))).collect();
            value["resources"] = json!({"requests": requests});
        }
        for (name, probe) in [("livenessProbe", self.liveness), ("readinessProbe", self.readiness)] {
            if let Some(probe) = probe {
                value[name] = probe.value();
            }
        }
        for (name, part) in &self.more {
            value[name] = part.clone();
        }
        value
    }
}

/// Adds the secrets for images to a pod.
pub(crate) fn pull_secrets(pod: &mut Value, options: &Options) {
    if !options.pull_secrets.is_empty() {
        pod["imagePullSecrets"] = options.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    }
}

/// A pod of a deployment, which may also run on control planes.
pub(crate) fn deployed_pod(account: &str, container: &Value, options: &Options) -> Value {
    let mut pod = json!({
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "serviceAccountName": account,
        "containers": [container],
    });
    pull_secrets(&mut pod, options);
    pod
}

/// The security context of a container that only reads files and serves a port.
pub(crate) fn unprivileged() -> Value {
    json!({
        "runAsUser": 10001, "runAsGroup": 10001, "runAsNonRoot": true, "privileged": false,
        "allowPrivilegeEscalation": false, "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    })
}

/// A rule of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API groups; the empty one is Kubernetes' own.
    pub groups: &'static [&'static str],
    /// The resources.
    pub resources: &'static [&'static str],
    /// The allowed verbs.
    pub verbs: &'static [&'static str],
    /// The allowed names; empty for all.
    pub names: &'static [&'static str],
}

impl Rule {
    pub(crate) fn value(self) -> Value {
        let mut value = json!({"apiGroups": self.groups, "resources": self.resources, "verbs": self.verbs});
        if !self.names.is_empty() {
            value["resourceNames"] = json!(self.names);
        }
        value
    }
}
