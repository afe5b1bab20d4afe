//! The configuration of `tuning`, from its four places: the file, `CNI_ARGS`, the runtime, and `args.cni`; later ones
//! win. Pure.

use crate::frame::{configuration, failure};
use cni_protocol::Call;
use cni_protocol::error::Result;
use netlink::Link;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

const DEFAULT_DATA_DIR: &str = "/run/cni/tuning";

/// The configuration.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) sysctls: BTreeMap<String, String>,
    pub(super) link: Wanted,
    pub(super) data_dir: PathBuf,
}

/// The desired or previous settings of an interface; absent ones stay. This is the form of the reference plugin's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mac: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) promisc: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    pub(super) tx_queue_length: Option<u32>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "dataDir", default)]
    data_dir: String,
    #[serde(default)]
    sysctl: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    link: Wanted,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Runtime,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Runtime {
    mac: String,
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    cni: Option<CniSection>,
}

#[derive(Deserialize)]
struct CniSection {
    #[serde(default)]
    sysctl: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    link: Wanted,
}

impl Settings {
    /// `input` is the configuration as received: duplicate keys can no longer be seen in the parsed document.
    pub(super) fn read(call: &Call, input: &[u8]) -> Result<Self> {
        if !input.is_empty() {
            serde_json::from_slice::<SysctlsOnce>(input).map_err(|error| failure(error.to_string()))?;
        }
        let document: Document = configuration(call)?;
        let mut link = document.link;
        let of_arguments = call.args.split(';').filter_map(|pair| pair.split_once('='));
        for (_, mac) in of_arguments.filter(|(name, mac)| *name == "MAC" && !mac.is_empty()) {
            link.mac = Some(mac.to_owned());
        }
        if !document.runtime.mac.is_empty() {
            link.mac = Some(document.runtime.mac);
        }
        let mut sysctls = document.sysctl.unwrap_or_default();
        if let Some(section) = document.args.and_then(|args| args.cni) {
            sysctls.extend(section.sysctl.into_iter().flatten());
            link = Wanted {
                mac: section.link.mac.or(link.mac),
                promisc: section.link.promisc.or(link.promisc),
                mtu: section.link.mtu.or(link.mtu),
                allmulti: section.link.allmulti.or(link.allmulti),
                tx_queue_length: section.link.tx_queue_length.or(link.tx_queue_length),
            };
        }
        // The reference plugin treats these values as absent.
        link.mac = link.mac.filter(|mac| !mac.is_empty());
        link.mtu = link.mtu.filter(|mtu| *mtu != 0);
        link.promisc = link.promisc.filter(|promisc| *promisc);
        let data_dir = if document.data_dir.is_empty() { DEFAULT_DATA_DIR } else { &document.data_dir };
        Ok(Self { sysctls, link, data_dir: data_dir.into() })
    }
}

impl Wanted {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The current values of the interface's settings that will be changed.
    pub(super) fn before(&self, link: &Link) -> Self {
        let mac = || link.mac.map(|mac| mac.to_string());
        Self {
            mac: self.mac.as_ref().and_then(|_| mac()),
            promisc: self.promisc.map(|_| link.promiscuous),
            mtu: self.mtu.map(|_| link.mtu),
            allmulti: self.allmulti.map(|_| link.all_multicast),
            tx_queue_length: self.tx_queue_length.map(|_| link.tx_queue_length),
        }
    }

    /// Describes the first setting of the interface that differs.
    pub(super) fn compare(&self, link: &Link) -> Result<(), String> {
        let name = &link.name;
        let differs = |what: &str, wanted: &dyn fmt::Display, found: &dyn fmt::Display| {
            Err(format!("Error: Tuning configured {what} of {name} is {wanted}, current value is {found}"))
        };
        let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
        if let Some(wanted) = self.mac.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(&mac)) {
            return differs("Ethernet", wanted, &mac);
        }
        let promisc = self.promisc.unwrap_or_default();
        if promisc != link.promiscuous {
            return differs("promisc", &promisc, &link.promiscuous);
        }
        if let Some(wanted) = self.mtu.filter(|wanted| *wanted != link.mtu) {
            return differs("MTU", &wanted, &link.mtu);
        }
        if let Some(wanted) = self.allmulti.filter(|wanted| *wanted != link.all_multicast) {
            return differs("all-multicast mode", &wanted, &link.all_multicast);
        }
        if let Some(wanted) = self.tx_queue_length.filter(|wanted| *wanted != link.tx_queue_length) {
            return differs("Transmit Queue Length", &wanted, &link.tx_queue_length);
        }
        Ok(())
    }
}

/// The path of a sysctl below `/proc/sys`. Keys are written with dots or slashes; `IFNAME` is replaced by the
/// interface, whose name may contain dots.
pub(super) fn sysctl_path(key: &str, ifname: &str) -> Result<String> {
    let first = key.find(['.', '/']).and_then(|place| key.get(place..=place));
    let path = if first == Some(".") { key.replace('.', "/") } else { key.to_owned() };
    let path = path.replace("IFNAME", ifname);
    let is_inside = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !is_inside || !path.starts_with("net/") {
        return Err(failure(format!("invalid net sysctl key: {key:?}")));
    }
    Ok(path)
}

/// Rejects duplicate sysctls.
struct SysctlsOnce;

impl<'de> Deserialize<'de> for SysctlsOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Part {
            #[serde(default)]
            #[expect(dead_code, reason = "reading it is the check")]
            sysctl: Option<Keys>,
        }
        struct Keys;
        struct KeysVisitor;
        impl<'de> Deserialize<'de> for Keys {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(KeysVisitor)
            }
        }
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("sysctls by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut seen = std::collections::BTreeSet::new();
                while let Some((key, _)) = map.next_entry::<String, serde::de::IgnoredAny>()? {
                    if !seen.insert(key) {
                        return Err(serde::de::Error::custom("duplicated sysctl keys are not allowed"));
                    }
                }
                Ok(Keys)
            }
        }
        Part::deserialize(deserializer).map(|_| Self)
    }
}

#[cfg(test)]
mod tests {
    use super::{SysctlsOnce, sysctl_path};

    #[test]
    fn paths_of_sysctls() {
        for (key, path) in [
            ("net.ipv4.conf.all.log_martians", "net/ipv4/conf/all/log_martians"),
            ("net/ipv4/conf/all/log_martians", "net/ipv4/conf/all/log_martians"),
            ("net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/eth0.100/arp_filter"),
            ("net/ipv4/conf/eth0.100/arp_filter", "net/ipv4/conf/eth0.100/arp_filter"),
            ("net/core/somaxconn", "net/core/somaxconn"),
        ] {
            assert_eq!(sysctl_path(key, "eth0.100").unwrap(), path);
        }
        for key in ["kernel.panic", "net/../kernel/panic", "net", "", "net//x", "/net/core/x"] {
            assert!(sysctl_path(key, "eth0").is_err(), "{key}");
        }
    }

    #[test]
    fn duplicate_sysctls_are_refused() {
        let read = |text: &str| {
            serde_json::from_str::<SysctlsOnce>(text).map(|_| ()).map_err(|error| error.to_string())
        };
        read(r#"{"sysctl": {"a": "1", "b": "2"}}"#).unwrap();
        read(r#"{"sysctl": null}"#).unwrap();
        let error = read(r#"{"sysctl": {"a": "1", "a": "2"}}"#).unwrap_err();
        assert!(error.starts_with("duplicated sysctl keys are not allowed"), "{error}");
    }
}
