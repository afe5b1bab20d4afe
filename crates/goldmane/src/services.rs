//! The services that answer queries; flows arrive through [`crate::collecting`].

use crate::aggregator::Aggregator;
use crate::streams;
use flows::query::{
    GroupBy, HintType, HintsRequest, ListRequest, Page, QueryError, Sort, StatisticType, StatisticsRequest,
    TimeRange,
};
use flows::{Direction, Snapshot, query};
use futures::stream;
use goldmane_api::proto::flows_server::Flows;
use goldmane_api::proto::statistics_server::Statistics;
use goldmane_api::{convert, proto};
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// All services.
#[derive(Clone)]
pub struct Services(pub Arc<Aggregator>);

impl Services {
    /// Answers a query about a range off the threads that serve connections. Flows older than the memory are read from
    /// the history in files, if there is one; as pieces if a series is requested.
    async fn ask<T: Send + 'static>(
        &self,
        range: TimeRange,
        is_series: bool,
        ask: impl FnOnce(&Snapshot) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let snapshot = self.0.snapshot();
        let history = self.0.history().filter(|_| range.gte < snapshot.begin()).cloned();
        let answered = tokio::task::spawn_blocking(move || match history {
            Some(history) => ask(&history.extended(&snapshot, range, is_series)),
            None => ask(&snapshot),
        });
        answered.await.map_err(|error| Status::internal(format!("the query failed: {error}")))
    }

    fn range(&self, gte: i64, lt: i64) -> Result<TimeRange, Status> {
        let begin = self.0.snapshot().begin();
        TimeRange::resolve(gte, lt, self.0.now(), begin).map_err(|error| refusal(&error))
    }
}

fn refusal(error: &QueryError) -> Status {
    match error {
        QueryError::EmptyRange { .. } => Status::invalid_argument(error.to_string()),
        QueryError::OutsideOfHistory { .. } => Status::out_of_range(error.to_string()),
    }
}

fn page(number: i64, size: i64) -> Result<Page, Status> {
    let refused = |_| Status::invalid_argument("page and page_size must not be negative");
    Ok(Page { number: u64::try_from(number).map_err(refused)?, size: u64::try_from(size).map_err(refused)? })
}

fn meta(total_pages: u64, total_results: u64) -> proto::ListMetadata {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    proto::ListMetadata { total_pages: number(total_pages), total_results: number(total_results) }
}

#[tonic::async_trait]
impl Flows for Services {
    type StreamStream = ReceiverStream<Result<proto::FlowResult, Status>>;

    async fn list(
        &self,
        request: Request<proto::FlowListRequest>,
    ) -> Result<Response<proto::FlowListResult>, Status> {
        let request = request.into_inner();
        if request.sort_by.len() > 1 {
            return Err(Status::invalid_argument("at most one sort order is supported"));
        }
        let sort = match request.sort_by.first().map(proto::SortOption::sort_by) {
            None | Some(proto::SortBy::Time) => Sort::Time,
            Some(proto::SortBy::DestName) => Sort::DestName,
            Some(proto::SortBy::DestNamespace) => Sort::DestNamespace,
            Some(proto::SortBy::SourceName) => Sort::SourceName,
            Some(proto::SortBy::SourceNamespace) => Sort::SourceNamespace,
            Some(other @ (proto::SortBy::DestType | proto::SortBy::SourceType)) => {
                return Err(Status::invalid_argument(format!(
                    "unsupported sort order: {}",
                    other.as_str_name()
                )));
            }
        };
        let request = ListRequest {
            range: self.range(request.start_time_gte, request.start_time_lt)?,
            page: page(request.page, request.page_size)?,
            filter: convert::filter(request.filter),
            sort,
        };
        let result = self.ask(request.range, false, move |snapshot| {
            let found = query::list(snapshot, &request);
            proto::FlowListResult {
                meta: Some(meta(found.total_pages, found.total_results)),
                flows: found.items.iter().map(convert::from_row).collect(),
            }
        });
        Ok(Response::new(result.await?))
    }

    async fn stream(
        &self,
        request: Request<proto::FlowStreamRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let request = request.into_inner();
        let results = streams::begin(&self.0, request.start_time_gte, convert::filter(request.filter))?;
        Ok(Response::new(ReceiverStream::new(results)))
    }

    async fn filter_hints(
        &self,
        request: Request<proto::FilterHintsRequest>,
    ) -> Result<Response<proto::FilterHintsResult>, Status> {
        let request = request.into_inner();
        let of = match request.r#type() {
            proto::FilterType::DestName => HintType::DestName,
            proto::FilterType::SourceName => HintType::SourceName,
            proto::FilterType::DestNamespace => HintType::DestNamespace,
            proto::FilterType::SourceNamespace => HintType::SourceNamespace,
            proto::FilterType::PolicyTier => HintType::PolicyTier,
            proto::FilterType::PolicyName => HintType::PolicyName,
            proto::FilterType::PolicyKind => HintType::PolicyKind,
            proto::FilterType::PolicyNamespace => HintType::PolicyNamespace,
            other @ proto::FilterType::Unspecified => {
                return Err(Status::invalid_argument(format!(
                    "unsupported filter type '{}'",
                    other.as_str_name()
                )));
            }
        };
        let request = HintsRequest {
            of,
            range: self.range(request.start_time_gte, request.start_time_lt)?,
            page: page(request.page, request.page_size)?,
            filter: convert::filter(request.filter),
        };
        let result = self.ask(request.range, false, move |snapshot| {
            let found = query::hints(snapshot, &request);
            let hint = |value: &flows::Text| proto::FilterHint { value: value.to_string() };
            proto::FilterHintsResult {
                meta: Some(meta(found.total_pages, found.total_results)),
                hints: found.items.iter().map(hint).collect(),
            }
        });
        Ok(Response::new(result.await?))
    }
}

#[tonic::async_trait]
impl Statistics for Services {
    type ListStream = stream::Iter<std::vec::IntoIter<Result<proto::StatisticsResult, Status>>>;

    async fn list(
        &self,
        request: Request<proto::StatisticsRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let request = request.into_inner();
        let (kind, group_by) = (request.r#type, request.group_by);
        let wanted = StatisticsRequest {
            range: self.range(request.start_time_gte, request.start_time_lt)?,
            of: match request.r#type() {
                proto::StatisticType::PacketCount => StatisticType::Packets,
                proto::StatisticType::ByteCount => StatisticType::Bytes,
                proto::StatisticType::LiveConnectionCount => StatisticType::LiveConnections,
            },
            group_by: match request.group_by() {
                proto::StatisticsGroupBy::Policy => GroupBy::Policy,
                proto::StatisticsGroupBy::PolicyRule => GroupBy::PolicyRule,
            },
            is_series: request.time_series,
            policy: request.policy_match.as_ref().map(convert::policy_match),
        };
        let (range, is_series) = (wanted.range, wanted.is_series);
        let found = self.ask(range, is_series, move |snapshot| query::statistics(snapshot, &wanted)).await?;
        let found = found.map_err(|error| refusal(&error))?;
        let results: Vec<Result<proto::StatisticsResult, Status>> = match found.is_empty() {
            // An empty answer before the error: some proxies lose an error that comes without one.
            true => vec![
                Ok(proto::StatisticsResult::default()),
                Err(Status::not_found("No statistics matching request")),
            ],
            false => found.iter().map(|result| Ok(statistics_result(result, kind, group_by))).collect(),
        };
        Ok(Response::new(stream::iter(results)))
    }
}

fn statistics_result(result: &query::StatisticsResult, kind: i32, group_by: i32) -> proto::StatisticsResult {
    let mut policy = convert::from_policy(&result.policy);
    let mut direction = proto::RuleDirection::Any;
    if let Some((rule, action, of)) = result.rule {
        policy.rule_index = rule;
        policy.action = action.number();
        direction = match of {
            Direction::Ingress => proto::RuleDirection::Ingress,
            Direction::Egress => proto::RuleDirection::Egress,
        };
    }
    let values = |field: fn(&query::Series) -> u64| {
        result.values.iter().map(|series| i64::try_from(field(series)).unwrap_or(i64::MAX)).collect()
    };
    proto::StatisticsResult {
        policy: Some(policy),
        direction: direction as i32,
        group_by,
        r#type: kind,
        allowed_in: values(|series| series.allowed_in),
        allowed_out: values(|series| series.allowed_out),
        denied_in: values(|series| series.denied_in),
        denied_out: values(|series| series.denied_out),
        passed_in: values(|series| series.passed_in),
        passed_out: values(|series| series.passed_out),
        x: result.times.clone(),
    }
}
