//! Kernel settings for eBPF itself, as in Calico: unprivileged users load no programs, and programs of privileged users
//! are compiled without the hardening that makes each constant cost one more instruction.
//!
//! They apply to the whole machine, so a node that has only a network namespace of its own (as in the lab) leaves them
//! alone.

use api::BPFJITHardening;
use felix_config::Config;
use std::fs;
use std::path::Path;

/// A setting, the value to change, and its replacement.
type Change = (&'static str, &'static str, &'static str);

const NOBODY_ELSE: Change = ("kernel/unprivileged_bpf_disabled", "0", "1");
/// Hardens only the programs of unprivileged users instead of all.
const OTHERS_ONLY: Change = ("net/core/bpf_jit_harden", "2", "1");

/// The configured changes. Pure.
fn changes(config: &Config) -> impl Iterator<Item = Change> {
    let nobody_else = config.bpf_disable_unprivileged.then_some(NOBODY_ELSE);
    let others_only = (config.bpf_jit_hardening == Some(BPFJITHardening::Auto)).then_some(OTHERS_ONLY);
    nobody_else.into_iter().chain(others_only)
}

/// Changes the machine's settings, if this is the machine's own network.
pub(super) fn apply(config: &Config) {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    if network("1").is_some_and(|machine| network("thread-self") == Some(machine)) {
        apply_in(config, Path::new("/proc/sys"));
    }
}

fn apply_in(config: &Config, folder: &Path) {
    for (setting, from, to) in changes(config) {
        let path = folder.join(setting);
        // Without the setting, or with another value, nothing is changed.
        if !fs::read_to_string(&path).is_ok_and(|value| value.trim() == from) {
            continue;
        }
        match fs::write(&path, to) {
            Ok(()) => tracing::info!(setting, from, to, "changed a setting of the kernel"),
            Err(error) => tracing::error!(setting, %error, "cannot change a setting of the kernel"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::apply_in;
    use api::BPFJITHardening;
    use felix_config::Config;
    use felix_config::kinds::NoSurroundings;

    #[test]
    fn settings_are_changed_as_configured_and_never_loosened_otherwise() {
        let plain = Config::with_defaults(&NoSurroundings);
        let left_alone = Config {
            bpf_disable_unprivileged: false,
            bpf_jit_hardening: Some(BPFJITHardening::Strict),
            ..plain.clone()
        };
        for (config, before, after) in [
            (&plain, ["0\n", "2\n"], ["1", "1"]),
            (&plain, ["2\n", "0\n"], ["2\n", "0\n"]),
            (&plain, ["1\n", "1\n"], ["1\n", "1\n"]),
            (&left_alone, ["0\n", "2\n"], ["0\n", "2\n"]),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let paths = ["kernel/unprivileged_bpf_disabled", "net/core/bpf_jit_harden"]
                .map(|setting| folder.path().join(setting));
            for (path, value) in paths.iter().zip(before) {
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                std::fs::write(path, value).expect("written");
            }
            apply_in(config, folder.path());
            assert_eq!(paths.map(|path| std::fs::read_to_string(path).expect("read")), after, "{before:?}");
        }
    }

    #[test]
    fn a_kernel_without_the_settings_gets_none() {
        let folder = tempfile::tempdir().expect("a folder");
        apply_in(&Config::with_defaults(&NoSurroundings), folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), 0);
    }
}
