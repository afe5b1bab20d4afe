//! Flows over a range of time, one per key.

use super::{Filter, Page, Paged, TimeRange};
use crate::key::FlowKey;
use crate::ring::{LabelPair, Record, Row, Snapshot};
use hashbrown::HashMap;
use std::cmp::Reverse;

/// The order of results. Ties are ordered by the keys' numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By start, the newest first.
    #[default]
    Time,
    /// By the destination's name.
    DestName,
    /// By the destination's namespace.
    DestNamespace,
    /// By the source's name.
    SourceName,
    /// By the source's namespace.
    SourceNamespace,
}

impl Sort {
    pub(super) fn value(self, key: &FlowKey) -> &str {
        match self {
            Self::Time => "",
            Self::DestName => &key.dest.name,
            Self::DestNamespace => &key.dest.namespace,
            Self::SourceName => &key.source.name,
            Self::SourceNamespace => &key.source.namespace,
        }
    }
}

/// A request for flows.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// The buckets that begin in this range are searched.
    pub range: TimeRange,
    /// The conditions on flows.
    pub filter: Filter,
    /// The order of the results.
    pub sort: Sort,
    /// The page of the results.
    pub page: Page,
}

/// The flows of a range, each summed over the range's buckets.
#[must_use]
pub fn list(snapshot: &Snapshot, request: &ListRequest) -> Paged<Row> {
    let mut sums: Vec<Option<Record>> = vec![None; snapshot.keys().slots()];
    // Where a flow's labels changed: the labels in common.
    let mut labels: HashMap<u32, LabelPair> = HashMap::new();
    let wanted = Wanted::new(snapshot, &request.filter);
    for part in snapshot.parts(snapshot.beginning_in(request.range.gte, request.range.lt)) {
        part.each(|slot, record| {
            if !wanted.passes(slot) {
                return;
            }
            match &mut sums[slot as usize] {
                sum @ None => *sum = Some(record),
                Some(sum) => {
                    sum.sum.add(&record.sum);
                    if (sum.variant != record.variant || labels.contains_key(&slot))
                        && let Some(entry) = snapshot.keys().get(slot)
                    {
                        let known = labels.entry(slot).or_insert_with(|| entry.labels(sum.variant));
                        *known = known.intersection(&entry.labels(record.variant));
                    }
                }
            }
        });
    }
    // Only flows on the page become rows.
    let slots = (0..).zip(&sums).filter_map(|(slot, sum)| Some((slot, (*sum)?)));
    let mut found: Vec<(u32, Record, &FlowKey, u64)> = slots
        .filter_map(|(slot, sum)| {
            let entry = snapshot.keys().get(slot)?;
            Some((slot, sum, entry.key(), entry.id()))
        })
        .collect();
    match request.sort {
        Sort::Time => found.sort_unstable_by_key(|(_, sum, _, id)| (Reverse(sum.sum.first), *id)),
        sort => found.sort_unstable_by(|(_, _, one, one_id), (_, _, two, two_id)| {
            sort.value(one).cmp(sort.value(two)).then(one_id.cmp(two_id))
        }),
    }
    let page = request.page.take(found);
    let row = |(slot, record, _, _): (u32, Record, &FlowKey, u64)| {
        let entry = snapshot.keys().get(slot)?;
        let labels = labels.remove(&slot).unwrap_or_else(|| entry.labels(record.variant));
        snapshot.row(slot, record.sum, labels)
    };
    Paged {
        total_pages: page.total_pages,
        total_results: page.total_results,
        items: page.items.into_iter().filter_map(row).collect(),
    }
}

/// The slots that pass a filter: every key is checked once, however many buckets contain it.
pub(super) struct Wanted(Option<Vec<bool>>);

impl Wanted {
    pub(super) fn new(snapshot: &Snapshot, filter: &Filter) -> Self {
        if filter.is_empty() {
            return Self(None);
        }
        let slots = 0..u32::try_from(snapshot.keys().slots()).unwrap_or(u32::MAX);
        let passes = |slot| snapshot.keys().get(slot).is_some_and(|entry| filter.passes(entry.key()));
        Self(Some(slots.map(passes).collect()))
    }

    pub(super) fn passes(&self, slot: u32) -> bool {
        self.0.as_ref().is_none_or(|passes| passes[slot as usize])
    }
}
