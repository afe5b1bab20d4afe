//! `traffic`: connections of a pod while something changes under them, and counts of their outcomes.
//!
//! ```text
//! traffic serve PORT                     echoes every byte
//! traffic ask OPEN EVERY PLACE...        uses OPEN connections to each place; opens another one to each every EVERY ms
//! traffic knock EVERY PLACE...           tries each place that must not answer
//! ```
//!
//! Once a second it prints a line with all counts; the last line is the result.

use super::complain;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A connection that is silent for this long is lost, however busy the machine is.
const LOST: Duration = Duration::from_secs(15);
/// A lost first packet is resent after a second: a connection that takes this long lost one, or the machine is busy.
const SLOW: Duration = Duration::from_millis(900);
/// How long a place that must not answer gets to do so.
const REFUSED: Duration = Duration::from_millis(500);
/// How often an open connection is used.
const TALK: Duration = Duration::from_millis(100);

/// The outcomes of connections.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    /// Open connections that ended or went silent.
    broken: AtomicU64,
    new: AtomicU64,
    /// New connections that were never established.
    lost: AtomicU64,
    /// New connections that took as long as after a lost packet.
    slow: AtomicU64,
    knocks: AtomicU64,
    /// Knocks that were answered.
    through: AtomicU64,
}

impl Counts {
    fn line(&self) -> String {
        let rows = [
            ("open", &self.open),
            ("broken", &self.broken),
            ("new", &self.new),
            ("lost", &self.lost),
            ("slow", &self.slow),
            ("knocks", &self.knocks),
            ("through", &self.through),
        ];
        rows.map(|(name, count)| format!("{name}={}", count.load(Ordering::Relaxed))).join(" ")
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn run(arguments: &[String]) -> u8 {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = match words.as_slice() {
        ["serve", port] => serve(port),
        ["ask", open, every, places @ ..] => ask(open, every, places),
        ["knock", every, places @ ..] => knock(every, places),
        other => Err(format!("unknown words {other:?}")),
    };
    said.map_or_else(|message| complain("traffic", &message, 1), |()| 0)
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} cannot be used"))
}

fn addresses(places: &[&str]) -> Result<Vec<SocketAddr>, String> {
    places.iter().map(|place| number(place)).collect()
}

fn serve(port: &str) -> Result<(), String> {
    let listener = TcpListener::bind(("::", number::<u16>(port)?)).map_err(|error| error.to_string())?;
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut stream = stream;
            let mut buffer = [0; 64];
            while let Ok(length) = stream.read(&mut buffer) {
                if length == 0 || stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}

/// Sends one byte and waits for its echo.
fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])
}

fn connect(place: &SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(place, LOST)?;
    stream.set_read_timeout(Some(LOST))?;
    stream.set_write_timeout(Some(LOST))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ask(open: &str, every: &str, places: &[&str]) -> Result<(), String> {
    let counts = Arc::new(Counts::default());
    let (open, every, places) =
        (number::<usize>(open)?, Duration::from_millis(number(every)?), addresses(places)?);
    for place in &places {
        for _ in 0..open {
            let mut stream = connect(place).map_err(|error| format!("{place}: {error}"))?;
            add(&counts.open);
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || {
                while echo(&mut stream).is_ok() {
                    std::thread::sleep(TALK);
                }
                add(&counts.broken);
            });
        }
    }
    forever(every, &counts, |counts| {
        for place in places.clone() {
            let counts = Arc::clone(counts);
            std::thread::spawn(move || {
                let start = Instant::now();
                let is_there = connect(&place).is_ok_and(|mut stream| echo(&mut stream).is_ok());
                add(if is_there { &counts.new } else { &counts.lost });
                if start.elapsed() >= SLOW {
                    add(&counts.slow);
                }
            });
        }
    });
    Ok(())
}

fn knock(every: &str, places: &[&str]) -> Result<(), String> {
    let counts = Arc::new(Counts::default());
    let (every, places) = (Duration::from_millis(number(every)?), addresses(places)?);
    forever(every, &counts, |counts| {
        for place in places.clone() {
            let counts = Arc::clone(counts);
            std::thread::spawn(move || {
                add(&counts.knocks);
                if TcpStream::connect_timeout(&place, REFUSED).is_ok() {
                    add(&counts.through);
                }
            });
        }
    });
    Ok(())
}

/// Repeats an action at this interval, and prints the counts once a second.
fn forever(every: Duration, counts: &Arc<Counts>, mut work: impl FnMut(&Arc<Counts>)) {
    let (mut next, mut said) = (Instant::now(), Instant::now());
    loop {
        work(counts);
        if said.elapsed() >= Duration::from_secs(1) {
            said = Instant::now();
            println!("{}", counts.line());
        }
        next += every;
        // Intervals that a busy machine missed are not made up for in a burst.
        let now = Instant::now();
        match next.checked_duration_since(now) {
            Some(rest) => std::thread::sleep(rest),
            None => next = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, connect, echo, number, run};
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn a_byte_is_echoed_and_counts_are_printed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        });
        echo(&mut connect(&place).unwrap()).unwrap();
        server.join().unwrap();
        let counts = Counts::default();
        super::add(&counts.through);
        assert_eq!(counts.line(), "open=0 broken=0 new=0 lost=0 slow=0 knocks=0 through=1");
        assert!(number::<u16>("x").is_err());
        assert_eq!(run(&["sing".to_owned()]), 1);
    }
}
