//! A cheap peer: it sends a table that was encoded in advance, and counts what it receives.

use anyhow::{Context as _, Result, bail};
use bgp_wire::{
    AsPath, Asn, Attributes, Capability, Family, Message, MessageKind, NextHop, Nlri, Open, RouterId,
    SessionOptions, UpdateWriter, decode, encode, frame,
};
use ipnet::{IpNet, Ipv4Net};
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use testkit::network::Namespace;

/// How long a session may take to come up, and a table to be passed on.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const OPTIONS: SessionOptions = SessionOptions {
    four_byte_as: true,
    extended_messages: false,
    external: true,
    families: [true, false],
    extended_next_hop: false,
    add_path_receive: [false; 2],
    add_path_send: [false; 2],
};

/// The prefix with this number.
pub(crate) fn prefix(number: u32) -> Nlri {
    Nlri::new(IpNet::V4(Ipv4Net::new(Ipv4Addr::from(0x1400_0000 + (number << 8)), 24).expect("a length")))
}

/// Encodes the announcement of a table in which `shared` prefixes at a time share their attributes.
pub(crate) fn table(count: u32, shared: u32, system: u32, next_hop: Ipv4Addr) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = UpdateWriter::new(OPTIONS);
    for begin in (0..count).step_by(shared as usize) {
        let attributes = Attributes {
            as_path: AsPath::sequence(vec![system, 1_000_000 + begin]),
            ..Attributes::default()
        };
        let prefixes = (begin..(begin + shared).min(count)).map(prefix);
        writer
            .announce(&mut bytes, &attributes, &NextHop::from(std::net::IpAddr::from(next_hop)), prefixes)
            .expect("short attributes");
    }
    bytes
}

/// One end of a session.
pub(crate) struct Tester {
    pub(crate) stream: TcpStream,
    rest: Vec<u8>,
    buffer: Vec<u8>,
}

impl Tester {
    /// Opens a session with the speaker at `there`, from an address in a namespace.
    pub(crate) fn connect(
        namespace: &Namespace,
        here: Ipv4Addr,
        there: Ipv4Addr,
        system: u32,
    ) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Self::attempt(namespace, here, there, system) {
                Ok(tester) => return Ok(tester),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn attempt(namespace: &Namespace, here: Ipv4Addr, there: Ipv4Addr, system: u32) -> Result<Self> {
        let stream = namespace.run(|| -> Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((here, 0)).into())?;
            socket.connect_timeout(&SocketAddr::from((there, 179)).into(), Duration::from_secs(2))?;
            Ok(socket.into())
        })??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut tester = Self { stream, rest: Vec::new(), buffer: vec![0; 1 << 20] };
        let mut open = Open::new(Asn(system), 240, RouterId(u32::from(here)));
        open.capabilities.push(Capability::Multiprotocol(Family::Ipv4));
        let mut bytes = Vec::new();
        encode(&mut bytes, &Message::Open(open), &OPTIONS);
        tester.stream.write_all(&bytes)?;
        bytes.clear();
        encode(&mut bytes, &Message::Keepalive, &OPTIONS);
        let mut opened = false;
        loop {
            for kind in tester.read(|_, _| {})? {
                match kind {
                    MessageKind::Open => tester.stream.write_all(&bytes)?,
                    MessageKind::Keepalive => opened = true,
                    MessageKind::Notification => bail!("refused"),
                    _ => {}
                }
            }
            if opened {
                tester.stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(tester);
            }
        }
    }

    /// Reads once; returns the kinds of messages, and reports how many prefixes each announced and withdrew.
    fn read(&mut self, mut each: impl FnMut(usize, usize)) -> Result<Vec<MessageKind>> {
        let count = self.stream.read(&mut self.buffer).context("reading from the speaker")?;
        if count == 0 {
            bail!("the speaker closed the connection");
        }
        self.rest.extend_from_slice(&self.buffer[..count]);
        let mut rest = self.rest.as_slice();
        let mut kinds = Vec::new();
        while let Ok(Some(found)) = frame(rest, &OPTIONS) {
            kinds.push(found.kind);
            if let Ok(Message::Update(update)) = decode(&found, &OPTIONS) {
                each(update.reach.iter().map(|reach| reach.nlri.len()).sum(), update.withdrawn.len());
            }
            rest = &rest[found.length..];
        }
        self.rest = rest.to_vec();
        Ok(kinds)
    }

    /// Reads until this many prefixes have been announced and withdrawn.
    pub(crate) fn wait(&mut self, announced: usize, withdrawn: usize) -> Result<()> {
        let (mut new, mut gone) = (0, 0);
        while new < announced || gone < withdrawn {
            self.read(|one, other| {
                new += one;
                gone += other;
            })?;
        }
        Ok(())
    }
}
