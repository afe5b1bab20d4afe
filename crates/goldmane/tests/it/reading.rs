//! Queries: lists, hints and statistics, in the forms that old and new clients use.

use crate::world::{BEGIN, World, flow, key, shown};
use goldmane_api::convert::encode_key;
use goldmane_api::proto::statistics_client::StatisticsClient;
use goldmane_api::proto::{
    Filter, FilterHintsRequest, FilterType, Flow, FlowListRequest, FlowListResult, PolicyMatch, SortBy,
    SortOption, StatisticsGroupBy, StatisticsRequest, StatisticsResult, StringMatch,
};
use tonic::{Code, Status};

async fn list(world: &World, request: FlowListRequest) -> Result<FlowListResult, Status> {
    world.reader().await.list(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn flows_of_the_hour_by_key() {
    let world = World::start().await;
    world.send(vec![flow("a", BEGIN - 30, 1), flow("b", BEGIN - 15, 2), flow("a", BEGIN - 15, 4)]).await;
    let result = list(&world, FlowListRequest::default()).await.unwrap();
    let rows: Vec<_> = result.flows.iter().map(shown).collect();
    assert_eq!(rows, [("b".to_owned(), -15, 2), ("a".to_owned(), -30, 5)], "the newest beginning first");
    assert_eq!(result.flows.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 1]);
    let first = result.flows[1].flow.as_ref().unwrap();
    assert_eq!(
        (first.end_time - BEGIN, first.num_connections_live),
        (0, 1),
        "connections are not summed over time"
    );
    assert_eq!(first.source_labels, ["app=client"]);
    assert_eq!(result.meta.unwrap().total_results, 2);
    let sorted = FlowListRequest {
        sort_by: vec![SortOption { sort_by: SortBy::SourceName as i32 }],
        page: 1,
        page_size: 1,
        ..FlowListRequest::default()
    };
    let result = list(&world, sorted).await.unwrap();
    assert_eq!(result.flows.iter().map(shown).collect::<Vec<_>>(), [("b".to_owned(), -15, 2)]);
    assert_eq!(result.meta.map(|meta| (meta.total_pages, meta.total_results)), Some((2, 2)));
    let fuzzy = |value: &str| vec![StringMatch { value: value.to_owned(), r#type: 1 }];
    let filtered = FlowListRequest {
        filter: Some(Filter { source_names: fuzzy("b"), ..Filter::default() }),
        start_time_gte: -20,
        ..FlowListRequest::default()
    };
    assert_eq!(list(&world, filtered).await.unwrap().flows.len(), 1);
}

#[tokio::test]
async fn refused_requests_get_a_reason() {
    let world = World::start().await;
    let sort = |sort: SortBy| SortOption { sort_by: sort as i32 };
    for request in [
        FlowListRequest { start_time_gte: 10, start_time_lt: 10, ..FlowListRequest::default() },
        FlowListRequest { sort_by: vec![sort(SortBy::DestType)], ..FlowListRequest::default() },
        FlowListRequest { sort_by: vec![sort(SortBy::Time); 2], ..FlowListRequest::default() },
        FlowListRequest { page: -1, page_size: 5, ..FlowListRequest::default() },
    ] {
        assert_eq!(
            list(&world, request.clone()).await.unwrap_err().code(),
            Code::InvalidArgument,
            "{request:?}"
        );
    }
    let hints = world.reader().await.filter_hints(FilterHintsRequest::default()).await;
    assert_eq!(hints.unwrap_err().message(), "unsupported filter type 'FilterTypeUnspecified'");
}

#[tokio::test]
async fn hints_and_policy_matches_of_both_generations() {
    let world = World::start().await;
    let mut denied = flow("c", BEGIN - 15, 1);
    denied.key = encode_key(&key("c", &["0|first|gnp:all|pass|0", "1|default|np:shop/web|deny|-1"])).into();
    world.send(vec![flow("a", BEGIN - 15, 1), denied]).await;
    // A name as a string, as clients up to Calico 3.31 send it, and as a message, as newer ones do.
    let message = prost::Message::encode_to_vec(&StringMatch { value: "al".to_owned(), r#type: 1 });
    for name in [b"all".to_vec(), message] {
        let wanted = PolicyMatch { name: name.into(), ..PolicyMatch::default() };
        let filter = Some(Filter { policies: vec![wanted], ..Filter::default() });
        let result = list(&world, FlowListRequest { filter, ..FlowListRequest::default() }).await.unwrap();
        assert_eq!(result.flows.iter().map(|row| shown(row).0).collect::<Vec<_>>(), ["c"]);
    }
    for (of, expected) in [
        (FilterType::SourceName, vec!["a", "c"]),
        (FilterType::PolicyTier, vec!["default", "first"]),
        (FilterType::PolicyName, vec!["all", "web"]),
        (FilterType::PolicyKind, vec!["CalicoNetworkPolicy", "GlobalNetworkPolicy"]),
    ] {
        let request = FilterHintsRequest { r#type: of as i32, ..FilterHintsRequest::default() };
        let result = world.reader().await.filter_hints(request).await.unwrap().into_inner();
        assert_eq!(result.hints.iter().map(|hint| &*hint.value).collect::<Vec<_>>(), expected);
    }
}

async fn statistics(
    world: &World,
    request: StatisticsRequest,
) -> Result<Vec<StatisticsResult>, (usize, Status)> {
    let mut client = StatisticsClient::new(world.channel().await);
    let mut results = client.list(request).await.map_err(|status| (0, status))?.into_inner();
    let mut found = Vec::new();
    loop {
        match results.message().await {
            Ok(Some(result)) => found.push(result),
            Ok(None) => return Ok(found),
            Err(status) => return Err((found.len(), status)),
        }
    }
}

#[tokio::test]
async fn statistics_by_policy_rule_and_time() {
    let world = World::start().await;
    let (before, status) = statistics(&world, StatisticsRequest::default()).await.unwrap_err();
    assert_eq!((before, status.code()), (1, Code::NotFound), "an empty answer, and then why");
    world.send(vec![flow("a", BEGIN - 45, 1), flow("a", BEGIN - 30, 2), flow("b", BEGIN - 30, 4)]).await;
    let request = StatisticsRequest {
        group_by: StatisticsGroupBy::PolicyRule as i32,
        time_series: true,
        ..StatisticsRequest::default()
    };
    let found = statistics(&world, request).await.unwrap();
    assert_eq!(found.len(), 1);
    let policy = found[0].policy.as_ref().unwrap();
    assert_eq!((&*policy.name, policy.rule_index, found[0].direction), ("web", 1, 2), "the rule's own place");
    assert_eq!(found[0].allowed_out, [1, 6]);
    assert_eq!(found[0].x.iter().map(|time| time - BEGIN).collect::<Vec<_>>(), [-45, -30]);
    let outside = StatisticsRequest { start_time_gte: -10_000, ..StatisticsRequest::default() };
    assert_eq!(statistics(&world, outside).await.unwrap_err().1.code(), Code::OutOfRange);
}

#[tokio::test]
async fn flows_that_cannot_be_counted_are_dropped() {
    let world = World::start().await;
    let unreadable = Flow { key: vec![0x0a, 0xff].into(), start_time: BEGIN, ..Flow::default() };
    let nothing = Flow { start_time: BEGIN, ..Flow::default() };
    let old = flow("a", BEGIN - 4000, 1);
    let ahead = flow("a", BEGIN + 40, 1);
    let negative = Flow { packets_out: -5, ..flow("a", BEGIN, 1) };
    world.send(vec![unreadable, nothing, old, ahead, negative]).await;
    let metrics = telemetry::Metrics::default();
    goldmane::for_tests::register(&metrics, &world.aggregator);
    let page = metrics.page();
    for line in [
        "goldmane_aggr_received_flows_total 5",
        "goldmane_aggr_dropped_flows_total 4",
        "goldmane_aggr_dropped_flows_by_reason_total{reason=\"time\"} 2",
        "goldmane_aggr_dropped_flows_by_reason_total{reason=\"unreadable\"} 2",
        "goldmane_aggr_num_unique_flows 1",
        "goldmane_collector_received_flows{source=\"127.0.0.1\"} 5",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    // The current bucket counts, too; negative values do not.
    world.pass(15);
    let result = list(&world, FlowListRequest::default()).await.unwrap();
    assert_eq!(result.flows.iter().map(shown).collect::<Vec<_>>(), [("a".to_owned(), 0, 0)]);
}
