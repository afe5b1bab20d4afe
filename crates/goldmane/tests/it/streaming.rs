//! Streams: everything once, bucket by bucket; corrections under the same key number; limits.

use crate::world::{BEGIN, World, flow, shown};
use goldmane::for_tests::AggregatorOptions;
use goldmane_api::proto::{Filter, FlowResult, FlowStreamRequest, StringMatch};
use tonic::{Code, Streaming};

async fn stream(world: &World, start_time_gte: i64, filter: Option<Filter>) -> Streaming<FlowResult> {
    let request = FlowStreamRequest { start_time_gte, filter, ..FlowStreamRequest::default() };
    world.reader().await.stream(request).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<FlowResult>) -> (i64, (String, i64, i64)) {
    let result = tokio::time::timeout(testkit::PATIENCE, stream.message())
        .await
        .expect("a flow comes")
        .unwrap()
        .unwrap();
    (result.id, shown(&result))
}

#[tokio::test]
async fn a_bucket_is_sent_when_complete_and_corrected_when_it_changes() {
    let world = World::start().await;
    let mut live = stream(&world, 0, None).await;
    world.send(vec![flow("a", BEGIN, 1), flow("b", BEGIN, 2)]).await;
    world.pass(15);
    world.send(vec![flow("a", BEGIN + 15, 8)]).await;
    // Late for the first bucket, but in time before it is complete.
    world.send(vec![flow("c", BEGIN + 1, 4)]).await;
    world.pass(15);
    let mut first = vec![next(&mut live).await, next(&mut live).await, next(&mut live).await];
    first.sort_by_key(|(id, _)| *id);
    let row = |name: &str, start, packets| (name.to_owned(), start, packets);
    assert_eq!(first, [(1, row("a", 0, 1)), (2, row("b", 0, 2)), (3, row("c", 0, 4))]);
    // Too late: the bucket's sum is sent again, with the same number.
    world.send(vec![flow("b", BEGIN + 2, 16)]).await;
    world.pass(15);
    assert_eq!(next(&mut live).await, (2, row("b", 0, 18)));
    assert_eq!(next(&mut live).await, (1, row("a", 15, 8)));
    // Very late: a bucket that was frozen changes again.
    world.pass(15 * 20);
    world.send(vec![flow("a", BEGIN + 16, 32)]).await;
    world.pass(15);
    assert_eq!(next(&mut live).await, (1, row("a", 15, 40)));
}

#[tokio::test]
async fn older_buckets_come_first_and_filters_count() {
    let world = World::start().await;
    for number in 0..40 {
        world.send(vec![flow("a", world.now(), number), flow("b", world.now(), number)]).await;
        world.pass(15);
    }
    let is_b = vec![StringMatch { value: "b".to_owned(), r#type: 0 }];
    let filter = Filter { source_names: is_b, ..Filter::default() };
    let mut stream_of_b = stream(&world, -15 * 10, Some(filter)).await;
    for number in 30..39 {
        assert_eq!(next(&mut stream_of_b).await.1, ("b".to_owned(), number * 15, number));
    }
    world.pass(15);
    assert_eq!(next(&mut stream_of_b).await.1, ("b".to_owned(), 39 * 15, 39));
    // A start before the history means its beginning.
    let mut everything = stream(&world, BEGIN - 100_000, None).await;
    assert_eq!(next(&mut everything).await.1.1, 0);
}

#[tokio::test]
async fn a_slow_reader_misses_nothing_or_is_ended() {
    let world = World::start().await;
    let mut slow = stream(&world, -15, None).await;
    let flows =
        |start: i64, packets: u64| (0..400).map(move |number| flow(&format!("pod-{number}"), start, packets));
    for number in 0..60 {
        world.send(flows(world.now(), number).collect()).await;
        world.pass(15);
    }
    // Far more than is buffered: the rest is read from the history later.
    for number in 0..40 {
        for _ in 0..400 {
            assert_eq!(next(&mut slow).await.1.2, number);
        }
    }
    world.pass(15 * 1000);
    let error = loop {
        match tokio::time::timeout(testkit::PATIENCE, slow.message()).await.expect("something comes") {
            Ok(result) => assert!(result.is_some(), "no end without an error"),
            Err(status) => break status,
        }
    };
    assert_eq!(error.code(), Code::DataLoss);
}

#[tokio::test]
async fn streams_are_limited_and_make_room_when_they_end() {
    let options = AggregatorOptions { most_streams: 2, ..AggregatorOptions::default() };
    let world = World::start_with(options, None).await;
    let first = stream(&world, 0, None).await;
    let _second = stream(&world, 0, None).await;
    let refused = world.reader().await.stream(FlowStreamRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(first);
    testkit::eventually_async("there is room for another stream", async || {
        world.reader().await.stream(FlowStreamRequest::default()).await.is_ok()
    })
    .await
    .unwrap();
}
