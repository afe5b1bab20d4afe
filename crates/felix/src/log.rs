//! Felix's log: standard error (`LogSeverityScreen`), a file (`LogFilePath`, `LogSeverityFile`) and syslog
//! (`LogSeveritySys`), each with the least severe message that it takes. It starts with the settings of environment and
//! file, and applies those of the datastore as soon as they are known.
//!
//! Calico writes to file and syslog by default. Here both are used only if they are configured explicitly: in the
//! containers of a cluster nobody reads them.

use api::Severity;
use daemon::log::{LevelFilter, Outlets};
use felix_config::Config;
use felix_config::sources::Texts;

/// The name that syslog messages carry.
const SYSLOG_NAME: &str = "calico-felix";

/// The outlets according to the configuration. `texts` are the explicitly set parameters.
pub(crate) fn outlets(config: &Config, texts: &Texts) -> Outlets {
    let is_set = |name| texts.contains_key(name);
    let on = |severity| Some(level(severity)).filter(|level| *level != LevelFilter::OFF);
    let path = &config.log_file_path;
    let wants_file = (is_set("LogFilePath") || is_set("LogSeverityFile")) && !path.is_empty();
    Outlets {
        screen: level(config.log_severity_screen),
        file: on(config.log_severity_file).filter(|_| wants_file).map(|level| (level, path.into())),
        syslog: on(config.log_severity_sys)
            .filter(|_| is_set("LogSeveritySys"))
            .map(|level| (level, SYSLOG_NAME)),
    }
}

fn level(severity: Option<Severity>) -> LevelFilter {
    match severity {
        None => LevelFilter::OFF,
        Some(Severity::Trace) => LevelFilter::TRACE,
        Some(Severity::Debug) => LevelFilter::DEBUG,
        Some(Severity::Info) => LevelFilter::INFO,
        Some(Severity::Warning) => LevelFilter::WARN,
        Some(Severity::Error | Severity::Fatal) => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_syslog_are_used_only_if_set_explicitly() {
        let texts =
            |names: &[&str]| -> Texts { names.iter().map(|name| ((*name).into(), String::new())).collect() };
        let mut config = Config {
            log_file_path: "/log".to_owned(),
            ..Config::with_defaults(&felix_config::kinds::NoSurroundings)
        };
        let silent = outlets(&config, &texts(&[]));
        assert_eq!((silent.screen, silent.file, silent.syslog), (LevelFilter::INFO, None, None));
        let all = outlets(&config, &texts(&["LogFilePath", "LogSeveritySys"]));
        assert_eq!(all.file, Some((LevelFilter::INFO, "/log".into())));
        assert_eq!(all.syslog, Some((LevelFilter::INFO, "calico-felix")));
        config.log_severity_file = None;
        assert_eq!(outlets(&config, &texts(&["LogFilePath"])).file, None, "switched off");
    }
}
