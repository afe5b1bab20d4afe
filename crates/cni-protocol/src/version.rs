//! The supported versions of the CNI protocol.

use crate::error::{CniError, code};
use serde_json::{Value, json};

/// All supported versions, oldest first.
pub const SUPPORTED: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The protocol's default for a configuration without a version.
const UNSAID: &str = "0.1.0";
/// The form of a result when the configuration has no version; Calico's choice.
const RESULT_UNSAID: &str = "0.2.0";

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CniVersion(usize);

impl CniVersion {
    /// The newest version.
    pub const NEWEST: Self = Self(SUPPORTED.len() - 1);

    /// The version of a configuration.
    ///
    /// # Errors
    /// When the version is not supported.
    pub fn of_configuration(text: &str) -> Result<Self, CniError> {
        let text = if text.is_empty() { UNSAID } else { text };
        SUPPORTED.iter().position(|version| *version == text).map(Self).ok_or_else(|| {
            let supported = SUPPORTED.map(|version| format!("{version:?}")).join(" ");
            CniError::new(code::INCOMPATIBLE_VERSION, "incompatible CNI versions")
                .with_details(format!("config is {text:?}, plugin supports [{supported}]"))
        })
    }

    /// The version in which the result is reported.
    #[must_use]
    pub fn of_result(text: &str) -> Self {
        let text = if text.is_empty() { RESULT_UNSAID } else { text };
        SUPPORTED.iter().position(|version| *version == text).map_or(Self::NEWEST, Self)
    }

    /// The version as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        SUPPORTED[self.0]
    }

    /// Whether CHECK exists.
    #[must_use]
    pub fn has_check(self) -> bool {
        self.as_str() >= "0.4.0"
    }

    /// Whether STATUS and GC exist.
    #[must_use]
    pub fn has_status_and_gc(self) -> bool {
        self == Self::NEWEST
    }
}

/// The answer to VERSION.
#[must_use]
pub fn answer() -> Value {
    json!({"cniVersion": CniVersion::NEWEST.as_str(), "supportedVersions": SUPPORTED})
}

#[cfg(test)]
mod tests {
    use super::CniVersion;

    #[test]
    fn versions_and_their_features() {
        for (text, check, status) in [
            ("", false, false),
            ("0.3.1", false, false),
            ("0.4.0", true, false),
            ("1.0.0", true, false),
            ("1.1.0", true, true),
        ] {
            let version = CniVersion::of_configuration(text).unwrap();
            assert_eq!((version.has_check(), version.has_status_and_gc()), (check, status), "{text}");
        }
        let error = CniVersion::of_configuration("2.0.0").unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (1, "incompatible CNI versions"));
        assert!(
            error.details.starts_with("config is \"2.0.0\", plugin supports [\"0.1.0\" "),
            "{}",
            error.details
        );
        assert_eq!(CniVersion::of_result("").as_str(), "0.2.0");
    }
}
