//! A panic is a bug: some invariant does not hold, and nothing tells which data is half changed. The process that
//! panics ends, whichever of its threads or tasks it was, and logs why; its supervisor restarts it with fresh state.
//! Other components are other processes and keep running, and Felix' state in the kernel stays.
//!
//! The released program is built to abort on a panic. [`end_process`] makes every build behave the same, and sends the
//! message to every outlet of the log, including the file and syslog.

use std::os::unix::process::CommandExt as _;
use std::panic::PanicHookInfo;
use std::process::Command;

/// Variables that make Rust capture a backtrace with errors and panics.
const ASKS_FOR_TRACES: [&str; 2] = ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"];

/// Restarts the program without the variables that request backtraces, if it aborts on a panic: the release has neither
/// the unwind tables that a stack walk needs nor names to print, so a backtrace would end it at its first error. Call
/// it before anything else.
pub fn without_traces() {
    if cfg!(not(panic = "abort")) || ASKS_FOR_TRACES.iter().all(|name| std::env::var_os(name).is_none()) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    ASKS_FOR_TRACES.iter().for_each(|name| _ = again.env_remove(name));
    let error = again.args(arguments).exec();
    eprintln!("tortie: RUST_BACKTRACE is set, and this program cannot start itself without it: {error}");
}

/// Makes a panic anywhere in this process log itself and end the process by SIGABRT.
pub fn end_process() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if tracing::dispatcher::has_been_set() {
            report(panic);
        } else {
            usual(panic);
        }
        std::process::abort();
    }));
}

fn report(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("no message");
    tracing::error!(thread, place, "a bug in this program ends the process: {message}");
}
