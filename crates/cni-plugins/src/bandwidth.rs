//! `bandwidth`: limits what a container receives and sends, by token buckets: one on its device in the host, and one on
//! an extra device that everything it sends is redirected through.

use crate::frame::{configuration, failure, in_container, previous_result};
use crate::names::hashed;
use cni_protocol::Call;
use cni_protocol::error::Result;
use cni_protocol::result::{CniResult, Interface};
use netlink::tc::{self, Bucket, TrafficControl as _};
use netlink::{DeviceKind, Handle, Kernel as _, Link, LinkRef, NewLink, Operation, first_failure};
use serde::Deserialize;

const DEVICE_PREFIX: &str = "bwp";
const DEVICE_LENGTH: usize = 15;
/// How long a packet may wait, in seconds.
const LATENCY: f64 = 0.025;

#[derive(Deserialize)]
struct Document {
    #[serde(flatten)]
    own: Limits,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Runtime,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Runtime {
    bandwidth: Option<Limits>,
}

/// Limits in bits per second, and bits per burst. What the container receives is "ingress".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limits {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl Limits {
    fn read(call: &Call) -> Result<Self> {
        let document: Document = configuration(call)?;
        let limits = if document.own == Self::default() {
            document.runtime.bandwidth.unwrap_or_default()
        } else {
            document.own
        };
        for (rate, burst) in [limits.ingress(), limits.egress()] {
            let message = match (rate, burst) {
                (1.., 0) => "if rate is set, burst must also be set",
                (0, 1..) => "if burst is set, rate must also be set",
                (_, burst) if burst / 8 >= u64::from(u32::MAX) => "burst cannot be more than 4GB",
                _ => continue,
            };
            return Err(failure(message));
        }
        Ok(limits)
    }

    fn ingress(self) -> (u64, u64) {
        (self.ingress_rate, self.ingress_burst)
    }

    fn egress(self) -> (u64, u64) {
        (self.egress_rate, self.egress_burst)
    }
}

pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let limits = Limits::read(call)?;
    let Some(mut result) = previous_result(call)? else {
        return Err(failure("must be called as chained plugin"));
    };
    if limits == Limits::default() {
        return Ok(result);
    }
    let mut kernel = Handle::open().map_err(|error| failure(error.to_string()))?;
    let mut control = tc::Client::open().map_err(|error| failure(error.to_string()))?;
    let host = host_device(call, &result, &mut kernel)?;
    if let (rate @ 1.., burst) = limits.ingress() {
        limit(&mut control, host.index, rate, burst)?;
    }
    if let (rate @ 1.., burst) = limits.egress() {
        let name = device_name(call);
        let device = make_device(&mut kernel, &name, host.mtu)?;
        result.interfaces.push(Interface {
            name,
            mac: device.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            ..Interface::default()
        });
        let place = tc::Operation::AddIngress(host.index);
        // A repeated ADD finds it already there, with or without its filter.
        if let Err(error) =
            control.apply(&place).or_else(|error| if error.is_exists() { Ok(()) } else { Err(error) })
        {
            return Err(failure(format!("create ingress qdisc: {error}")));
        }
        let filters = control.filters(host.index).map_err(|error| failure(error.to_string()))?;
        if filters.iter().all(|filter| filter.redirects_to != Some(device.index)) {
            control
                .apply(&tc::Operation::Redirect(host.index, device.index))
                .map_err(|error| failure(format!("add filter: {error}")))?;
        }
        limit(&mut control, device.index, rate, burst)?;
    }
    Ok(result)
}

/// The limits of the container's device disappear with it; the extra device for what it sends must be removed here.
pub(crate) fn delete(call: &Call) -> Result<()> {
    Limits::read(call)?;
    let mut kernel = Handle::open().map_err(|error| failure(error.to_string()))?;
    let link = LinkRef::Name(device_name(call));
    match first_failure(kernel.apply(&[Operation::DeleteLink(link)])) {
        Err(error) if !error.is_missing() => Err(failure(error.to_string())),
        _ => Ok(()),
    }
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let limits = Limits::read(call)?;
    let Some(result) = previous_result(call)? else {
        return Err(failure("must be called as a chained plugin"));
    };
    if limits == Limits::default() {
        return Ok(());
    }
    let mut kernel = Handle::open().map_err(|error| failure(error.to_string()))?;
    let host = host_device(call, &result, &mut kernel)?;
    let mut control = tc::Client::open().map_err(|error| failure(error.to_string()))?;
    let queues = control.queues().map_err(|error| failure(error.to_string()))?;
    let compare = |index: u32, (rate, burst): (u64, u64)| {
        let wanted = bucket(rate, burst, tc::ticks_in_microsecond());
        let found = queues.iter().find_map(|queue| queue.bucket.filter(|_| queue.index == index));
        match found {
            None => Err(failure("Failed to find qdisc")),
            Some(found) if found.rate != wanted.rate => Err(failure("Rate doesn't match")),
            Some(found) if found.limit != wanted.limit => Err(failure("Limit doesn't match")),
            Some(found) if found.depth != wanted.depth => Err(failure("Buffer doesn't match")),
            Some(_) => Ok(()),
        }
    };
    if limits.ingress_rate > 0 {
        compare(host.index, limits.ingress())?;
    }
    if limits.egress_rate > 0 {
        let name = device_name(call);
        let device = kernel.link(&LinkRef::Name(name.clone())).map_err(|error| failure(error.to_string()))?;
        let device = device.ok_or_else(|| failure(format!("get ifb device: Link {name} not found")))?;
        compare(device.index, limits.egress())?;
    }
    Ok(())
}

fn device_name(call: &Call) -> String {
    hashed(DEVICE_PREFIX, &format!("{}{}", call.network, call.container_id), DEVICE_LENGTH)
}

/// The host's end of the container's interface, which the previous result must contain.
fn host_device(call: &Call, result: &CniResult, kernel: &mut Handle) -> Result<Link> {
    if result.interfaces.is_empty() {
        return Err(failure("no interfaces provided"));
    }
    let peer = in_container(call, || {
        let link = Handle::open().and_then(|mut inside| inside.link(&LinkRef::from(call.ifname.as_str())));
        Ok(link.map_err(|error| failure(error.to_string()))?.and_then(|link| link.peer_index))
    })?;
    let peer =
        peer.ok_or_else(|| failure(format!("container interface {} has no veth peer", call.ifname)))?;
    let host = kernel.link(&LinkRef::Index(peer)).map_err(|error| failure(error.to_string()))?;
    let host = host.ok_or_else(|| failure(format!("veth peer with index {peer} is not in host ns")))?;
    let is_known = |interface: &Interface| interface.sandbox.is_empty() && interface.name == host.name;
    if result.interfaces.iter().any(is_known) {
        return Ok(host);
    }
    Err(failure("no veth peer of container interface found in host ns"))
}

fn make_device(kernel: &mut Handle, name: &str, mtu: u32) -> Result<Link> {
    let new = NewLink { mtu: Some(mtu), up: true, ..NewLink::new(name, DeviceKind::Plain("ifb".to_owned())) };
    let (made, found) = kernel.apply_and_read(&[Operation::AddLink(new)], &LinkRef::from(name));
    if let Err(error) = first_failure(made)
        && !error.is_exists()
    {
        return Err(failure(format!("adding link: {error}")));
    }
    found.map_err(|error| failure(error.to_string()))
}

fn limit(control: &mut tc::Client, index: u32, rate: u64, burst: u64) -> Result<()> {
    let bucket = bucket(rate, burst, tc::ticks_in_microsecond());
    control
        .apply(&tc::Operation::SetBucket(index, bucket))
        .map_err(|error| failure(format!("create qdisc: {error}")))
}

/// The bucket for a rate and a burst in bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the reference plugin computes with floating point numbers and cuts off, and CHECK compares exactly"
)]
fn bucket(rate: u64, burst: u64, ticks_in_microsecond: f64) -> Bucket {
    let (rate, burst) = ((rate / 8).max(1), burst / 8);
    let time = (burst as f64 * 1_000_000.0 / rate as f64) as u32;
    let limit = (rate as f64 * LATENCY) as u32;
    Bucket {
        rate,
        depth: ((f64::from(time) * ticks_in_microsecond) as u32).max(1),
        limit: limit.saturating_add(burst as u32).max(1),
        ..Bucket::default()
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn a_bucket_equals_the_reference_plugins() {
        // 8 Mbit/s with a burst of 8,000 bits: a millisecond of a megabyte a second; 25 ms may wait.
        let found = bucket(8_000_000, 8_000, 15.625);
        assert_eq!((found.rate, found.depth, found.limit), (1_000_000, 15_625, 26_000));
        let least = bucket(1, 1, 15.625);
        assert_eq!((least.rate, least.depth, least.limit), (1, 1, 1));
    }
}
