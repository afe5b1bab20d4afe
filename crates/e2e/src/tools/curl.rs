//! `curl`: one HTTP request, printing the body of the answer. Rejects HTTPS, and ignores the interface option.

use super::{complain, find};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Exit codes that tests check, the same as curl's: bad option or URL, unknown host, not connected, timeout, empty
/// answer.
const USAGE: u8 = 2;
const UNKNOWN_HOST: u8 = 6;
const NOT_CONNECTED: u8 = 7;
const TIMED_OUT: u8 = 28;
const EMPTY: u8 = 52;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    host: String,
    port: u16,
    path: String,
    method: String,
    headers: Vec<String>,
    /// Do not print the body.
    is_quiet: bool,
    /// Print the header, too.
    has_head: bool,
    /// The format of the text to print afterwards.
    format: String,
    connect: Duration,
    whole: Duration,
}

pub(super) fn run(arguments: &[String]) -> u8 {
    let options = match read(arguments) {
        Ok(options) => options,
        Err(message) => return complain("curl", &message, USAGE),
    };
    match ask(&options) {
        Ok(answer) => show(&options, &answer),
        Err((code, message)) => complain("curl", &format!("({code}) {message}"), code),
    }
}

/// Converts the arguments of `wget` to those of `curl`: busybox' own wget crashes in its resolver.
pub(super) fn of_wget(arguments: &[String]) -> Vec<String> {
    let mut words = arguments.iter();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-q" => {}
            // Standard output is the only supported file.
            "-O" | "-qO" => drop(words.next()),
            "-qO-" | "-O-" => {}
            "-T" => found.extend(["--max-time".to_owned(), words.next().cloned().unwrap_or_default()]),
            other => match other.strip_prefix("--timeout=") {
                Some(time) => found.extend(["--max-time".to_owned(), time.to_owned()]),
                None => found.push(other.to_owned()),
            },
        }
    }
    found
}

fn read(arguments: &[String]) -> Result<Options, String> {
    let seconds = Duration::from_secs;
    let (mut connect, mut whole) = (seconds(120), seconds(120));
    let (mut method, mut format, mut headers) = ("GET".to_owned(), String::new(), Vec::new());
    let (mut is_quiet, mut has_head, mut place) = (false, false, None);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} takes a value"));
        let time = |text: String| {
            text.trim_end_matches('s')
                .parse::<f64>()
                .map(Duration::from_secs_f64)
                .map_err(|_| format!("{text} is not a time"))
        };
        match word.as_str() {
            "--connect-timeout" => connect = time(value()?)?,
            "--max-time" | "-m" => whole = time(value()?)?,
            "--interface" => drop(value()?),
            "-o" => is_quiet = value()? == "/dev/null",
            "-w" => format = value()?,
            "-X" => method = value()?,
            "-H" => headers.push(value()?),
            "--silent" => {}
            flags if flags.starts_with("--") => return Err(format!("unknown option {flags}")),
            flags if flags.starts_with('-') => {
                if let Some(other) = flags[1..].chars().find(|letter| !"gqskSfi".contains(*letter)) {
                    return Err(format!("unknown option -{other}"));
                }
                has_head |= flags.contains('i');
            }
            other => place = Some(other.to_owned()),
        }
    }
    let place = place.ok_or("no place to ask")?;
    let (scheme, rest) = place.split_once("://").unwrap_or(("http", &place));
    if scheme != "http" {
        return Err(format!("protocol {scheme:?} is not supported"));
    }
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| (&rest[..at], &rest[at..]));
    // A colon inside brackets is part of the address.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().map_err(|_| format!("{port} is not a port"))?)
        }
        _ => (authority, 80),
    };
    let (host, path) = (host.to_owned(), path.to_owned());
    Ok(Options { host, port, path, method, headers, is_quiet, has_head, format, connect, whole })
}

fn ask(options: &Options) -> Result<Vec<u8>, (u8, String)> {
    let Options { host, port, .. } = options;
    let address =
        find(host, *port).ok_or_else(|| (UNKNOWN_HOST, format!("Could not resolve host: {host}")))?;
    let mut stream =
        TcpStream::connect_timeout(&address, options.connect.min(options.whole)).map_err(|error| {
            let code = if error.kind() == ErrorKind::TimedOut { TIMED_OUT } else { NOT_CONNECTED };
            (code, format!("Failed to connect to {host} port {port}: {error}"))
        })?;
    let failed = |error: std::io::Error| (TIMED_OUT, error.to_string());
    stream.set_read_timeout(Some(options.whole)).map_err(failed)?;
    // HTTP/1.0: its answers are not chunked.
    let headers: String = options.headers.iter().map(|header| format!("{header}\r\n")).collect();
    write!(stream, "{} {} HTTP/1.0\r\nHost: {host}:{port}\r\n{headers}\r\n", options.method, options.path)
        .map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    if answer.is_empty() {
        return Err((EMPTY, "Empty reply from server".to_owned()));
    }
    Ok(answer)
}

fn show(options: &Options, answer: &[u8]) -> u8 {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let (head, body) = answer.split_at(end);
    let mut output = std::io::stdout().lock();
    let shown = if options.has_head { answer } else { body };
    if !options.is_quiet && output.write_all(shown).is_err() {
        return USAGE;
    }
    let head = String::from_utf8_lossy(head).into_owned();
    let code = head.split(' ').nth(1).unwrap_or_default();
    let said = options.format.replace("%{http_code}", code).replace("\\n", "\n");
    match output.write_all(said.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => 0,
        Err(_) => USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::{ask, of_wget, read};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn urls_are_parsed() {
        for (place, host, port, path) in [
            ("http://[fd00::1]:8080/hostname", "[fd00::1]", 8080, "/hostname"),
            ("[fd00::1]", "[fd00::1]", 80, "/"),
            ("10.0.0.1:30000/clientip", "10.0.0.1", 30000, "/clientip"),
            ("http://name", "name", 80, "/"),
        ] {
            let options = read(&words(&format!("-g -q -s --connect-timeout 2 {place}"))).unwrap();
            assert_eq!((options.host.as_str(), options.port, options.path.as_str()), (host, port, path));
            assert!(!options.has_head);
        }
        let options = read(&of_wget(&words("-q -O - -T 1 http://10.0.0.1:80"))).unwrap();
        assert_eq!((options.host.as_str(), options.whole.as_secs()), ("10.0.0.1", 1));
        assert!(
            read(&words("-i -q -s --connect-timeout 1 http://localhost:10256/healthz")).unwrap().has_head
        );
        assert!(read(&words("https://name")).unwrap_err().contains("https"));
        assert!(read(&words("--fail-early http://name")).unwrap_err().contains("--fail-early"));
    }

    #[test]
    fn a_request_is_sent_to_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 512];
            while !asked.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut buffer).unwrap();
                assert!(length > 0, "the question ended early");
                asked.extend_from_slice(&buffer[..length]);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\nthe body").unwrap();
            String::from_utf8(asked).unwrap()
        });
        let options = read(&words(&format!("-s --interface 192.0.2.1 http://{place}/dial?a=b&c=d"))).unwrap();
        assert!(ask(&options).unwrap().ends_with(b"the body"));
        assert!(server.join().unwrap().starts_with("GET /dial?a=b&c=d HTTP/1.0\r\n"));
    }
}
