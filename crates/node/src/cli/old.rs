//! The flags of `calico-node` up to v3.32: single dashes, one flag per command, checks that can be combined.

use super::{HealthArgs, NodeCommand, StatusCommand, duration};
use crate::health::THRESHOLD;
use std::collections::BTreeMap;
use std::time::Duration;

/// The meaning of the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OldCommand {
    /// A command of the node.
    Node(NodeCommand),
    /// Another component, by its present name, with its arguments.
    Component(&'static str, Vec<String>),
    /// The list of flags.
    Help,
}

/// Why the flags cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OldError {
    /// The flag does not exist.
    #[error("flag provided but not defined: {0}")]
    Unknown(String),
    /// The flag's value is invalid.
    #[error("invalid value \"{value}\" for flag -{flag}: {reason}")]
    Value {
        /// The flag.
        flag: String,
        /// The value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// The flag needs a value.
    #[error("flag needs an argument: -{0}")]
    Missing(String),
    /// The flags do not select a command.
    #[error(
        "no valid option provided: say what to do, such as -startup, -node-services, -shutdown or -felix-live"
    )]
    Nothing,
}

/// Flags that are true or false.
const SWITCHES: [&str; 26] = [
    "v",
    "felix",
    "bpf",
    "init",
    "best-effort",
    "hostpath-init",
    "startup",
    "shutdown",
    "complete-startup",
    "node-services",
    "monitor-addresses",
    "monitor-token",
    "status-reporter",
    "allocate-tunnel-addrs",
    "allocate-tunnel-addrs-run-once",
    "felix-live",
    "felix-ready",
    "bird-live",
    "bird-ready",
    "bird6-live",
    "bird6-ready",
    "show-status",
    "confd",
    "confd-run-once",
    "confd-keep-stage-file",
    "version",
];

/// Flags with a value.
const VALUES: [&str; 3] = ["threshold-time", "flows", "confd-confdir"];

/// The help text for the flags.
#[must_use]
pub fn help() -> String {
    let switches = SWITCHES.iter().map(|flag| format!("  -{flag}\n"));
    let values = VALUES.iter().map(|flag| format!("  -{flag} VALUE\n"));
    format!(
        "Usage: calico-node [FLAG]...\n\nWithout flags, starts this machine's node and keeps its parts running. \
         `tortie node --help` explains the commands.\n\nFlags of older manifests:\n{}{}",
        switches.collect::<String>(),
        values.collect::<String>()
    )
}

/// Parses the flags, without the program's name.
///
/// # Errors
/// When a flag is unknown, or the flags do not select a command.
pub fn parse(arguments: &[String]) -> Result<OldCommand, OldError> {
    if matches!(arguments, [flag] if matches!(flag.as_str(), "-h" | "-help" | "--help")) {
        return Ok(OldCommand::Help);
    }
    let flags = Flags::read(arguments)?;
    let node = |command| Ok(OldCommand::Node(command));
    let component = |name, arguments| Ok(OldCommand::Component(name, arguments));
    // If several commands are given, only one is carried out, in this order of precedence.
    if flags.has("v") || flags.has("version") {
        return node(NodeCommand::Version);
    }
    if flags.has("felix") {
        return component("felix", Vec::new());
    }
    if flags.has("bpf") {
        return node(NodeCommand::Bpf { arguments: flags.rest.clone() });
    }
    if let Some(count) = flags.values.get("flows").filter(|count| *count != "0") {
        let wrong = |_| OldError::Value {
            flag: "flows".to_owned(),
            value: count.clone(),
            reason: "not a number".to_owned(),
        };
        return node(NodeCommand::Flows { num: count.parse().map_err(wrong)? });
    }
    if flags.has("init") {
        return node(NodeCommand::Init { best_effort: flags.has("best-effort") });
    }
    if flags.has("hostpath-init") {
        return node(NodeCommand::HostpathInit);
    }
    if flags.has("startup") {
        return node(NodeCommand::Startup { complete_startup: flags.has("complete-startup") });
    }
    let commands = [
        ("complete-startup", NodeCommand::CompleteStartup),
        ("shutdown", NodeCommand::Shutdown),
        ("node-services", NodeCommand::NodeServices),
        ("monitor-addresses", NodeCommand::MonitorAddresses),
        ("allocate-tunnel-addrs-run-once", NodeCommand::AllocateTunnelAddrs { run_once: true }),
        ("allocate-tunnel-addrs", NodeCommand::AllocateTunnelAddrs { run_once: false }),
        ("monitor-token", NodeCommand::MonitorToken),
        ("status-reporter", NodeCommand::Status { command: StatusCommand::Report }),
        ("show-status", NodeCommand::Status { command: StatusCommand::Show }),
    ];
    if let Some((_, command)) = commands.into_iter().find(|(flag, _)| flags.has(flag)) {
        return node(command);
    }
    if flags.has("confd") {
        let mut arguments = Vec::new();
        for (flag, argument) in
            [("confd-run-once", "--run-once"), ("confd-keep-stage-file", "--keep-stage-file")]
        {
            if flags.has(flag) {
                arguments.push(argument.to_owned());
            }
        }
        if let Some(folder) = flags.values.get("confd-confdir") {
            arguments.push(format!("--confdir={folder}"));
        }
        return component("confd", arguments);
    }
    flags.health().map(|health| OldCommand::Node(NodeCommand::Health(health)))
}

#[derive(Default)]
struct Flags {
    switches: BTreeMap<String, bool>,
    values: BTreeMap<String, String>,
    rest: Vec<String>,
}

impl Flags {
    /// Parses by Go's rules: one dash or two, `-flag`, `-flag=value`, `-flag value`; the first other word ends the
    /// flags.
    fn read(arguments: &[String]) -> Result<Self, OldError> {
        let mut flags = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                flags.rest.push(word.clone());
                break;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if SWITCHES.contains(&name) {
                let on = match value.as_deref() {
                    None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
                    Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
                    Some(other) => {
                        let reason = "neither true nor false".to_owned();
                        return Err(OldError::Value {
                            flag: name.to_owned(),
                            value: other.to_owned(),
                            reason,
                        });
                    }
                };
                flags.switches.insert(name.to_owned(), on);
            } else if VALUES.contains(&name) {
                let value = value.or_else(|| words.next().cloned());
                let value = value.ok_or_else(|| OldError::Missing(name.to_owned()))?;
                flags.values.insert(name.to_owned(), value);
            } else {
                return Err(OldError::Unknown(word.clone()));
            }
        }
        flags.rest.extend(words.cloned());
        Ok(flags)
    }

    fn has(&self, flag: &str) -> bool {
        self.switches.get(flag).copied().unwrap_or_default()
    }

    fn health(&self) -> Result<HealthArgs, OldError> {
        let health = HealthArgs {
            felix_live: self.has("felix-live"),
            felix_ready: self.has("felix-ready"),
            bird_live: self.has("bird-live"),
            bird_ready: self.has("bird-ready"),
            bird6_live: self.has("bird6-live"),
            bird6_ready: self.has("bird6-ready"),
            threshold_time: self.threshold()?,
        };
        let nothing = HealthArgs {
            felix_live: false,
            felix_ready: false,
            bird_live: false,
            bird_ready: false,
            bird6_live: false,
            bird6_ready: false,
            threshold_time: health.threshold_time,
        };
        if health == nothing { Err(OldError::Nothing) } else { Ok(health) }
    }

    fn threshold(&self) -> Result<Duration, OldError> {
        let Some(value) = self.values.get("threshold-time") else { return Ok(THRESHOLD) };
        duration(value).map_err(|reason| OldError::Value {
            flag: "threshold-time".to_owned(),
            value: value.clone(),
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<OldCommand, OldError> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_of_the_manifests_are_parsed() {
        let node = |command| Ok(OldCommand::Node(command));
        for (line, expected) in [
            ("-startup", node(NodeCommand::Startup { complete_startup: false })),
            ("-init -best-effort", node(NodeCommand::Init { best_effort: true })),
            ("-shutdown", node(NodeCommand::Shutdown)),
            ("--node-services", node(NodeCommand::NodeServices)),
            ("-allocate-tunnel-addrs", node(NodeCommand::AllocateTunnelAddrs { run_once: false })),
            ("-allocate-tunnel-addrs-run-once", node(NodeCommand::AllocateTunnelAddrs { run_once: true })),
            (
                "-allocate-tunnel-addrs -allocate-tunnel-addrs-run-once",
                node(NodeCommand::AllocateTunnelAddrs { run_once: true }),
            ),
            ("-monitor-token", node(NodeCommand::MonitorToken)),
            ("-hostpath-init", node(NodeCommand::HostpathInit)),
            ("-status-reporter", node(NodeCommand::Status { command: StatusCommand::Report })),
            ("-show-status", node(NodeCommand::Status { command: StatusCommand::Show })),
            ("-v", node(NodeCommand::Version)),
            ("-h", Ok(OldCommand::Help)),
            ("--help", Ok(OldCommand::Help)),
            ("-felix", Ok(OldCommand::Component("felix", vec![]))),
            (
                "-confd -confd-run-once -confd-confdir /etc/x",
                Ok(OldCommand::Component("confd", vec!["--run-once".into(), "--confdir=/etc/x".into()])),
            ),
            ("-bpf routes dump", node(NodeCommand::Bpf { arguments: vec!["routes".into(), "dump".into()] })),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn checks_can_be_combined() {
        let Ok(OldCommand::Node(NodeCommand::Health(health))) =
            read("-felix-live -bird-live -felix-ready=false -threshold-time=1m")
        else {
            panic!("no health check")
        };
        assert!(health.felix_live && health.bird_live && !health.felix_ready && !health.bird_ready);
        assert_eq!(health.threshold_time, Duration::from_secs(60));
        let Ok(OldCommand::Node(NodeCommand::Health(health))) = read("-bird6-ready -threshold-time 5s")
        else {
            panic!("no health check")
        };
        assert_eq!((health.bird6_ready, health.threshold_time), (true, Duration::from_secs(5)));
    }

    #[test]
    fn unknown_flags_and_values_are_rejected() {
        for (line, expected) in [
            ("", "no valid option provided"),
            ("-best-effort", "no valid option provided"),
            ("-felix-live=maybe", "invalid value \"maybe\""),
            ("-nonsense", "flag provided but not defined: -nonsense"),
            ("-felix-live -threshold-time", "flag needs an argument: -threshold-time"),
            ("-felix-live -threshold-time soon", "invalid value \"soon\""),
        ] {
            let error = read(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
