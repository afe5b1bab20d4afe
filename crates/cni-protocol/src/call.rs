//! One call of a runtime: the command, the attachment, the configuration.
//!
//! Checks, codes and messages are those of the protocol's own Go library, because runtimes and users compare them.

use crate::error::{CniError, Result, code};
use crate::version::CniVersion;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The command of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// Check that it is still attached as it was.
    Check,
    /// Check that ADD would work.
    Status,
    /// Remove everything that belongs to no valid attachment.
    Gc,
    /// Report the supported versions.
    Version,
}

impl Command {
    /// The value of `CNI_COMMAND`.
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

    fn has_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

/// The environment variables of a call.
pub type Environment = BTreeMap<String, String>;

/// One call, before a plugin has interpreted its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The command.
    pub command: Command,
    /// The container's id.
    pub container_id: String,
    /// The path of its network namespace; empty when it no longer has one.
    pub netns: String,
    /// The name of the interface inside the container.
    pub ifname: String,
    /// `CNI_ARGS`, as received.
    pub args: String,
    /// The folders of plugins.
    pub path: Vec<PathBuf>,
    /// The configuration; null for VERSION.
    pub document: Value,
    /// The network's name.
    pub network: String,
    /// The configuration's version, as received.
    pub cni_version: String,
    /// The configuration's version.
    pub version: CniVersion,
}

impl Call {
    /// Reads a call from its environment and standard input.
    ///
    /// # Errors
    /// When something is missing or wrong, with the protocol's codes.
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
        let mut call = Self {
            command,
            container_id: container_id.to_owned(),
            netns: variable("CNI_NETNS").to_owned(),
            ifname: ifname.to_owned(),
            args: variable("CNI_ARGS").to_owned(),
            path: std::env::split_paths(variable("CNI_PATH"))
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            document: Value::Null,
            network: String::new(),
            cni_version: String::new(),
            version: CniVersion::NEWEST,
        };
        if command != Command::Version {
            call.read_configuration(stdin)?;
        }
        Ok(call)
    }

    fn read_configuration(&mut self, stdin: &[u8]) -> Result<()> {
        self.document = serde_json::from_slice(stdin).map_err(|error| {
            CniError::new(code::DECODING_FAILURE, format!("error unmarshall network config: {error}"))
        })?;
        let text =
            |name: &str| self.document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (network, cni_version) = (text("name"), text("cniVersion"));
        let tagged = |error: CniError| CniError { cni_version: cni_version.clone(), ..error };
        if network.is_empty() {
            return Err(tagged(CniError::new(code::INVALID_CONFIGURATION, "missing network name")));
        }
        check_network_name(&network).map_err(tagged)?;
        let version = CniVersion::of_configuration(&cni_version).map_err(tagged)?;
        let allowed = match self.command {
            Command::Check => version.has_check(),
            Command::Status | Command::Gc => version.has_status_and_gc(),
            Command::Add | Command::Del | Command::Version => true,
        };
        if !allowed {
            let message = format!("config version does not allow {}", self.command.as_str());
            return Err(tagged(CniError::new(code::INCOMPATIBLE_VERSION, message)));
        }
        (self.network, self.cni_version, self.version) = (network, cni_version, version);
        Ok(())
    }
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
    use super::{Call, Command, Environment};

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
    fn a_whole_call() {
        let call = Call::read(&environment(&ADD), br#"{"name":"net","cniVersion":"1.0.0"}"#).unwrap();
        assert_eq!(
            (call.command, call.container_id.as_str(), call.network.as_str()),
            (Command::Add, "c1", "net")
        );
        assert_eq!(call.path, ["/opt/cni/bin"].map(std::path::PathBuf::from));
        let version = Call::read(&environment(&[("CNI_COMMAND", "VERSION")]), b"").unwrap();
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
        ] {
            let error = Call::read(&environment, stdin).unwrap_err();
            assert_eq!(error.code, code, "{error}");
            assert!(error.msg.starts_with(message), "{error}");
        }
    }
}
