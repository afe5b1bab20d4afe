//! A list in parts, for whoever looks at each entry once and need not hold them all. Three things go on at the same time:
//!
//! ```text
//! the store ─► a task fetches pages ─► threads decode parts of them ─► the caller looks at one after the other, in order
//!              one page waits          a few parts ahead
//! ```
//!
//! What is held is bounded by that, however long the list is. A list that does not come to its end says so: it refuses to
//! pass for a shorter one.

use super::{CHUNK, FIRST_PAGE, Part, Selection, decode, list, threads};
use crate::backend::{KvList, ListParts};
use crate::error::{Error, Result};
use crate::etcd::convert::store_error;
use crate::etcd::transport::{Entry, RangeRequest, Span, Transport};
use futures::stream::{self, StreamExt as _};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// By how much pages grow. Fetching one takes about as long as looking at one of half its size.
const GROWTH: i64 = 2;
/// How many keys a page has at most.
const LARGEST_PAGE: i64 = 10_000;
/// How many entries a part has at most.
const LARGEST_PART: usize = 1000;

/// Reads everything that is selected in parts, now (0) or at a revision. Lists that need sorting or additions at the end come
/// as a whole.
pub(in crate::etcd) async fn list_parts(
    transport: Arc<dyn Transport>,
    selection: Arc<Selection>,
    revision: i64,
) -> Result<ListParts> {
    let [span] = selection.spans.as_slice() else {
        let whole = list(&*transport, &selection, revision).await?;
        return Ok(stream::once(std::future::ready(Ok(whole))).boxed());
    };
    if selection.has_default_allow() {
        let whole = list(&*transport, &selection, revision).await?;
        return Ok(stream::once(std::future::ready(Ok(whole))).boxed());
    }
    let context = format!("cannot list {}", String::from_utf8_lossy(&span.key));
    let (sender, pages) = mpsc::channel(1);
    tokio::spawn(fetch(transport, span.clone(), revision, context.clone(), sender));
    let reader = Reader {
        selection,
        context,
        pages,
        end: None,
        revision: String::new(),
        page: Arc::default(),
        rest: 0..0,
        coming: VecDeque::new(),
    };
    Ok(stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(part) => Some((Ok(part?), Some(reader))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}

/// What the store answered.
struct Page {
    entries: Vec<Entry>,
    revision: i64,
    is_last: bool,
}

/// Fetches page after page, until the last one or until nobody wants them.
async fn fetch(
    transport: Arc<dyn Transport>,
    mut rest: Span,
    mut revision: i64,
    context: String,
    pages: mpsc::Sender<Result<Page>>,
) {
    let mut limit = FIRST_PAGE;
    loop {
        let request = RangeRequest { span: rest.clone(), revision, limit };
        let answer = tokio::select! {
            () = pages.closed() => return,
            answer = transport.range(request) => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                // Whoever gave the list up needs no reason either.
                let _ = pages.send(Err(store_error(error, || context))).await;
                return;
            }
        };
        if revision == 0 {
            revision = answer.revision;
        }
        let last = answer.entries.last().filter(|_| answer.more).map(|entry| entry.key.clone());
        let page = Page { entries: answer.entries, revision, is_last: last.is_none() };
        if pages.send(Ok(page)).await.is_err() {
            return;
        }
        let Some(last) = last else { return };
        rest = rest.after(&last);
        limit = limit.saturating_mul(GROWTH).min(LARGEST_PAGE);
    }
}

/// A part that somebody may still be decoding.
enum Coming {
    Here(Part),
    Decoding(JoinHandle<Part>),
}

struct Reader {
    selection: Arc<Selection>,
    context: String,
    pages: mpsc::Receiver<Result<Page>>,
    /// How the pages ended, once they have.
    end: Option<Result<()>>,
    revision: String,
    /// The newest page, and what of it nobody decodes yet.
    page: Arc<Vec<Entry>>,
    rest: Range<usize>,
    /// Parts in the order of the list.
    coming: VecDeque<Coming>,
}

impl Reader {
    /// The next part; none after the last.
    async fn next(&mut self) -> Result<Option<KvList>> {
        loop {
            self.decode_ahead();
            let Some(coming) = self.coming.pop_front() else {
                if let Some(end) = self.end.take() {
                    return end.map(|()| None);
                }
                let page = self.pages.recv().await;
                self.take(page);
                continue;
            };
            let Part { items, invalid } = match coming {
                Coming::Here(part) => part,
                Coming::Decoding(part) => {
                    part.await.map_err(|error| Error::permanent("cannot decode a list", error))?
                }
            };
            return Ok(Some(KvList { items, invalid, revision: self.revision.clone() }));
        }
    }

    /// Has parts decoded: one for each thread, and one that is there when the caller comes back.
    fn decode_ahead(&mut self) {
        while self.coming.len() <= threads() {
            if !self.rest.is_empty() {
                let range = self.rest.start..self.rest.end.min(self.rest.start + LARGEST_PART);
                self.rest.start = range.end;
                let (selection, page) = (Arc::clone(&self.selection), Arc::clone(&self.page));
                let part = tokio::task::spawn_blocking(move || decode(&selection, &page[range]));
                self.coming.push_back(Coming::Decoding(part));
            } else if self.end.is_none()
                && let Ok(page) = self.pages.try_recv()
            {
                self.take(Some(page));
            } else {
                return;
            }
        }
    }

    /// Takes over a page, or that there is none.
    fn take(&mut self, page: Option<Result<Page>>) {
        let page = page.unwrap_or_else(|| Err(Error::transient(self.context.clone(), "the list broke off")));
        let Page { entries, revision, is_last } = match page {
            Ok(page) => page,
            Err(error) => return self.end = Some(Err(error)),
        };
        self.end = is_last.then_some(Ok(()));
        self.revision = revision.to_string();
        if entries.len() < CHUNK {
            self.coming.push_back(Coming::Here(decode(&self.selection, &entries)));
        } else {
            self.rest = 0..entries.len();
            self.page = Arc::new(entries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::transport::{
        RangeResponse, Transaction, TransactionResponse, TransportError, WatchAnswer, WatchRequest,
    };
    use api::Kind;
    use async_trait::async_trait;
    use model::ListOptions;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A store with so many entries, which fails after some answers.
    struct Numbered {
        count: usize,
        answers: AtomicUsize,
        fails: fn() -> TransportError,
    }

    fn path(number: usize) -> String {
        format!("/calico/resources/v3/projectcalico.org/tiers/t{number:06}")
    }

    #[async_trait]
    impl Transport for Numbered {
        async fn range(&self, request: RangeRequest) -> std::result::Result<RangeResponse, TransportError> {
            if self.answers.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err((self.fails)());
            }
            assert_eq!(request.revision, if request.limit == FIRST_PAGE { 0 } else { 7 });
            let from = (0..self.count).find(|number| path(*number).as_bytes() >= &request.span.key[..]);
            let from = from.unwrap_or(self.count);
            let until = self.count.min(from + usize::try_from(request.limit).unwrap());
            let entry = |number| Entry {
                key: path(number).into(),
                // One of them cannot be read.
                value: if number == 1234 { "{" } else { r#"{"spec":{}}"# }.into(),
                mod_revision: 5,
                version: 1,
            };
            let entries = (from..until).map(entry).collect();
            Ok(RangeResponse { revision: 7, entries, more: until < self.count, count: 0 })
        }

        async fn transact(&self, _: Transaction) -> std::result::Result<TransactionResponse, TransportError> {
            unreachable!("lists only read")
        }

        async fn grant_lease(&self, _: i64) -> std::result::Result<i64, TransportError> {
            unreachable!("lists only read")
        }

        async fn watch(&self, _: WatchRequest) -> std::result::Result<WatchAnswer, TransportError> {
            unreachable!("lists only read")
        }
    }

    /// Reads the list: the numbers of its entries in order, and how it ended.
    async fn read(store: Numbered) -> (Vec<usize>, Option<Error>) {
        let selection = Arc::new(Selection::new(&ListOptions::resources(Kind::Tier)).unwrap());
        let mut parts = list_parts(Arc::new(store), selection, 0).await.unwrap();
        let (mut found, mut count) = (Vec::new(), 0);
        while let Some(part) = parts.next().await {
            let part = match part {
                Ok(part) => part,
                Err(error) => {
                    assert!(parts.next().await.is_none(), "an error is the last item");
                    return (found, Some(error));
                }
            };
            assert_eq!(part.revision, "7");
            assert!(part.items.len() + part.invalid.len() <= LARGEST_PART);
            count += 1;
            let number = |path: &str| path.rsplit('t').next().unwrap().parse::<usize>().unwrap();
            let mut numbers: Vec<usize> =
                part.items.iter().map(|item| number(&item.key.path().unwrap())).collect();
            numbers.extend(part.invalid.iter().map(|entry| number(&entry.key)));
            numbers.sort_unstable();
            found.extend(numbers);
        }
        assert!(count > 0, "also an empty list has its revision");
        (found, None)
    }

    fn unavailable() -> TransportError {
        TransportError::Unavailable("gone".to_owned())
    }

    #[tokio::test]
    async fn every_entry_comes_once_in_order() {
        for count in [0, 1, CHUNK, 500, 501, 1500, 40_000] {
            let store = Numbered { count, answers: AtomicUsize::new(100), fails: unavailable };
            let (found, error) = read(store).await;
            assert!(error.is_none(), "{count}: {error:?}");
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "{count}");
        }
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_does_not_pass_for_a_shorter_one() {
        let faults: [fn() -> TransportError; 2] = [unavailable, || panic!("a mistake in a transport")];
        for fails in faults {
            for (answers, expected) in [(0, 0), (1, 500), (3, 3500)] {
                let store = Numbered { count: 40_000, answers: AtomicUsize::new(answers), fails };
                let (found, error) = read(store).await;
                assert_eq!(found, (0..expected).collect::<Vec<_>>(), "what came before it is not lost");
                assert!(matches!(error, Some(Error::Datastore { transient: true, .. })), "{error:?}");
            }
        }
    }
}
