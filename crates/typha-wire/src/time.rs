//! Go's `time.Time` in its binary form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The seconds from the first day of year 1 until 1970.
const UNIX_SECONDS: i64 = 62_135_596_800;
/// The zone of a value that is marked as UTC.
const UTC: i16 = -1;

/// A point in time as Go sends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoTime {
    /// Seconds since the first day of year 1.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: i32,
    /// Minutes east of Greenwich; -1 for a value that is marked as UTC.
    pub zone_minutes: i16,
}

impl GoTime {
    /// Converts a time, in UTC.
    #[must_use]
    pub fn at(time: SystemTime) -> Self {
        let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(0), since.subsec_nanos()),
            Err(_) => (0, 0),
        };
        let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
        Self { seconds: seconds + UNIX_SECONDS, nanoseconds, zone_minutes: UTC }
    }

    /// The time since then; `None` for a time in the future.
    #[must_use]
    pub fn elapsed(self, now: SystemTime) -> Option<Duration> {
        let seconds = u64::try_from(self.seconds.checked_sub(UNIX_SECONDS)?).ok()?;
        let nanoseconds = u32::try_from(self.nanoseconds).ok()?;
        let then = UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds.min(999_999_999)))?;
        now.duration_since(then).ok()
    }

    /// Whether it is Go's zero time.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.seconds == 0 && self.nanoseconds == 0
    }

    /// Encodes the time.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 15] {
        let mut bytes = [1; 15];
        bytes[1..9].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[9..13].copy_from_slice(&self.nanoseconds.to_be_bytes());
        bytes[13..].copy_from_slice(&self.zone_minutes.to_be_bytes());
        bytes
    }

    /// Decodes a time. Version 2 appends the seconds of an odd zone.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match (bytes.first(), bytes.len()) {
            (Some(1), 15) | (Some(2), 16) => Some(Self {
                seconds: i64::from_be_bytes(bytes.get(1..9)?.try_into().ok()?),
                nanoseconds: i32::from_be_bytes(bytes.get(9..13)?.try_into().ok()?),
                zone_minutes: i16::from_be_bytes(bytes.get(13..15)?.try_into().ok()?),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back() {
        let then = UNIX_EPOCH + Duration::new(1_794_000_000, 5);
        let time = GoTime::at(then);
        assert_eq!(GoTime::from_bytes(&time.to_bytes()), Some(time));
        assert_eq!(time.elapsed(then + Duration::from_secs(3)), Some(Duration::from_secs(3)));
        assert_eq!(time.elapsed(then - Duration::from_secs(3)), None, "the other clock may be ahead");
        assert_eq!(GoTime::from_bytes(&[3; 15]), None);
        assert_eq!(GoTime::from_bytes(&[1; 14]), None);
        assert_eq!(GoTime { seconds: i64::MIN, nanoseconds: -1, zone_minutes: 0 }.elapsed(then), None);
    }
}
