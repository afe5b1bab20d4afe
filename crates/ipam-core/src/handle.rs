//! Handles: how many addresses of each block a holder has.
//!
//! A handle is counted up before addresses are taken and counted down after they are released, so its count may be too
//! high after a crash but must never be too low.

use ipnet::IpNet;
use model::{IpVersion, IpamHandle};

/// Counts up the addresses of a block.
pub fn increment(handle: &mut IpamHandle, block: &IpNet, count: i64) {
    let entry = handle.block.entry(block.to_string()).or_default();
    *entry = entry.saturating_add(count);
}

/// Counts down the addresses of a block. Returns how far the count fell short: anything but 0 means that it was too
/// low.
pub fn decrement(handle: &mut IpamHandle, block: &IpNet, count: i64) -> i64 {
    let block = block.to_string();
    let left = handle.block.get(&block).copied().unwrap_or_default().saturating_sub(count);
    if left > 0 {
        handle.block.insert(block, left);
        return 0;
    }
    handle.block.remove(&block);
    left.saturating_neg()
}

/// Whether the handle holds nothing and is to be deleted.
#[must_use]
pub fn is_empty(handle: &IpamHandle) -> bool {
    handle.block.is_empty()
}

/// How many addresses of an IP version the handle counts.
#[must_use]
pub fn total(handle: &IpamHandle, version: IpVersion) -> i64 {
    let of_version = |block: &str| if block.contains(':') { IpVersion::V6 } else { IpVersion::V4 };
    let counts = handle.block.iter().filter(|(block, _)| of_version(block) == version);
    counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// Whether a stored handle may have this many more addresses of an IP version. A limit of 0 means none.
#[must_use]
pub fn has_room(handle: Option<&IpamHandle>, version: IpVersion, more: i64, limit: usize) -> bool {
    let has = handle.map_or(0, |handle| total(handle, version));
    limit == 0 || has.saturating_add(more) <= i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_up_and_down_and_the_last_one_empties_the_handle() {
        let (one, two): (IpNet, IpNet) =
            ("10.0.0.0/26".parse().expect("a range"), "fd00::/122".parse().expect("a range"));
        let mut handle = IpamHandle::default();
        increment(&mut handle, &one, 2);
        increment(&mut handle, &one, 1);
        increment(&mut handle, &two, 1);
        assert_eq!((total(&handle, IpVersion::V4), total(&handle, IpVersion::V6)), (3, 1));
        assert_eq!(decrement(&mut handle, &one, 2), 0);
        assert_eq!(decrement(&mut handle, &two, 3), 2, "two too many");
        assert!(!is_empty(&handle));
        assert_eq!(decrement(&mut handle, &one, 1), 0);
        assert!(is_empty(&handle));
        assert_eq!(decrement(&mut handle, &one, 1), 1);
    }

    #[test]
    fn a_limit_counts_each_ip_version() {
        let mut handle = IpamHandle::default();
        increment(&mut handle, &"10.0.0.0/26".parse().expect("a range"), 2);
        for (version, more, limit, expected) in [
            (IpVersion::V4, 1, 3, true),
            (IpVersion::V4, 1, 2, false),
            (IpVersion::V6, 2, 2, true),
            (IpVersion::V6, 3, 2, false),
            (IpVersion::V4, i64::MAX, 0, true),
        ] {
            assert_eq!(has_room(Some(&handle), version, more, limit), expected, "{version} {more} {limit}");
        }
        assert!(has_room(None, IpVersion::V4, 1, 1));
    }
}
