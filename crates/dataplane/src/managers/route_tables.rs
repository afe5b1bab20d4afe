//! Chooses WireGuard's routing table: the first of those that settings reserve for Felix.
//!
//! Both IP versions use the same number, which names a table in each. Calico's Felix does the same, and so must we:
//! each implementation then finds the other's leftovers.

use felix_config::RouteTableRange;

/// The tables of the kernel itself.
const RESERVED: std::ops::RangeInclusive<i64> = 253..=255;

/// The lowest number of the range that ends first, except the kernel's own tables and those of ranges that end later.
#[must_use]
pub(crate) fn first_table(ranges: &[RouteTableRange]) -> Option<u32> {
    let mut ranges: Vec<(i64, i64)> =
        ranges.iter().map(|range| (i64::from(range.min), i64::from(range.max))).collect();
    ranges.sort_by_key(|(_, max)| *max);
    for (place, (min, max)) in ranges.iter().enumerate() {
        let later = ranges[place + 1..].iter().map(|(min, _)| *min).min();
        let end = later.map_or(*max, |later| (*max).min(later - 1));
        if let Some(number) = (*min..=end).find(|number| !RESERVED.contains(number)) {
            return u32::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_table;
    use felix_config::RouteTableRange;

    #[test]
    fn the_lowest_free_table_is_chosen() {
        for (ranges, expected) in [
            (&[(1_u32, 250_u32)] as &[(u32, u32)], Some(1)),
            (&[(253, 300)], Some(256)),
            (&[(253, 255)], None),
            (&[], None),
            (&[(1000, 2000), (10, 20)], Some(10)),
            // A range inside one that ends later has no tables of its own.
            (&[(1, 20), (5, 10)], Some(1)),
            (&[(5, 20), (1, 10)], Some(1)),
        ] {
            let ranges: Vec<_> =
                ranges.iter().map(|(min, max)| RouteTableRange { min: *min, max: *max }).collect();
            assert_eq!(first_table(&ranges), expected, "{ranges:?}");
        }
    }
}
