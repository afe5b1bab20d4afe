//! Limits and intervals of the server.

use std::time::Duration;

/// The limits and intervals for clients. The defaults are Calico's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// How far behind a client may be.
    pub max_fall_behind: Duration,
    /// How long a new client may be further behind than that.
    pub new_client_grace: Duration,
    /// How often clients are pinged.
    pub ping_interval: Duration,
    /// How long they may take to answer a ping.
    pub pong_timeout: Duration,
    /// How long the TLS handshake may take, and then the hello.
    pub handshake_timeout: Duration,
    /// How long a client may take to read 256 KiB.
    pub write_timeout: Duration,
    /// How often a client is dropped while there are too many.
    pub drop_interval: Duration,
    /// How long shutting down may take.
    pub shutdown_timeout: Duration,
    /// The longest pause between two clients that are dropped during shutdown.
    pub shutdown_drop_interval: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            max_fall_behind: Duration::from_secs(300),
            new_client_grace: Duration::from_secs(300),
            ping_interval: Duration::from_secs(10),
            pong_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(120),
            drop_interval: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(300),
            shutdown_drop_interval: Duration::from_secs(1),
        }
    }
}

impl ServerSettings {
    /// The settings with Calico's corrections: nothing is zero, and a pong may take longer than two ping intervals.
    #[must_use]
    pub fn corrected(mut self) -> Self {
        let defaults = Self::default();
        for (value, default) in [
            (&mut self.max_fall_behind, defaults.max_fall_behind),
            (&mut self.new_client_grace, defaults.new_client_grace),
            (&mut self.ping_interval, defaults.ping_interval),
            (&mut self.handshake_timeout, defaults.handshake_timeout),
            (&mut self.write_timeout, defaults.write_timeout),
            (&mut self.drop_interval, defaults.drop_interval),
            (&mut self.shutdown_timeout, defaults.shutdown_timeout),
            (&mut self.shutdown_drop_interval, defaults.shutdown_drop_interval),
        ] {
            if value.is_zero() {
                *value = default;
            }
        }
        if self.pong_timeout <= self.ping_interval * 2 {
            self.pong_timeout = self.ping_interval * 6;
        }
        self
    }

    /// The pause between two clients during shutdown, when this many are to be dropped.
    #[must_use]
    pub fn shutdown_pause(&self, clients: usize) -> Duration {
        let share = self.shutdown_timeout * 95 / 100 / u32::try_from(clients.max(1)).unwrap_or(u32::MAX);
        share.min(self.shutdown_drop_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_and_pauses() {
        let defaults = ServerSettings::default();
        assert_eq!(defaults.clone().corrected(), defaults);
        let odd = ServerSettings {
            ping_interval: Duration::from_secs(40),
            write_timeout: Duration::ZERO,
            ..defaults.clone()
        };
        let odd = odd.corrected();
        assert_eq!(
            (odd.pong_timeout, odd.write_timeout),
            (Duration::from_secs(240), Duration::from_secs(120))
        );
        assert_eq!(defaults.shutdown_pause(10), Duration::from_secs(1));
        assert_eq!(defaults.shutdown_pause(2850), Duration::from_millis(100));
    }
}
