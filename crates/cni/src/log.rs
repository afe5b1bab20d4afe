//! The plugin's log: standard error, and a file that is rotated when it has grown large.
//!
//! Standard output belongs to the protocol. A log that cannot be written never fails a call.

use crate::config::NetConf;
use daemon::log::{LevelFilter, Log, Outlets};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const MEGABYTE: u64 = 1024 * 1024;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits for log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A file of at least this size is rotated.
    pub size: u64,
    /// Files older than this are removed.
    pub age: Duration,
    /// At most this many old files are kept.
    pub count: usize,
}

impl Limits {
    /// The limits of a configuration; Calico's defaults where it has none.
    #[must_use]
    pub(crate) fn of(conf: &NetConf) -> Self {
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

/// Starts logging for this process as configured.
pub(crate) fn start(conf: &NetConf) {
    let level = match conf.log_level.to_ascii_lowercase().as_str() {
        "debug" => LevelFilter::DEBUG,
        "error" => LevelFilter::ERROR,
        _ => LevelFilter::INFO,
    };
    let path = Path::new(&conf.log_file_path);
    let file = (!conf.log_file_path.is_empty()).then(|| (level, path.to_owned()));
    let rotated = file.is_none() || rotate(path, Limits::of(conf), SystemTime::now()).is_ok();
    for problem in Log::start(level).set(&Outlets { screen: level, file, syslog: None }) {
        tracing::warn!("{problem}");
    }
    if !rotated {
        tracing::warn!(file = %path.display(), "cannot rotate a log that has grown too large");
    }
}

/// Rotates a file that has grown too large, and removes old ones. Two concurrent processes do no harm: the second finds
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

/// Splits a file name before its last dot.
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
    use super::{DAY, Limits, rotate};
    use crate::config::NetConf;
    use std::time::{Duration, SystemTime};

    #[test]
    fn calicos_limits() {
        let limits = Limits::of(&NetConf::default());
        assert_eq!((limits.size, limits.age, limits.count), (100 * 1024 * 1024, DAY * 30, 10));
        let conf = NetConf { log_file_max_size: 1, log_file_max_count: 2, ..NetConf::default() };
        assert_eq!((Limits::of(&conf).size, Limits::of(&conf).count), (1024 * 1024, 2));
    }

    #[test]
    fn large_files_are_rotated_and_old_ones_removed() {
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
