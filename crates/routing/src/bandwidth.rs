//! The driver of bandwidth limits: token buckets on workloads' interfaces and on the devices that their packets are
//! redirected to.
//!
//! As in Calico, we own the buckets and filters on interfaces of endpoints, and devices whose names begin with
//! `bwcali`. The kernel is read only when a limit changed; hosts without limits are read once, at the start. Interfaces
//! without an endpoint are not touched.

use crate::limits::{Bandwidth, DEVICE_PREFIX, Limit, device_name};
use messages::InterfaceName;
use netlink::tc::{Bucket, INGRESS, Operation, Queue, ROOT, TrafficControl};
use netlink::{DeviceKind, Error, Kernel, Link, LinkRef, NewLink, first_failure};
use std::collections::{BTreeMap, BTreeSet};

/// The state found in the kernel.
struct Seen {
    links: BTreeMap<String, Link>,
    queues: Vec<Queue>,
}

impl Seen {
    fn bucket(&self, index: u32) -> Option<Bucket> {
        self.queues.iter().find(|queue| queue.index == index && queue.parent == ROOT)?.bucket
    }

    fn has_ingress(&self, index: u32) -> bool {
        self.queues
            .iter()
            .any(|queue| queue.index == index && queue.parent == INGRESS && queue.kind == "ingress")
    }
}

/// Brings bandwidth limits into the kernel.
#[derive(Debug)]
pub struct BandwidthDriver<T> {
    control: T,
    ticks_in_microsecond: f64,
    is_swept: bool,
    is_unsupported: bool,
    /// Properties of our buckets that the kernel does not report.
    minimum_bursts: BTreeMap<u32, (Bucket, u32)>,
}

impl<T: TrafficControl> BandwidthDriver<T> {
    /// A driver that has not read the kernel yet.
    pub fn new(control: T, ticks_in_microsecond: f64) -> Self {
        Self {
            control,
            ticks_in_microsecond,
            is_swept: false,
            is_unsupported: false,
            minimum_bursts: BTreeMap::new(),
        }
    }

    /// The underlying traffic control.
    pub fn control(&mut self) -> &mut T {
        &mut self.control
    }

    /// Applies pending changes; returns the failures. `endpoints` are the interfaces that have an endpoint.
    pub fn apply(
        &mut self,
        kernel: &mut dyn Kernel,
        bandwidth: &mut Bandwidth,
        endpoints: impl FnOnce() -> BTreeSet<InterfaceName>,
    ) -> Vec<String> {
        if bandwidth.is_clean() && self.is_swept {
            return Vec::new();
        }
        let seen = match self.look(kernel) {
            Ok(seen) => seen,
            Err(error) => return vec![error.to_string()],
        };
        let there: BTreeSet<u32> = seen.links.values().map(|link| link.index).collect();
        self.minimum_bursts.retain(|index, _| there.contains(index));
        let mut failures = Vec::new();
        if !self.is_swept {
            for name in endpoints().into_iter().chain(bandwidth.limited().cloned().collect::<Vec<_>>()) {
                bandwidth.keep_dirty(name);
            }
            match sweep(kernel, bandwidth, &seen) {
                Ok(()) => self.is_swept = true,
                Err(error) => failures.push(error.to_string()),
            }
        }
        for interface in bandwidth.take_dirty() {
            match self.limit(kernel, &interface, bandwidth, &seen) {
                Ok(()) => {}
                // The interface was removed in the meantime; its event will follow.
                Err(error) if error.is_missing() => {
                    tracing::debug!(%error, %interface, "an interface has disappeared");
                }
                Err(error) if error.is_unsupported() => {
                    if !std::mem::replace(&mut self.is_unsupported, true) {
                        tracing::error!(%error, %interface, "the kernel cannot limit bandwidth");
                    }
                }
                Err(error) => {
                    failures.push(format!("{interface}: {error}"));
                    bandwidth.keep_dirty(interface);
                }
            }
        }
        failures
    }

    fn look(&mut self, kernel: &mut dyn Kernel) -> Result<Seen, Error> {
        let links = kernel.links()?.into_iter().map(|link| (link.name.clone(), link)).collect();
        let queues = match self.control.queues() {
            // A kernel without traffic control has none of our objects.
            Err(error) if error.is_unsupported() => Vec::new(),
            queues => queues?,
        };
        Ok(Seen { links, queues })
    }

    fn limit(
        &mut self,
        kernel: &mut dyn Kernel,
        interface: &str,
        bandwidth: &Bandwidth,
        seen: &Seen,
    ) -> Result<(), Error> {
        let limits = bandwidth.limits(interface);
        let device = device_name(interface);
        let Some(link) = seen.links.get(interface) else {
            // The device created for the interface is removed with it.
            return match seen.links.contains_key(&device) {
                true => delete_link(kernel, &device),
                false => Ok(()),
            };
        };
        match (limits.ingress, seen.bucket(link.index)) {
            (None, None) => {}
            (None, Some(_)) => self.control.apply(&Operation::DeleteRoot(link.index))?,
            (Some(limit), found) => self.set_bucket(link, &limit, found)?,
        }
        match limits.egress {
            None if seen.links.contains_key(&device) => {
                // Packets must pass directly again before the device is deleted.
                if seen.has_ingress(link.index) {
                    self.control.apply(&Operation::DeleteIngress(link.index))?;
                }
                delete_link(kernel, &device)
            }
            None => Ok(()),
            Some(limit) => self.limit_egress(kernel, link, &device, &limit, seen),
        }
    }

    fn limit_egress(
        &mut self,
        kernel: &mut dyn Kernel,
        link: &Link,
        device: &str,
        limit: &Limit,
        seen: &Seen,
    ) -> Result<(), Error> {
        let found = match seen.links.get(device) {
            Some(found) => found.clone(),
            None => {
                let kind = DeviceKind::Plain("ifb".to_owned());
                let new = NewLink { mtu: Some(link.mtu), up: true, ..NewLink::new(device, kind) };
                first_failure(kernel.apply(&[netlink::Operation::AddLink(new)]))?;
                let Some(made) = kernel.link(&device.into())? else { return Ok(()) };
                made
            }
        };
        if !found.up {
            first_failure(kernel.apply(&[netlink::Operation::up(found.index)]))?;
        }
        // The device is limited before the first packet is redirected to it.
        self.set_bucket(&found, limit, seen.bucket(found.index))?;
        if !seen.has_ingress(link.index) {
            self.control.apply(&Operation::AddIngress(link.index))?;
            return self.control.apply(&Operation::Redirect(link.index, found.index));
        }
        let filters = self.control.filters(link.index)?;
        let others: BTreeSet<u16> =
            filters.iter().filter(|filter| filter.kind == "u32").map(|filter| filter.priority).collect();
        let target = filters.iter().find_map(|filter| filter.redirects_to);
        if target == Some(found.index) && others.len() == 1 {
            return Ok(());
        }
        for priority in others {
            self.control.apply(&Operation::DeleteFilters(link.index, priority))?;
        }
        // A device for the same purpose, created by another plugin, or by us for an earlier interface of this name.
        let old = target.and_then(|old| seen.links.values().find(|link| link.index == old));
        if let Some(old) = old.filter(|old| {
            old.name != device && (old.name.starts_with("bwp") || old.name.starts_with(DEVICE_PREFIX))
        }) {
            delete_link(kernel, &old.name)?;
        }
        self.control.apply(&Operation::Redirect(link.index, found.index))
    }

    fn set_bucket(&mut self, link: &Link, limit: &Limit, found: Option<Bucket>) -> Result<(), Error> {
        let wanted = limit.bucket(link.mtu, self.ticks_in_microsecond);
        let known = self.minimum_bursts.get(&link.index).copied();
        let is_there = found.is_some_and(|found| {
            let told = Bucket { minimum_burst: 0, ..wanted };
            // The kernel does not report the minimum burst; it is what we set last, as long as the rest is unchanged.
            found == told && (wanted.peak_rate == 0 || known == Some((told, wanted.minimum_burst)))
        });
        if !is_there {
            self.control.apply(&Operation::SetBucket(link.index, wanted))?;
            if wanted.peak_rate > 0 {
                let told = Bucket { minimum_burst: 0, ..wanted };
                self.minimum_bursts.insert(link.index, (told, wanted.minimum_burst));
            } else {
                self.minimum_bursts.remove(&link.index);
            }
        }
        Ok(())
    }
}

/// Removes devices that no workload of ours uses any more.
fn sweep(kernel: &mut dyn Kernel, bandwidth: &Bandwidth, seen: &Seen) -> Result<(), Error> {
    let wanted: BTreeSet<String> = bandwidth
        .limited()
        .filter(|interface| bandwidth.limits(interface).egress.is_some())
        .map(|interface| device_name(interface))
        .collect();
    // Devices of existing interfaces are removed together with the filters that refer to them.
    let of_interfaces: BTreeSet<String> = seen.links.keys().map(|name| device_name(name)).collect();
    let stale = seen.links.values().filter(|link| {
        link.kind == "ifb"
            && link.name.starts_with(DEVICE_PREFIX)
            && !wanted.contains(&link.name)
            && !of_interfaces.contains(&link.name)
    });
    for link in stale {
        delete_link(kernel, &link.name)?;
    }
    Ok(())
}

fn delete_link(kernel: &mut dyn Kernel, name: &str) -> Result<(), Error> {
    match first_failure(kernel.apply(&[netlink::Operation::DeleteLink(LinkRef::Name(name.to_owned()))])) {
        Err(error) if error.is_missing() => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::BandwidthDriver;
    use crate::limits::{Bandwidth, Limit, Limits, device_name};
    use messages::InterfaceName;
    use netlink::tc::{Bucket, Filter, INGRESS, Operation, Queue, ROOT, TrafficControl};
    use netlink::{Error, FakeKernel, Kernel as _};
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Fake {
        queues: Vec<Queue>,
        filters: Vec<(u32, Filter)>,
        operations: Vec<Operation>,
    }

    impl TrafficControl for Fake {
        fn queues(&mut self) -> Result<Vec<Queue>, Error> {
            Ok(self.queues.clone())
        }

        fn filters(&mut self, index: u32) -> Result<Vec<Filter>, Error> {
            Ok(self.filters.iter().filter(|(of, _)| *of == index).map(|(_, filter)| filter.clone()).collect())
        }

        fn clsact_filters(&mut self, index: u32) -> Result<Vec<Filter>, Error> {
            self.filters(index)
        }

        fn apply(&mut self, operation: &Operation) -> Result<(), Error> {
            self.operations.push(operation.clone());
            let remove = |queues: &mut Vec<Queue>, index: u32, parent: u32| {
                queues.retain(|queue| (queue.index, queue.parent) != (index, parent));
            };
            match operation {
                Operation::SetBucket(index, bucket) => {
                    remove(&mut self.queues, *index, ROOT);
                    let bucket = Some(Bucket { minimum_burst: 0, ..*bucket });
                    self.queues.push(Queue { index: *index, parent: ROOT, kind: "tbf".into(), bucket });
                }
                Operation::DeleteRoot(index) => remove(&mut self.queues, *index, ROOT),
                Operation::AddIngress(index) => self.queues.push(Queue {
                    index: *index,
                    parent: INGRESS,
                    kind: "ingress".into(),
                    bucket: None,
                }),
                Operation::DeleteIngress(index) => {
                    remove(&mut self.queues, *index, INGRESS);
                    self.filters.retain(|(of, _)| of != index);
                }
                Operation::Redirect(from, to) => {
                    let filter =
                        Filter { priority: 1, kind: "u32".into(), redirects_to: Some(*to), program: None };
                    self.filters.push((*from, filter));
                }
                Operation::DeleteFilters(index, priority) => {
                    self.filters.retain(|(of, filter)| (of, filter.priority) != (index, *priority));
                }
            }
            Ok(())
        }
    }

    struct World {
        kernel: FakeKernel,
        driver: BandwidthDriver<Fake>,
        bandwidth: Bandwidth,
        endpoints: BTreeSet<InterfaceName>,
    }

    impl World {
        fn new() -> Self {
            let mut kernel = FakeKernel::new();
            kernel.with_link("cali1", "veth");
            Self {
                kernel,
                driver: BandwidthDriver::new(Fake::default(), 15.625),
                bandwidth: Bandwidth::default(),
                endpoints: BTreeSet::from(["cali1".into()]),
            }
        }

        fn apply(&mut self) -> Vec<Operation> {
            let endpoints = self.endpoints.clone();
            let failures = self.driver.apply(&mut self.kernel, &mut self.bandwidth, || endpoints);
            assert_eq!(failures, Vec::<String>::new());
            std::mem::take(&mut self.driver.control().operations)
        }

        fn has(&mut self, name: &str) -> bool {
            self.kernel.link(&name.into()).expect("links").is_some()
        }
    }

    fn limit(rate: u64) -> Option<Limit> {
        Some(Limit { rate, burst: 80_000, ..Limit::default() })
    }

    #[test]
    fn both_directions_are_set_changed_and_removed() {
        let mut world = World::new();
        let device = device_name("cali1");
        world.bandwidth.set(&"cali1".into(), Limits { ingress: limit(1_000_000), egress: limit(2_000_000) });
        assert_eq!(world.apply().len(), 4);
        assert!(world.has(&device));
        assert_eq!(world.apply(), []);
        // A new Felix finds everything and changes nothing.
        world.driver.is_swept = false;
        assert_eq!(world.apply(), []);
        world.bandwidth.set(&"cali1".into(), Limits { ingress: limit(1_000_000), egress: limit(3_000_000) });
        let operations = world.apply();
        assert!(matches!(operations.as_slice(), [Operation::SetBucket(..)]), "{operations:?}");
        world.bandwidth.set(&"cali1".into(), Limits::default());
        let operations = world.apply();
        assert!(
            matches!(operations.as_slice(), [Operation::DeleteRoot(_), Operation::DeleteIngress(_)]),
            "{operations:?}"
        );
        assert!(!world.has(&device));
        let index = world.kernel.link(&"cali1".into()).expect("links").expect("it is there").index;
        assert!(world.driver.control().queues.iter().all(|queue| queue.index != index));
    }

    #[test]
    fn leftovers_of_an_earlier_felix_are_removed() {
        let mut world = World::new();
        world.kernel.with_link(&device_name("cali9"), "ifb");
        let own = world.kernel.with_link(&device_name("cali1"), "ifb");
        let index = world.kernel.link(&"cali1".into()).expect("links").expect("it is there").index;
        for operation in [
            Operation::SetBucket(index, Bucket { rate: 1, depth: 1, limit: 1, ..Bucket::default() }),
            Operation::AddIngress(index),
            Operation::Redirect(index, own),
        ] {
            world.driver.control().apply(&operation).expect("the fake takes it");
        }
        world.driver.control().operations.clear();
        let operations = world.apply();
        assert_eq!(operations, [Operation::DeleteRoot(index), Operation::DeleteIngress(index)]);
        assert!(!world.has(&device_name("cali9")) && !world.has(&device_name("cali1")));
    }

    #[test]
    fn another_plugins_device_is_taken_over() {
        let mut world = World::new();
        let other = world.kernel.with_link("bwp0123456789", "ifb");
        let index = world.kernel.link(&"cali1".into()).expect("links").expect("it is there").index;
        for operation in [Operation::AddIngress(index), Operation::Redirect(index, other)] {
            world.driver.control().apply(&operation).expect("the fake takes it");
        }
        world.bandwidth.set(&"cali1".into(), Limits { ingress: None, egress: limit(1_000_000) });
        world.driver.control().operations.clear();
        world.apply();
        let own =
            world.kernel.link(&device_name("cali1").as_str().into()).expect("links").expect("made").index;
        assert!(!world.has("bwp0123456789"));
        let targets: Vec<_> =
            world.driver.control().filters.iter().map(|(_, one)| one.redirects_to).collect();
        assert_eq!(targets, [Some(own)]);
    }

    #[test]
    fn a_peak_rate_is_written_once() {
        let mut world = World::new();
        let peak = Some(Limit { rate: 1_000_000, burst: 80_000, peak_rate: 2_000_000, minimum_burst: 2000 });
        world.bandwidth.set(&"cali1".into(), Limits { ingress: peak, egress: None });
        assert_eq!(world.apply().len(), 1);
        world.bandwidth.interface_changed(&"cali1".into());
        assert_eq!(world.apply(), []);
        assert_eq!(world.driver.minimum_bursts.len(), 1);
        // Nothing is remembered of a removed interface.
        super::delete_link(&mut world.kernel, "cali1").expect("it was there");
        world.bandwidth.interface_changed(&"cali1".into());
        world.apply();
        assert_eq!(world.driver.minimum_bursts.len(), 0);
    }

    #[test]
    fn a_device_is_removed_with_its_interface() {
        let mut world = World::new();
        world.bandwidth.set(&"cali1".into(), Limits { ingress: None, egress: limit(1_000_000) });
        world.apply();
        super::delete_link(&mut world.kernel, "cali1").expect("it was there");
        world.bandwidth.interface_changed(&"cali1".into());
        world.apply();
        assert!(!world.has(&device_name("cali1")));
    }
}
