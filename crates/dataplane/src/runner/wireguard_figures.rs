//! Figures about WireGuard's peers, read from the kernel when they are requested.

use netlink::wireguard::{Client, Device, Devices as _};
use std::sync::{Mutex, PoisonError};
use telemetry::{Figure, FigureKind, Metrics};

/// Registers figures of the peers of these devices.
pub(super) fn watch(metrics: &Metrics, host: &str, interfaces: Vec<String>) {
    let (host, client) = (host.to_owned(), Mutex::new(None::<Client>));
    metrics.source(move |figures| {
        let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.is_none() {
            *client = Client::open().ok();
        }
        let Some(open) = &mut *client else { return };
        let mut devices = Vec::new();
        for name in &interfaces {
            match open.device(name) {
                Ok(found) => devices.extend(found),
                Err(error) => {
                    tracing::debug!(%error, "cannot read figures of WireGuard");
                    *client = None;
                    return;
                }
            }
        }
        figures.extend(figures_of(&host, &devices));
    });
}

fn figures_of(host: &str, devices: &[Device]) -> Vec<Figure> {
    let figure = |name, kind, help| Figure { name, kind, help, values: Vec::new() };
    let mut meta = figure("wireguard_meta", FigureKind::Gauge, "wireguard interface and runtime metadata");
    let mut handshakes = figure(
        "wireguard_latest_handshake_seconds",
        FigureKind::Gauge,
        "wireguard interface latest handshake unix timestamp in seconds to a peer",
    );
    let mut sent = figure(
        "wireguard_bytes_sent",
        FigureKind::Counter,
        "wireguard interface outgoing bytes count to peer",
    );
    let mut received = figure(
        "wireguard_bytes_rcvd",
        FigureKind::Counter,
        "wireguard interface incoming bytes count from peer",
    );
    for device in devices {
        let key = device.public_key.map(|key| key.to_string()).unwrap_or_default();
        let labels = format!(
            "hostname=\"{host}\",iface=\"{}\",listen_port=\"{}\",public_key=\"{key}\"",
            device.name, device.port
        );
        meta.values.push((labels, 1.0));
        for (peer_key, peer) in &device.peers {
            let endpoint = peer.endpoint.map(|endpoint| endpoint.to_string()).unwrap_or_default();
            let labels = format!(
                "hostname=\"{host}\",peer_endpoint=\"{endpoint}\",peer_key=\"{peer_key}\",public_key=\"{key}\""
            );
            handshakes.values.push((labels.clone(), number(peer.last_handshake)));
            sent.values.push((labels.clone(), number(peer.sent)));
            received.values.push((labels, number(peer.received)));
        }
    }
    vec![meta, handshakes, sent, received].into_iter().filter(|figure| !figure.values.is_empty()).collect()
}

/// Exact up to 2^53, which is far more than is ever transmitted.
fn number(count: u64) -> f64 {
    let (high, low) = (count >> 32, count & u64::from(u32::MAX));
    let part = |half: u64| u32::try_from(half).map_or(f64::MAX, f64::from);
    part(high) * 4_294_967_296.0 + part(low)
}

#[cfg(test)]
mod tests {
    use super::{figures_of, number};
    use netlink::wireguard::{Device, Peer, PublicKey};

    #[test]
    fn peers_as_figures() {
        let key = |number| PublicKey::from_bytes([number; 32]).expect("a key");
        let peer = Peer {
            endpoint: Some("10.0.0.2:51820".parse().expect("an address")),
            sent: 5_000_000_000,
            received: 7,
            last_handshake: 9,
            ..Peer::default()
        };
        let device = Device {
            name: "wireguard.cali".into(),
            public_key: Some(key(1)),
            port: 51820,
            peers: [(key(2), peer)].into(),
            ..Device::default()
        };
        let figures = figures_of("node1", &[device]);
        let names: Vec<_> = figures.iter().map(|figure| (figure.name, figure.values[0].1)).collect();
        assert_eq!(
            names,
            [
                ("wireguard_meta", 1.0),
                ("wireguard_latest_handshake_seconds", 9.0),
                ("wireguard_bytes_sent", 5_000_000_000.0),
                ("wireguard_bytes_rcvd", 7.0)
            ]
        );
        let labels = format!(
            "hostname=\"node1\",peer_endpoint=\"10.0.0.2:51820\",peer_key=\"{}\",public_key=\"{}\"",
            key(2),
            key(1)
        );
        assert_eq!(figures[2].values[0].0, labels);
        assert!(figures_of("node1", &[]).is_empty());
        assert_eq!(number((1 << 53) - 1), 9_007_199_254_740_991.0);
    }
}
