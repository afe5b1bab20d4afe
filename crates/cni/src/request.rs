//! A request of the runtime: the command, the attachment, the configuration. Checked like in the protocol's own
//! library.

use crate::config::NetConf;
use crate::error::{CniError, Result, code};
pub(crate) use cni_protocol::Command;
pub use cni_protocol::Environment;
use cni_protocol::args::CniArgs;
use cni_protocol::{Call, CniVersion};
use netlink::namespace::{Namespace, NamespaceError};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Whether a variable matters for the plugin's work, and so is passed along with a request.
#[must_use]
pub(crate) fn is_passed(name: &str) -> bool {
    const FAMILIES: [&str; 4] = ["CNI_", "ETCD_", "CALICO_", "K8S_"];
    const SINGLE: [&str; 5] =
        ["PATH", "FELIX_INTERFACEPREFIX", "DATASTORE_TYPE", "KUBECONFIG", "EMBEDDED_PATH"];
    SINGLE.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Whether a variable may hold a secret.
#[must_use]
pub(crate) fn is_secret(name: &str) -> bool {
    ["PASSWORD", "TOKEN", "INLINE"].iter().any(|part| name.contains(part)) || name.ends_with("_KEY")
}

/// One call of the runtime.
#[derive(Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The container's id.
    pub container_id: String,
    /// The path of its network namespace; empty when there is none (or no longer one).
    pub netns: String,
    /// The namespace, if it was opened by the sender of the request.
    pub netns_file: Option<OwnedFd>,
    /// Whether the path means the same to this process as to the runtime. In an agent it may refer to another
    /// namespace.
    pub opens_path: bool,
    /// The interface inside the container.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// The folders of plugins.
    pub path: Vec<PathBuf>,
    /// All variables, for plugins that we delegate to and for the client's settings.
    pub environment: Environment,
    /// The configuration as received.
    pub document: Value,
    /// The parsed configuration.
    pub conf: NetConf,
    /// Its protocol version.
    pub version: CniVersion,
}

impl Request {
    /// Reads a call from its variables and standard input.
    ///
    /// # Errors
    /// When something is missing or wrong, with the protocol's codes.
    pub fn read(environment: &Environment, stdin: &[u8]) -> Result<Self> {
        let call = Call::read(environment, stdin)?;
        let conf = match call.command {
            Command::Version => NetConf::default(),
            _ => NetConf::parse(&call.document)?,
        };
        Ok(Self {
            command: call.command,
            container_id: call.container_id,
            netns: call.netns,
            netns_file: None,
            opens_path: true,
            ifname: call.ifname,
            args: CniArgs::parse(&call.args)?,
            path: call.path,
            environment: environment.clone(),
            document: call.document,
            conf,
            version: call.version,
        })
    }

    /// The container's network namespace; `None` when it is gone or was not named.
    ///
    /// # Errors
    /// When it exists but cannot be opened.
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

    /// The container's network namespace, which must exist and must not be the host's.
    ///
    /// # Errors
    /// When it does not exist, or is the host's.
    pub fn needed_namespace(&self) -> Result<Namespace> {
        let namespace = self.namespace()?.ok_or_else(|| {
            CniError::new(code::INVALID_NAMESPACE, format!("no network namespace at {}", self.netns))
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

    /// The container's network namespace if something may be removed from it: `None` when it is gone, was not named, or
    /// turns out to be the host's. A path that contains a process id refers to another process once that id is used
    /// again; the container's own namespace is gone then, with everything in it.
    ///
    /// # Errors
    /// When it exists but cannot be opened.
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

#[cfg(test)]
mod tests {
    use super::{Command, Environment, Request};

    fn read(variables: &[(&str, &str)], stdin: &[u8]) -> super::Result<Request> {
        let attachment = [
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/var/run/netns/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let all = attachment.iter().chain(variables);
        let environment: Environment =
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Request::read(&environment, stdin)
    }

    const GOOD: &[u8] = br#"{"name":"net","cniVersion":"1.0.0"}"#;

    #[test]
    fn a_whole_request() {
        let request = read(&[("CNI_COMMAND", "ADD"), ("CNI_ARGS", "K8S_POD_NAME=web")], GOOD).unwrap();
        assert_eq!((request.command, request.conf.name.as_str()), (Command::Add, "net"));
        assert_eq!(request.args.pod_name, "web");
        assert_eq!(read(&[("CNI_COMMAND", "VERSION")], b"").unwrap().command, Command::Version);
    }

    #[test]
    fn mistakes_have_the_protocols_codes() {
        let error = read(&[("CNI_COMMAND", "ADD"), ("CNI_ARGS", "K=V=W")], GOOD).unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (4, "ARGS: invalid pair \"K=V=W\""));
        let error = read(&[("CNI_COMMAND", "ADD")], b"{").unwrap_err();
        assert_eq!(error.code, 6, "{error}");
    }
}
