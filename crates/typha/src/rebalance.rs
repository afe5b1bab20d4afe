//! How many connections one Typha keeps, so that several share the clients.

use kube_access::KubeAccess;
use std::time::Duration;
use typha_client::discovery;

/// The bounds of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The minimum.
    pub lower: usize,
    /// The maximum.
    pub upper: usize,
}

/// The number for this many Typhas, nodes and types of clients: an equal share as if one Typha were missing, a fifth
/// more, and one for each type. In integers, as Calico counts.
#[must_use]
pub(crate) fn most_connections(limits: Limits, typhas: usize, nodes: usize, types: usize) -> usize {
    if typhas <= 1 {
        return limits.upper;
    }
    let share = types * (1 + nodes * 120 / (typhas - 1) / 100);
    share.max(limits.lower).min(limits.upper)
}

/// How to find the other Typhas.
#[derive(Clone)]
pub struct Rebalancing {
    /// Access to the Kubernetes API.
    pub access: KubeAccess,
    /// The namespace of the service.
    pub namespace: String,
    /// The service.
    pub service: String,
    /// The name of the service's port.
    pub port_name: String,
    /// How often to count them.
    pub interval: Duration,
    /// The limits.
    pub limits: Limits,
}

impl Rebalancing {
    /// The current number. If Kubernetes does not answer, no client is dropped.
    pub async fn most(&self, types: usize) -> usize {
        let typhas = discovery::count(&self.access, &self.namespace, &self.service, &self.port_name).await;
        let nodes = discovery::count_nodes(&self.access).await;
        match (typhas, nodes) {
            (Ok(typhas), Ok(nodes)) => most_connections(self.limits, typhas, nodes, types),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(error = %daemon::causes(&error), "cannot determine this Typha's share of the connections");
                self.limits.upper
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let limits = Limits { lower: 400, upper: 10_000 };
        for (typhas, nodes, expected) in [
            (0, 1000, 10_000),
            (1, 1000, 10_000),
            (2, 50, 400),
            (2, 1000, 4804),
            (3, 1000, 2404),
            (5, 7, 400),
            (2, 100_000, 10_000),
        ] {
            assert_eq!(most_connections(limits, typhas, nodes, 4), expected, "{typhas} {nodes}");
        }
    }
}
