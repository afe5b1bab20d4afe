//! Flags of Kubernetes' program that are accepted but ignored, with a warning for each.

use clap::{Arg, ArgAction, ArgMatches, Command, Error};

/// Flags with a value, and why they are ignored.
const VALUES: [(&str, &str); 3] = [
    ("the registrar waits for the driver, however long it takes", "connection-timeout"),
    (
        "the log is that of this program, at the level of --v",
        "feature-gates log-backtrace-at log-dir log-file log-file-max-size log-flush-frequency log-json-info-buffer-size \
         log-text-info-buffer-size logging-format stderrthreshold vmodule",
    ),
    ("it has no meaning here", "kube-api-burst kube-api-qps metrics-address metrics-path"),
];

/// Flags that may have no value, and why they are ignored.
const SWITCHES: [(&str, &str); 3] = [
    (
        "the log is that of this program, at the level of --v",
        "add-dir-header alsologtostderr log-json-split-stream log-text-split-stream logtostderr one-output skip-headers \
         skip-log-headers",
    ),
    ("this program has no Go profiles", "enable-pprof"),
    ("it has no meaning here", "automaxprocs"),
];

/// The flags that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ignored(Vec<&'static str>);

fn flags() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
    let split = |takes_value: bool| {
        move |(why, names): &(&'static str, &'static str)| {
            let why = *why;
            names.split_whitespace().map(move |name| (name, why, takes_value)).collect::<Vec<_>>()
        }
    };
    VALUES.iter().flat_map(split(true)).chain(SWITCHES.iter().flat_map(split(false)))
}

impl Ignored {
    /// Logs a warning for each.
    pub(super) fn warn(&self) {
        for (name, why, _) in flags().filter(|(name, ..)| self.0.contains(name)) {
            tracing::warn!("--{name} does nothing here: {why}");
        }
    }

    #[cfg(test)]
    pub(super) fn given(&self) -> &[&'static str] {
        &self.0
    }
}

impl clap::Args for Ignored {
    fn augment_args(mut command: Command) -> Command {
        for (name, _, takes_value) in flags() {
            let flag = Arg::new(name).long(name).hide(true).action(ArgAction::Append);
            let flag = match takes_value {
                true => flag.num_args(1),
                false => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
            };
            command = command.arg(flag);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(flags().map(|(name, ..)| name).filter(|name| matches.contains_id(name)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
