//! Felix's log: standard error (`LogSeverityScreen`), a file (`LogFilePath`, `LogSeverityFile`) and syslog
//! (`LogSeveritySys`), each with the least severe message that it takes. It starts with what environment and file say, and
//! follows what the datastore says as soon as that is known.
//!
//! Calico writes to file and syslog by default. Here both are written to only when something asks for them by name: in
//! the containers of a cluster nobody reads them.

use felix_config::Config;
use felix_config::choices::LogSeverity;
use felix_config::sources::Texts;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, fmt};

/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// Who speaks there, and for which kind of program (`user`).
const SYSLOG_NAME: &str = "calico-felix";
const SYSLOG_FACILITY: u8 = 1 << 3;

/// The log, which can be told to take more or less.
pub(crate) struct Log {
    outlets: Outlets,
    filter: reload::Handle<LevelFilter, Registry>,
}

impl Log {
    /// Starts to log to standard error.
    pub(crate) fn start() -> Self {
        let outlets = Outlets::default();
        let (filter, handle) = reload::Layer::new(outlets.least_severe());
        let lines = fmt::layer().with_writer(outlets.clone()).with_ansi(false);
        // Tests have a log of their own.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { outlets, filter: handle }
    }

    /// Logs as the configuration says. `texts` are the parameters that are set to anything.
    pub(crate) fn follow(&self, config: &Config, texts: &Texts) {
        let problems = self.outlets.follow(config, |name| texts.contains_key(name));
        // Fails only when nothing is logged at all.
        let _ = self.filter.modify(|filter| *filter = self.outlets.least_severe());
        for problem in problems {
            tracing::warn!("{problem}");
        }
    }
}

/// Where lines go.
#[derive(Clone, Default)]
struct Outlets(Arc<RwLock<Destinations>>);

struct Destinations {
    screen: LevelFilter,
    file: Option<(LevelFilter, String, File)>,
    syslog: Option<(LevelFilter, UnixDatagram)>,
}

impl Default for Destinations {
    fn default() -> Self {
        Self { screen: LevelFilter::INFO, file: None, syslog: None }
    }
}

impl Outlets {
    fn least_severe(&self) -> LevelFilter {
        let destinations = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let file = destinations.file.as_ref().map(|(level, ..)| *level);
        let syslog = destinations.syslog.as_ref().map(|(level, _)| *level);
        [Some(destinations.screen), file, syslog].into_iter().flatten().max().unwrap_or(LevelFilter::OFF)
    }

    /// Opens and closes what the configuration asks for; what cannot be opened is returned.
    fn follow(&self, config: &Config, is_set: impl Fn(&str) -> bool) -> Vec<String> {
        let mut problems = Vec::new();
        let mut destinations = self.0.write().unwrap_or_else(PoisonError::into_inner);
        destinations.screen = level(config.log_severity_screen);
        let path = &config.log_file_path;
        let file_level = level(config.log_severity_file);
        let wants_file = (is_set("LogFilePath") || is_set("LogSeverityFile"))
            && !path.is_empty()
            && file_level != LevelFilter::OFF;
        destinations.file = match destinations.file.take() {
            _ if !wants_file => None,
            Some((_, open, file)) if open == *path => Some((file_level, open, file)),
            _ => match open(Path::new(path)) {
                Ok(file) => Some((file_level, path.clone(), file)),
                Err(error) => {
                    problems.push(format!("LogFilePath: cannot write to {path}: {error}"));
                    None
                }
            },
        };
        let syslog_level = level(config.log_severity_sys);
        let wants_syslog = is_set("LogSeveritySys") && syslog_level != LevelFilter::OFF;
        destinations.syslog = match destinations.syslog.take() {
            _ if !wants_syslog => None,
            Some((_, socket)) => Some((syslog_level, socket)),
            None => match connect(Path::new(SYSLOG)) {
                Ok(socket) => Some((syslog_level, socket)),
                Err(error) => {
                    problems.push(format!("LogSeveritySys: cannot reach syslog at {SYSLOG}: {error}"));
                    None
                }
            },
        };
        problems
    }
}

fn level(severity: LogSeverity) -> LevelFilter {
    match severity {
        LogSeverity::Unset => LevelFilter::OFF,
        LogSeverity::Trace => LevelFilter::TRACE,
        LogSeverity::Debug => LevelFilter::DEBUG,
        LogSeverity::Info => LevelFilter::INFO,
        LogSeverity::Warning => LevelFilter::WARN,
        LogSeverity::Error | LogSeverity::Fatal => LevelFilter::ERROR,
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A syslog that does not read loses lines; Felix does not wait for it.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl<'a> MakeWriter<'a> for Outlets {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { outlets: self, level: Level::INFO }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line<'a> {
        Line { outlets: self, level: *metadata.level() }
    }
}

/// One message on its way. It comes whole.
struct Line<'a> {
    outlets: &'a Outlets,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let destinations = self.outlets.0.read().unwrap_or_else(PoisonError::into_inner);
        // There is nobody to tell when a line cannot be written.
        if destinations.screen >= self.level {
            let _ = io::stderr().write_all(text);
        }
        if let Some((_, _, file)) = destinations.file.as_ref().filter(|(level, ..)| *level >= self.level) {
            let _ = (&*file).write_all(text);
        }
        if let Some((_, socket)) = destinations.syslog.as_ref().filter(|(level, _)| *level >= self.level) {
            let _ = socket.send(&syslog_line(self.level, text));
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn syslog_line(level: Level, text: &[u8]) -> Vec<u8> {
    let severity = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let mut line = format!("<{}>{SYSLOG_NAME}: ", SYSLOG_FACILITY | severity).into_bytes();
    line.extend_from_slice(text.trim_ascii());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    fn say(outlets: &Outlets, level: Level, text: &str) {
        Line { outlets, level }.write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    #[test]
    fn each_outlet_has_a_level_of_its_own() {
        let folder = Folder::new("felix-log").unwrap();
        let path = folder.path().join("deep/felix.log");
        let mut config = Config {
            log_severity_screen: LogSeverity::Unset,
            log_severity_file: LogSeverity::Warning,
            log_file_path: path.display().to_string(),
            ..Config::default()
        };
        let outlets = Outlets::default();
        assert_eq!(outlets.least_severe(), LevelFilter::INFO, "before anything is known");
        assert_eq!(outlets.follow(&config, |_| false), Vec::<String>::new());
        assert_eq!(outlets.least_severe(), LevelFilter::OFF, "nothing asks for a file");
        assert!(!path.exists());

        assert_eq!(outlets.follow(&config, |name| name == "LogFilePath"), Vec::<String>::new());
        assert_eq!(outlets.least_severe(), LevelFilter::WARN);
        say(&outlets, Level::INFO, "too much detail");
        say(&outlets, Level::ERROR, "bad news");
        config.log_severity_file = LogSeverity::Debug;
        assert_eq!(outlets.follow(&config, |name| name == "LogFilePath"), Vec::<String>::new());
        say(&outlets, Level::DEBUG, "detail");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "bad news\ndetail\n");

        config.log_file_path = folder.path().display().to_string();
        let problems = outlets.follow(&config, |name| name == "LogFilePath");
        assert!(problems.len() == 1 && problems[0].contains("LogFilePath"), "{problems:?}");
    }

    #[test]
    fn syslog_is_told_who_speaks_and_how_bad_it_is() {
        let folder = Folder::new("felix-syslog").unwrap();
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let outlets = Outlets::default();
        outlets.0.write().unwrap().syslog = Some((LevelFilter::WARN, connect(&path).unwrap()));
        outlets.0.write().unwrap().screen = LevelFilter::OFF;
        say(&outlets, Level::INFO, "too much detail");
        say(&outlets, Level::WARN, "careful");
        let mut buffer = [0; 200];
        let length = server.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"<12>calico-felix: careful");
    }
}
