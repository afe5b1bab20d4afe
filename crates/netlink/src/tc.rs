//! Traffic control: token buckets on devices, and packets redirected from one device to another.
//!
//! Only what bandwidth limits need: the root queueing discipline of a device, its ingress discipline, and the filter
//! that redirects all incoming packets. Foreign disciplines are seen by their kind only; their settings are skipped.

use crate::connection::Connection;
use crate::datagram::Request;
use crate::error::Result;
use crate::route::{CREATE, EXCLUSIVE, REPLACE};
use crate::wire::{Attribute, Writer, attributes, header_u32, split_header};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::fmt;

const NEW_QUEUE: u16 = 36;
const DELETE_QUEUE: u16 = 37;
const GET_QUEUE: u16 = 38;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
const GET_FILTER: u16 = 46;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BUCKET_PARAMETERS: u16 = 1;
const BUCKET_RATE: u16 = 4;
const BUCKET_PEAK_RATE: u16 = 5;
const BUCKET_PEAK_BURST: u16 = 7;
const U32_CLASS: u16 = 1;
const U32_SELECTOR: u16 = 5;
const U32_ACTION: u16 = 7;
const ACTION_KIND: u16 = 1;
const ACTION_OPTIONS: u16 = 2;
const REDIRECT_PARAMETERS: u16 = 2;
const BPF_NAME: u16 = 7;
/// The parent number of a device's root discipline, for outgoing packets.
pub const ROOT: u32 = 0xffff_ffff;
/// The parent number of the ingress discipline.
pub const INGRESS: u32 = 0xffff_fff1;
/// The handle of our buckets.
const BUCKET_HANDLE: u32 = 0x1_0000;
/// The handle that the kernel gives the ingress discipline.
const INGRESS_HANDLE: u32 = 0xffff_0000;
/// The parents of filters on incoming and outgoing packets, where the discipline is `clsact`.
const CLSACT_PLACES: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// Every protocol, in network order.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();
const TERMINAL: u8 = 1;
const STOLEN: i32 = 4;
const EGRESS_REDIRECT: i32 = 1;

/// A token bucket, which limits a rate. All sizes are bytes, except the depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Bytes per second.
    pub rate: u64,
    /// The bucket's depth in the scheduler's ticks: the time that a full bucket takes to be used up at the rate.
    pub depth: u32,
    /// How many bytes may wait.
    pub limit: u32,
    /// Bytes per second at which a full bucket is used up; 0 for at once.
    pub peak_rate: u64,
    /// How many bytes may pass at once under a peak rate. The kernel does not report it; it reads as 0.
    pub minimum_burst: u32,
}

/// A queueing discipline of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The device's number.
    pub index: u32,
    /// Its parent: [`ROOT`], [`INGRESS`], or another discipline.
    pub parent: u32,
    /// Its kind: `tbf`, `ingress`, `noqueue`, ...
    pub kind: String,
    /// Its settings, if it is a token bucket.
    pub bucket: Option<Bucket>,
}

/// A filter on packets that arrive on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its priority among the device's filters.
    pub priority: u16,
    /// Its kind.
    pub kind: String,
    /// The device that it sends packets to.
    pub redirects_to: Option<u32>,
    /// The name of the BPF program that it runs.
    pub program: Option<String>,
}

/// One change to the kernel's traffic control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Packets leave the device through a bucket, which replaces the current discipline.
    SetBucket(u32, Bucket),
    /// Removes the root discipline; the kernel's default takes its place.
    DeleteRoot(u32),
    /// Adds the ingress discipline, which filters on arriving packets need.
    AddIngress(u32),
    /// Removes the ingress discipline with all its filters.
    DeleteIngress(u32),
    /// Redirects all packets that arrive on the first device to the second.
    Redirect(u32, u32),
    /// Removes the device's filters of this priority.
    DeleteFilters(u32, u16),
}

/// The traffic control of one network namespace.
pub trait TrafficControl {
    /// Returns the disciplines of all devices.
    ///
    /// # Errors
    /// When they cannot be read.
    fn queues(&mut self) -> Result<Vec<Queue>>;

    /// Returns the filters on packets that arrive on a device.
    ///
    /// # Errors
    /// When they cannot be read.
    fn filters(&mut self, index: u32) -> Result<Vec<Filter>>;

    /// Returns the filters of both directions on a device whose discipline is `clsact`.
    ///
    /// # Errors
    /// When they cannot be read.
    fn clsact_filters(&mut self, index: u32) -> Result<Vec<Filter>>;

    /// Carries out one operation.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn apply(&mut self, operation: &Operation) -> Result<()>;
}

/// The traffic control of the namespace in which the client was opened.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Opens a client of the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { connection: Connection::open(NETLINK_ROUTE)? })
    }

    fn filters_at(&mut self, index: u32, place: u32) -> Result<Vec<Filter>> {
        let payload = header(index, 0, place, 0).to_vec();
        let request = Request { message_type: GET_FILTER, flags: 0, payload };
        let what = format!("list the filters of device {index}");
        self.connection.dump(&what, &request, |kind, payload| {
            (kind == NEW_FILTER).then(|| read_filter(payload)).flatten()
        })
    }
}

impl TrafficControl for Client {
    fn queues(&mut self) -> Result<Vec<Queue>> {
        let request = Request { message_type: GET_QUEUE, flags: 0, payload: header(0, 0, 0, 0).to_vec() };
        self.connection.dump("list queueing disciplines", &request, |kind, payload| {
            (kind == NEW_QUEUE).then(|| read_queue(payload)).flatten()
        })
    }

    fn filters(&mut self, index: u32) -> Result<Vec<Filter>> {
        self.filters_at(index, INGRESS_HANDLE)
    }

    fn clsact_filters(&mut self, index: u32) -> Result<Vec<Filter>> {
        let mut all = Vec::new();
        for place in CLSACT_PLACES {
            all.extend(self.filters_at(index, place)?);
        }
        Ok(all)
    }

    fn apply(&mut self, operation: &Operation) -> Result<()> {
        let answers = self.connection.exchange(&[operation.request()])?;
        answers.into_iter().try_for_each(|answer| answer.into_result(|| operation.to_string()).map(drop))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetBucket(index, bucket) => {
                write!(f, "limit device {index} to {} bytes per second", bucket.rate)
            }
            Self::DeleteRoot(index) => write!(f, "remove the limit from device {index}"),
            Self::AddIngress(index) => write!(f, "add the ingress discipline to device {index}"),
            Self::DeleteIngress(index) => write!(f, "remove the ingress discipline from device {index}"),
            Self::Redirect(from, to) => write!(f, "redirect packets of device {from} to device {to}"),
            Self::DeleteFilters(index, priority) => {
                write!(f, "remove the filters of priority {priority} from device {index}")
            }
        }
    }
}

/// `struct tcmsg`.
fn header(index: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut header = [0; 20];
    for (place, value) in [(4, index), (8, handle), (12, parent), (16, info)] {
        header[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

fn filter_info(priority: u16) -> u32 {
    u32::from(priority) << 16 | u32::from(ALL_PROTOCOLS)
}

impl Operation {
    fn request(&self) -> Request {
        let request =
            |message_type, flags, writer: Writer| Request { message_type, flags, payload: writer.finish() };
        match self {
            Self::SetBucket(index, bucket) => {
                let mut writer = Writer::new(&header(*index, BUCKET_HANDLE, ROOT, 0));
                writer.text(KIND, "tbf").nested_plain(OPTIONS, |options| bucket.write(options));
                request(NEW_QUEUE, CREATE | REPLACE, writer)
            }
            Self::DeleteRoot(index) => request(DELETE_QUEUE, 0, Writer::new(&header(*index, 0, ROOT, 0))),
            Self::AddIngress(index) => {
                let mut writer = Writer::new(&header(*index, INGRESS_HANDLE, INGRESS, 0));
                writer.text(KIND, "ingress");
                request(NEW_QUEUE, CREATE | EXCLUSIVE, writer)
            }
            Self::DeleteIngress(index) => {
                request(DELETE_QUEUE, 0, Writer::new(&header(*index, INGRESS_HANDLE, INGRESS, 0)))
            }
            Self::Redirect(from, to) => {
                let mut writer = Writer::new(&header(*from, 0, INGRESS_HANDLE, filter_info(1)));
                writer.text(KIND, "u32").nested_plain(OPTIONS, |options| write_redirect(options, *to));
                request(NEW_FILTER, CREATE | EXCLUSIVE, writer)
            }
            Self::DeleteFilters(index, priority) => {
                let writer = Writer::new(&header(*index, 0, INGRESS_HANDLE, filter_info(*priority)));
                request(DELETE_FILTER, 0, writer)
            }
        }
    }
}

impl Bucket {
    /// Writes `struct tc_tbf_qopt` and the attributes for what does not fit into it.
    fn write(&self, writer: &mut Writer) {
        let low = |rate: u64| u32::try_from(rate).unwrap_or(u32::MAX);
        let mut parameters = [0; 36];
        for (place, value) in
            [(8, low(self.rate)), (20, low(self.peak_rate)), (24, self.limit), (28, self.depth)]
        {
            parameters[place..place + 4].copy_from_slice(&value.to_ne_bytes());
        }
        writer.bytes(BUCKET_PARAMETERS, &parameters);
        for (number, rate) in [(BUCKET_RATE, self.rate), (BUCKET_PEAK_RATE, self.peak_rate)] {
            if rate > u64::from(u32::MAX) {
                writer.bytes(number, &rate.to_ne_bytes());
            }
        }
        if self.peak_rate > 0 {
            writer.u32(BUCKET_PEAK_BURST, self.minimum_burst);
        }
    }

    fn read(options: &Attribute<'_>) -> Option<Self> {
        let mut bucket = None;
        let (mut rate, mut peak_rate) = (None, None);
        let wide = |attribute: &Attribute<'_>| attribute.value.try_into().ok().map(u64::from_ne_bytes);
        for attribute in options.attributes() {
            match attribute.number {
                BUCKET_PARAMETERS => {
                    bucket = split_header::<36>(attribute.value).map(|(parameters, _)| Self {
                        rate: header_u32(parameters, 8).into(),
                        peak_rate: header_u32(parameters, 20).into(),
                        limit: header_u32(parameters, 24),
                        depth: header_u32(parameters, 28),
                        minimum_burst: 0,
                    });
                }
                BUCKET_RATE => rate = wide(&attribute),
                BUCKET_PEAK_RATE => peak_rate = wide(&attribute),
                _ => {}
            }
        }
        bucket.map(|bucket| Self {
            rate: rate.unwrap_or(bucket.rate),
            peak_rate: peak_rate.unwrap_or(bucket.peak_rate),
            ..bucket
        })
    }
}

/// Writes a filter that matches every packet and redirects it to a device.
fn write_redirect(writer: &mut Writer, target: u32) {
    writer.u32(U32_CLASS, 0x1_0001);
    // `struct tc_u32_sel` with one key that compares nothing.
    let mut selector = [0; 32];
    selector[0] = TERMINAL;
    selector[2] = 1;
    writer.bytes(U32_SELECTOR, &selector);
    writer.nested_plain(U32_ACTION, |actions| {
        actions.nested_plain(1, |action| {
            action.text(ACTION_KIND, "mirred").nested_plain(ACTION_OPTIONS, |options| {
                let mut parameters = [0; 28];
                parameters[8..12].copy_from_slice(&STOLEN.to_ne_bytes());
                parameters[20..24].copy_from_slice(&EGRESS_REDIRECT.to_ne_bytes());
                parameters[24..28].copy_from_slice(&target.to_ne_bytes());
                options.bytes(REDIRECT_PARAMETERS, &parameters);
            });
        });
    });
}

fn read_queue(payload: &[u8]) -> Option<Queue> {
    let (header, rest) = split_header::<20>(payload)?;
    let mut queue =
        Queue { index: header_u32(header, 4), parent: header_u32(header, 12), ..Queue::default() };
    let mut options = None;
    for attribute in attributes(rest) {
        match attribute.number {
            KIND => queue.kind = attribute.text().unwrap_or_default(),
            OPTIONS => options = Some(attribute),
            _ => {}
        }
    }
    if queue.kind == "tbf" {
        queue.bucket = options.as_ref().and_then(Bucket::read);
    }
    Some(queue)
}

fn read_filter(payload: &[u8]) -> Option<Filter> {
    let (header, rest) = split_header::<20>(payload)?;
    let priority = u16::try_from(header_u32(header, 16) >> 16).unwrap_or_default();
    let mut filter = Filter { priority, ..Filter::default() };
    let mut options = None;
    for attribute in attributes(rest) {
        match attribute.number {
            KIND => filter.kind = attribute.text().unwrap_or_default(),
            OPTIONS => options = Some(attribute),
            _ => {}
        }
    }
    // The numbers of options have a different meaning for each kind.
    match (filter.kind.as_str(), &options) {
        ("bpf", Some(options)) => filter.program = program(options),
        (_, Some(options)) => filter.redirects_to = target(options),
        (_, None) => {}
    }
    Some(filter)
}

/// The name of a filter's program; classic BPF programs have none.
fn program(options: &Attribute<'_>) -> Option<String> {
    options.attributes().find(|attribute| attribute.number == BPF_NAME)?.text()
}

/// The device of the first redirecting action.
fn target(options: &Attribute<'_>) -> Option<u32> {
    let find = |attribute: &Attribute<'_>, number: u16| {
        attribute.attributes().find(|inner| inner.number == number).map(|inner| inner.value.to_vec())
    };
    let actions = options.attributes().find(|attribute| attribute.number == U32_ACTION)?;
    actions.attributes().find_map(|action| {
        let settings = find(&action, ACTION_OPTIONS)?;
        let settings = Attribute { number: ACTION_OPTIONS, value: &settings };
        let parameters = find(&settings, REDIRECT_PARAMETERS)?;
        (parameters.len() >= 28).then(|| header_u32(&parameters, 24))
    })
}

/// The number of the scheduler's ticks per microsecond: `tick2usec / usec2tick` as the kernel reports them.
#[must_use]
pub fn ticks_in_microsecond() -> f64 {
    /// The value on every kernel since 2.6 with a nanosecond clock.
    const USUAL: f64 = 1000.0 / 64.0;
    std::fs::read_to_string("/proc/net/psched").ok().and_then(|text| ticks(&text)).unwrap_or(USUAL)
}

fn ticks(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace().map(|word| u32::from_str_radix(word, 16));
    let mut next = || numbers.next()?.ok().map(f64::from);
    let (tick_to_time, time_to_tick, resolution) = (next()?, next()?, next()?);
    let tick_to_time = if resolution >= 1e9 { time_to_tick } else { tick_to_time };
    (time_to_tick > 0.0).then(|| tick_to_time / time_to_tick * (resolution / 1e6))
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Operation, read_filter, read_queue, ticks};
    use crate::wire::Writer;

    #[test]
    fn a_bucket_survives_its_bytes() {
        let wide = Bucket { rate: 6_000_000_000, depth: 7, limit: 9, peak_rate: 1 << 33, minimum_burst: 0 };
        for bucket in [Bucket { rate: 125_000, depth: 15_625, limit: 40_000, ..Bucket::default() }, wide] {
            let payload = Operation::SetBucket(5, bucket).request().payload;
            let queue = read_queue(&payload).expect("a discipline");
            assert_eq!((queue.index, queue.parent, queue.kind.as_str()), (5, super::ROOT, "tbf"));
            assert_eq!(queue.bucket, Some(bucket));
        }
    }

    #[test]
    fn a_redirect_names_its_target() {
        let payload = Operation::Redirect(3, 8).request().payload;
        let filter = read_filter(&payload).expect("a filter");
        assert_eq!((filter.priority, filter.kind.as_str(), filter.redirects_to), (1, "u32", Some(8)));
        // Cut off anywhere: no panic, and no invented target.
        for end in 0..payload.len() {
            assert!(read_filter(&payload[..end]).is_none_or(|cut| cut.redirects_to.is_none_or(|to| to == 8)));
        }
    }

    #[test]
    fn programs_are_seen_by_name() {
        let mut writer = Writer::new(&super::header(2, 1, super::CLSACT_PLACES[0], 0));
        writer.text(super::KIND, "bpf").nested_plain(super::OPTIONS, |options| {
            options.u32(8, 1).text(super::BPF_NAME, "cali_tc_preambl:[42]");
        });
        let payload = writer.finish();
        let filter = read_filter(&payload).expect("a filter");
        assert_eq!((filter.kind.as_str(), filter.redirects_to), ("bpf", None));
        assert_eq!(filter.program.as_deref(), Some("cali_tc_preambl:[42]"));
        for end in 0..payload.len() {
            let _ = read_filter(&payload[..end]);
        }
    }

    #[test]
    fn foreign_disciplines_are_seen_by_kind() {
        let mut writer = Writer::new(&super::header(2, 0, super::ROOT, 0));
        writer.text(super::KIND, "fq_codel").bytes(super::OPTIONS, &[1, 2, 3]);
        let queue = read_queue(&writer.finish()).expect("a discipline");
        assert_eq!((queue.kind.as_str(), queue.bucket), ("fq_codel", None));
    }

    #[test]
    fn ticks_as_the_kernel_shows_them() {
        assert_eq!(ticks("000003e8 00000040 000f4240 3b9aca00\n"), Some(15.625));
        assert_eq!(ticks("000003e8 000003e8 3b9aca00 3b9aca00\n"), Some(1000.0));
        assert_eq!(ticks("000003e8"), None);
    }
}
