//! What the runtime asks: the command, the attachment, the configuration. Checked as the protocol's own library does.

use crate::args::CniArgs;
use crate::config::NetConf;
use crate::error::{CniError, Result, code};
use crate::version::CniVersion;
use netlink::namespace::{Namespace, NamespaceError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// See whether it is still attached as it was.
    Check,
    /// See whether ADD would work.
    Status,
    /// Remove what belongs to no valid attachment.
    Gc,
    /// Tell the versions.
    Version,
}

impl Command {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Add, Self::Del, Self::Check, Self::Status, Self::Gc, Self::Version]
            .into_iter()
            .find(|command| command.as_str() == word)
    }

    /// Whether it is about one attachment.
    fn has_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// The variables of a call.
pub type Environment = BTreeMap<String, String>;

/// Whether a variable means anything to the plugin's work, and so goes along with a request.
#[must_use]
pub fn is_passed(name: &str) -> bool {
    const FAMILIES: [&str; 4] = ["CNI_", "ETCD_", "CALICO_", "K8S_"];
    const SINGLE: [&str; 5] =
        ["PATH", "FELIX_INTERFACEPREFIX", "DATASTORE_TYPE", "KUBECONFIG", "EMBEDDED_PATH"];
    SINGLE.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Whether a variable may hold a secret.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    ["PASSWORD", "TOKEN", "INLINE"].iter().any(|part| name.contains(part)) || name.ends_with("_KEY")
}

/// One call of the runtime.
#[derive(Debug)]
pub struct Request {
    /// What is to be done.
    pub command: Command,
    /// The container.
    pub container_id: String,
    /// The path of its network namespace; empty when there is none (any more).
    pub netns: String,
    /// The namespace, where somebody opened it for us.
    pub netns_file: Option<OwnedFd>,
    /// Whether the path means the same to this process as to the runtime. In an agent it may be another process's.
    pub opens_path: bool,
    /// The interface inside the container.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// Where plugins are.
    pub path: Vec<PathBuf>,
    /// All variables, for plugins that we delegate to and for the client's settings.
    pub environment: Environment,
    /// The configuration as it came.
    pub document: Value,
    /// The configuration.
    pub conf: NetConf,
    /// Its protocol version.
    pub version: CniVersion,
}

impl Request {
    /// Reads a call from its variables and standard input.
    ///
    /// # Errors
    /// What is missing or wrong, with the protocol's codes.
    pub fn read(environment: &Environment, stdin: &[u8]) -> Result<Self> {
        let variable = |name: &str| environment.get(name).map_or("", String::as_str);
        let word = variable("CNI_COMMAND");
        let command = Command::from_word(word);
        let container_id = variable("CNI_CONTAINERID");
        let ifname = variable("CNI_IFNAME");
        let mut missing = Vec::new();
        if word.is_empty() {
            missing.push("CNI_COMMAND");
        }
        if let Some(command) = command.filter(|command| *command != Command::Version) {
            let attached = command.has_attachment();
            let netns_needed = matches!(command, Command::Add | Command::Check);
            for (name, needed) in [
                ("CNI_CONTAINERID", attached),
                ("CNI_NETNS", netns_needed),
                ("CNI_IFNAME", attached),
                ("CNI_PATH", true),
            ] {
                if needed && variable(name).is_empty() {
                    missing.push(name);
                }
            }
        }
        if !missing.is_empty() {
            let message = format!("required env variables [{}] missing", missing.join(","));
            return Err(CniError::new(code::INVALID_ENVIRONMENT, message));
        }
        let Some(command) = command else {
            return Err(CniError::new(code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {word}")));
        };
        if command.has_attachment() {
            check_container_id(container_id)?;
            check_interface_name(ifname)?;
        }
        let (document, conf, version) = match command {
            Command::Version => (Value::Null, NetConf::default(), CniVersion::NEWEST),
            _ => read_configuration(command, stdin)?,
        };
        Ok(Self {
            command,
            container_id: container_id.to_owned(),
            netns: variable("CNI_NETNS").to_owned(),
            netns_file: None,
            opens_path: true,
            ifname: ifname.to_owned(),
            args: CniArgs::parse(variable("CNI_ARGS"))?,
            path: std::env::split_paths(variable("CNI_PATH"))
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            environment: environment.clone(),
            document,
            conf,
            version,
        })
    }

    /// The container's network namespace; `None` when it is gone or was never given.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub fn namespace(&self) -> Result<Option<Namespace>> {
        let path = Path::new(&self.netns);
        let opened = match &self.netns_file {
            Some(file) => match file.try_clone() {
                Ok(file) => Namespace::from_file(file, path),
                Err(source) => Err(NamespaceError::Failed { path: path.to_owned(), source }),
            },
            None if self.netns.is_empty() || !self.opens_path => return Ok(None),
            None => Namespace::open(path),
        };
        match opened {
            Ok(namespace) => Ok(Some(namespace)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(CniError::wiring(error)),
        }
    }

    /// The container's network namespace, which must be there and must not be the host's.
    ///
    /// # Errors
    /// When it is not, or is.
    pub fn needed_namespace(&self) -> Result<Namespace> {
        let namespace = self.namespace()?.ok_or_else(|| {
            CniError::new(code::INVALID_NAMESPACE, format!("there is no network namespace at {}", self.netns))
                .with_details(
                    "CNI_NETNS must name the network namespace that the runtime made for the container",
                )
        })?;
        if !self.may_be_own_namespace() && is_own_namespace(&namespace) {
            return Err(CniError::new(
                code::INVALID_NAMESPACE,
                "plugin's netns and netns from CNI_NETNS should not be the same",
            ));
        }
        Ok(namespace)
    }

    /// The container's network namespace as far as something may be removed from it: `None` when it is gone, never given,
    /// or turns out to be the host's. A path by a process's number means another process once that number is used again;
    /// the container's own namespace is gone then, with everything in it.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub fn namespace_to_clear(&self) -> Result<Option<Namespace>> {
        let namespace = self.namespace()?;
        if namespace.as_ref().is_some_and(is_own_namespace) && !self.may_be_own_namespace() {
            tracing::warn!(
                netns = %self.netns,
                "CNI_NETNS is the host's own network namespace; nothing is removed from it"
            );
            return Ok(None);
        }
        Ok(namespace)
    }

    fn may_be_own_namespace(&self) -> bool {
        let word = self.environment.get("CNI_NETNS_OVERRIDE").map_or("", String::as_str);
        word == "1" || word.eq_ignore_ascii_case("true")
    }
}

fn is_own_namespace(namespace: &Namespace) -> bool {
    let Ok(own) = Namespace::current() else { return false };
    match (rustix::fs::fstat(own.file()), rustix::fs::fstat(namespace.file())) {
        (Ok(own), Ok(other)) => (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

fn read_configuration(command: Command, stdin: &[u8]) -> Result<(Value, NetConf, CniVersion)> {
    let document: Value = serde_json::from_slice(stdin).map_err(|error| {
        CniError::new(code::DECODING_FAILURE, format!("error unmarshall network config: {error}"))
    })?;
    let conf = NetConf::parse(&document)?;
    let tagged = |error: CniError| CniError { cni_version: conf.cni_version.clone(), ..error };
    if conf.name.is_empty() {
        return Err(tagged(CniError::new(code::INVALID_CONFIGURATION, "missing network name")));
    }
    check_network_name(&conf.name).map_err(tagged)?;
    let version = CniVersion::of_configuration(&conf.cni_version).map_err(tagged)?;
    let allowed = match command {
        Command::Check => version.has_check(),
        Command::Status | Command::Gc => version.has_status_and_gc(),
        Command::Add | Command::Del | Command::Version => true,
    };
    if !allowed {
        let message = format!("config version does not allow {}", command.as_str());
        return Err(tagged(CniError::new(code::INCOMPATIBLE_VERSION, message)));
    }
    Ok((document, conf, version))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '-'))
}

fn check_container_id(id: &str) -> Result<()> {
    if is_name(id) {
        return Ok(());
    }
    Err(CniError::new(code::INVALID_ENVIRONMENT, "invalid characters in containerID").with_details(id))
}

fn check_network_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let message = "invalid characters detected in the given network name. Only letters a-z, numbers 0-9, and symbols _.- are supported";
    Err(CniError::new(code::INVALID_CONFIGURATION, message).with_details(name))
}

fn check_interface_name(name: &str) -> Result<()> {
    let wrong = |message: &str, details: &str| {
        Err(CniError::new(code::INVALID_ENVIRONMENT, message).with_details(details))
    };
    if name.len() > 15 {
        return wrong("interface name is too long", "interface name should be less than 16 characters");
    }
    if name == "." || name == ".." {
        return wrong("interface name is . or ..", "");
    }
    if name.chars().any(|it| it == '/' || it == ':' || it.is_whitespace()) {
        return wrong("interface name contains / or : or whitespace characters", "");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Command, Environment, Request};

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const ADD: [(&str, &str); 5] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/var/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];

    #[test]
    fn a_whole_request() {
        let request = Request::read(&environment(&ADD), br#"{"name":"net","cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(
            (request.command, request.container_id.as_str(), request.conf.name.as_str()),
            (Command::Add, "c1", "net")
        );
        assert_eq!(request.path, ["/opt/cni/bin"].map(std::path::PathBuf::from));
        let version = Request::read(&environment(&[("CNI_COMMAND", "VERSION")]), b"").unwrap();
        assert_eq!(version.command, Command::Version);
    }

    #[test]
    fn mistakes_have_the_protocols_codes() {
        let with = |name: &str, value: &str| {
            let mut all = environment(&ADD);
            all.insert(name.to_owned(), value.to_owned());
            all
        };
        let good: &[u8] = br#"{"name":"net","cniVersion":"1.0.0"}"#;
        for (environment, stdin, code, message) in [
            (
                environment(&ADD[..2]),
                good,
                4,
                "required env variables [CNI_NETNS,CNI_IFNAME,CNI_PATH] missing",
            ),
            (environment(&[]), good, 4, "required env variables [CNI_COMMAND] missing"),
            (with("CNI_COMMAND", "FLY"), good, 4, "unknown CNI_COMMAND: FLY"),
            (with("CNI_CONTAINERID", "../x"), good, 4, "invalid characters in containerID"),
            (with("CNI_IFNAME", "a-name-of-16-chr"), good, 4, "interface name is too long"),
            (with("CNI_IFNAME", "a/b"), good, 4, "interface name contains / or : or whitespace characters"),
            (environment(&ADD), b"{", 6, "error unmarshall network config: "),
            (environment(&ADD), b"{}", 7, "missing network name"),
            (
                environment(&ADD),
                br#"{"name":"a b"}"#,
                7,
                "invalid characters detected in the given network name.",
            ),
            (environment(&ADD), br#"{"name":"a","cniVersion":"9.0.0"}"#, 1, "incompatible CNI versions"),
            (
                with("CNI_COMMAND", "CHECK"),
                br#"{"name":"a","cniVersion":"0.3.1"}"#,
                1,
                "config version does not allow CHECK",
            ),
            (with("CNI_COMMAND", "GC"), good, 1, "config version does not allow GC"),
            (with("CNI_ARGS", "K=V=W"), good, 4, "ARGS: invalid pair \"K=V=W\""),
        ] {
            let error = Request::read(&environment, stdin).unwrap_err();
            assert_eq!(error.code, code, "{error}");
            assert!(error.msg.starts_with(message), "{error}");
        }
    }
}
