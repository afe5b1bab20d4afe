//! How long a flow without packets is kept: `BPFConntrackTimeouts`.

use std::collections::BTreeMap;
use std::time::Duration;

/// Times without a packet, in nanoseconds like the times of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A TCP connection that is not established.
    pub tcp_syn_sent: u64,
    /// An established TCP connection.
    pub tcp_established: u64,
    /// A TCP connection that both sides have closed.
    pub tcp_fins_seen: u64,
    /// A TCP connection that a side has reset.
    pub tcp_reset_seen: u64,
    /// UDP.
    pub udp: u64,
    /// Any other protocol.
    pub generic: u64,
    /// ICMP.
    pub icmp: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_syn_sent: 20 * SECOND,
            tcp_established: 3600 * SECOND,
            tcp_fins_seen: 30 * SECOND,
            tcp_reset_seen: 40 * SECOND,
            udp: 60 * SECOND,
            generic: 600 * SECOND,
            icmp: 5 * SECOND,
        }
    }
}

impl Timeouts {
    /// Parses the parameter. `Auto` is the kernel's timeout for its own connections; `seconds` reads that from a file
    /// in `/proc/sys/net/netfilter`. Invalid values keep their default, and are reported.
    pub fn read(
        texts: &BTreeMap<String, String>,
        seconds: impl Fn(&str) -> Option<u64>,
    ) -> (Self, Vec<String>) {
        let mut timeouts = Self::default();
        let mut problems = Vec::new();
        for (name, text) in texts {
            let (field, file) = match name.as_str() {
                "TCPSynSent" => (&mut timeouts.tcp_syn_sent, "nf_conntrack_tcp_timeout_syn_sent"),
                "TCPEstablished" => (&mut timeouts.tcp_established, "nf_conntrack_tcp_timeout_established"),
                "TCPFinsSeen" => (&mut timeouts.tcp_fins_seen, "nf_conntrack_tcp_timeout_time_wait"),
                "TCPResetSeen" => (&mut timeouts.tcp_reset_seen, ""),
                "UDPTimeout" => (&mut timeouts.udp, ""),
                "GenericTimeout" => (&mut timeouts.generic, "nf_conntrack_generic_timeout"),
                "ICMPTimeout" => (&mut timeouts.icmp, "nf_conntrack_icmp_timeout"),
                // Calico accepts it without using it.
                "CreationGracePeriod" => continue,
                _ => {
                    problems.push(format!("BPFConntrackTimeouts has no timeout {name}"));
                    continue;
                }
            };
            let value = match settings::kinds::go_duration(text) {
                Ok(duration) => Some(nanoseconds(duration)),
                Err(_) if text == "Auto" && !file.is_empty() => {
                    seconds(file).map(|seconds| seconds.saturating_mul(SECOND))
                }
                Err(_) => None,
            };
            match value {
                Some(value) => *field = value,
                None => problems.push(format!(
                    "BPFConntrackTimeouts: {name} cannot be {text}: it stays at {} s",
                    *field / SECOND
                )),
            }
        }
        (timeouts, problems)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_parsed_and_mistakes_are_reported() {
        let texts = |list: &[(&str, &str)]| {
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let sysctl = |name: &str| (name == "nf_conntrack_tcp_timeout_time_wait").then_some(120);
        let all = texts(&[
            ("CreationGracePeriod", "10s"),
            ("TCPEstablished", "2h"),
            ("TCPFinsSeen", "Auto"),
            ("GenericTimeout", "Auto"),
            ("UDPTimeout", "Auto"),
            ("ICMPTimeout", "soon"),
            ("Else", "1s"),
        ]);
        let (timeouts, problems) = Timeouts::read(&all, sysctl);
        let expected =
            Timeouts { tcp_established: 7200 * SECOND, tcp_fins_seen: 120 * SECOND, ..Timeouts::default() };
        assert_eq!(timeouts, expected);
        assert_eq!(
            problems,
            [
                "BPFConntrackTimeouts has no timeout Else",
                "BPFConntrackTimeouts: GenericTimeout cannot be Auto: it stays at 600 s",
                "BPFConntrackTimeouts: ICMPTimeout cannot be soon: it stays at 5 s",
                "BPFConntrackTimeouts: UDPTimeout cannot be Auto: it stays at 60 s",
            ]
        );
    }
}
