//! Ranges of services that this host announces: packets to addresses there that no service has must not be sent back to the
//! router they came from.

use super::Plane;
use ipnet::IpNet;
use messages::GlobalBgpConfig;
use rules::Renderer;
use rules::tree::Table;

/// The ranges.
#[derive(Debug)]
pub struct ServiceLoop {
    ranges: Vec<IpNet>,
    changed: bool,
}

impl Default for ServiceLoop {
    fn default() -> Self {
        Self { ranges: Vec::new(), changed: true }
    }
}

impl ServiceLoop {
    /// The settings of BGP changed.
    pub fn update(&mut self, config: &GlobalBgpConfig) {
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
                Err(error) => tracing::error!(range = text, %error, "a range of services cannot be read"),
            }
        }
        self.changed |= ranges != self.ranges;
        self.ranges = ranges;
    }

    /// Writes what changed to the drivers.
    pub fn complete(&mut self, renderer: &Renderer, planes: &mut [Plane]) {
        if std::mem::take(&mut self.changed) {
            for plane in planes {
                plane
                    .rules
                    .update_chain(Table::Filter, renderer.service_loop_chain(&self.ranges, plane.version));
            }
        }
    }
}
