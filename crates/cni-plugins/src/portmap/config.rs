//! The checked configuration of `portmap`, and the container's addresses in a previous result. Pure.

use crate::frame::{configuration, failure};
use cni_protocol::Call;
use cni_protocol::error::Result;
use cni_protocol::result::CniResult;
use serde::Deserialize;
use std::net::IpAddr;

/// Kubernetes uses marks 14 and 15, Calico 16 to 31.
const DEFAULT_MARK_BIT: u8 = 13;

/// The backend that writes the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Nftables,
    Iptables,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Sctp,
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Sctp => "sctp",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Sctp => 132,
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// A port of the host that is forwarded to a port of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) host_port: u16,
    pub(super) container_port: u16,
    pub(super) protocol: Protocol,
    /// The host's address, if configured; unspecified for all of one family.
    pub(super) host_ip: Option<IpAddr>,
}

impl Mapping {
    /// Whether it forwards to an address of this family.
    pub(super) fn is_for(&self, address: IpAddr) -> bool {
        self.host_ip.is_none_or(|host| host.is_ipv4() == address.is_ipv4())
    }

    /// The destination address that packets must have.
    pub(super) fn destination(&self) -> Option<IpAddr> {
        self.host_ip.filter(|host| !host.is_unspecified())
    }
}

/// The configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) network: String,
    pub(super) container: String,
    pub(super) backend: Backend,
    pub(super) mappings: Vec<Mapping>,
    /// Whether connections from localhost and from the container itself get the host's address as their source.
    pub(super) snat: bool,
    /// Whether all connections do.
    pub(super) masquerade_all: bool,
    pub(super) mark_bit: u8,
    /// A chain of another program that marks what is masqueraded.
    pub(super) external_mark_chain: Option<String>,
    pub(super) conditions_v4: Vec<String>,
    pub(super) conditions_v6: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    backend: Option<String>,
    snat: Option<bool>,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Option<Vec<String>>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Option<Vec<String>>,
    #[serde(rename = "masqAll", default)]
    masquerade_all: bool,
    #[serde(rename = "markMasqBit")]
    mark_bit: Option<i64>,
    #[serde(rename = "externalSetMarkChain")]
    external_mark_chain: Option<String>,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Runtime,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Runtime {
    #[serde(rename = "portMappings")]
    mappings: Option<Vec<MappingDocument>>,
}

#[derive(Deserialize)]
struct MappingDocument {
    #[serde(rename = "hostPort", default)]
    host_port: i64,
    #[serde(rename = "containerPort", default)]
    container_port: i64,
    #[serde(default)]
    protocol: String,
    #[serde(rename = "hostIP", default)]
    host_ip: String,
}

impl Settings {
    pub(super) fn read(call: &Call) -> Result<Self> {
        let document: Document = configuration(call)?;
        if document.mark_bit.is_some() && document.external_mark_chain.is_some() {
            return Err(failure("Cannot specify externalSetMarkChain and markMasqBit"));
        }
        let mark_bit = match document.mark_bit {
            None => DEFAULT_MARK_BIT,
            Some(bit) => u8::try_from(bit)
                .ok()
                .filter(|bit| *bit < 32)
                .ok_or_else(|| failure("MasqMarkBit must be between 0 and 31"))?,
        };
        let mappings = document.runtime.mappings.unwrap_or_default();
        let mut settings = Self {
            network: call.network.clone(),
            container: call.container_id.clone(),
            backend: Backend::Nftables,
            mappings: mappings.into_iter().map(MappingDocument::check).collect::<Result<_>>()?,
            snat: document.snat.unwrap_or(true),
            masquerade_all: document.masquerade_all,
            mark_bit,
            external_mark_chain: document.external_mark_chain,
            conditions_v4: document.conditions_v4.unwrap_or_default(),
            conditions_v6: document.conditions_v6.unwrap_or_default(),
        };
        settings.backend = settings.choose(document.backend.as_deref())?;
        Ok(settings)
    }

    /// The configured backend, or the only one that supports the other settings.
    fn choose(&self, asked: Option<&str>) -> Result<Backend> {
        let mut of_iptables = Vec::new();
        let mut of_nftables = Vec::new();
        if self.external_mark_chain.is_some() {
            of_iptables.push("externalSetMarkChain");
        }
        for (name, conditions) in
            [("conditionsV4", &self.conditions_v4), ("conditionsV6", &self.conditions_v6)]
        {
            match conditions.first().map(|first| first.starts_with(['-', '!'])) {
                Some(true) => of_iptables.push(name),
                Some(false) => of_nftables.push(name),
                None => {}
            }
        }
        let backend = match asked {
            Some("iptables") => Backend::Iptables,
            Some("nftables") => Backend::Nftables,
            Some(other) => return Err(failure(format!("unrecognized backend {other:?}"))),
            None if of_iptables.is_empty() => Backend::Nftables,
            None => Backend::Iptables,
        };
        let (word, other, wrong) = match backend {
            Backend::Iptables => ("iptables", "nftables", &of_nftables),
            Backend::Nftables => ("nftables", "iptables", &of_iptables),
        };
        if !wrong.is_empty() {
            return Err(failure(format!(
                "{word} backend was requested but configuration contains {other}-specific options [{}]",
                wrong.join(" ")
            )));
        }
        if !of_nftables.is_empty() {
            return Err(failure(format!(
                "{} in the syntax of nft cannot be used: rules are written without the program nft; \
                 write the conditions in the syntax of iptables",
                of_nftables.join(" and ")
            )));
        }
        Ok(backend)
    }
}

impl MappingDocument {
    fn check(self) -> Result<Mapping> {
        let port = |name: &str, number: i64| {
            u16::try_from(number)
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| failure(format!("Invalid {name} port number: {number}")))
        };
        let protocol = match self.protocol.to_ascii_lowercase().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            _ => return Err(failure(format!("Invalid protocol: {:?}", self.protocol))),
        };
        let host_ip = match self.host_ip.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| failure(format!("Invalid host IP: {text:?}")))?),
        };
        Ok(Mapping {
            container_port: port("container", self.container_port)?,
            host_port: port("host", self.host_port)?,
            protocol,
            host_ip,
        })
    }
}

/// The container's first address of each family, as far as the result assigns addresses to interfaces.
pub(super) fn container_addresses(result: &CniResult, ifname: &str) -> Vec<IpAddr> {
    let is_containers = |number: Option<usize>| match number.and_then(|number| result.interfaces.get(number))
    {
        Some(interface) => interface.name == ifname && !interface.sandbox.is_empty(),
        None => true,
    };
    let mut found: Vec<IpAddr> = Vec::new();
    for ip in result.ips.iter().filter(|ip| is_containers(ip.interface)) {
        let address = ip.address.addr();
        if found.iter().all(|other| other.is_ipv4() != address.is_ipv4()) {
            found.push(address);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::{Backend, Protocol, Settings, container_addresses};
    use cni_protocol::result::CniResult;
    use cni_protocol::{Call, Environment};
    use serde_json::{Value, json};

    fn read(change: Value) -> Result<Settings, String> {
        let mut document = json!({"name": "net", "cniVersion": "1.0.0"});
        if let (Some(all), Value::Object(more)) = (document.as_object_mut(), change) {
            all.extend(more);
        }
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let environment: Environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(&Call::read(&environment, document.to_string().as_bytes()).unwrap())
            .map_err(|error| error.msg)
    }

    #[test]
    fn backends_and_mistakes() {
        assert_eq!(read(json!({})).unwrap().backend, Backend::Nftables);
        assert_eq!(
            read(json!({"conditionsV4": ["!", "-s", "192.0.2.0/24"]})).unwrap().backend,
            Backend::Iptables
        );
        assert_eq!(
            read(json!({"externalSetMarkChain": "KUBE-MARK-MASQ"})).unwrap().backend,
            Backend::Iptables
        );
        for (change, message) in [
            (json!({"backend": "ipchains"}), "unrecognized backend \"ipchains\""),
            (
                json!({"backend": "nftables", "conditionsV4": ["-s", "192.0.2.0/24"]}),
                "nftables backend was requested but configuration contains iptables-specific options [conditionsV4]",
            ),
            (
                json!({"backend": "iptables", "conditionsV6": ["ip6 saddr fd00::/8"]}),
                "iptables backend was requested but configuration contains nftables-specific options [conditionsV6]",
            ),
            (json!({"conditionsV4": ["ip saddr 192.0.2.1"]}), "cannot be used"),
            (
                json!({"externalSetMarkChain": "X", "markMasqBit": 3}),
                "Cannot specify externalSetMarkChain and markMasqBit",
            ),
            (json!({"markMasqBit": 32}), "MasqMarkBit must be between 0 and 31"),
            (
                json!({"runtimeConfig": {"portMappings": [{"hostPort": 0, "containerPort": 80, "protocol": "tcp"}]}}),
                "Invalid host port number: 0",
            ),
            (
                json!({"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 70000, "protocol": "tcp"}]}}),
                "Invalid container port number: 70000",
            ),
            (
                json!({"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "ipx"}]}}),
                "Invalid protocol: \"ipx\"",
            ),
        ] {
            let error = read(change).unwrap_err();
            assert!(error.contains(message), "{error}, not {message}");
        }
    }

    /// Letter by letter what containerd 1.6 passes.
    #[test]
    fn names_as_containerd_writes_them() {
        let given = json!({"runtimeConfig": {"portMappings": [
            {"HostPort": 30080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": ""}]}});
        let mappings = read(given).unwrap().mappings;
        let shown: Vec<(u16, u16, Protocol)> =
            mappings.iter().map(|it| (it.host_port, it.container_port, it.protocol)).collect();
        assert_eq!(shown, [(30080, 80, Protocol::Tcp)]);
    }

    #[test]
    fn only_addresses_of_the_containers_interface() {
        let result = CniResult::parse(&json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cali1"}, {"name": "eth0", "sandbox": "/x"}, {"name": "net1", "sandbox": "/x"}],
            "ips": [
                {"address": "10.9.0.1/32", "interface": 0}, {"address": "10.0.0.2/32", "interface": 1},
                {"address": "10.0.0.3/32", "interface": 1}, {"address": "fd00::3/128", "interface": 2},
                {"address": "fd00::2/128"}
            ],
        }))
        .unwrap();
        let shown: Vec<String> =
            container_addresses(&result, "eth0").iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.2", "fd00::2"]);
    }
}
