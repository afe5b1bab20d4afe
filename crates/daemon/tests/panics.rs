//! A panic in one task is logged and ends the process. The test is a separate program, because a process has to end.

use daemon::log::Log;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// SIGABRT.
const ABORTED: i32 = 6;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("panic-with-log") => panic_in_a_task(true),
        Some("panic-without-log") => panic_in_a_task(false),
        _ => check(),
    }
}

/// The main thread waits; a task panics where tokio would catch it.
fn panic_in_a_task(has_log: bool) {
    daemon::panics::end_process();
    let _log = has_log.then(|| Log::start(LevelFilter::INFO));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        tokio::spawn(async { panic!("block {} is in two pools", "10.0.0.0/26") });
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

fn check() {
    for (how, expected) in [
        (
            "panic-with-log",
            "ERROR daemon::panics: a bug in this program ends the process: block 10.0.0.0/26 is in two pools",
        ),
        ("panic-without-log", "block 10.0.0.0/26 is in two pools"),
    ] {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program).arg(how).output().expect("starting it again");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(ABORTED), "{how}: {text}");
        assert!(text.contains(expected) && text.contains("panics.rs"), "{how}: {text}");
        assert_eq!(text.matches("two pools").count(), 1, "{how}: {text}");
    }
}
