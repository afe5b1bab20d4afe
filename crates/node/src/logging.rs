//! Messages of the node's commands, on standard error as in Calico's containers.

use crate::environment::Settings;

/// Begins to tell messages as the settings say.
pub fn begin(settings: &Settings) {
    begin_at(settings.log_level);
}

/// Begins to tell messages of this level and above. A second call changes nothing: tests and other components may have
/// begun already.
pub fn begin_at(level: tracing::Level) {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}
