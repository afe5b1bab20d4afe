//! Queries of a [`Snapshot`](crate::Snapshot); fields mean what they mean in Goldmane.

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

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The range is empty.
    #[error("start_time_gte ({gte}) must be less than start_time_lt ({lt})")]
    EmptyRange {
        /// The requested start.
        gte: i64,
        /// The requested end.
        lt: i64,
    },
    /// The range is not within the history.
    #[error("the time range {gte}..{lt} is outside of the history, {begin}..{end}")]
    OutsideOfHistory {
        /// The requested start.
        gte: i64,
        /// The requested end.
        lt: i64,
        /// Where the history begins.
        begin: i64,
        /// Where the history ends.
        end: i64,
    },
}

/// A range of time in seconds since 1970: from `gte` (included) to `lt` (excluded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The start, included.
    pub gte: i64,
    /// The end, excluded.
    pub lt: i64,
}

impl TimeRange {
    /// Resolves the range of a request: negative values are relative to now; zero means the beginning of the history or
    /// now.
    ///
    /// # Errors
    /// When the range is empty.
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
