//! Whether two small samples differ: a rank test, because times are skewed and contain outliers.

/// The probability of chance and the size of the difference beyond which a change is reported.
const CHANCE: f64 = 0.05;
const NEWS: f64 = 0.03;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Same,
    Better,
    Worse,
}

/// A comparison of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) verdict: Verdict,
    /// The medians.
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// The probability that two samples of the same thing differ this much.
    pub(crate) chance: f64,
}

/// Compares two samples.
pub(crate) fn verdict(before: &[f64], after: &[f64], more_is_better: bool) -> Found {
    let (old, new) = (median(before), median(after));
    let chance = rank_test(before, after);
    let is_news = chance < CHANCE && old != 0.0 && (new / old - 1.0).abs() > NEWS;
    let verdict = match (is_news, (new > old) == more_is_better) {
        (false, _) => Verdict::Same,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    };
    Found { verdict, before: old, after: new, chance }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// The rank-sum test of Mann and Whitney, two-sided, exact: of all ways to assign the ranks to the two samples, the
/// share that is at least as uneven as this one. Equal values share their ranks.
fn rank_test(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|value| (*value, true)).collect();
    all.extend(second.iter().map(|value| (*value, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Twice the rank is a whole number, even where two values share one.
    let mut ranks = vec![0_usize; all.len()];
    let mut start = 0;
    while start < all.len() {
        let end = (start..all.len()).find(|place| all[*place].0 != all[start].0).unwrap_or(all.len());
        ranks[start..end].fill(start + end + 1);
        start = end;
    }
    let sum: usize =
        ranks.iter().zip(&all).filter(|(_, (_, is_first))| *is_first).map(|(rank, _)| rank).sum();
    let ways = ways_by_sum(&ranks, first.len());
    let total: f64 = ways.iter().sum();
    let expected = first.len() * (all.len() + 1);
    let distance = sum.abs_diff(expected);
    let uneven = ways.iter().enumerate().filter(|(other, _)| other.abs_diff(expected) >= distance);
    if total == 0.0 { 1.0 } else { uneven.map(|(_, count)| count).sum::<f64>() / total }
}

/// For each sum, the number of ways in which `count` of the ranks add up to it.
fn ways_by_sum(ranks: &[usize], count: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; count + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for taken in (0..count).rev() {
            for sum in (0..=most - rank).rev() {
                let more = ways[taken][sum];
                ways[taken + 1][sum + rank] += more;
            }
        }
    }
    ways.swap_remove(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_do_not_overlap_differ() {
        // Five against five: 2 of 252 ways are as uneven.
        let chance = rank_test(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((chance - 2.0 / 252.0).abs() < 1e-9, "{chance}");
        assert!((rank_test(&[1.0, 2.0], &[1.0, 2.0]) - 1.0).abs() < 1e-9);
        // By hand: {1,4} and {2,3} are the most even of six, {1,2} and {3,4} the least.
        assert!((rank_test(&[1.0, 2.0], &[3.0, 4.0]) - 2.0 / 6.0).abs() < 1e-9);
        assert!((rank_test(&[1.0, 4.0], &[2.0, 3.0]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn better_depends_on_the_unit() {
        let (low, high) = ([1.0, 1.1, 1.2, 1.05, 1.15], [2.0, 2.1, 2.2, 2.05, 2.15]);
        assert_eq!(verdict(&low, &high, false).verdict, Verdict::Worse);
        assert_eq!(verdict(&low, &high, true).verdict, Verdict::Better);
        assert_eq!(verdict(&low, &low, true).verdict, Verdict::Same);
        // Certain, but too small to matter.
        let near = low.map(|value| value * 1.01);
        assert_eq!(verdict(&low, &near, false).verdict, Verdict::Same);
    }
}
