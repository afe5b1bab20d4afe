//! The report of `ipam check`, which `ipam release --from-report` reads. Its form is Calico's, byte for byte: each
//! program accepts the other's reports.

use crate::failure::{Failure, Result};
use api::codec::null_as_default;
use ipam_core::Release;
use model::HandleId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Report {
    /// The version of the program that wrote it.
    pub(super) version: String,
    /// The identity of the cluster.
    #[serde(rename = "clusterGUID")]
    pub(super) cluster_guid: String,
    /// Whether the datastore was locked.
    pub(super) datastore_locked: bool,
    /// The revision of the cluster's ClusterInformation.
    #[serde(rename = "clusterInformationRevision")]
    pub(super) cluster_information_revision: String,
    /// The cluster type.
    pub(super) cluster_type: String,
    /// Allocations by address.
    #[serde(deserialize_with = "null_as_default")]
    pub(super) allocations: BTreeMap<String, Vec<Allocation>>,
    /// Handles under which no address is held.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub(super) leaked_handles: Vec<HandleInfo>,
}

/// An allocated address and its users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocation {
    /// The address.
    pub(super) ip: String,
    /// The handle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) handle: String,
    /// The block's sequence number when the address was allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence_number: Option<u64>,
    /// The pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) pod: String,
    /// The pod's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) node: String,
    /// What kind of address it is.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub(super) kind: String,
    /// When it was allocated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) creation_timestamp: String,
    /// Whether it is in use.
    pub(super) in_use: bool,
    /// Whether it is from another node's block.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) borrowed: bool,
    /// Whether it was released and is in its cooldown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) cooling_down: bool,
    /// Its users.
    pub(super) owners: Option<Vec<String>>,
    /// The holder's attributes as they are printed; not part of the report.
    #[serde(skip)]
    pub(super) attributes: String,
}

/// A handle, exactly as it was when the report was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HandleInfo {
    /// The handle.
    #[serde(rename = "ID")]
    pub(super) id: String,
    /// Its uid, where the store keeps one.
    #[serde(rename = "UID")]
    pub(super) uid: Option<String>,
    /// Its revision.
    #[serde(rename = "Revision")]
    pub(super) revision: String,
}

impl Report {
    /// The report, formatted like Go's.
    pub(super) fn to_json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self)?;
        // In JSON these characters only occur inside strings.
        Ok(text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"))
    }
}

/// Addresses and handles that are leaked according to every one of several reports.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Leaks {
    /// Addresses, with the guards of the newest report.
    pub(super) addresses: Vec<Release>,
    /// Handles that are the same in all reports.
    pub(super) handles: BTreeMap<String, HandleInfo>,
}

impl Leaks {
    /// The leaks that all reports agree on, in their order.
    pub(super) fn in_all(reports: &[Report]) -> Result<Self> {
        let mut addresses: Option<BTreeMap<&str, &Allocation>> = None;
        let mut handles: Option<BTreeMap<&str, &HandleInfo>> = None;
        for report in reports {
            let leaked = report.allocations.values().flatten().filter(|a| !a.in_use && !a.cooling_down);
            let known = addresses.take();
            let is_known = |allocation: &&Allocation| {
                known.as_ref().is_none_or(|known| known.contains_key(allocation.ip.as_str()))
            };
            addresses = Some(leaked.filter(is_known).map(|a| (a.ip.as_str(), a)).collect());
            let known = handles.take();
            let is_same = |handle: &&HandleInfo| {
                let before = known.as_ref().map(|known| known.get(handle.id.as_str()));
                before.is_none_or(|before| before.is_some_and(|before| before.revision == handle.revision))
            };
            handles =
                Some(report.leaked_handles.iter().filter(is_same).map(|h| (h.id.as_str(), h)).collect());
        }
        let release = |allocation: &Allocation| {
            let address = allocation.ip.parse().map_err(|_| {
                Failure::new(format!("the report names an invalid IP address: {}", allocation.ip))
            })?;
            let handle =
                Some(allocation.handle.as_str().into()).filter(|handle: &HandleId| !handle.is_empty());
            Ok(Release { address, handle, sequence_number: allocation.sequence_number })
        };
        let addresses = addresses.unwrap_or_default().into_values().map(release).collect::<Result<_>>()?;
        let handles = handles.unwrap_or_default().into_values();
        Ok(Self { addresses, handles: handles.map(|handle| (handle.id.clone(), handle.clone())).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(leaked: &[(&str, u64)], handles: &[(&str, &str)]) -> Report {
        let allocation = |(ip, number): &(&str, u64)| {
            let entry =
                Allocation { ip: (*ip).to_owned(), sequence_number: Some(*number), ..Allocation::default() };
            ((*ip).to_owned(), vec![entry])
        };
        let handle = |(id, revision): &(&str, &str)| HandleInfo {
            id: (*id).to_owned(),
            uid: None,
            revision: (*revision).to_owned(),
        };
        Report {
            allocations: leaked.iter().map(allocation).collect(),
            leaked_handles: handles.iter().map(handle).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn only_what_all_reports_agree_on_is_leaked() {
        let one = report(&[("10.0.0.1", 1), ("10.0.0.2", 1)], &[("a", "1"), ("b", "1"), ("c", "1")]);
        let mut two = report(&[("10.0.0.2", 2), ("10.0.0.3", 2)], &[("a", "1"), ("b", "2"), ("d", "1")]);
        let cooling = Allocation { ip: "10.0.0.1".to_owned(), cooling_down: true, ..Allocation::default() };
        two.allocations.insert("10.0.0.1".to_owned(), vec![cooling]);
        let leaks = Leaks::in_all(&[one.clone(), two]).expect("leaks");
        assert_eq!(leaks.addresses.len(), 1);
        assert_eq!(leaks.addresses[0].sequence_number, Some(2), "the newest guard counts");
        assert_eq!(leaks.handles.keys().map(String::as_str).collect::<Vec<_>>(), ["a"]);
        assert_eq!(Leaks::in_all(&[one]).expect("leaks").addresses.len(), 2);
        assert_eq!(Leaks::in_all(&[]).expect("leaks"), Leaks::default());
        let odd = report(&[("10.0.0", 1)], &[]);
        assert!(Leaks::in_all(&[odd]).is_err());
    }

    #[test]
    fn a_report_has_calicos_form() {
        let mut report = report(&[("10.0.0.1", 7)], &[("a<b", "12")]);
        report.cluster_guid = "guid".to_owned();
        let text = report.to_json().expect("JSON");
        assert_eq!(
            text,
            r#"{
  "version": "",
  "clusterGUID": "guid",
  "datastoreLocked": false,
  "clusterInformationRevision": "",
  "clusterType": "",
  "allocations": {
    "10.0.0.1": [
      {
        "ip": "10.0.0.1",
        "sequenceNumber": 7,
        "inUse": false,
        "owners": null
      }
    ]
  },
  "leakedHandles": [
    {
      "ID": "a\u003cb",
      "UID": null,
      "Revision": "12"
    }
  ]
}"#
        );
        assert_eq!(serde_json::from_str::<Report>(&text).expect("a report"), report);
        assert_eq!(
            serde_json::from_str::<Report>(r#"{"allocations":null}"#).expect("a report"),
            Report::default()
        );
    }
}
