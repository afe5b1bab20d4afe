//! A list in parts, for callers that need each entry only once and need not hold them all. Three stages run
//! concurrently:
//!
//! ```text
//! the store ─► a task fetches pages ─► threads decode parts of them ─► the caller looks at each in turn
//!              one page waits          a few parts ahead
//! ```
//!
//! This bounds the memory used, however long the list is. A list that does not reach its end reports an error, so that
//! it is not mistaken for a shorter one.

use super::{Decoded, FIRST_PAGE, Selection, list};
use crate::error::{Error, Result};
use crate::etcd::convert::store_error;
use crate::etcd::transport::{Entry, RangeRequest, Span, Transport};
use crate::parts::{ROOM_FOR, UndecodedPart, UndecodedParts, make_room};
use futures::stream::{self, StreamExt as _};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The factor by which pages grow. Fetching one takes about as long as processing one of half its size.
const GROWTH: i64 = 2;
/// Maximum number of keys in a page.
const LARGEST_PAGE: i64 = 10_000;
/// Maximum number of entries in a part.
const LARGEST_PART: usize = 1000;

/// Reads everything that is selected in parts, now (0) or at a revision. Lists that need sorting or additions at the
/// end are returned as a whole.
pub(in crate::etcd) async fn list_undecoded(
    transport: Arc<dyn Transport>,
    selection: Arc<Selection>,
    revision: i64,
) -> Result<UndecodedParts> {
    let span = match selection.spans.as_slice() {
        [span] if !selection.has_default_allow() => span.clone(),
        _ => {
            let whole = list(&*transport, &selection, revision).await?;
            return Ok(stream::once(std::future::ready(Ok(whole.into()))).boxed());
        }
    };
    let context = format!("cannot list {}", String::from_utf8_lossy(&span.key));
    let (sender, pages) = mpsc::channel(1);
    tokio::spawn(fetch(transport, span, revision, context.clone(), sender));
    let reader = Reader {
        selection,
        context,
        pages,
        is_over: false,
        revision: String::new(),
        page: Arc::default(),
        rest: 0..0,
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

/// An answer of the store.
struct Page {
    entries: Vec<Entry>,
    revision: i64,
    is_last: bool,
}

/// Fetches page after page, until the last one or until they are no longer wanted.
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
                // A caller that has abandoned the list does not need the reason either.
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

struct Reader {
    selection: Arc<Selection>,
    context: String,
    pages: mpsc::Receiver<Result<Page>>,
    /// Whether the newest page is the last one.
    is_over: bool,
    revision: String,
    /// The newest page, and the position of what has not been passed on.
    page: Arc<Vec<Entry>>,
    rest: Range<usize>,
}

impl Reader {
    /// The next part; `None` after the last. Every page, even an empty one, yields at least one: it contains the
    /// revision.
    async fn next(&mut self) -> Result<Option<UndecodedPart>> {
        if self.rest.is_empty() {
            if self.is_over {
                return Ok(None);
            }
            let broken = || Err(Error::transient(self.context.clone(), "the list was interrupted"));
            let page = self.pages.recv().await.unwrap_or_else(broken)?;
            self.is_over = page.is_last;
            self.revision = page.revision.to_string();
            self.rest = 0..page.entries.len();
            self.page = Arc::new(page.entries);
        }
        let range = self.rest.start..self.rest.end.min(self.rest.start + LARGEST_PART);
        self.rest.start = range.end;
        let stored = range.len();
        let (selection, page) = (Arc::clone(&self.selection), Arc::clone(&self.page));
        Ok(Some(UndecodedPart::new(self.revision.clone(), stored, move |take| {
            for entries in page[range].chunks(ROOM_FOR) {
                make_room();
                for entry in entries {
                    match selection.decode(entry) {
                        Decoded::Selected(pair) => take(Ok(pair)),
                        Decoded::Invalid(entry) => take(Err(entry)),
                        Decoded::Other => {}
                    }
                }
            }
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::transport::{
        RangeResponse, Transaction, TransactionResponse, TransportError, WatchAnswer, WatchRequest,
    };
    use crate::parts::{CHUNK, look_ahead};
    use api::Kind;
    use async_trait::async_trait;
    use model::ListOptions;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A store with this many entries, which fails after some answers.
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
        let parts = list_undecoded(Arc::new(store), selection, 0).await.unwrap();
        let mut parts = look_ahead(parts, UndecodedPart::decode);
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
    async fn every_entry_is_delivered_once_in_order() {
        for count in [0, 1, CHUNK, 500, 501, 1500, 40_000] {
            let store = Numbered { count, answers: AtomicUsize::new(100), fails: unavailable };
            let (found, error) = read(store).await;
            assert!(error.is_none(), "{count}: {error:?}");
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "{count}");
        }
    }

    #[tokio::test]
    async fn an_interrupted_list_is_not_mistaken_for_a_shorter_one() {
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
