//! `dig`: one query to a name server, with the search list on request, over UDP or TCP.

use super::complain;
use super::message::{Kind, question, records};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const PORT: u16 = 53;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    name: String,
    kind: Kind,
    server: Option<IpAddr>,
    is_tcp: bool,
    is_short: bool,
    searches: bool,
}

/// The contents of a pod's `/etc/resolv.conf`.
#[derive(Debug, PartialEq, Eq)]
struct Configuration {
    servers: Vec<IpAddr>,
    search: Vec<String>,
    /// Names with fewer dots are first tried with the search list.
    dots: usize,
}

pub(super) fn run(arguments: &[String]) -> u8 {
    let options = match read(arguments) {
        Ok(options) => options,
        Err(message) => return complain("dig", &message, 1),
    };
    let configuration = configuration(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    let servers = options.server.map_or(configuration.servers.clone(), |server| vec![server]);
    let Some(server) = servers.first() else { return complain("dig", "no name server", 9) };
    for name in names(&options, &configuration) {
        match ask(*server, &name, &options) {
            Err(error) => return complain("dig", &format!("{server}: {error}"), 9),
            Ok(found) if found.is_empty() => {}
            Ok(found) => {
                for record in found {
                    if options.is_short {
                        println!("{}", record.value);
                    } else {
                        println!(
                            "{}.\t{}\tIN\t{}\t{}",
                            record.name, record.seconds, record.kind, record.value
                        );
                    }
                }
                return 0;
            }
        }
    }
    0
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        name: String::new(),
        kind: Kind::A,
        server: None,
        is_tcp: false,
        is_short: false,
        searches: false,
    };
    for word in arguments {
        match word.as_str() {
            "+notcp" | "+noall" | "+answer" => {}
            "+tcp" => options.is_tcp = true,
            "+short" => options.is_short = true,
            "+search" => options.searches = true,
            other if other.starts_with(['+', '-']) => return Err(format!("unknown option {other}")),
            other => {
                if let Some(server) = other.strip_prefix('@') {
                    options.server = Some(server.parse().map_err(|_| format!("{server} is not an address"))?);
                } else if let Some(kind) = Kind::read(other) {
                    options.kind = kind;
                } else {
                    other.clone_into(&mut options.name);
                }
            }
        }
    }
    if options.name.is_empty() { Err("no name to ask for".to_owned()) } else { Ok(options) }
}

fn configuration(text: &str) -> Configuration {
    let mut found = Configuration { servers: Vec::new(), search: Vec::new(), dots: 1 };
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => found.servers.extend(words.filter_map(|word| word.parse::<IpAddr>().ok())),
            Some("search") => found.search = words.map(str::to_owned).collect(),
            Some("options") => {
                let dots = words.find_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                found.dots = dots.unwrap_or(found.dots);
            }
            _ => {}
        }
    }
    found
}

/// The names to query, in order.
fn names(options: &Options, configuration: &Configuration) -> Vec<String> {
    let own = options.name.trim_end_matches('.').to_owned();
    if !options.searches || options.name.ends_with('.') {
        return vec![own];
    }
    let mut all: Vec<String> =
        configuration.search.iter().map(|domain| format!("{own}.{}", domain.trim_end_matches('.'))).collect();
    let is_first = own.matches('.').count() >= configuration.dots;
    all.insert(if is_first { 0 } else { all.len() }, own);
    all
}

fn ask(server: IpAddr, name: &str, options: &Options) -> Result<Vec<super::message::Record>, String> {
    let asked = question(name, options.kind).ok_or_else(|| format!("{name} is not a valid name"))?;
    let answer = if options.is_tcp { by_tcp(server, &asked) } else { by_udp(server, &asked) };
    let answer = answer.map_err(|error| error.to_string())?;
    records(&answer).ok_or_else(|| "an answer that cannot be read".to_owned())
}

fn by_udp(server: IpAddr, asked: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((server, PORT))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; 65536];
    let mut last = None;
    // A datagram may be lost.
    for _ in 0..3 {
        socket.send(asked)?;
        match socket.recv(&mut buffer) {
            Ok(length) => return Ok(buffer[..length].to_vec()),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::TimedOut.into()))
}

fn by_tcp(server: IpAddr, asked: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&(server, PORT).into(), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u16::try_from(asked.len()).unwrap_or_default();
    stream.write_all(&[&length.to_be_bytes(), asked].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::{Kind, configuration, names, read};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn short_names_use_the_search_list_first() {
        let configuration =
            configuration("search a.svc.test svc.test\nnameserver 10.96.0.10\noptions ndots:5\n");
        assert_eq!(configuration.servers.len(), 1);
        let options = read(&words("+notcp +noall +answer +search web SRV")).unwrap();
        assert_eq!(options.kind, Kind::Srv);
        assert_eq!(names(&options, &configuration), ["web.a.svc.test", "web.svc.test", "web"]);
        let options = read(&words("+short web.")).unwrap();
        assert_eq!(names(&options, &configuration), ["web"]);
        let options = read(&words("+search a.b.c.d.e.f")).unwrap();
        assert_eq!(names(&options, &configuration)[0], "a.b.c.d.e.f");
        assert!(read(&words("+trace web")).unwrap_err().contains("+trace"));
    }
}
