//! etcd members from DNS: the SRV records `_etcd-client-ssl._tcp` and `_etcd-client._tcp` of a domain.
//!
//! The system's resolver functions do not support SRV records, so this queries the name servers of `/etc/resolv.conf`
//! itself, over UDP, and over TCP when the answer is truncated. It is a stub resolver for one record type only: no
//! cache, no search domains, and nothing in an answer is trusted beyond the bounds of the message.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const TYPE_SRV: u16 = 33;
const CLASS_INTERNET: u16 = 1;
const HEADER: usize = 12;
/// Names with more compression pointers than this are malicious.
const MAX_POINTERS: usize = 32;

/// One SRV record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Service {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

/// The members that DNS lists for this domain, as endpoints; those with TLS first.
pub(super) async fn members(domain: &str) -> Result<Vec<String>, String> {
    let configuration = tokio::fs::read_to_string(RESOLV_CONF).await.unwrap_or_default();
    members_by(&name_servers(&configuration), domain).await
}

async fn members_by(servers: &[SocketAddr], domain: &str) -> Result<Vec<String>, String> {
    let mut endpoints = Vec::new();
    let mut failures = Vec::new();
    for (service, scheme) in [("etcd-client-ssl", "https"), ("etcd-client", "http")] {
        let name = format!("_{service}._tcp.{}", domain.trim_end_matches('.'));
        match lookup(servers, &name).await {
            Ok(services) => endpoints.extend(
                services.iter().map(|service| format!("{scheme}://{}:{}", service.target, service.port)),
            ),
            Err(reason) => failures.push(format!("{name}: {reason}")),
        }
    }
    if endpoints.is_empty() {
        if failures.is_empty() {
            failures.push(format!("{domain} has no SRV records for etcd-client"));
        }
        return Err(failures.join("; "));
    }
    Ok(endpoints)
}

fn name_servers(configuration: &str) -> Vec<SocketAddr> {
    let mut servers: Vec<SocketAddr> = configuration
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
    }
    servers
}

/// The records of this name, best first, from the first server that answers.
async fn lookup(servers: &[SocketAddr], name: &str) -> Result<Vec<Service>, String> {
    let id = u16::from_be_bytes([uuid::Uuid::new_v4().as_bytes()[0], uuid::Uuid::new_v4().as_bytes()[1]]);
    let query = query(id, name)?;
    let mut last = "there is no name server".to_owned();
    for server in servers {
        match ask(*server, &query)
            .await
            .map_err(|error| error.to_string())
            .and_then(|answer| parse(id, &answer))
        {
            Ok(mut services) => {
                services.sort_by(|left, right| {
                    (left.priority, right.weight, &left.target).cmp(&(
                        right.priority,
                        left.weight,
                        &right.target,
                    ))
                });
                return Ok(services);
            }
            Err(reason) => last = format!("{server}: {reason}"),
        }
    }
    Err(last)
}

async fn ask(server: SocketAddr, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let local: SocketAddr =
        if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().map_err(std::io::Error::other)?;
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(query).await?;
    let mut answer = vec![0; 65_535];
    let length = timeout(ANSWER_TIMEOUT, socket.recv(&mut answer)).await??;
    answer.truncate(length);
    let is_cut = answer.get(2).is_some_and(|flags| flags & 0x02 != 0);
    if !is_cut {
        return Ok(answer);
    }
    let mut stream = timeout(ANSWER_TIMEOUT, TcpStream::connect(server)).await??;
    stream.write_u16(u16::try_from(query.len()).map_err(std::io::Error::other)?).await?;
    stream.write_all(query).await?;
    let length = timeout(ANSWER_TIMEOUT, stream.read_u16()).await??;
    answer = vec![0; usize::from(length)];
    timeout(ANSWER_TIMEOUT, stream.read_exact(&mut answer)).await??;
    Ok(answer)
}

fn query(id: u16, name: &str) -> Result<Vec<u8>, String> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    for word in [id, 0x0100, 1, 0, 0, 0] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length));
        message.push(length.ok_or_else(|| format!("'{name}' is not a domain name"))?);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    for word in [TYPE_SRV, CLASS_INTERNET] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    Ok(message)
}

fn parse(id: u16, message: &[u8]) -> Result<Vec<Service>, String> {
    let word = |at: usize| -> Result<u16, String> {
        let bytes = message.get(at..at + 2).ok_or("the answer is truncated")?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    if word(0)? != id {
        return Err("the answer is for another question".to_owned());
    }
    match word(2)? & 0x0f {
        0 => {}
        3 => return Ok(Vec::new()),
        code => return Err(format!("the server refused with code {code}")),
    }
    let mut at = HEADER;
    for _ in 0..word(4)? {
        at = name(message, at)?.1 + 4;
    }
    message.get(..at).ok_or("the answer is truncated")?;
    let mut services = Vec::new();
    for _ in 0..word(6)? {
        at = name(message, at)?.1;
        let (kind, length) = (word(at)?, usize::from(word(at + 8)?));
        let data = at + 10;
        if kind == TYPE_SRV {
            let target = name(message, data + 6)?.0;
            services.push(Service {
                priority: word(data)?,
                weight: word(data + 2)?,
                port: word(data + 4)?,
                target,
            });
        }
        at = data + length;
    }
    Ok(services)
}

/// Reads the name at `start`; also returns the position after it.
fn name(message: &[u8], start: usize) -> Result<(String, usize), String> {
    const CUT: &str = "the answer is truncated";
    let mut text = String::new();
    let mut at = start;
    let mut after = None;
    for _ in 0..MAX_POINTERS + 128 {
        let length = usize::from(*message.get(at).ok_or(CUT)?);
        if length == 0 {
            return Ok((text, after.unwrap_or(at + 1)));
        }
        if length & 0xc0 == 0xc0 {
            let low = usize::from(*message.get(at + 1).ok_or(CUT)?);
            after.get_or_insert(at + 2);
            at = (length & 0x3f) << 8 | low;
            continue;
        }
        let label = message.get(at + 1..at + 1 + length).ok_or(CUT)?;
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(std::str::from_utf8(label).map_err(|_| "a name is not text")?);
        at += 1 + length;
    }
    Err("a name in the answer does not end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every query for `_etcd-client._tcp` with two records, and others with "no such name".
    async fn serve(socket: UdpSocket) {
        let mut buffer = [0; 512];
        loop {
            let Ok((length, peer)) = socket.recv_from(&mut buffer).await else { return };
            let question = buffer[..length].to_vec();
            let known = question
                .windows(12)
                .any(|window| window == b"\x0b_etcd-clien".as_slice() || window == b"etcd-client\x04");
            let mut answer = question.clone();
            answer[2] = 0x81;
            if known {
                answer[7] = 2;
                for (priority, port, target) in [(20_u16, 2380_u16, "b"), (10, 2379, "a")] {
                    answer.extend_from_slice(&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
                    let mut data = Vec::new();
                    for word in [priority, 5, port] {
                        data.extend_from_slice(&word.to_be_bytes());
                    }
                    data.extend_from_slice(&[1, target.as_bytes()[0], 7]);
                    data.extend_from_slice(b"example\x03org\x00");
                    answer.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
                    answer.extend_from_slice(&data);
                }
            } else {
                answer[3] = 3;
            }
            let _ = socket.send_to(&answer, peer).await;
        }
    }

    #[tokio::test]
    async fn members_come_from_srv_records_in_order_of_priority() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = socket.local_addr().unwrap();
        let task = tokio::spawn(serve(socket));
        let found = members_by(&[server], "example.org").await.unwrap();
        assert_eq!(found, ["http://a.example.org:2379", "http://b.example.org:2380"]);
        task.abort();
    }

    #[test]
    fn a_malformed_answer_is_an_error_and_never_a_panic() {
        let good = query(7, "_etcd-client._tcp.example.org").unwrap();
        assert_eq!(parse(7, &good), Ok(Vec::new()));
        assert!(parse(8, &good).is_err());
        for cut in 0..good.len() {
            assert!(parse(7, &good[..cut]).is_err(), "{cut}");
        }
        let mut looping = good;
        looping[HEADER..HEADER + 2].copy_from_slice(&[0xc0, 12]);
        assert!(parse(7, &looping).unwrap_err().contains("does not end"));
    }

    #[test]
    fn name_servers_come_from_the_configuration() {
        let text = "search x\nnameserver 192.0.2.1\n  nameserver 2001:db8::1\nnameserver bad\n";
        let expected: Vec<SocketAddr> =
            vec!["192.0.2.1:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()];
        assert_eq!(name_servers(text), expected);
        assert_eq!(name_servers(""), ["127.0.0.1:53".parse::<SocketAddr>().unwrap()]);
    }
}
