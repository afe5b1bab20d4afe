//! The same promise as in [`crate::histories`], thousands of times: both ends in one thread, with a pipe of any size
//! between them, cut at any moment. The outcome depends only on the seed, not on sockets or clocks.

use crate::world::{Keeper, Texts, contents, input, settings};
use model::feed::Status;
use std::sync::Arc;
use tokio::sync::watch;
use typha::for_tests::{Connection, ConnectionFigures, Feed, FeedOptions, ServerSettings};
use typha_client::Machine;
use typha_client::session::Session;
use typha_wire::SyncerType;

const HISTORIES: u64 = 2000;
/// Far more turns than any history needs.
const MOST_TURNS: usize = 200_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn size(&mut self, limit: u64) -> usize {
        usize::try_from(self.below(limit)).unwrap()
    }
}

/// A client that reconnects whenever it is cut off.
async fn client(feed: Arc<Feed>, mut keeper: Keeper, mut cuts: watch::Receiver<u64>, room: usize) {
    let settings = settings();
    let mut machine = Machine::new(Texts);
    loop {
        let (near, far) = tokio::io::duplex(room);
        let served = Arc::clone(&feed);
        let serving = tokio::spawn(async move {
            let (limits, figures, feeds) =
                (ServerSettings::default(), ConnectionFigures::default(), [served]);
            let connection =
                Connection { id: 1, version: "", feeds: &feeds, settings: &limits, figures: &figures };
            let (reader, writer) = tokio::io::split(far);
            connection.serve(reader, writer, || {}).await
        });
        let mut greeted = |_: &typha_wire::ServerHello| {};
        let session = Session::run(near, &mut machine, &settings, &mut keeper, &mut greeted);
        let mut session = std::pin::pin!(session);
        let cut = tokio::select! {
            _ = &mut session => false,
            changed = cuts.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
        };
        serving.abort();
        if cut {
            // The server is gone; its output may still be in the pipe.
            session.await;
        }
        tokio::task::yield_now().await;
    }
}

async fn play(seed: u64) {
    let mut dice = Dice(seed);
    let largest_step = 1 + dice.size(20);
    let largest_message = 1 + dice.size(20);
    let feed = Feed::new(SyncerType::Felix, 7, FeedOptions { largest_step, largest_message });
    let mut clients: Vec<(Keeper, watch::Sender<u64>)> = Vec::new();
    for _ in 0..30 {
        match dice.below(16) {
            0..=6 => {
                let inputs: Vec<_> = (0..1 + dice.below(12))
                    .map(|_| {
                        let key = format!("/k{}", dice.below(25));
                        let value =
                            if dice.below(4) == 0 { String::new() } else { format!("v{}", dice.below(4)) };
                        input(&key, &value)
                    })
                    .collect();
                feed.publish(inputs);
            }
            7 | 8 => {
                feed.set_status([Status::ResyncInProgress, Status::InSync][dice.size(2)]);
            }
            9..=11 if clients.len() < 5 => {
                let (keeper, (sender, cuts)) = (Keeper::default(), watch::channel(0));
                let room = 1 + dice.size(3000);
                tokio::spawn(client(Arc::clone(&feed), keeper.clone(), cuts, room));
                clients.push((keeper, sender));
            }
            12 | 13 if !clients.is_empty() => {
                let place = dice.size(clients.len() as u64);
                clients[place].1.send_modify(|count| *count += 1);
            }
            _ => {
                for _ in 0..dice.below(60) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    feed.set_status(Status::InSync);
    let wanted = contents(&feed);
    let done = |keeper: &Keeper| {
        let told = keeper.0.lock().unwrap();
        told.status == Some(Status::InSync) && told.entries == wanted
    };
    let mut turns = 0;
    while !clients.iter().all(|(keeper, _)| done(keeper)) {
        turns += 1;
        assert!(turns < MOST_TURNS, "seed {seed}: a client does not end with what the feed holds");
        // A snapshot is created on another thread, which may need a moment.
        if turns % 500 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    // Remaining tasks end with their senders.
    drop(clients);
}

#[tokio::test]
async fn thousands_of_interleavings_end_with_the_feeds_contents() {
    for seed in 0..HISTORIES {
        play(seed).await;
    }
}
