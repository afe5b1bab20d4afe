//! Texts in a certain format: names of hosts and interfaces, paths, rates.

use super::{Kind, Refusal, Surroundings};
use api::scalars::names::is_dns_label;

/// A text that matches a condition.
pub(crate) struct Text {
    is_valid: fn(&str) -> bool,
    reason: &'static str,
    accepts: &'static str,
}

/// Any text on one line.
pub(crate) const TEXT: Text =
    Text { is_valid: |text| !text.contains('\n'), reason: "invalid string", accepts: "a text" };

/// Names of interfaces or their prefixes, separated by commas.
pub(crate) const INTERFACE_LIST: Text = Text {
    is_valid: |text| text.split(',').all(is_plain_interface),
    reason: "invalid Linux interface name",
    accepts: "names of interfaces, separated by commas",
};

/// The name of an interface, with an optional `+` for any rest.
pub(crate) const INTERFACE: Text = Text {
    is_valid: is_interface,
    reason: "invalid Linux interface parameter",
    accepts: "the name of an interface; `+` at the end stands for any rest",
};

/// A host and a port.
pub(crate) const AUTHORITY: Text = Text {
    is_valid: is_authority,
    reason: "invalid URL authority",
    accepts: "a host and a port, such as `127.0.0.1:2379`",
};

/// The name of a host.
pub(crate) const HOST_NAME: Text = Text {
    is_valid: |text| !text.is_empty() && text.bytes().all(|byte| is_name_byte(byte, b"_.-")),
    reason: "invalid hostname",
    accepts: "the name of a host: letters, digits, `_`, `.` and `-`",
};

/// The address or name of a host.
pub(crate) const HOST_ADDRESS: Text = Text {
    is_valid: |text| (1..=64).contains(&text.len()) && text.bytes().all(|byte| is_name_byte(byte, b":._+-")),
    reason: "invalid host address",
    accepts: "an address, or the name of a host",
};

/// A limit such as `10/second`.
pub(crate) const LOG_RATE: Text = Text {
    is_valid: is_log_rate,
    reason: "invalid log rate limit",
    accepts: "a number from 1 to 9999, `/` and `second`, `minute`, `hour` or `day`",
};

impl Kind for Text {
    type Value = String;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<String, Refusal> {
        if (self.is_valid)(text) { Ok(text.to_owned()) } else { Err(Refusal::value(self.reason)) }
    }

    fn accepts(&self) -> String {
        self.accepts.to_owned()
    }
}

fn is_name_byte(byte: u8, others: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || others.contains(&byte)
}

/// Whether a text is the name of an interface without dots.
pub(super) fn is_plain_interface(text: &str) -> bool {
    (1..=15).contains(&text.len()) && text.bytes().all(|byte| is_name_byte(byte, b"_-"))
}

/// Whether a text is the name of an interface, with an optional `+` for any rest.
pub(super) fn is_interface(text: &str) -> bool {
    (1..=15).contains(&text.len()) && text.bytes().all(|byte| is_name_byte(byte, b":._+-"))
}

fn is_authority(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains('/')
            && !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_log_rate(text: &str) -> bool {
    text.is_empty()
        || text.split_once('/').is_some_and(|(count, unit)| {
            (1..=4).contains(&count.len())
                && !count.starts_with('0')
                && count.bytes().all(|byte| byte.is_ascii_digit())
                && matches!(unit, "second" | "minute" | "hour" | "day")
        })
}

/// The path of a file.
pub(crate) struct File {
    must_exist: bool,
    is_program: bool,
}

impl File {
    /// Any path.
    pub(crate) const ANY: Self = Self { must_exist: false, is_program: false };
    /// The path of an existing file.
    pub(crate) const EXISTING: Self = Self { must_exist: true, is_program: false };
    /// The name or path of an existing program.
    pub(crate) const PROGRAM: Self = Self { must_exist: true, is_program: true };
}

impl Kind for File {
    type Value = String;

    fn parse(&self, text: &str, around: &dyn Surroundings) -> Result<String, Refusal> {
        if self.is_program {
            return around.find_program(text).ok_or_else(|| Refusal::value("missing file"));
        }
        if self.must_exist && !around.file_exists(text) {
            return Err(Refusal::value("failed to access file"));
        }
        Ok(text.to_owned())
    }

    /// The default is not checked: it need not exist.
    fn parse_default(&self, text: &str) -> Result<String, Refusal> {
        Ok(text.to_owned())
    }

    fn accepts(&self) -> String {
        match self {
            Self { is_program: true, .. } => {
                "an existing program: a path, or a name beside our own program or on the search path"
            }
            Self { must_exist: true, .. } => "the path of an existing file",
            _ => "a path",
        }
        .to_owned()
    }
}

/// The name of an OpenStack region, which becomes part of a namespace's name.
pub(crate) struct Region;

/// The length of a DNS label minus that of the prefix `openstack-region-`.
const MAX_REGION_LENGTH: usize = 63 - 17;

impl Kind for Region {
    type Value = String;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<String, Refusal> {
        if text.len() > MAX_REGION_LENGTH {
            return Err(Refusal::Whole(format!(
                "the value of OpenstackRegion must be {MAX_REGION_LENGTH} chars or fewer"
            )));
        }
        if !is_dns_label(text) {
            return Err(Refusal::Whole(
                "The value of OpenstackRegion must be a valid DNS label; a lowercase RFC 1123 label must \
                 consist of lower case alphanumeric characters or '-', and must start and end with an \
                 alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                    .to_owned(),
            ));
        }
        Ok(text.to_owned())
    }

    fn accepts(&self) -> String {
        format!("a DNS label of at most {MAX_REGION_LENGTH} characters")
    }
}
