//! Where the plugin logs: standard error, and a file that is put aside when it has grown large.
//!
//! Standard output belongs to the protocol. A log that cannot be written never fails a call.

use crate::config::NetConf;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

/// The crates whose steps are worth reading when somebody looks for a fault.
const OURS: [&str; 8] = ["api", "client", "cni", "datastore", "ipam", "kvstore", "model", "netlink"];

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is kept of old files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From this size on a file is put aside.
    pub size: u64,
    /// Files older than this are removed.
    pub age: Duration,
    /// So many are kept.
    pub count: usize,
}

impl Limits {
    /// The limits of a configuration; Calico's where it says nothing.
    #[must_use]
    pub fn of(conf: &NetConf) -> Self {
        let given = |value: i64, otherwise: u64| {
            u64::try_from(value).ok().filter(|value| *value > 0).unwrap_or(otherwise)
        };
        Self {
            size: given(conf.log_file_max_size, 100).saturating_mul(MEGABYTE),
            age: DAY.saturating_mul(u32::try_from(given(conf.log_file_max_age, 30)).unwrap_or(u32::MAX)),
            count: usize::try_from(given(conf.log_file_max_count, 10)).unwrap_or(usize::MAX),
        }
    }
}

/// Starts logging for this process as the configuration says.
pub fn start(conf: &NetConf) {
    let level = match conf.log_level.to_ascii_lowercase().as_str() {
        "debug" => Level::DEBUG,
        "error" => Level::ERROR,
        _ => Level::INFO,
    };
    let file = if conf.log_file_path.is_empty() {
        None
    } else {
        open(Path::new(&conf.log_file_path), Limits::of(conf))
    };
    let output = Output { file: file.map(Arc::new) };
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(output).finish();
    // A second start in one process (a test) keeps the first.
    let _ = tracing::subscriber::set_global_default(subscriber.with(filter(level)));
}

/// Our own crates speak at the level that was asked for. Libraries never speak at more than `info`: what they say beyond
/// that are frames and polls, pages of them for each call.
fn filter(level: Level) -> Targets {
    let ours = OURS.iter().map(|name| (*name, level));
    Targets::new().with_default(level.min(Level::INFO)).with_targets(ours)
}

/// Standard error and, if there is one, the file.
#[derive(Clone, Debug)]
struct Output {
    file: Option<Arc<File>>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = &self.file {
            // One write per line: files opened for appending keep lines of several processes apart.
            let _ = file.as_ref().write_all(bytes);
        }
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

fn open(path: &Path, limits: Limits) -> Option<File> {
    let attempt = || -> io::Result<File> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        rotate(path, limits, SystemTime::now())?;
        OpenOptions::new().create(true).append(true).mode(0o644).open(path)
    };
    match attempt() {
        Ok(file) => Some(file),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot log to {}: {error}", path.display());
            None
        }
    }
}

/// Puts a file aside that has grown too large, and removes old ones. Two processes at once do no harm: the second finds
/// a small file or none.
fn rotate(path: &Path, limits: Limits, now: SystemTime) -> io::Result<()> {
    let size = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if size < limits.size {
        return Ok(());
    }
    let (stem, ending) = parts(path);
    let moment =
        jiff::Timestamp::try_from(now).unwrap_or_default().strftime("%Y-%m-%dT%H-%M-%S%.3f").to_string();
    match std::fs::rename(path, path.with_file_name(format!("{stem}-{moment}{ending}"))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut old = put_aside(path, &stem, &ending)?;
    old.sort_by_key(|(_, changed)| std::cmp::Reverse(*changed));
    for (index, (file, changed)) in old.iter().enumerate() {
        let age = now.duration_since(*changed).unwrap_or_default();
        if index >= limits.count || age > limits.age {
            let _ = std::fs::remove_file(file);
        }
    }
    Ok(())
}

/// A file's name before and from its last dot on.
fn parts(path: &Path) -> (String, String) {
    let text =
        |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or_default().to_owned();
    let ending = text(path.extension());
    (text(path.file_stem()), if ending.is_empty() { ending } else { format!(".{ending}") })
}

fn put_aside(path: &Path, stem: &str, ending: &str) -> io::Result<Vec<(PathBuf, SystemTime)>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_old = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')).is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit()) && rest.contains(ending)
        });
        if is_old && let Ok(changed) = entry.metadata().and_then(|metadata| metadata.modified()) {
            found.push((entry.path(), changed));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{DAY, Limits, filter, rotate};
    use crate::config::NetConf;
    use std::time::{Duration, SystemTime};
    use tracing::Level;

    #[test]
    fn debugging_shows_our_steps_and_not_the_frames_of_libraries() {
        let debug = filter(Level::DEBUG);
        for ours in
            ["cni::add", "ipam::assign", "ipam_core::take", "datastore::etcd::remote", "netlink::handle"]
        {
            assert!(debug.would_enable(ours, &Level::DEBUG), "{ours}");
        }
        for library in
            ["h2::codec::framed_write", "tower::buffer::worker", "hyper_util::client", "rustls::conn"]
        {
            assert!(!debug.would_enable(library, &Level::DEBUG), "{library}");
            assert!(debug.would_enable(library, &Level::WARN), "{library}");
        }
        let error = filter(Level::ERROR);
        assert!(!error.would_enable("cni::add", &Level::INFO) && !error.would_enable("h2", &Level::WARN));
    }

    #[test]
    fn calicos_limits() {
        let limits = Limits::of(&NetConf::default());
        assert_eq!((limits.size, limits.age, limits.count), (100 * 1024 * 1024, DAY * 30, 10));
        let conf = NetConf { log_file_max_size: 1, log_file_max_count: 2, ..NetConf::default() };
        assert_eq!((Limits::of(&conf).size, Limits::of(&conf).count), (1024 * 1024, 2));
    }

    #[test]
    fn large_files_are_put_aside_and_old_ones_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cni.log");
        let limits = Limits { size: 4, age: Duration::from_secs(3600), count: 2 };
        let now = SystemTime::now();
        rotate(&file, limits, now).unwrap();
        std::fs::write(folder.path().join("cni-other.log"), "not ours").unwrap();
        for round in 0..5_u64 {
            std::fs::write(&file, "long enough").unwrap();
            rotate(&file, limits, now + Duration::from_millis(round * 10)).unwrap();
            assert!(!file.exists());
        }
        std::fs::write(&file, "new").unwrap();
        rotate(&file, limits, now).unwrap();
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2 + 2, "{names:?}");
        std::fs::write(&file, "long enough").unwrap();
        rotate(&file, limits, now + Duration::from_secs(7200)).unwrap();
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 2);
    }
}
