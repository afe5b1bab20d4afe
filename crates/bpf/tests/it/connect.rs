//! Sockets of a control group that connect to services: real ones, in their own namespace and group.

use crate::attachments::{Group, Mounted};
use crate::objects::sized;
use anyhow::{Context as _, Result, ensure};
use bpf::connect::{Connect, detach};
use bpf::interface::Version;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::layout::{Family, V4, V6};
use bpf::{Link, Loaded, Table};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::network::Namespace;

const CONNECT: Connect = Connect { excludes_udp: false, udp_seconds: 60, can_answer: true };
const BACKEND: u16 = 8080;

trait Wide: Family {
    const VERSION: Version;
    const SERVICE: &str;
    const NODE: &str;
    const BACKEND: &str;
    fn address(text: &str) -> Self::Address;
}

impl Wide for V4 {
    const VERSION: Version = Version::V4;
    const SERVICE: &str = "10.96.0.1";
    const NODE: &str = "192.0.2.7";
    const BACKEND: &str = "127.0.0.1";
    fn address(text: &str) -> [u8; 4] {
        text.parse::<std::net::Ipv4Addr>().unwrap().octets()
    }
}

impl Wide for V6 {
    const VERSION: Version = Version::V6;
    const SERVICE: &str = "fd96::1";
    const NODE: &str = "2001:db8::7";
    const BACKEND: &str = "::1";
    fn address(text: &str) -> [u8; 16] {
        text.parse::<std::net::Ipv6Addr>().unwrap().octets()
    }
}

/// Services: port 80 has a backend, port 81 has none, and port 30080 is a node port.
fn load<F: Wide>(connect: &Connect) -> Result<Loaded> {
    let loaded = connect.load(sized(Connect::object(F::VERSION)?)?, &BTreeMap::new())?;
    let map = |name: &str| loaded.map(&format!("cali_v{}_{name}", F::NUMBER));
    let frontends = Table::<FrontendKey<F>, Frontend>::new(map("nat_fe3")?)?;
    let mut everywhere = F::Address::default();
    everywhere.as_mut().fill(255);
    for protocol in [6, 17] {
        for (address, port, count) in
            [(F::address(F::SERVICE), 80, 1), (F::address(F::SERVICE), 81, 0), (everywhere, 30080, 1)]
        {
            let key = FrontendKey { address, port, protocol, ..FrontendKey::default() };
            frontends.set(&key, &Frontend { id: 1, count, ..Frontend::default() })?;
        }
    }
    let backends = Table::<BackendKey, Backend<F>>::new(map("nat_be")?)?;
    backends.set(
        &BackendKey { id: 1, ordinal: 0 },
        &Backend { address: F::address(F::BACKEND), port: BACKEND },
    )?;
    let routes = Table::<RouteKey<F>, Route<F>>::new(map("routes")?)?;
    #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
    let bits = F::WIDTH as u32 * 8;
    routes.set(
        &RouteKey { bits, address: F::address(F::NODE) },
        &Route { flags: flags::HOST, ..Route::default() },
    )?;
    Ok(loaded)
}

/// Runs `work` while servers of both protocols answer on the backend's port.
fn with_servers<T>(namespace: &Namespace, address: IpAddr, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let at = SocketAddr::from((address, BACKEND));
    let (tcp, udp) = namespace.run(|| (TcpListener::bind(at), UdpSocket::bind(at)))?;
    let (tcp, udp) = (tcp?, udp?);
    tcp.set_nonblocking(true)?;
    udp.set_read_timeout(Some(Duration::from_millis(20)))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if `work` panics: the scope waits for the servers.
        let _end = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut question = [0; 64];
                if let Ok((mut stream, _)) = tcp.accept() {
                    // Closing with unread data would cut the connection off with a RST.
                    let _ = stream.set_nonblocking(false);
                    let _ = stream.set_read_timeout(Some(testkit::PATIENCE));
                    let _ = std::io::Read::read(&mut stream, &mut question);
                    let _ = std::io::Write::write_all(&mut stream, b"tcp");
                }
                if let Ok((_, from)) = udp.recv_from(&mut question) {
                    let _ = udp.send_to(b"udp", from);
                }
            }
        });
        work()
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn ask(namespace: &Namespace, group: &Group, how: &str, target: &str) -> Result<String> {
    let group = group.path.to_str().context("no text")?;
    let program = testkit::example("ask")?;
    let mut command = namespace.command(program.to_str().context("no text")?);
    let output = testkit::finish(
        {
            command.args([group, how, target]);
            command
        },
        "",
    )?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn pins(files: &Mounted) -> Result<Vec<String>> {
    let names = std::fs::read_dir(files.path())?;
    let mut names: Vec<_> =
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    // The kernel has files of its own in this folder.
    names.retain(|name| name.starts_with("calico_"));
    names.sort();
    Ok(names)
}

fn talk<F: Wide>(mapped: bool) -> Result<()> {
    let name = format!("con{}{}", F::NUMBER, u8::from(mapped));
    let namespace = Namespace::new(&format!("bpf-{name}-{}", std::process::id()))?;
    // There is no route to services: the address is replaced before routing.
    namespace.batch("link set lo up")?;
    let (group, files) = (Group::new(&name)?, Mounted::new("bpf")?);
    let folder = std::fs::File::open(&group.path)?;
    let loaded = load::<F>(&CONNECT)?;
    CONNECT.attach(&loaded, folder.as_fd(), files.path())?;
    let shown = |address: &str, port: u16| match (F::NUMBER, mapped) {
        (4, false) => format!("{address}:{port}"),
        (4, true) => format!("[::ffff:{address}]:{port}"),
        _ => format!("[{address}]:{port}"),
    };
    let (service, node) = (shown(F::SERVICE, 80), shown(F::NODE, 30080));
    let empty = shown(F::SERVICE, 81);
    with_servers(&namespace, F::BACKEND.parse()?, || {
        let asked = |how: &str, target: &str| ask(&namespace, &group, how, target);
        // A TCP connection shows the backend; UDP shows the service, for which the backend answers.
        let backend = shown(F::BACKEND, BACKEND);
        assert_eq!(asked("tcp", &service)?, format!("tcp from {backend}"));
        assert_eq!(asked("tcp", &node)?, format!("tcp from {backend}"));
        assert_eq!(asked("tcp", &empty)?, "ConnectionRefused");
        assert_eq!(asked("udp", &service)?, format!("udp from {service}"));
        assert_eq!(asked("udp", &node)?, format!("udp from {node}"));
        assert_eq!(asked("connected", &service)?, format!("udp from {service}"));
        assert_eq!(asked("udp", &empty)?, "ConnectionRefused");
        // Addresses that are not services are left alone.
        assert_eq!(asked("tcp", &backend)?, format!("tcp from {backend}"));
        Ok(())
    })?;

    // Reloaded programs replace each other in the same attachments; without UDP its attachments are gone.
    let link = |name: &str| Link::open(&files.path().join(name));
    let connect = if F::NUMBER == 4 { "calico_connect_v4" } else { "calico_connect_v6" };
    let before = link(connect)?.program_id()?;
    let tcp_only = Connect { excludes_udp: true, can_answer: false, ..CONNECT };
    let second = load::<F>(&tcp_only)?;
    tcp_only.attach(&second, folder.as_fd(), files.path())?;
    ensure!(link(connect)?.program_id()? != before);
    let left = if F::NUMBER == 4 {
        vec!["calico_connect_v4", "calico_connect_v46"]
    } else {
        vec!["calico_connect_v6"]
    };
    assert_eq!(pins(&files)?, left);
    with_servers(&namespace, F::BACKEND.parse()?, || {
        assert_eq!(ask(&namespace, &group, "tcp", &empty)?, "PermissionDenied");
        Ok(())
    })?;
    detach(files.path())?;
    assert_eq!(pins(&files)?, Vec::<String>::new());
    detach(files.path())?;
    Ok(())
}

#[test]
fn sockets_of_ipv4_get_backends() -> Result<()> {
    talk::<V4>(false)
}

#[test]
fn sockets_of_ipv6_get_ipv4_backends_for_mapped_addresses() -> Result<()> {
    talk::<V4>(true)
}

#[test]
fn sockets_of_ipv6_get_backends() -> Result<()> {
    talk::<V6>(false)
}
