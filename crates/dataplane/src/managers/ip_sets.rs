//! The sets that policy rules refer to: each IP version gets the members of its own.

use super::{Manager, News, World};
use crate::desired::Desired;
use messages::IpSetMember;
use rules::tree::IpVersion;
use std::time::Instant;

/// The calculation's sets. They are passed on, and nothing is kept.
#[derive(Debug)]
pub(crate) struct IpSets;

fn own(members: &[IpSetMember], version: IpVersion) -> Vec<IpSetMember> {
    members.iter().filter(|member| member.is_ipv6() == (version == IpVersion::V6)).copied().collect()
}

impl Manager for IpSets {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        for one in &mut desired.versions {
            match *news {
                News::Set(id, Some((set_type, members))) => {
                    one.sets.define(id, set_type, own(members, one.version));
                }
                News::Set(id, None) => one.sets.remove(id),
                News::Members(id, added, removed) => {
                    let [added, removed] = [added, removed].map(|all| own(all, one.version));
                    if !added.is_empty() || !removed.is_empty() {
                        one.sets.change(id, &added, &removed);
                    }
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, _: &mut World, _: &mut Desired) {}
}
