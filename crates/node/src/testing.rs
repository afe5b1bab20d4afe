//! What the tests of several modules share.

use api::{Node, NodeBGPSpec};
use client::config::Environment;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// Variables from a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect())
    }
}

impl Environment for Variables {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.get(name).cloned()
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }
}

/// A stored node with these addresses.
pub(crate) fn node_with(ipv4: &str, ipv6: &str) -> Node {
    let mut node = Node::default();
    "node-a".clone_into(&mut node.metadata.name);
    let bgp = NodeBGPSpec { ipv4_address: ipv4.into(), ipv6_address: ipv6.into(), ..NodeBGPSpec::default() };
    node.spec.bgp = Some(bgp).filter(|bgp| *bgp != NodeBGPSpec::default());
    node
}
