//! Two pods, each a network namespace, and TCP between them: bulk traffic, and small packets.

use crate::host::shell;
use anyhow::{Context as _, Result};
use netlink::namespace::Namespace;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// The duration of bulk traffic.
const LENGTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 200 } else { 1500 });
const BUFFER: usize = 256 * 1024;
/// Connections are spread over this many ports, so that ports never run out.
const PORTS: u16 = 8;
/// The number of connections or round trips in one slice of a measurement: about a millisecond, so that a slice is
/// either disturbed or not. Connections are a multiple of the ports.
const CONNECTIONS: u16 = 3 * PORTS;
const ROUND_TRIPS: u16 = 100;

/// The results of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    pub(crate) gigabits: f64,
    pub(crate) round_trip_us: f64,
    pub(crate) connections: f64,
}

/// The command on a host: `None` is the namespace that this runs in.
pub(crate) fn on(host: Option<&str>, command: &str) -> String {
    match host {
        Some(host) => format!("ip netns exec {host} {command}"),
        None => command.to_owned(),
    }
}

/// A client and a server, connected by one host or two.
pub(crate) struct Pods {
    client: Namespace,
    server: Namespace,
    address: Ipv4Addr,
}

impl Pods {
    /// Creates two pods, each beside its host (`None` for the namespace that this runs in), with interfaces of these
    /// names on the hosts. This includes everything a CNI plugin would do, except the routes to the pods.
    pub(crate) fn make(
        id: &str,
        hosts: [Option<&str>; 2],
        interfaces: [&str; 2],
        addresses: [Ipv4Addr; 2],
    ) -> Result<Self> {
        for (number, (part, (interface, address))) in
            ["c", "s"].iter().zip(interfaces.iter().zip(addresses)).enumerate()
        {
            let on_host = |command: &str| on(hosts[number], command);
            let pod = format!("{id}{part}");
            let mac = format!("02:00:00:00:02:{number:02x}");
            let target = format!(
                "ip link add {interface} address {mac} type veth peer name eth0 netns /run/netns/{pod}"
            );
            let script = [
                format!("ip netns add {pod}"),
                format!("ip -n {pod} link set lo up"),
                on_host(&target),
                on_host(&format!("ip link set {interface} up")),
                on_host("sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'"),
                format!("ip -n {pod} addr add {address}/32 dev eth0"),
                format!("ip -n {pod} link set eth0 up"),
                format!("ip -n {pod} route add 169.254.1.1 dev eth0 scope link"),
                format!("ip -n {pod} route add default via 169.254.1.1 dev eth0"),
                // A host without a default route does not answer for this address.
                format!("ip -n {pod} neigh replace 169.254.1.1 lladdr {mac} dev eth0 nud permanent"),
            ];
            shell(&script.join("\n"), "")?;
        }
        let open = |part: &str| Namespace::open(&Path::new("/run/netns").join(format!("{id}{part}")));
        Ok(Self { client: open("c")?, server: open("s")?, address: addresses[1] })
    }

    /// Whether a connection can be made.
    pub(crate) fn reach(&self) -> Result<bool> {
        let listener = self.listen(1)?.pop().context("no listener")?;
        let address = listener.local_addr()?;
        let connected =
            self.client.run(|| TcpStream::connect_timeout(&address, Duration::from_millis(300)))?;
        Ok(connected.is_ok())
    }

    /// Whether a connection to a service can be made that leads to a port of the server.
    pub(crate) fn reach_at(&self, service: SocketAddr, port: u16) -> Result<bool> {
        let _listener = self.server.run(|| TcpListener::bind((self.address, port)))??;
        let connect = || TcpStream::connect_timeout(&service, Duration::from_millis(300));
        Ok(self.client.run(connect)?.is_ok())
    }

    fn listen(&self, count: u16) -> Result<Vec<TcpListener>> {
        static NEXT: AtomicU16 = AtomicU16::new(10_000);
        let first = NEXT.fetch_add(count, Ordering::Relaxed);
        let addresses = (first..first + count).map(|port| SocketAddr::from((self.address, port)));
        let open = || addresses.map(TcpListener::bind).collect::<std::io::Result<Vec<_>>>();
        Ok(self.server.run(open)??)
    }

    /// Prepares for small packets: slow steps are done before anything is measured.
    pub(crate) fn probe(&self) -> Result<Probe<'_>> {
        let mut listeners = Vec::new();
        for listener in self.listen(PORTS)? {
            listeners.push((listener.local_addr()?, listener));
        }
        self.probe_of(listeners)
    }

    /// Prepares for these addresses, each of which leads to a port of the server.
    pub(crate) fn probe_at(&self, targets: &[(SocketAddr, u16)]) -> Result<Probe<'_>> {
        let mut listeners = Vec::new();
        for (address, port) in targets {
            listeners.push((*address, self.server.run(|| TcpListener::bind((self.address, *port)))??));
        }
        self.probe_of(listeners)
    }

    /// A probe of listeners, by the addresses that clients use.
    fn probe_of(&self, listeners: Vec<(SocketAddr, TcpListener)>) -> Result<Probe<'_>> {
        let (address, listener) = listeners.first().context("no listener")?;
        let client = self.client.run(|| TcpStream::connect(address))??;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Probe { pods: self, listeners, client, server })
    }

    /// The throughput of one connection.
    pub(crate) fn throughput(&self) -> Result<f64> {
        let listener = self.listen(1)?.pop().context("no listener")?;
        let address = listener.local_addr()?;
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || -> std::io::Result<u64> {
                let (mut stream, _) = listener.accept()?;
                let (mut buffer, mut sum) = (vec![0; BUFFER], 0);
                loop {
                    match stream.read(&mut buffer)? {
                        0 => return Ok(sum),
                        more => sum += more as u64,
                    }
                }
            });
            let seconds = self.client.run(|| -> std::io::Result<f64> {
                let mut stream = TcpStream::connect(address)?;
                let (buffer, begin) = (vec![0; BUFFER], Instant::now());
                while begin.elapsed() < LENGTH {
                    stream.write_all(&buffer)?;
                }
                drop(stream);
                Ok(begin.elapsed().as_secs_f64())
            })??;
            let bytes = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            Ok(bytes as f64 * 8.0 / seconds / 1e9)
        })
    }
}

/// Small packets between two pods, with both ends in one thread: a packet arrives within the call that sends it, no
/// thread sleeps or is woken up, and the path through the kernel is measured. With an end in a separate thread a round
/// trip is two wake-ups, which on a virtual machine take many times as long as the packets.
pub(crate) struct Probe<'a> {
    pods: &'a Pods,
    listeners: Vec<(SocketAddr, TcpListener)>,
    client: TcpStream,
    server: TcpStream,
}

impl Probe<'_> {
    /// Sends one byte there and back repeatedly; returns the seconds for one round trip, over a slice.
    pub(crate) fn round_trip(&self) -> Result<f64> {
        let (mut client, mut server, mut byte) = (&self.client, &self.server, [0]);
        let begin = Instant::now();
        for _ in 0..ROUND_TRIPS {
            client.write_all(&byte)?;
            server.read_exact(&mut byte)?;
            server.write_all(&byte)?;
            client.read_exact(&mut byte)?;
        }
        Ok(begin.elapsed().as_secs_f64() / f64::from(ROUND_TRIPS))
    }

    /// Opens, accepts and closes connections from both ends, in turn; returns the seconds for one, over a slice.
    pub(crate) fn connections(&self) -> Result<f64> {
        let seconds = self.pods.client.run(|| -> std::io::Result<f64> {
            let begin = Instant::now();
            for _ in 0..CONNECTIONS / PORTS {
                for (address, listener) in &self.listeners {
                    let client = TcpStream::connect(address)?;
                    let (mut server, _) = listener.accept()?;
                    drop(client);
                    while server.read(&mut [0])? != 0 {}
                }
            }
            Ok(begin.elapsed().as_secs_f64())
        })??;
        Ok(seconds / f64::from(CONNECTIONS))
    }
}
