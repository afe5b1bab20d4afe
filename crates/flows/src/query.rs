//! Questions about a [`Snapshot`](crate::Snapshot), with Goldmane's meaning of every field.

mod filter;
mod hints;
mod list;
mod page;
mod statistics;
#[cfg(test)]
mod tests;

pub use filter::{Filter, PolicyMatch, StringMatch};
pub use hints::{HintType, HintsRequest, hints};
pub use list::{ListRequest, Sort, list};
pub use page::{Page, Paged};
pub use statistics::{GroupBy, Series, StatisticType, StatisticsRequest, StatisticsResult, statistics};

/// Why a question cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The range is empty.
    #[error("start_time_gte ({gte}) must be less than start_time_lt ({lt})")]
    EmptyRange {
        /// Where it begins.
        gte: i64,
        /// Where it ends.
        lt: i64,
    },
    /// The range is not within what is kept.
    #[error("the time range {gte}..{lt} is outside of the history, {begin}..{end}")]
    OutsideOfHistory {
        /// Where the range begins.
        gte: i64,
        /// Where it ends.
        lt: i64,
        /// Where the history begins.
        begin: i64,
        /// Where it ends.
        end: i64,
    },
}

/// A range of time, in seconds since 1970: at or after the one, before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// Where it begins.
    pub gte: i64,
    /// Where it ends.
    pub lt: i64,
}

impl TimeRange {
    /// The range that a request means: below zero, so long before now; zero, the beginning of history and now.
    ///
    /// # Errors
    /// When there is nothing in between.
    pub fn resolve(gte: i64, lt: i64, now: i64, begin: i64) -> Result<Self, QueryError> {
        let absolute = |time: i64, zero: i64| match time {
            0 => zero,
            ..0 => now.saturating_add(time),
            _ => time,
        };
        let (gte, lt) = (absolute(gte, begin), absolute(lt, now));
        if gte >= lt { Err(QueryError::EmptyRange { gte, lt }) } else { Ok(Self { gte, lt }) }
    }
}
