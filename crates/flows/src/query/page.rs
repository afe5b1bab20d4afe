//! Pages of results.

/// The part of the results that is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The page's number, from 0.
    pub number: u64,
    /// The number of results per page; 0 for a single page.
    pub size: u64,
}

/// One page of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paged<T> {
    /// The number of pages.
    pub total_pages: u64,
    /// The number of results on all pages.
    pub total_results: u64,
    /// The results on this page.
    pub items: Vec<T>,
}

impl Page {
    /// Cuts the page out of all results. Beyond the last page there are no items, and the totals are zero.
    pub(crate) fn take<T>(self, mut all: Vec<T>) -> Paged<T> {
        let total_results = all.len() as u64;
        if self.size == 0 {
            return Paged { total_pages: u64::from(total_results > 0), total_results, items: all };
        }
        let begin = self.number.saturating_mul(self.size);
        if begin >= total_results {
            return Paged { total_pages: 0, total_results: 0, items: Vec::new() };
        }
        let end = begin.saturating_add(self.size).min(total_results);
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        all.truncate(place(end));
        let items = all.split_off(place(begin));
        Paged { total_pages: total_results.div_ceil(self.size), total_results, items }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_five() {
        for (number, size, pages, results, items) in [
            (0, 0, 1, 5, vec![1, 2, 3, 4, 5]),
            (7, 0, 1, 5, vec![1, 2, 3, 4, 5]),
            (0, 2, 3, 5, vec![1, 2]),
            (2, 2, 3, 5, vec![5]),
            (3, 2, 0, 0, vec![]),
            (u64::MAX, 2, 0, 0, vec![]),
            (0, u64::MAX, 1, 5, vec![1, 2, 3, 4, 5]),
        ] {
            let page = Page { number, size }.take(vec![1, 2, 3, 4, 5]);
            assert_eq!(page, Paged { total_pages: pages, total_results: results, items }, "{number} {size}");
        }
        let none = Page::default().take(Vec::<u8>::new());
        assert_eq!((none.total_pages, none.total_results), (0, 0));
    }
}
