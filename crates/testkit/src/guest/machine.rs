//! QEMU: runs a kernel and a file system to their end.

use crate::{Process, program};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// The guest's last output, before the test's exit code.
pub(super) const END: &str = "@@guest ended with";

/// The result of a run.
#[derive(Debug)]
pub(super) struct Ending {
    /// The test's exit code; `None` when the guest did not get that far.
    pub(super) code: Option<i32>,
    /// The test's output.
    pub(super) output: String,
    console: String,
}

impl Ending {
    /// The last lines of the kernel's console.
    pub(super) fn console_tail(&self) -> String {
        let lines: Vec<&str> = self.console.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// Boots the machine and waits until the guest ends.
pub(super) fn run(
    kernel: &Path,
    image: &Path,
    memory_mib: u32,
    folder: &Path,
    timeout: Duration,
) -> Result<Ending> {
    let qemu = program("qemu-system-x86_64", "install Debian's qemu-system-x86 (`make setup` does)")?;
    let (console, output) = (folder.join("console"), folder.join("output"));
    // Hardware acceleration must be requested explicitly: where it is offered but does not work, it hangs.
    let acceleration = std::env::var("TORTIE_GUEST_ACCEL").unwrap_or_else(|_| "tcg".to_owned());
    // Kernels since 6.2 allocate memory with 16-byte compare-and-exchange, which older emulators get wrong: they boot
    // only without it.
    let processor = if acceleration.starts_with("kvm") { "host" } else { "max,-cx16" };
    let arguments = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "pc",
        "-accel",
        &acceleration,
        "-cpu",
        processor,
        // One processor: two emulated ones wait for each other whenever the machine runs only one of them, which on a
        // busy machine costs a third more work and four times the time.
        "-smp",
        "1",
        "-m",
        &format!("{memory_mib}M"),
        "-kernel",
        path(kernel)?,
        "-initrd",
        path(image)?,
        "-append",
        "console=ttyS0 panic=-1 loglevel=4 random.trust_cpu=on mitigations=off",
        "-serial",
        &format!("file:{}", path(&console)?),
        "-serial",
        &format!("file:{}", path(&output)?),
    ]
    .map(str::to_owned);
    let log = folder.join("qemu");
    let mut process = Process::start(&qemu, &arguments, &log)?;
    let deadline = Instant::now() + timeout;
    // It ends by itself: on a reboot and on a panic.
    while process.check_running().is_ok() {
        if Instant::now() > deadline {
            process.kill()?;
            let ending = ending(&console, &output);
            bail!(
                "the guest did not end within {timeout:?}\n---- output\n{}\n---- end of the console\n{}",
                ending.output,
                ending.console_tail()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let ending = ending(&console, &output);
    if ending.code.is_none() && ending.console.is_empty() {
        bail!("QEMU ended without booting: {}", process.log_tail());
    }
    Ok(ending)
}

fn path(path: &Path) -> Result<&str> {
    let text = path.to_str().with_context(|| format!("{} is not text", path.display()))?;
    // In QEMU a comma starts an option.
    if text.contains(',') {
        bail!("{text}: QEMU takes no path with a comma");
    }
    Ok(text)
}

fn ending(console: &Path, output: &Path) -> Ending {
    let read = |file: &Path| {
        let bytes = std::fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    };
    let output = read(output);
    let code = output.lines().rev().find_map(|line| line.strip_prefix(END)?.trim().parse().ok());
    Ending { code, output, console: read(console) }
}

#[cfg(test)]
mod tests {
    use super::{END, ending};

    #[test]
    fn the_output_ends_with_the_exit_code() {
        let folder = crate::Folder::new("ending").expect("a folder");
        let (console, output) = (folder.path().join("console"), folder.path().join("output"));
        assert_eq!(ending(&console, &output).code, None);
        std::fs::write(&output, format!("a test\r\n{END} 1\r\n{END} 101\r\n")).expect("a file");
        let found = ending(&console, &output);
        assert_eq!(found.code, Some(101));
        assert!(!found.output.contains('\r'));
    }
}
