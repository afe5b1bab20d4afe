//! Logs packets that matched a rule that logs, and with `BPFLogLevel: Debug` those that programs dropped. A thread
//! reads them from the programs' queues, in which new events replace the oldest, so a flood costs only lines. The
//! thread sleeps while no rule logs: nothing enters the queues then.

use crate::error::Error;
use crate::filter::Filters;
use crate::maps::folder;
use bpf::layout::event::{Event, EventKind, rule_name};
use bpf::{Layout as _, Map, Queue};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

const LOGGED: &str = "bpfp_logs";
const DROPPED: &str = "bpfp_events";
/// The map with names of rules by their ids.
pub(crate) const NAMES: &str = "bpfp_names";
const PAUSE: Duration = Duration::from_millis(200);
/// Further lines within a second are counted, but not written.
const MOST_LINES: usize = 100;

/// What is logged.
#[derive(Clone, Debug, Default)]
pub struct Logging {
    /// The prefix of lines.
    pub prefix: String,
    /// Dropped packets are logged, too.
    pub with_drops: bool,
    /// Which dropped packets are logged.
    pub filters: Filters,
}

/// The thread, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Logs {
    orders: Sender<bool>,
    /// Whether rules log; `None` until known.
    is_wanted: Option<bool>,
}

impl Logs {
    /// Opens the queues by their pins, and starts the thread.
    pub(crate) fn start(root: &Path, logging: Logging) -> Result<Self, Error> {
        let folder = folder(root);
        let logged = Map::open(&folder.join(LOGGED))?;
        let dropped = logging.with_drops.then(|| Map::open(&folder.join(DROPPED))).transpose()?;
        let names = Map::open(&folder.join(NAMES))?;
        let (orders, heard) = channel();
        let work = move || {
            let mut pace = Pace { since: Instant::now(), written: 0, left_out: 0 };
            let mut is_wanted = logging.with_drops;
            while goes_on(&heard, &mut is_wanted, logging.with_drops) {
                for map in [Some(&logged), dropped.as_ref()].into_iter().flatten() {
                    if let Err(error) = write(map, &names, &logging, &mut pace) {
                        tracing::warn!(%error, "cannot read the events of eBPF programs");
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("bpf-logs".into()).spawn(work);
        thread.map_err(|reason| Error::File {
            what: "starting a thread for packets' lines".to_owned(),
            reason,
        })?;
        Ok(Self { orders, is_wanted: None })
    }

    /// Sets whether rules log.
    pub(crate) fn want(&mut self, is_wanted: bool) {
        if self.is_wanted.replace(is_wanted) != Some(is_wanted) {
            // Fails only if the thread is gone; then nothing is written.
            let _ = self.orders.send(is_wanted);
        }
    }
}

/// Waits a moment, or until there is something to log; false if the thread is to end.
fn goes_on(heard: &Receiver<bool>, is_wanted: &mut bool, always: bool) -> bool {
    let order = match *is_wanted {
        true => heard.recv_timeout(PAUSE),
        false => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    match order {
        // The last events of removed rules are written in this turn.
        Ok(order) => *is_wanted = order || always,
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => return false,
    }
    true
}

/// How many lines were written in this second.
struct Pace {
    since: Instant,
    written: usize,
    left_out: usize,
}

impl Pace {
    fn may_write(&mut self) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            if self.left_out > 0 {
                tracing::info!(
                    packets = self.left_out,
                    "more packets matched rules that log than are written"
                );
            }
            (self.since, self.written, self.left_out) = (Instant::now(), 0, 0);
        }
        self.written += 1;
        if self.written > MOST_LINES {
            self.left_out += 1;
        }
        self.written <= MOST_LINES
    }
}

fn write(map: &Map, names: &Map, logging: &Logging, pace: &mut Pace) -> Result<(), bpf::Error> {
    let queue = Queue::<Event>::new(map)?;
    // At most the queue's capacity: a fast writer must not keep the thread here for ever.
    for _ in 0..map.definition().entries {
        let Some(event) = queue.pop()? else { return Ok(()) };
        let device = device(event.device);
        let is_wanted = event.kind != EventKind::Dropped || logging.filters.want(&device, &event);
        if is_wanted && pace.may_write() {
            let name = names.get(&event.rule.bytes())?.map(|bytes| rule_name(&bytes));
            tracing::info!("{}", line(&logging.prefix, &event, &device, name.as_deref()));
        }
    }
    Ok(())
}

fn device(index: u32) -> String {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    let ask = || netdevice::index_to_name(socket(AddressFamily::INET, SocketType::DGRAM, None)?, index);
    ask().unwrap_or_else(|_| index.to_string())
}

/// A line about a packet, in the words of the kernel's log.
fn line(prefix: &str, event: &Event, device: &str, rule: Option<&str>) -> String {
    let direction = if event.hook == 1 { "OUT" } else { "IN" };
    let mut line = format!(
        "{prefix}{}{direction}={device} SRC={} DST={} LEN={}",
        if prefix.is_empty() || prefix.ends_with(' ') { "" } else { " " },
        event.source,
        event.destination,
        event.length,
    );
    let name = match event.protocol {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => other.to_string(),
    };
    line.push_str(&format!(" PROTO={name}"));
    match event.protocol {
        6 | 17 | 132 => line.push_str(&format!(" SPT={} DPT={}", event.source_port, event.destination_port)),
        1 | 58 => {
            let [kind, code] = event.destination_port.to_be_bytes();
            line.push_str(&format!(" TYPE={kind} CODE={code}"));
        }
        _ => {}
    }
    line.push_str(match event.kind {
        EventKind::LoggedAllowed => " allowed",
        EventKind::LoggedDenied => " denied",
        EventKind::Dropped => " dropped",
        EventKind::Unknown(_) => "",
    });
    match (rule, event.rule) {
        (Some(rule), _) => line.push_str(&format!(" by {rule}")),
        (None, 0) => line.push_str(&format!(" (reason {})", event.reason)),
        (None, rule) => line.push_str(&format!(" by rule {rule:016x}")),
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_state_the_fate_of_a_packet_and_its_reason() {
        let event = Event {
            time: 1,
            rule: 255,
            device: 3,
            reason: 4,
            length: 60,
            hook: 0,
            kind: EventKind::LoggedDenied,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 4000,
            destination_port: 80,
            mark: 0,
        };
        let text = line("calico-packet", &event, "cali1", Some("DPI|default"));
        assert_eq!(
            text,
            "calico-packet IN=cali1 SRC=10.0.0.1 DST=10.0.0.2 LEN=60 PROTO=TCP SPT=4000 DPT=80 denied by DPI|default"
        );
        let echo =
            Event { protocol: 1, destination_port: 0x0800, hook: 1, kind: EventKind::LoggedAllowed, ..event };
        let text = line("p: ", &echo, "eth0", None);
        assert!(text.starts_with("p: OUT=eth0 "), "{text}");
        assert!(text.ends_with("PROTO=ICMP TYPE=8 CODE=0 allowed by rule 00000000000000ff"), "{text}");
        let spoofed = Event { rule: 0, reason: 11, kind: EventKind::Dropped, ..event };
        assert!(line("", &spoofed, "3", None).ends_with("dropped (reason 11)"));
        assert_eq!(rule_name(b"DRI\0\0"), "DRI");
    }

    #[test]
    fn the_thread_sleeps_while_no_rule_logs() {
        let (orders, heard) = channel();
        let mut is_wanted = true;
        assert!(goes_on(&heard, &mut is_wanted, false) && is_wanted, "a moment");
        orders.send(false).expect("the order is received");
        assert!(goes_on(&heard, &mut is_wanted, false) && !is_wanted, "once more");
        // Only an order or the end interrupts the next wait.
        let waits = std::thread::spawn(move || (goes_on(&heard, &mut is_wanted, false), is_wanted, heard));
        orders.send(true).expect("the order is received");
        let (goes, mut is_wanted, heard) = waits.join().expect("it wakes");
        assert!(goes && is_wanted);
        orders.send(false).expect("the order is received");
        assert!(
            goes_on(&heard, &mut is_wanted, true) && is_wanted,
            "packets that are dropped are written too"
        );
        drop(orders);
        assert!(!goes_on(&heard, &mut is_wanted, true));
    }

    #[test]
    fn a_flood_is_counted_but_not_written() {
        let mut pace = Pace { since: Instant::now() + Duration::from_secs(60), written: 0, left_out: 0 };
        let written = (0..MOST_LINES + 5).filter(|_| pace.may_write()).count();
        assert_eq!((written, pace.left_out), (MOST_LINES, 5));
    }
}
