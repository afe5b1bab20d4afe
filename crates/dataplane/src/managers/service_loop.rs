//! Service ranges that this host announces: packets to addresses in them that no service has must not be sent back to
//! the router they came from.

use super::{Manager, News, World};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::GlobalBgpConfig;
use rules::tree::Table;
use std::time::Instant;

/// The ranges.
#[derive(Debug)]
pub(crate) struct ServiceLoop {
    ranges: Vec<IpNet>,
    changed: bool,
}

impl Default for ServiceLoop {
    fn default() -> Self {
        Self { ranges: Vec::new(), changed: true }
    }
}

impl ServiceLoop {
    fn update(&mut self, config: &GlobalBgpConfig) {
        let texts = config
            .service_cluster_cidrs
            .iter()
            .chain(&config.service_external_cidrs)
            .chain(&config.service_loadbalancer_cidrs);
        let mut ranges: Vec<IpNet> = Vec::new();
        for text in texts {
            match text
                .parse::<IpNet>()
                .or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()))
            {
                Ok(net) if !ranges.contains(&net) => ranges.push(net),
                Ok(_) => {}
                Err(error) => tracing::error!(range = text, %error, "cannot parse a service range"),
            }
        }
        self.changed |= ranges != self.ranges;
        self.ranges = ranges;
    }
}

impl Manager for ServiceLoop {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        if let News::Bgp(config) = news {
            self.update(config);
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if std::mem::take(&mut self.changed) {
            for one in &mut desired.versions {
                let chain = world.renderer.service_loop_chain(&self.ranges, one.version);
                one.rules.define(Table::Filter, chain);
            }
        }
    }
}
