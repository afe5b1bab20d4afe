//! The answer to a hello. Pure.

use typha_wire::{ClientHello, Compression, Position, SyncerType};

/// Why a client is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It requests a feed that does not exist.
    #[error("there is no syncer type '{0}'")]
    UnknownType(String),
    /// It is older than v3.32 and would not understand the keys of policies.
    #[error("it does not support the policy keys of v3.32 and later; upgrade it")]
    OldPolicyKeys,
}

/// The agreed terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The feed.
    pub kind: SyncerType,
    /// Whether streams are restarted with compression.
    pub compression: Compression,
    /// Whether the client wants to receive positions.
    pub positions: bool,
    /// The position that the client reports.
    pub resume: Option<Position>,
}

/// Determines the terms for a client with this hello. Versions are ignored.
///
/// # Errors
/// When the client is refused.
pub(crate) fn judge(hello: &ClientHello) -> Result<Terms, Refusal> {
    let kind = SyncerType::from_name(&hello.syncer_type);
    let kind = kind.ok_or_else(|| Refusal::UnknownType(hello.syncer_type.clone()))?;
    if !hello.supports_modern_policy_keys {
        return Err(Refusal::OldPolicyKeys);
    }
    let snappy = hello.compression.iter().any(|name| name == Compression::Snappy.as_str());
    let compression =
        if hello.supports_decoder_restart && snappy { Compression::Snappy } else { Compression::None };
    let resume = (hello.supports_resume && hello.resume.instance != 0).then_some(hello.resume);
    Ok(Terms { kind, compression, positions: hello.supports_resume, resume })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_hellos() {
        let hello = |kind: &str, restart, algorithms: &[&str], modern| ClientHello {
            syncer_type: kind.to_owned(),
            supports_decoder_restart: restart,
            compression: algorithms.iter().map(|name| (*name).to_owned()).collect(),
            supports_modern_policy_keys: modern,
            version: "nonsense".to_owned(),
            ..ClientHello::default()
        };
        let plain = |kind| Ok(Terms { kind, compression: Compression::None, positions: false, resume: None });
        let snappy =
            |kind| Ok(Terms { kind, compression: Compression::Snappy, positions: false, resume: None });
        for (hello, expected) in [
            (hello("", true, &["snappy"], true), snappy(SyncerType::Felix)),
            (hello("bgp", true, &["zstd", "snappy"], true), snappy(SyncerType::Bgp)),
            (hello("node-status", true, &[], true), plain(SyncerType::NodeStatus)),
            (hello("felix", true, &["zstd"], true), plain(SyncerType::Felix)),
            (hello("tunnel-ip-allocation", false, &["snappy"], true), plain(SyncerType::TunnelIpAllocation)),
            (hello("dikastes", true, &[], true), Err(Refusal::UnknownType("dikastes".to_owned()))),
            (hello("felix", true, &["snappy"], false), Err(Refusal::OldPolicyKeys)),
        ] {
            assert_eq!(judge(&hello), expected, "{hello:?}");
        }
        let position = Position { instance: 7, sequence: 3 };
        let ours = ClientHello { supports_resume: true, resume: position, ..hello("", true, &[], true) };
        assert_eq!(judge(&ours).unwrap().resume, Some(position));
        let theirs = ClientHello { supports_resume: false, ..ours };
        assert_eq!(judge(&theirs).unwrap().resume, None);
    }
}
