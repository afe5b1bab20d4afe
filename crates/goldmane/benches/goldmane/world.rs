//! Flows of many kinds, in messages like those of nodes.

use bytes::Bytes;
use flows::{Action, EndpointType, FlowKey, Peer, PolicyHit, Reporter, Service, Trace};
use goldmane_api::convert::encode_key;
use goldmane_api::proto::{Flow, FlowUpdate};
use prost::Message as _;
use std::sync::Arc;

/// The length of a bucket in seconds.
pub(crate) const INTERVAL: i64 = 15;

/// The flows of every bucket.
pub(crate) struct Flows(Vec<Flow>);

impl Flows {
    pub(crate) fn new(keys: usize) -> Self {
        Self((0..keys).map(flow).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The flows of the bucket that begins at this time.
    pub(crate) fn of(&self, start_time: i64) -> impl Iterator<Item = FlowUpdate> + '_ {
        (0..).zip(&self.0).map(move |(number, flow): (i64, &Flow)| {
            let packets = 10 + (number * 7919 + start_time * 104_729).rem_euclid(1000);
            let flow = Flow {
                start_time,
                end_time: start_time,
                packets_in: packets,
                packets_out: packets + 3,
                bytes_in: packets * 812,
                bytes_out: packets * 77,
                num_connections_started: packets % 5,
                num_connections_completed: packets % 4,
                num_connections_live: packets % 9,
                ..flow.clone()
            };
            FlowUpdate { flow: Some(flow) }
        })
    }

    /// The same flows, encoded.
    pub(crate) fn messages(&self, start_time: i64) -> Vec<Bytes> {
        self.of(start_time).map(|update| update.encode_to_vec().into()).collect()
    }
}

fn flow(number: usize) -> Flow {
    let text = |text: String| flows::Text::from(text);
    let peer = |number: usize| Peer {
        kind: EndpointType::Workload,
        namespace: text(format!("namespace-{}", number % 50)),
        name: text(format!("deployment-{}-7d4b9c6f5d-*", number % 1000)),
    };
    let hit = |line: String| line.parse::<PolicyHit>().expect("the benchmark's own text");
    let enforced = vec![
        hit(format!("0|platform|gnp:baseline-{}|pass|3", number % 10)),
        hit(format!("1|default|np:namespace-{}/policy-{}|allow|1", number % 50, number % 300)),
    ];
    let key = FlowKey {
        source: peer(number),
        dest: peer(number / 7 + 13),
        dest_port: 8000 + i64::try_from(number % 64).unwrap_or(0),
        service: Service {
            namespace: text(format!("namespace-{}", (number / 7 + 13) % 50)),
            name: text(format!("service-{}", number / 7 % 1000)),
            port_name: text("http".to_owned()),
            port: 80,
        },
        protocol: text("tcp".to_owned()),
        reporter: [Reporter::Src, Reporter::Dst][number % 2],
        action: Action::Allow,
        trace: Arc::new(Trace { pending: enforced.clone(), enforced }),
    };
    let labels = |number: usize| -> Vec<Bytes> {
        let labels = [
            format!("app=deployment-{}", number % 1000),
            "pod-template-hash=7d4b9c6f5d".to_owned(),
            format!("team=team-{}", number % 20),
        ];
        labels.into_iter().map(Bytes::from).collect()
    };
    Flow {
        key: encode_key(&key).into(),
        source_labels: labels(number),
        dest_labels: labels(number / 7 + 13),
        ..Flow::default()
    }
}
