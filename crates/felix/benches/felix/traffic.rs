//! Two pods on one host, each a network namespace, and TCP between them.

use crate::host::shell;
use anyhow::{Context as _, Result};
use netlink::namespace::Namespace;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};
use testkit::median;

/// How long each kind of traffic runs.
const LENGTH: Duration = Duration::from_millis(if cfg!(debug_assertions) { 200 } else { 1500 });
const BUFFER: usize = 256 * 1024;
/// Connections are spread over so many ports, so that nobody runs out of them.
const PORTS: u16 = 8;

/// What went through.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    pub(crate) gigabits: f64,
    pub(crate) round_trip_us: f64,
    pub(crate) connections: f64,
}

/// A client and a server, connected by a host.
pub(crate) struct Pods {
    client: Namespace,
    server: Namespace,
    address: Ipv4Addr,
}

impl Pods {
    /// Makes two pods beside the host `host` (none for the namespace that this runs in), with interfaces of these names
    /// on the host. What a CNI plugin would do is done; the routes to the pods are not.
    pub(crate) fn make(
        id: &str,
        host: Option<&str>,
        interfaces: [&str; 2],
        addresses: [Ipv4Addr; 2],
    ) -> Result<Self> {
        let on_host = |command: &str| match host {
            Some(host) => format!("ip netns exec {host} {command}"),
            None => command.to_owned(),
        };
        for (number, (part, (interface, address))) in
            ["c", "s"].iter().zip(interfaces.iter().zip(addresses)).enumerate()
        {
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
                // A host without a way out does not answer for this address.
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

    fn listen(&self, count: u16) -> Result<Vec<TcpListener>> {
        static NEXT: AtomicU16 = AtomicU16::new(10_000);
        let first = NEXT.fetch_add(count, Ordering::Relaxed);
        let addresses = (first..first + count).map(|port| SocketAddr::from((self.address, port)));
        let open = || addresses.map(TcpListener::bind).collect::<std::io::Result<Vec<_>>>();
        Ok(self.server.run(open)??)
    }

    /// Measures all three kinds of traffic.
    pub(crate) fn measure(&self) -> Result<Speed> {
        Ok(Speed {
            gigabits: self.throughput()?,
            round_trip_us: self.round_trip()?,
            connections: self.connections()?,
        })
    }

    /// One connection, as much as goes through.
    fn throughput(&self) -> Result<f64> {
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

    /// One byte there and back again.
    fn round_trip(&self) -> Result<f64> {
        let listener = self.listen(1)?.pop().context("no listener")?;
        let address = listener.local_addr()?;
        std::thread::scope(|scope| {
            scope.spawn(move || -> std::io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                let mut byte = [0];
                while stream.read(&mut byte)? == 1 {
                    stream.write_all(&byte)?;
                }
                Ok(())
            });
            let times = self.client.run(|| -> std::io::Result<Vec<f64>> {
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                let (mut times, mut byte, begin) = (Vec::new(), [0], Instant::now());
                while begin.elapsed() < LENGTH {
                    let sent = Instant::now();
                    stream.write_all(&byte)?;
                    stream.read_exact(&mut byte)?;
                    times.push(sent.elapsed().as_secs_f64() * 1e6);
                }
                Ok(times)
            })??;
            Ok(median(times))
        })
    }

    /// Connections that are made and closed, one after the other.
    fn connections(&self) -> Result<f64> {
        let listeners = self.listen(PORTS)?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for listener in listeners {
                let stop = &stop;
                scope.spawn(move || {
                    while let Ok((mut stream, _)) = listener.accept() {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        // Until the client closes it.
                        let _ = stream.read(&mut [0]);
                    }
                });
            }
            let outcome = self.client.run(|| -> std::io::Result<f64> {
                let (mut count, begin) = (0_u32, Instant::now());
                while begin.elapsed() < LENGTH {
                    for address in &addresses {
                        drop(TcpStream::connect(address)?);
                        count += 1;
                    }
                }
                Ok(f64::from(count) / begin.elapsed().as_secs_f64())
            });
            stop.store(true, Ordering::Relaxed);
            // One more for each wakes it up.
            let _ = self.server.run(|| addresses.iter().map(TcpStream::connect).collect::<Vec<_>>());
            Ok(outcome??)
        })
    }
}
