//! Named steps at which a test can kill the process, as if by `kill -9`.
//!
//! Without the feature `fault-points` a step does nothing.

/// The environment variable that names the step at which the process is killed.
#[cfg(feature = "fault-points")]
pub(crate) const VARIABLE: &str = "TORTIE_CNI_DIE_AT";

/// All steps of an ADD with a fault point, in order; tests walk this list.
#[cfg(feature = "fault-points")]
pub const STEPS: [&str; 9] = [
    "started",
    "store-read",
    "link-created",
    "addresses-assigned",
    "host-settings",
    "host-up",
    "pod-wired",
    "endpoint-written",
    "profile-written",
];

/// Kills the process here if a test requested it.
#[cfg(feature = "fault-points")]
pub(crate) fn point(step: &'static str) {
    debug_assert!(STEPS.contains(&step), "{step} is not in the list");
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == step) {
        let own = rustix::process::getpid();
        // Like kill -9: no destructors, no exit handlers.
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        std::process::abort();
    }
}

/// Does nothing outside of tests.
#[cfg(not(feature = "fault-points"))]
pub(crate) fn point(_step: &'static str) {}

/// The environment variable that names the step at which to wait, and the folder through which a test controls it.
#[cfg(feature = "fault-points")]
pub const HOLD_VARIABLES: [&str; 2] = ["TORTIE_CNI_HOLD_AT", "TORTIE_CNI_HOLD_FOLDER"];

/// Waits here if a test requested it: creates a file named after the step in the test's folder, and continues when that
/// file is gone.
#[cfg(feature = "fault-points")]
pub(crate) async fn hold(step: &'static str) {
    let [wanted, folder] = HOLD_VARIABLES.map(std::env::var_os);
    let (Some(wanted), Some(folder)) = (wanted, folder) else { return };
    let file = std::path::Path::new(&folder).join(step);
    if wanted != step || std::fs::write(&file, "").is_err() {
        return;
    }
    while file.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Does nothing outside of tests.
#[cfg(not(feature = "fault-points"))]
pub(crate) async fn hold(_step: &'static str) {}
