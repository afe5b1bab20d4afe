//! The log of a process: standard error and, if requested, a file and syslog, each with its own least severe level. All
//! of it can change while the process runs.
//!
//! Our own crates log at the requested level. Libraries never log more than `info`: beyond that they report frames and
//! polls, pages of them for each call. A log that cannot be written never stops anything.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
pub use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt, reload};

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// The facility that we log as (`user`).
const SYSLOG_FACILITY: u8 = 1 << 3;

/// The names of our own crates, as the build script found them.
const OURS: &str = env!("TORTIE_CRATES");

/// Parses one of Calico's level names, in any case. `fatal` and `panic` are more severe than anything we log, and count
/// as errors.
#[must_use]
pub fn level(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => LevelFilter::ERROR,
        "warn" | "warning" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return None,
    })
}

/// Where messages should go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlets {
    /// To standard error.
    pub screen: LevelFilter,
    /// To the end of a file.
    pub file: Option<(LevelFilter, PathBuf)>,
    /// To syslog, under this name.
    pub syslog: Option<(LevelFilter, &'static str)>,
}

/// Counts of lost log lines, for figures.
#[derive(Debug, Default)]
pub struct Losses {
    dropped: AtomicU64,
    errors: AtomicU64,
}

impl Losses {
    /// How many lines an outlet had no room for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many lines could not be written for other reasons, plus the outlets that could not be opened.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn note<T>(&self, outcome: io::Result<T>) {
        let count = match outcome {
            Ok(_) => return,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => &self.dropped,
            Err(_) => &self.errors,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The log of this process.
pub struct Log {
    writer: Writer,
    filter: reload::Handle<Targets, Registry>,
}

impl Log {
    /// Starts logging to standard error. If the process logs already (tests, a component inside another), that log is
    /// kept.
    #[must_use]
    pub fn start(screen: LevelFilter) -> Self {
        let writer = Writer::default();
        let (filter, handle) = reload::Layer::new(filter(screen));
        let lines = fmt::layer().with_writer(writer.clone()).with_ansi(false);
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        let log = Self { writer, filter: handle };
        log.set_screen(screen);
        log
    }

    /// Sets the level of standard error.
    pub fn set_screen(&self, screen: LevelFilter) {
        self.writer.lock_for_change().screen = screen;
        self.refilter();
    }

    /// Opens and closes outlets to match. Outlets that could not be opened are not written to; returns why.
    pub fn set(&self, outlets: &Outlets) -> Vec<String> {
        let problems = self.writer.set(outlets, Path::new(SYSLOG));
        self.refilter();
        problems
    }

    /// The lines lost so far.
    #[must_use]
    pub fn losses(&self) -> Arc<Losses> {
        Arc::clone(&self.writer.losses)
    }

    fn refilter(&self) {
        // Fails only if nothing is logged at all.
        let _ = self.filter.modify(|current| *current = filter(self.writer.least_severe()));
    }
}

/// A temporary log to another writer, for a command that shows its log to its caller.
pub fn subscriber<W>(level: LevelFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::registry().with(filter(level)).with(fmt::layer().with_writer(writer).with_ansi(false))
}

fn filter(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::INFO))
        .with_targets(OURS.split(',').map(|name| (name, level)))
}

/// Sends each line to the outlets that take it.
#[derive(Clone, Default)]
struct Writer {
    destinations: Arc<RwLock<Destinations>>,
    losses: Arc<Losses>,
}

struct Destinations {
    screen: LevelFilter,
    file: Option<(LevelFilter, PathBuf, File)>,
    syslog: Option<(LevelFilter, &'static str, UnixDatagram)>,
}

impl Default for Destinations {
    fn default() -> Self {
        Self { screen: LevelFilter::INFO, file: None, syslog: None }
    }
}

impl Writer {
    fn lock_for_change(&self) -> std::sync::RwLockWriteGuard<'_, Destinations> {
        self.destinations.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn least_severe(&self) -> LevelFilter {
        let destinations = self.destinations.read().unwrap_or_else(PoisonError::into_inner);
        let file = destinations.file.as_ref().map(|(level, ..)| *level);
        let syslog = destinations.syslog.as_ref().map(|(level, ..)| *level);
        [Some(destinations.screen), file, syslog].into_iter().flatten().max().unwrap_or(LevelFilter::OFF)
    }

    fn set(&self, outlets: &Outlets, syslog: &Path) -> Vec<String> {
        let mut problems = Vec::new();
        let mut destinations = self.lock_for_change();
        destinations.screen = outlets.screen;
        destinations.file = match (&outlets.file, destinations.file.take()) {
            (None, _) => None,
            (Some((level, path)), Some((_, open, file))) if open == *path => Some((*level, open, file)),
            (Some((level, path)), _) => match open(path) {
                Ok(file) => Some((*level, path.clone(), file)),
                Err(error) => {
                    problems.push(format!("cannot log to {}: {error}", path.display()));
                    self.losses.note::<()>(Err(error));
                    None
                }
            },
        };
        destinations.syslog = match (outlets.syslog, destinations.syslog.take()) {
            (None, _) => None,
            (Some((level, name)), Some((.., socket))) => Some((level, name, socket)),
            (Some((level, name)), None) => match connect(syslog) {
                Ok(socket) => Some((level, name, socket)),
                Err(error) => {
                    problems.push(format!("cannot log to syslog at {}: {error}", syslog.display()));
                    self.losses.note::<()>(Err(error));
                    None
                }
            },
        };
        problems
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o644).open(path)
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // If syslog does not read, lines are lost; the process does not wait.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { writer: self, level: Level::INFO }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { writer: self, level: *metadata.level() }
    }
}

/// One complete message on its way to the outlets.
struct Line<'a> {
    writer: &'a Writer,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let Writer { destinations, losses } = self.writer;
        let destinations = destinations.read().unwrap_or_else(PoisonError::into_inner);
        // A line that cannot be written cannot be reported either, only counted. Each line is a single write: with
        // files opened for appending this keeps the lines of several processes apart.
        if destinations.screen >= self.level {
            losses.note(io::stderr().write_all(text));
        }
        if let Some((.., file)) = destinations.file.as_ref().filter(|(level, ..)| *level >= self.level) {
            losses.note((&*file).write_all(text));
        }
        if let Some((_, name, socket)) =
            destinations.syslog.as_ref().filter(|(level, ..)| *level >= self.level)
        {
            losses.note(socket.send(&syslog_line(self.level, name, text)));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn syslog_line(level: Level, name: &str, text: &[u8]) -> Vec<u8> {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let mut line = format!("<{}>{name}: ", SYSLOG_FACILITY | severity).into_bytes();
    line.extend_from_slice(text.trim_ascii());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(writer: &Writer, level: Level, text: &str) {
        Line { writer, level }.write_all(format!("{text}\n").as_bytes()).expect("a line");
    }

    #[test]
    fn debug_level_applies_to_our_crates_but_not_to_libraries() {
        let debug = filter(LevelFilter::DEBUG);
        for ours in
            ["cni::add", "ipam_core::take", "datastore::etcd::remote", "kube_controllers::run", "daemon"]
        {
            assert!(debug.would_enable(ours, &Level::DEBUG), "{ours}");
        }
        for library in
            ["h2::codec::framed_write", "tower::buffer::worker", "hyper_util::client", "rustls::conn"]
        {
            assert!(!debug.would_enable(library, &Level::DEBUG), "{library}");
            assert!(debug.would_enable(library, &Level::WARN), "{library}");
        }
        let error = filter(LevelFilter::ERROR);
        assert!(!error.would_enable("cni::add", &Level::INFO) && !error.would_enable("h2", &Level::WARN));
    }

    #[test]
    fn levels_have_calicos_names() {
        assert_eq!(level("WARNING"), Some(LevelFilter::WARN));
        assert_eq!((level("Fatal"), level("verbose")), (Some(LevelFilter::ERROR), None));
    }

    #[test]
    fn each_outlet_has_its_own_level() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/felix.log");
        let nowhere = Path::new("/nowhere/at/all");
        let mut outlets = Outlets { screen: LevelFilter::OFF, file: None, syslog: None };
        let writer = Writer::default();
        assert_eq!(writer.least_severe(), LevelFilter::INFO, "before anything is known");
        assert_eq!(writer.set(&outlets, nowhere), Vec::<String>::new());
        assert_eq!(writer.least_severe(), LevelFilter::OFF, "no file is configured");
        outlets.file = Some((LevelFilter::WARN, path.clone()));
        assert_eq!(writer.set(&outlets, nowhere), Vec::<String>::new());
        assert_eq!(writer.least_severe(), LevelFilter::WARN);
        say(&writer, Level::INFO, "too much detail");
        say(&writer, Level::ERROR, "bad news");
        outlets.file = Some((LevelFilter::DEBUG, path.clone()));
        assert_eq!(writer.set(&outlets, nowhere), Vec::<String>::new());
        say(&writer, Level::DEBUG, "detail");
        assert_eq!(std::fs::read_to_string(&path).expect("a log"), "bad news\ndetail\n");
        outlets.file = Some((LevelFilter::DEBUG, folder.path().to_owned()));
        outlets.syslog = Some((LevelFilter::INFO, "calico-felix"));
        let problems = writer.set(&outlets, nowhere);
        assert!(problems.len() == 2 && problems[1].contains("syslog at /nowhere"), "{problems:?}");
        assert_eq!((writer.losses.errors(), writer.losses.dropped()), (2, 0));
    }

    #[test]
    fn lost_lines_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).expect("a socket");
        let writer = Writer::default();
        let syslog = Some((LevelFilter::WARN, "calico-felix"));
        // The kernel's file that is always full.
        let file = Some((LevelFilter::ERROR, PathBuf::from("/dev/full")));
        let problems = writer.set(&Outlets { screen: LevelFilter::OFF, file, syslog }, &path);
        assert_eq!(problems, Vec::<String>::new());
        say(&writer, Level::ERROR, "no room");
        assert_eq!((writer.losses.errors(), writer.losses.dropped()), (1, 0));
        while writer.losses.dropped() == 0 {
            say(&writer, Level::WARN, "nobody reads");
        }
        drop(server);
        say(&writer, Level::WARN, "syslog is gone");
        assert_eq!(writer.losses.errors(), 2);
    }

    #[test]
    fn a_syslog_line_has_a_tag_and_a_severity() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).expect("a socket");
        let writer = Writer::default();
        let syslog = Some((LevelFilter::WARN, "calico-felix"));
        let problems = writer.set(&Outlets { screen: LevelFilter::OFF, file: None, syslog }, &path);
        assert_eq!(problems, Vec::<String>::new());
        say(&writer, Level::INFO, "too much detail");
        say(&writer, Level::WARN, "careful");
        let mut buffer = [0; 200];
        let length = server.recv(&mut buffer).expect("a line");
        assert_eq!(&buffer[..length], b"<12>calico-felix: careful");
    }
}
