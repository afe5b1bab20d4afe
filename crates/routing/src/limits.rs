//! Bandwidth limits: the desired limits of each workload's interface.
//!
//! Packets to a workload leave the host by its interface and are limited there. Packets from it arrive on that
//! interface, where they cannot be queued; they are redirected to a separate device, and limited as they leave through
//! it. Limits of packet rates and connection counts are rules, and not handled here. [`crate::bandwidth`] applies the
//! differences.

use api::QoSControls;
use delta::Changes;
use messages::InterfaceName;
use netlink::tc::Bucket;
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The prefix of our devices' names.
pub const DEVICE_PREFIX: &str = "bwcali";
/// The longest device name.
const NAME_LENGTH: usize = 15;
/// The longest time that a packet may be queued, in microseconds.
const LATENCY: f64 = 25_000.0;
/// The length of the frame header, which the MTU does not include.
const FRAME_HEADER: u32 = 14;

/// The limit of one direction, in the units that users configure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Bits per second.
    pub rate: u64,
    /// The size of a burst, in bits.
    pub burst: u64,
    /// Bits per second during a burst; 0 for no limit.
    pub peak_rate: u64,
    /// Bytes that may pass at once under the peak rate.
    pub minimum_burst: u32,
}

/// The limits of both directions, as seen from the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Packets to it.
    pub ingress: Option<Limit>,
    /// Packets from it.
    pub egress: Option<Limit>,
}

impl Limits {
    /// The limits that an endpoint's settings specify.
    #[must_use]
    pub fn of(controls: Option<&QoSControls>) -> Self {
        let Some(controls) = controls else { return Self::default() };
        let limit = |rate: i64, burst: i64, peak_rate: i64, minimum_burst: i64| {
            let bits = |number: i64| u64::try_from(number).unwrap_or_default();
            (rate > 0).then(|| Limit {
                rate: bits(rate),
                burst: bits(burst),
                peak_rate: bits(peak_rate),
                minimum_burst: u32::try_from(minimum_burst).unwrap_or_default(),
            })
        };
        Self {
            ingress: limit(
                controls.ingress_bandwidth,
                controls.ingress_burst,
                controls.ingress_peakrate,
                controls.ingress_minburst,
            ),
            egress: limit(
                controls.egress_bandwidth,
                controls.egress_burst,
                controls.egress_peakrate,
                controls.egress_minburst,
            ),
        }
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Limit {
    /// The bucket for a device with this MTU; `ticks_in_microsecond` is a constant of the kernel's scheduler.
    ///
    /// A limit that is too small is raised to the smallest possible one: packets are then held back, never unlimited.
    #[must_use]
    pub fn bucket(&self, mtu: u32, ticks_in_microsecond: f64) -> Bucket {
        let (rate, depth, mut limit) = shape(self.rate / 8, self.burst / 8, ticks_in_microsecond);
        let (mut peak_rate, mut minimum_burst) = (0, 0);
        if self.peak_rate > 0 {
            let burst = u64::from(self.minimum_burst);
            let (peak, _, peak_limit) = shape(self.peak_rate / 8, burst, ticks_in_microsecond);
            limit = limit.min(peak_limit);
            peak_rate = peak;
            minimum_burst = self.minimum_burst.max(mtu.saturating_add(FRAME_HEADER));
        }
        Bucket { rate, depth, limit: limit.max(1), peak_rate, minimum_burst }
    }
}

/// The rate in bytes per second, the depth in ticks, and how many bytes may wait.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "Calico computes with floating point numbers and cuts off; numbers that are too large become the largest"
)]
fn shape(rate: u64, burst: u64, ticks_in_microsecond: f64) -> (u64, u32, u32) {
    let rate = rate.max(1);
    let time = (burst as f64 * 1_000_000.0 / rate as f64) as u32;
    let depth = (f64::from(time) * ticks_in_microsecond) as u32;
    let limit = (rate as f64 * LATENCY / 1_000_000.0 + f64::from(depth)) as u32;
    (rate, depth.max(1), limit)
}

/// The device that packets from a workload are redirected to.
#[must_use]
pub fn device_name(interface: &str) -> String {
    let mut name = DEVICE_PREFIX.to_owned();
    for byte in Sha512::digest(interface.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.truncate(NAME_LENGTH);
    name
}

/// The limits of all workloads, and the interfaces that have to be checked.
#[derive(Clone, Debug, Default)]
pub struct Bandwidth {
    wanted: BTreeMap<InterfaceName, Limits>,
    dirty: BTreeSet<InterfaceName>,
}

impl Bandwidth {
    /// Sets the limits of an interface that has an endpoint.
    pub fn set(&mut self, interface: &InterfaceName, limits: Limits) {
        let old = match limits.is_none() {
            true => self.wanted.remove(interface).unwrap_or_default(),
            false => self.wanted.insert(interface.clone(), limits).unwrap_or_default(),
        };
        if old != limits {
            self.dirty.insert(interface.clone());
        }
    }

    /// Takes over the changes of desired limits by interface; `changes` is empty afterwards.
    pub fn take(&mut self, changes: &mut Changes<InterfaceName, Limits>) {
        for (interface, limits) in std::mem::take(changes) {
            self.set(&interface, limits.unwrap_or_default());
        }
    }

    /// Notes that an interface was added, removed or changed.
    pub fn interface_changed(&mut self, name: &InterfaceName) {
        if self.wanted.contains_key(name) {
            self.dirty.insert(name.clone());
        }
    }

    /// The desired limits of an interface.
    #[must_use]
    pub fn limits(&self, interface: &str) -> Limits {
        self.wanted.get(interface).copied().unwrap_or_default()
    }

    /// The interfaces with limits.
    pub fn limited(&self) -> impl Iterator<Item = &InterfaceName> {
        self.wanted.keys()
    }

    /// Takes the interfaces that have to be checked.
    pub fn take_dirty(&mut self) -> BTreeSet<InterfaceName> {
        std::mem::take(&mut self.dirty)
    }

    /// Marks an interface to be checked again.
    pub fn keep_dirty(&mut self, interface: InterfaceName) {
        self.dirty.insert(interface);
    }

    /// Whether no interface has to be checked.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bandwidth, Limit, Limits, device_name};
    use api::QoSControls;
    use netlink::tc::Bucket;

    const TICKS: f64 = 15.625;

    #[test]
    fn buckets_match_calicos() {
        // 10 Mbit/s with a burst of 4 Gibit: the depth and the queue length are capped at the largest number.
        let limit = Limit { rate: 10_000_000, burst: 4 << 30, ..Limit::default() };
        let wanted = Bucket { rate: 1_250_000, depth: u32::MAX, limit: u32::MAX, ..Bucket::default() };
        assert_eq!(limit.bucket(1500, TICKS), wanted);
        // 1 Mbit/s with a burst of 80 kbit: 80 ms are 1,250,000 ticks; 3,125 bytes more may wait.
        let limit = Limit { rate: 1_000_000, burst: 80_000, ..Limit::default() };
        let wanted = Bucket { rate: 125_000, depth: 1_250_000, limit: 1_253_125, ..Bucket::default() };
        assert_eq!(limit.bucket(1500, TICKS), wanted);
        // A peak rate: 2,000 bytes at 250,000 bytes/s are 8 ms, 125,000 ticks; the smaller limit applies.
        let limit = Limit { peak_rate: 2_000_000, minimum_burst: 2000, ..limit };
        let wanted = Bucket { limit: 131_250, peak_rate: 250_000, minimum_burst: 2000, ..wanted };
        assert_eq!(limit.bucket(1500, TICKS), wanted);
        assert_eq!(Limit { minimum_burst: 100, ..limit }.bucket(1500, TICKS).minimum_burst, 1514);
        // No limit becomes a bucket that the kernel would refuse.
        let least = Limit { rate: 1, ..Limit::default() }.bucket(1500, TICKS);
        assert_eq!(least, Bucket { rate: 1, depth: 1, limit: 1, ..Bucket::default() });
    }

    #[test]
    fn devices_are_named_as_calico_names_them() {
        // The digits are the beginning of the SHA-512 of the interface's name.
        assert_eq!(device_name("cali12345678901"), "bwcali16fffcf1d");
    }

    #[test]
    fn only_changed_interfaces_are_checked() {
        let mut bandwidth = Bandwidth::default();
        let controls = QoSControls { ingress_bandwidth: 1000, ingress_burst: 1000, ..QoSControls::default() };
        bandwidth.set(&"cali1".into(), Limits::of(None));
        assert!(bandwidth.is_clean());
        bandwidth.set(&"cali1".into(), Limits::of(Some(&controls)));
        assert_eq!(bandwidth.take_dirty().len(), 1);
        bandwidth.set(&"cali1".into(), Limits::of(Some(&controls)));
        bandwidth.interface_changed(&"cali2".into());
        assert!(bandwidth.is_clean());
        bandwidth.interface_changed(&"cali1".into());
        assert_eq!(bandwidth.take_dirty().len(), 1);
        bandwidth.set(&"cali1".into(), Limits::default());
        assert!(!bandwidth.is_clean());
    }
}
