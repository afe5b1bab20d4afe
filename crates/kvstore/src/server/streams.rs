//! A connection and the answers to its requests in one task. The HTTP library hands every request to an executor, which
//! usually spawns a task for it; in a store, whose answers are short and wait for the same disk, that costs more than
//! the answer: two threads synchronise for each one, and head, message and end of an answer can leave in separate
//! packets. Here the executor is a list that the connection's task works through, so that everything ready is sent in
//! one write.
//!
//! It makes no decisions about requests. Reading many keys does not belong here: the service moves that to other
//! threads.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{StreamExt as _, stream::FuturesUnordered, task::AtomicWaker};

/// An answer being prepared.
type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers that the connection's task has not picked up yet.
#[derive(Clone, Default)]
pub(super) struct Streams(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(stream));
    }
}

impl Streams {
    fn take(&self) -> Vec<Stream> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Drives `connection`, which was created with this executor, and its answers. Ends with the connection: answers
    /// that can no longer be delivered are dropped; what they requested of the store still happens.
    pub(super) fn drive<C: Future + Unpin>(&self, connection: C) -> Driven<C> {
        let task = Arc::new(Task { waker: AtomicWaker::new(), at_work: AtomicBool::new(false) });
        Driven {
            connection,
            fresh: self.clone(),
            running: FuturesUnordered::new(),
            for_connection: Bell::new(&task),
            for_running: Bell::new(&task),
            task,
        }
    }
}

/// See [`Streams::drive`].
pub(super) struct Driven<C> {
    connection: C,
    fresh: Streams,
    running: FuturesUnordered<Stream>,
    for_connection: Bell,
    for_running: Bell,
    task: Arc<Task>,
}

impl<C> Driven<C> {
    /// Gives access to the connection; rings its bell, so that it is polled afterwards.
    pub(super) fn connection(&mut self) -> &mut C {
        self.for_connection.ring();
        &mut self.connection
    }
}

impl<C: Future + Unpin> Future for Driven<C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        this.task.waker.register(cx.waker());
        for _ in 0..TURNS {
            this.task.at_work.store(true, Ordering::SeqCst);
            // Answers first: their output is sent in the connection's turn.
            if let Some(waker) = this.for_running.answer() {
                let cx = &mut Context::from_waker(waker);
                while let Poll::Ready(Some(())) = this.running.poll_next_unpin(cx) {}
            }
            if let Some(waker) = this.for_connection.answer() {
                let cx = &mut Context::from_waker(waker);
                if let Poll::Ready(output) = Pin::new(&mut this.connection).poll(cx) {
                    return Poll::Ready(output);
                }
                let fresh = this.fresh.take();
                if !fresh.is_empty() {
                    this.running.extend(fresh);
                    this.for_running.ring();
                }
            }
            this.task.at_work.store(false, Ordering::SeqCst);
            if !this.for_running.rings() && !this.for_connection.rings() {
                return Poll::Pending;
            }
        }
        // There is always more to do; other tasks get a turn first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// How often in a row the task checks for more work before it yields.
const TURNS: usize = 8;

/// The task, and whether it is checking its bells anyway.
struct Task {
    waker: AtomicWaker,
    at_work: AtomicBool,
}

/// Rung when there is something to do. A connection and its answers wake each other with nearly everything they do;
/// with a bell for each, the task is not scheduled for work that it is about to do anyway, and polls only the side that
/// has some.
struct Bell {
    rope: Arc<Rope>,
    waker: Waker,
}

struct Rope {
    rung: AtomicBool,
    task: Arc<Task>,
}

impl Bell {
    /// A ringing bell: nothing has been polled yet.
    fn new(task: &Arc<Task>) -> Self {
        let rope = Arc::new(Rope { rung: AtomicBool::new(true), task: Arc::clone(task) });
        Self { waker: Arc::clone(&rope).into(), rope }
    }

    fn ring(&self) {
        self.rope.rung.store(true, Ordering::SeqCst);
    }

    fn rings(&self) -> bool {
        self.rope.rung.load(Ordering::SeqCst)
    }

    /// If the bell rings, silences it and returns the waker that rings it next time.
    fn answer(&self) -> Option<&Waker> {
        self.rope.rung.swap(false, Ordering::SeqCst).then_some(&self.waker)
    }
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        // A task at work checks the bell once more before it sleeps.
        if !self.task.at_work.load(Ordering::SeqCst) {
            self.task.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use hyper::rt::Executor as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn answers_run_in_the_connections_task_and_end_with_it() {
        let streams = Streams::default();
        let done = Arc::new(AtomicU32::new(0));
        let (go, gone) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let count = |wait: Option<oneshot::Receiver<()>>| {
            let done = Arc::clone(&done);
            async move {
                if let Some(wait) = wait {
                    let _ = wait.await;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        streams.execute(count(None));
        streams.execute(count(Some(gone)));
        // Its other end stays alive: an answer that never arrives.
        let (_never, never) = oneshot::channel();
        streams.execute(count(Some(never)));
        let driven = tokio::spawn(streams.drive(Box::pin(ended)));
        while done.load(Ordering::Relaxed) < 1 {
            tokio::task::yield_now().await;
        }
        go.send(()).unwrap();
        while done.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        end.send(()).unwrap();
        driven.await.unwrap().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }
}
