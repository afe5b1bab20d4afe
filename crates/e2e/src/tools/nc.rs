//! `nc`: sends standard input to a TCP or UDP server, and prints what it answers.

use super::{complain, find};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::time::Duration;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    host: String,
    port: u16,
    is_udp: bool,
    /// Report the connection.
    is_loud: bool,
    /// Connect only, and send nothing.
    only_connects: bool,
    from_port: u16,
    wait: Duration,
}

pub(super) fn run(arguments: &[String]) -> u8 {
    match read(arguments) {
        Ok(options) => talk(&options).unwrap_or_else(|error| complain("nc", &error.to_string(), 1)),
        Err(message) => complain("nc", &message, 1),
    }
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        host: String::new(),
        port: 0,
        is_udp: false,
        is_loud: false,
        only_connects: false,
        from_port: 0,
        wait: Duration::from_secs(60),
    };
    let mut words = arguments.iter();
    let mut places = Vec::new();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-') else {
            places.push(word);
            continue;
        };
        for letter in letters.chars() {
            let mut number = || words.next().and_then(|value| value.parse::<u16>().ok());
            match letter {
                'v' => options.is_loud = true,
                'z' => options.only_connects = true,
                'u' => options.is_udp = true,
                't' => {}
                'w' => options.wait = Duration::from_secs(number().ok_or("-w takes seconds")?.max(1).into()),
                'p' => options.from_port = number().ok_or("-p takes a port")?,
                other => return Err(format!("unknown option -{other}")),
            }
        }
    }
    let [host, port] = places.as_slice() else { return Err("expected a host and a port".to_owned()) };
    options.host = (*host).clone();
    options.port = port.parse().map_err(|_| format!("{port} is not a port"))?;
    Ok(options)
}

fn talk(options: &Options) -> std::io::Result<u8> {
    let Some(address) = find(&options.host, options.port) else {
        return Ok(complain("nc", &format!("getaddrinfo for host {:?}: not known", options.host), 1));
    };
    let connected = || {
        if options.is_loud {
            let protocol = if options.is_udp { "udp" } else { "tcp" };
            complain(
                "nc",
                &format!("connection to {} {} [{protocol}] succeeded", options.host, options.port),
                0,
            );
        }
    };
    let mut input = Vec::new();
    if options.is_udp {
        let any: IpAddr =
            if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, options.from_port))?;
        socket.set_read_timeout(Some(options.wait))?;
        socket.connect(address)?;
        connected();
        std::io::stdin().read_to_end(&mut input)?;
        socket.send(&input)?;
        let mut buffer = vec![0; 65536];
        // UDP has no end of a conversation: silence is taken as one.
        while let Ok(length) = socket.recv(&mut buffer) {
            show(&buffer[..length])?;
        }
        return Ok(0);
    }
    let mut stream = TcpStream::connect_timeout(&address, options.wait)?;
    connected();
    if options.only_connects {
        return Ok(0);
    }
    stream.set_read_timeout(Some(options.wait))?;
    std::io::stdin().read_to_end(&mut input)?;
    stream.write_all(&input)?;
    let mut buffer = vec![0; 65536];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        show(&buffer[..length])?;
    }
    Ok(0)
}

fn show(bytes: &[u8]) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(bytes)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::read;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn options_may_be_combined_and_anywhere() {
        let options = read(&words("-vz -w 5 example 80")).unwrap();
        assert_eq!((options.host.as_str(), options.port, options.wait.as_secs()), ("example", 80, 5));
        assert!(options.is_loud && options.only_connects && !options.is_udp);
        let options = read(&words("-u -w 1 -p 7777 10.0.0.1 53")).unwrap();
        assert_eq!((options.is_udp, options.from_port), (true, 7777));
        assert!(read(&words("-l 80")).unwrap_err().contains("-l"));
        assert!(read(&words("example")).is_err());
    }
}
