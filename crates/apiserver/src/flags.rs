//! Flags of Calico's server that are accepted here without effect; each one in use is named in a warning.
//!
//! They come from the library that every Kubernetes API server is built on. Manifests use some of them (`-v=5`).

use clap::{Arg, ArgAction, ArgMatches, Command, Error};

/// The given flags that have no effect here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Their names.
    pub given: Vec<String>,
}

/// Flags with a value, and why they have no effect.
const VALUES: [(&str, &str); 5] = [
    (
        "this server writes no audit log",
        "audit-log-batch-buffer-size audit-log-batch-max-size audit-log-batch-max-wait \
     audit-log-batch-throttle-burst audit-log-batch-throttle-qps audit-log-format audit-log-maxage audit-log-maxbackup \
     audit-log-maxsize audit-log-mode audit-log-path audit-log-truncate-max-batch-size audit-log-truncate-max-event-size \
     audit-log-version audit-policy-file audit-webhook-batch-buffer-size audit-webhook-batch-max-size \
     audit-webhook-batch-max-wait audit-webhook-batch-throttle-burst audit-webhook-batch-throttle-qps \
     audit-webhook-config-file audit-webhook-initial-backoff audit-webhook-mode audit-webhook-truncate-max-batch-size \
     audit-webhook-truncate-max-event-size audit-webhook-version",
    ),
    (
        "objects are in Calico's datastore, which the environment names",
        "default-watch-cache-size delete-collection-workers \
     encryption-provider-config etcd-cafile etcd-certfile etcd-compaction-interval etcd-count-metric-poll-period \
     etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-keyfile etcd-prefix etcd-readycheck-timeout etcd-servers \
     etcd-servers-overrides lease-reuse-duration-seconds storage-backend storage-media-type watch-cache-sizes",
    ),
    (
        "NamespaceLifecycle and the webhooks of the cluster always run here, and no other plugin does",
        "admission-control admission-control-config-file disable-admission-plugins \
     enable-admission-plugins",
    ),
    (
        "TLS versions and suites are those of this program",
        "tls-cipher-suites tls-min-version tls-sni-cert-key",
    ),
    (
        "it has no meaning here",
        "debug-socket-path egress-selector-config-file emulated-version feature-gates \
     http2-max-streams-per-connection log-backtrace-at log-dir log-file log-file-max-size log-flush-frequency stderrthreshold \
     tracing-config-file vmodule external-hostname",
    ),
];

/// Flags that may be given without a value.
const SWITCHES: [(&str, &str); 3] = [
    (
        "this server writes no audit log",
        "audit-log-batch-throttle-enable audit-log-compress audit-log-truncate-enabled \
     audit-webhook-batch-throttle-enable audit-webhook-truncate-enabled",
    ),
    ("validating admission policies are not run here", "enable-validating-admission-policy"),
    (
        "it has no meaning here",
        "add-dir-header alsologtostderr contention-profiling disable-http2-serving \
     enable-garbage-collector enable-priority-and-fairness encryption-provider-config-automatic-reload logtostderr one-output \
     permit-address-sharing permit-port-sharing profiling skip-headers skip-log-headers watch-cache",
    ),
];

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
    pub fn warn(&self) {
        for name in &self.given {
            let why = flags().find(|(flag, ..)| flag == name).map_or("", |(_, why, _)| why);
            tracing::warn!("--{name} does nothing here: {why}");
        }
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
        let given = flags().map(|(name, ..)| name).filter(|name| matches.contains_id(name));
        Ok(Self { given: given.map(str::to_owned).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
