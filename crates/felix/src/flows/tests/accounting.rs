//! Random traffic through restarts of server and collector: every connection is in flows once, with the kernel's own
//! counts.

use super::*;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicU16;
use testkit::guest::Guest;
use tokio::runtime::Runtime;

/// A server on a runtime of its own, which ends with all its connections.
struct Server {
    runtime: Option<Runtime>,
    taken: Taken,
}

impl Server {
    fn start(socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let runtime = Runtime::new().unwrap();
        let inside = runtime.enter();
        let taken = serve(socket);
        drop(inside);
        Self { runtime: Some(runtime), taken }
    }

    /// The sum of a reporter's flows of allowed connections.
    fn allowed(&self, reporter: Reporter) -> Counters {
        let mut sum = Counters::default();
        for (_, counters) in
            self.taken.of(reporter, "tcp", 80).iter().filter(|(text, _)| text.contains(" Allow "))
        {
            sum.add(counters);
        }
        sum
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A pseudo-random number, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Opens connections of all kinds, some simultaneously: by the service or not, over both families, of any length.
/// Denied packets are among them.
fn talk_at_random(host: &Host, random: &mut Random, connections: usize) {
    let server = host.pods[1].run(|| TcpListener::bind("[::]:80")).unwrap().unwrap();
    let answering = std::thread::spawn(move || {
        let answers: Vec<_> = (0..connections)
            .map(|_| {
                let (mut stream, _) = server.accept().unwrap();
                std::thread::spawn(move || {
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).unwrap();
                    stream.write_all(&all).unwrap();
                })
            })
            .collect();
        answers.into_iter().for_each(|answer| answer.join().unwrap());
    });
    // Every port once: where two connections collide, the kernel forgets one that has ended.
    static PORTS: AtomicU16 = AtomicU16::new(40_000);
    let plans: Vec<(u16, SocketAddr, u64)> = (0..connections)
        .map(|_| {
            let places = ["10.0.0.2:80", "10.96.0.1:8080", "[fd00::2]:80"];
            let place = places[usize::try_from(random.below(3)).unwrap()];
            (PORTS.fetch_add(1, Ordering::Relaxed), place.parse().unwrap(), random.below(60_000))
        })
        .collect();
    host.pods[0]
        .run(move || {
            let denied = UdpSocket::bind("0.0.0.0:0").unwrap();
            for some in plans.chunks(4) {
                denied.send_to(&[1; 100], "10.0.0.2:53").unwrap();
                // Threads of this thread are in the same namespace.
                let talking = some.iter().copied().map(|(port, place, bytes)| {
                    std::thread::spawn(move || {
                        let mut stream = connect_from(port, place).unwrap();
                        stream.write_all(&vec![7; usize::try_from(bytes).unwrap()]).unwrap();
                        stream.shutdown(std::net::Shutdown::Write).unwrap();
                        let mut all = Vec::new();
                        stream.read_to_end(&mut all).unwrap();
                        assert_eq!(all.len() as u64, bytes);
                    })
                });
                talking.collect::<Vec<_>>().into_iter().for_each(|one| one.join().unwrap());
            }
        })
        .unwrap();
    answering.join().unwrap();
}

/// Asserts that flows have this many connections, and every packet that the kernel counted, once at each end.
fn is_accounted_once(host: &Host, server: &Server, connections: u64) {
    let kernel = [netlink::Family::V4, netlink::Family::V6].map(|family| host.counted(family));
    let sum = |of: fn(&(Counted, Counted)) -> u64| kernel.iter().map(of).sum::<u64>();
    for reporter in [Reporter::Src, Reporter::Dst] {
        let found = server.allowed(reporter);
        assert_eq!(
            (found.started, found.completed),
            (connections, connections),
            "{reporter:?}: {:#?}",
            server.taken.of(reporter, "tcp", 80)
        );
        let (out, back) = match reporter {
            Reporter::Src => ((found.packets_out, found.bytes_out), (found.packets_in, found.bytes_in)),
            _ => ((found.packets_in, found.bytes_in), (found.packets_out, found.bytes_out)),
        };
        assert_eq!(out, (sum(|one| one.0.packets), sum(|one| one.0.bytes)), "{reporter:?}");
        assert_eq!(back, (sum(|one| one.1.packets), sum(|one| one.1.bytes)), "{reporter:?}");
    }
}

/// A connection from this port, which other connections may have too.
fn connect_from(port: u16, place: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(place), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    let any: IpAddr =
        if place.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.connect(&place.into())?;
    Ok(socket.into())
}

/// Translated or not, both connections have the same addresses and ports on their way through the rules. Kernels
/// distinguish them if they were built to report a packet with its connection, as those of distributions are.
#[test]
fn guest_connections_by_the_service_and_without_it_from_the_same_port_are_two() {
    let name = "flows::tests::accounting::guest_connections_by_the_service_and_without_it_from_the_same_port_are_two";
    Guest::new(name).program("ip").program("nft").run(|| {
        Runtime::new().unwrap().block_on(connections_from_the_same_port_are_two());
    });
}

async fn connections_from_the_same_port_are_two() {
    let (host, folder) = (Host::new(), Folder::new("flows").unwrap());
    let goldmane = folder.path().join("goldmane.sock");
    let server = Server::start(&goldmane);
    let _running = collector(&host, Some(&goldmane), None, &Metrics::default());
    let listener = host.pods[1].run(|| TcpListener::bind("[::]:80")).unwrap().unwrap();
    let mut open = Vec::new();
    for (place, bytes) in [("10.96.0.1:8080", 40_000), ("10.0.0.2:80", 10)] {
        let mut stream = host.pods[0].run(|| connect_from(45_000, place.parse().unwrap())).unwrap().unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.read_exact(&mut vec![0; bytes]).unwrap();
        open.push((stream, accepted));
    }
    drop(open);
    testkit::eventually_async("both connections are in flows", async || {
        [Reporter::Src, Reporter::Dst].iter().all(|side| server.allowed(*side).completed >= 2)
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {:#?}", server.taken.0.lock().unwrap()));
    is_accounted_once(&host, &server, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_traffic_is_accounted_once_through_restarts() {
    let (host, folder) = (Host::new(), Folder::new("flows").unwrap());
    let goldmane = folder.path().join("goldmane.sock");
    let mut random = Random(7);
    let has = async |server: &Server, count: u64| {
        testkit::eventually_async("every connection is in a flow", async || {
            [Reporter::Src, Reporter::Dst].iter().all(|side| server.allowed(*side).completed >= count)
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {:#?}", server.taken.0.lock().unwrap()));
    };
    let server = Server::start(&goldmane);
    let running = collector(&host, Some(&goldmane), None, &Metrics::default());
    talk_at_random(&host, &mut random, 24);
    has(&server, 24).await;
    // A new server, which knows nothing: the collector sends it everything so far.
    drop(server);
    let server = Server::start(&goldmane);
    has(&server, 24).await;
    // A new collector finds connections that are in flows already, and does not report them.
    drop(running);
    testkit::eventually_async("reading has ended", async || {
        let readers = || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_log");
        host.host.run(readers).unwrap().is_ok_and(|text| text.is_empty())
    })
    .await
    .unwrap();
    let _running = collector(&host, Some(&goldmane), None, &Metrics::default());
    talk_at_random(&host, &mut random, 16);
    has(&server, 40).await;
    is_accounted_once(&host, &server, 40);
}
