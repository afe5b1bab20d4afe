//! A pod's traffic limits, from its annotations.
//!
//! A value outside its bounds is clamped, and a value that cannot be read counts as unset. Both are reported among the
//! problems, and neither keeps the pod from being an endpoint.

use super::quantity::parse_quantity;
use api::QoSControls;
use api::meta::StringMap;
use api::scalars::Dscp;
use api::words as names;
use std::ops::RangeInclusive;

const BANDWIDTH: RangeInclusive<i64> = 1_000..=1_000_000_000_000_000;
const BURST: RangeInclusive<i64> = 1_000..=34_359_738_360;
const PEAK_RATE: RangeInclusive<i64> = 1_010..=1_010_000_000_000_000;
const MINIMUM_BURST: RangeInclusive<i64> = 1_000..=100_000_000;
/// The limit of the kernel's limit match, for rates and bursts.
const PACKETS: RangeInclusive<i64> = 1..=10_000;
const CONNECTIONS: RangeInclusive<i64> = 1..=4_294_967_295;

const DEFAULT_BURST: i64 = 4 << 30;
const DEFAULT_PACKET_BURST: i64 = 5;

/// The limits of one direction.
#[derive(Debug, Default)]
struct Direction {
    bandwidth: i64,
    burst: i64,
    peak_rate: i64,
    minimum_burst: i64,
    packet_rate: i64,
    packet_burst: i64,
    connections: i64,
}

/// Returns the limits in the annotations, if any, and the problems.
#[must_use]
pub fn qos_controls(annotations: &StringMap) -> (Option<QoSControls>, Vec<String>) {
    let mut problems = Vec::new();
    let ingress = Direction::read(annotations, &names::INGRESS, "ingress", &mut problems);
    let egress = Direction::read(annotations, &names::EGRESS, "egress", &mut problems);
    let controls = QoSControls {
        ingress_bandwidth: ingress.bandwidth,
        ingress_burst: ingress.burst,
        ingress_peakrate: ingress.peak_rate,
        ingress_minburst: ingress.minimum_burst,
        ingress_packet_rate: ingress.packet_rate,
        ingress_packet_burst: ingress.packet_burst,
        ingress_max_connections: ingress.connections,
        egress_bandwidth: egress.bandwidth,
        egress_burst: egress.burst,
        egress_peakrate: egress.peak_rate,
        egress_minburst: egress.minimum_burst,
        egress_packet_rate: egress.packet_rate,
        egress_packet_burst: egress.packet_burst,
        egress_max_connections: egress.connections,
        dscp: annotations.get(names::DSCP).and_then(|text| dscp(text, &mut problems)),
        ..QoSControls::default()
    };
    ((controls != QoSControls::default()).then_some(controls), problems)
}

impl Direction {
    fn read(
        annotations: &StringMap,
        names: &names::QosNames,
        direction: &str,
        problems: &mut Vec<String>,
    ) -> Self {
        let mut read = |name: &str, bounds: RangeInclusive<i64>| {
            let text = annotations.get(name)?;
            Some(bounded(name, text, &bounds, problems))
        };
        // Calico's own annotation wins, even if it cannot be read.
        let kubernetes_bandwidth = read(names.kubernetes_bandwidth, BANDWIDTH).unwrap_or(0);
        let mut limits = Self {
            bandwidth: read(names.bandwidth, BANDWIDTH).unwrap_or(kubernetes_bandwidth),
            burst: read(names.burst, BURST).unwrap_or(0),
            peak_rate: read(names.peak_rate, PEAK_RATE).unwrap_or(0),
            minimum_burst: read(names.minimum_burst, MINIMUM_BURST).unwrap_or(0),
            packet_rate: read(names.packet_rate, PACKETS).unwrap_or(0),
            packet_burst: read(names.packet_burst, PACKETS).unwrap_or(0),
            connections: read(names.connections, CONNECTIONS).unwrap_or(0),
        };
        limits.drop_what_lacks_its_base(direction, problems);
        if limits.bandwidth != 0 && limits.burst == 0 {
            limits.burst = DEFAULT_BURST;
        }
        if limits.packet_rate != 0 && limits.packet_burst == 0 {
            limits.packet_burst = DEFAULT_PACKET_BURST;
        }
        limits
    }

    /// A burst has no meaning without a rate, nor a peak rate that is below the rate.
    fn drop_what_lacks_its_base(&mut self, direction: &str, problems: &mut Vec<String>) {
        if self.burst != 0 && self.bandwidth == 0 {
            problems.push(format!("{direction} burst needs an {direction} bandwidth; ignoring it"));
            self.burst = 0;
        }
        if self.peak_rate != 0 && (self.bandwidth == 0 || self.bandwidth >= self.peak_rate) {
            problems
                .push(format!("{direction} peak rate must be above the {direction} bandwidth; ignoring it"));
            self.peak_rate = 0;
        }
        if self.minimum_burst != 0 && self.peak_rate == 0 {
            problems.push(format!("{direction} minimum burst needs an {direction} peak rate; ignoring it"));
            self.minimum_burst = 0;
        }
        if self.packet_burst != 0 && self.packet_rate == 0 {
            problems.push(format!("{direction} packet burst needs an {direction} packet rate; ignoring it"));
            self.packet_burst = 0;
        }
    }
}

fn bounded(name: &str, text: &str, bounds: &RangeInclusive<i64>, problems: &mut Vec<String>) -> i64 {
    let value = match parse_quantity(text) {
        Ok(value) => value,
        Err(error) => {
            problems.push(format!("annotation {name}: {error}; ignoring it"));
            return 0;
        }
    };
    let clamped = value.clamp(*bounds.start(), *bounds.end());
    if clamped != value {
        problems.push(format!("annotation {name}: {text} is out of bounds, using {clamped}"));
    }
    clamped
}

/// Returns the DSCP mark that the annotations request for packets that leave the cluster, if any.
///
/// # Errors
/// A sentence, when the annotation does not contain a mark.
pub fn egress_mark(annotations: &StringMap) -> Result<Option<Dscp>, String> {
    let mut problems = Vec::new();
    let mark = annotations.get(names::DSCP).and_then(|text| dscp(text, &mut problems));
    problems.pop().map_or(Ok(mark), Err)
}

fn dscp(text: &str, problems: &mut Vec<String>) -> Option<Dscp> {
    // Digits are a number, and are written as one.
    let dscp = text.parse::<u8>().map_or_else(|_| Dscp::from_text(text), Dscp::from_number);
    match dscp.value() {
        Ok(_) => Some(dscp),
        Err(reason) => {
            problems.push(format!("annotation {}: {reason}; ignoring it", names::DSCP));
            None
        }
    }
}
