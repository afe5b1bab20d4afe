//! `BPFProfiling` with real packets: processing times are recorded by interface and direction, but only if enabled.

use super::node::{Node, SERVICE, wait};
use super::{Config, everything};
use anyhow::{Result, ensure};
use api::EnabledOrDisabled;
use bpf::Layout as _;
use bpf::layout::network::{Profile, ProfileKey};
use std::collections::BTreeMap;

impl Node {
    /// The recorded times, summed up over processors.
    fn profiles(&self) -> Result<BTreeMap<ProfileKey, Profile>> {
        let sum = |value: &[u8]| {
            let all = value.chunks_exact(Profile::SIZE).map(Profile::read);
            all.fold(Profile::default(), |sum, one| Profile {
                time: sum.time + one.time,
                samples: sum.samples + one.samples,
            })
        };
        let all = self.map("cali_profiling2")?;
        Ok(all.iter().map(|(key, value)| (ProfileKey::read(key), sum(value))).collect())
    }
}

#[test]
fn packets_are_timed_where_configured() -> Result<()> {
    let mut node = Node::new()?;
    for is_asked in [false, true, false] {
        let bpf_profiling =
            Some(if is_asked { EnabledOrDisabled::Enabled } else { EnabledOrDisabled::Disabled });
        node.start(Config { bpf_profiling, ..Node::config() }, everything())?;
        node.wait_until_ready()?;
        let before = node.profiles()?;
        for how in ["tcp", "udp"] {
            wait(&node.pods[0], how, (SERVICE, 80), &["a", "b"])?;
        }
        let after = node.profiles()?;
        ensure!((before == after) != is_asked, "asked: {is_asked}; {before:?}, then {after:?}");
        if is_asked {
            let text = node.host.shell("ip -o link show dev cali0")?;
            let device = text.split(':').next().unwrap_or_default().trim().parse()?;
            // Packets from a workload are its egress, of new or known connections.
            for kind in [2, 3] {
                let noted = after.get(&ProfileKey { device, kind }).copied().unwrap_or_default();
                ensure!(noted.samples > 0 && noted.time / noted.samples < 1_000_000_000, "{kind}: {noted:?}");
            }
        }
        node.stop()?;
    }
    Ok(())
}
