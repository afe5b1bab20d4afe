//! `BPFDisableGROForIfaces`: interfaces whose packets are not merged before programs see them.
//!
//! Each interface is switched once, when it is first seen. As in Calico, a user who switches the feature on again
//! prevails until Felix restarts; unlike in Calico, interfaces that appear later are included. Refusals of the kernel
//! are only logged: such an interface is slower or faster than requested, but its packets are judged all the same.

use crate::managers::Interfaces;
use felix_config::Pattern;
use messages::InterfaceName;
use netlink::ethtool::{Features, GENERIC_RECEIVE_OFFLOAD};
use std::collections::BTreeSet;

/// The configured interfaces, and those that were switched.
#[derive(Debug)]
pub(super) struct ReceiveOffload {
    pattern: Option<Pattern>,
    done: BTreeSet<u32>,
}

impl ReceiveOffload {
    pub(super) fn new(pattern: Option<Pattern>) -> Self {
        Self { pattern, done: BTreeSet::new() }
    }

    /// Interfaces that were not seen before; a reused number counts as a new interface.
    fn unseen(&mut self, interfaces: &Interfaces) -> Vec<(u32, InterfaceName)> {
        let Some(pattern) = &self.pattern else { return Vec::new() };
        let matching = interfaces.all().filter(|interface| pattern.is_match(&interface.name));
        let there = matching
            .filter_map(|interface| Some((interfaces.index(&interface.name)?, interface.name.clone())));
        let (seen, unseen): (Vec<_>, Vec<_>) = there.partition(|(index, _)| self.done.contains(index));
        self.done = seen.iter().chain(&unseen).map(|(index, _)| *index).collect();
        unseen
    }

    /// Switches the feature off where that has not been done yet.
    pub(super) fn apply(&mut self, interfaces: &Interfaces) {
        let unseen = self.unseen(interfaces);
        if unseen.is_empty() {
            return;
        }
        let mut features = match Features::open() {
            Ok(features) => features,
            Err(error) => return tracing::warn!(%error, "cannot change generic receive offload"),
        };
        for (index, interface) in unseen {
            match features.switch(index, GENERIC_RECEIVE_OFFLOAD, false) {
                Ok(()) => tracing::debug!(%interface, "generic receive offload is off"),
                Err(error) => {
                    tracing::warn!(%interface, %error, "cannot change generic receive offload");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::{Event, Link};

    fn link(index: u32, name: &str) -> Event {
        Event::Link(Link { index, name: name.to_owned(), ..Link::default() })
    }

    #[test]
    fn each_interface_is_switched_once() {
        let mut interfaces = Interfaces::default();
        let mut names = |offload: &mut ReceiveOffload, events: Vec<Event>| -> Vec<String> {
            events.iter().for_each(|event| _ = interfaces.take(event, &mut Vec::new()));
            let unseen = offload.unseen(&interfaces);
            unseen.iter().map(|(_, name)| name.to_string()).collect()
        };
        let mut nobody = ReceiveOffload::new(None);
        let mut cards = ReceiveOffload::new(Pattern::new("^eth[01]$"));
        assert_eq!(names(&mut nobody, vec![link(2, "eth0"), link(3, "eth7")]), Vec::<String>::new());
        assert_eq!(names(&mut cards, vec![]), ["eth0"]);
        assert_eq!(names(&mut cards, vec![link(4, "eth1")]), ["eth1"]);
        assert_eq!(names(&mut cards, vec![link(2, "eth0")]), Vec::<String>::new());
        let gone = Event::LinkGone(Link { index: 2, ..Link::default() });
        assert_eq!(names(&mut cards, vec![gone]), Vec::<String>::new());
        assert_eq!(names(&mut cards, vec![link(2, "eth0")]), ["eth0"]);
    }
}
