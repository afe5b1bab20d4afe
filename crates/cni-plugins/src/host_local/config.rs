//! The configuration of `host-local`. Ranges come from three places, in this order: the runtime, the single old-style
//! range, the list.

use super::ranges::{Range, RangeSet};
use crate::frame::{configuration, failure};
use cni_protocol::Call;
use cni_protocol::args::CniArgs;
use cni_protocol::error::Result;
use cni_protocol::result::Route;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::PathBuf;

const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// The checked configuration.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) ranges: Vec<RangeSet>,
    /// Addresses that were requested explicitly.
    pub(super) requested: Vec<IpAddr>,
    pub(super) routes: Vec<Route>,
    pub(super) resolv_conf: String,
    pub(super) data_dir: PathBuf,
}

#[derive(Deserialize)]
struct Document {
    ipam: Option<Ipam>,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Runtime,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Deserialize)]
struct Ipam {
    #[serde(flatten)]
    single: RangeDocument,
    #[serde(default)]
    routes: Option<Vec<Route>>,
    #[serde(rename = "dataDir", default)]
    data_dir: String,
    #[serde(rename = "resolvConf", default)]
    resolv_conf: String,
    #[serde(default)]
    ranges: Option<Vec<Vec<RangeDocument>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Runtime {
    #[serde(rename = "ipRanges")]
    ranges: Vec<Vec<RangeDocument>>,
    ips: Vec<String>,
}

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    cni: Option<CniSection>,
}

#[derive(Deserialize)]
struct CniSection {
    #[serde(default)]
    ips: Vec<String>,
}

#[derive(Deserialize, Default)]
pub(super) struct RangeDocument {
    #[serde(rename = "rangeStart")]
    pub(super) start: Option<IpAddr>,
    #[serde(rename = "rangeEnd")]
    pub(super) end: Option<IpAddr>,
    pub(super) subnet: Option<String>,
    pub(super) gateway: Option<IpAddr>,
}

impl Settings {
    /// # Errors
    /// Ranges that are missing, invalid, overlapping, or more than the version allows; invalid addresses.
    pub(super) fn read(call: &Call) -> Result<Self> {
        let document: Document = configuration(call)?;
        let ipam = document.ipam.ok_or_else(|| failure("IPAM config missing 'ipam' key"))?;
        let mut requested: Vec<IpAddr> = CniArgs::parse(&call.args)?.ip.into_iter().collect();
        let section = document.args.and_then(|args| args.cni).map(|section| section.ips);
        for text in section.into_iter().flatten().chain(document.runtime.ips) {
            requested.push(address(&text)?);
        }
        let mut sets = document.runtime.ranges;
        if ipam.single.subnet.is_some() {
            sets.push(vec![ipam.single]);
        }
        sets.extend(ipam.ranges.into_iter().flatten());
        if sets.is_empty() {
            return Err(failure("no IP ranges specified"));
        }
        let mut ranges = Vec::new();
        for (number, set) in sets.into_iter().enumerate() {
            let read: Result<Vec<Range>, String> = set.into_iter().map(Range::read).collect();
            let read = read.and_then(RangeSet::new);
            ranges.push(read.map_err(|error| failure(format!("invalid range set {number}: {error}")))?);
        }
        check_sets(&ranges, call)?;
        let data_dir = if ipam.data_dir.is_empty() { DEFAULT_DATA_DIR } else { &ipam.data_dir };
        Ok(Self {
            ranges,
            requested,
            routes: ipam.routes.unwrap_or_default(),
            resolv_conf: ipam.resolv_conf,
            data_dir: data_dir.into(),
        })
    }
}

fn check_sets(sets: &[RangeSet], call: &Call) -> Result<()> {
    let of_family = |v4: bool| sets.iter().filter(|set| set.is_ipv4() == v4).count();
    if (of_family(true) > 1 || of_family(false) > 1) && call.version.as_str() < "0.3.0" {
        let version = &call.cni_version;
        return Err(failure(format!(
            "CNI version {version} does not support more than 1 address per family"
        )));
    }
    for (number, set) in sets.iter().enumerate() {
        let behind = sets.iter().enumerate().skip(number + 1);
        if let Some((other, _)) = behind.into_iter().find(|(_, other)| set.overlaps(other)) {
            return Err(failure(format!("range set {number} overlaps with {other}")));
        }
    }
    Ok(())
}

/// A requested address; a prefix length after it has no meaning here.
fn address(text: &str) -> Result<IpAddr> {
    let bare = text.split_once('/').map_or(text, |(address, _)| address);
    bare.parse().map_err(|_| failure(format!("cannot understand ip: {text:?} is not an IP address")))
}
