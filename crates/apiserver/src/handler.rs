//! Handles one request: authenticates, authorizes and answers it.

use crate::app::App;
use crate::body::LIMIT;
use crate::kinds::Writes;
use crate::request::{Options, Route, Target, Verb, verb};
use crate::respond::{Answer, answer, json_answer, refusal};
use crate::status::{Outcome, Refusal};
use crate::tables::Form;
use crate::writing::Write;
use crate::{discovery, openapi, reading};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Body;
use rustls::pki_types::CertificateDer;

/// Answers a request of a client that presented these certificates.
pub async fn handle<B>(app: &App, chain: &[CertificateDer<'static>], request: Request<B>) -> Answer
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match respond(app, chain, request).await {
        Ok(answer) => answer,
        Err(refused) => {
            if refused.code >= 500 {
                tracing::warn!(code = refused.code, message = refused.message, "a request failed");
            }
            refusal(&refused)
        }
    }
}

async fn respond<B>(app: &App, chain: &[CertificateDer<'static>], request: Request<B>) -> Outcome<Answer>
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let route = Route::of(parts.uri.path());
    let user = app.user(chain, &parts.headers).await?;
    let Route::Objects(target) = route else {
        app.check_path(&user, parts.uri.path(), &parts.method).await?;
        return page(app, &route, &parts.method, &parts.headers).await;
    };
    let options = Options::parse(parts.uri.query().unwrap_or_default())?;
    let Some(verb) = verb(&parts.method, &target, &options) else {
        return Err(Refusal::method_not_allowed(target.served.plural(), parts.method.as_str()));
    };
    app.check_objects(&user, &target, verb, &options).await?;
    let form = Form::choose(header(&parts.headers, ACCEPT), parameter(&parts.uri, "includeObject"))?;
    match verb {
        Verb::Get => return reading::get(app, &user, &target, form).await,
        Verb::List => return reading::list(app, &user, &target, &options, form).await,
        Verb::Watch => return reading::watch(app, &user, &target, &options, form).await,
        _ => {}
    }
    refuse_writes(&target, verb)?;
    let body = Limited::new(body, LIMIT).collect().await.map_err(|error| {
        if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() {
            Refusal::too_large(LIMIT)
        } else {
            Refusal::bad_request(format!("couldn't read the body: {error}"))
        }
    })?;
    let manager = manager(&options, &parts.headers);
    let write = Write {
        app,
        user: &user,
        target: &target,
        options: &options,
        form,
        manager: &manager,
        content_type: header(&parts.headers, CONTENT_TYPE),
        body: &body.to_bytes(),
    };
    match verb {
        Verb::Create => write.create().await,
        Verb::Update => write.update().await,
        Verb::Patch => write.patch().await,
        Verb::Delete => write.delete().await,
        _ => write.delete_collection().await,
    }
}

fn refuse_writes(target: &Target, verb: Verb) -> Outcome<()> {
    match (target.served.writes, verb.refused_as()) {
        (Writes::Nothing, Some(word)) => Err(Refusal::method_not_allowed(target.served.plural(), word)),
        _ => Ok(()),
    }
}

/// The field manager of a request: the one it names, or the program that sent it.
fn manager(options: &Options, headers: &HeaderMap) -> String {
    if !options.field_manager.is_empty() {
        return options.field_manager.clone();
    }
    let agent = header(headers, USER_AGENT).split('/').next().unwrap_or_default();
    let agent: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
    if agent.is_empty() { "unknown".into() } else { agent }
}

fn header(headers: &HeaderMap, name: http::header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn parameter<'a>(uri: &'a http::Uri, name: &str) -> &'a str {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .filter_map(|part| part.split_once('='))
        .find(|(key, _)| *key == name)
        .map_or("", |(_, value)| value)
}

/// Serves the paths that are not objects.
async fn page(app: &App, route: &Route, method: &Method, headers: &HeaderMap) -> Outcome<Answer> {
    if *method != Method::GET && *method != Method::HEAD {
        return Err(Refusal::no_such_path());
    }
    Ok(match route {
        Route::Paths => json_answer(StatusCode::OK, &discovery::paths()),
        Route::Health { ready: false } => text(StatusCode::OK, "ok"),
        Route::Health { ready: true } => match app.ready().await {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(reason) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, &format!("readyz check failed: {reason}\n"))
            }
        },
        Route::Version => json_answer(StatusCode::OK, &discovery::version()),
        Route::Groups => {
            if discovery::wants_aggregated(header(headers, ACCEPT)) {
                answer(StatusCode::OK, discovery::AGGREGATED, discovery::aggregated().to_string())
            } else {
                json_answer(StatusCode::OK, &discovery::groups())
            }
        }
        Route::Group => json_answer(StatusCode::OK, &discovery::group()),
        Route::Resources => json_answer(StatusCode::OK, &discovery::resources()),
        Route::OpenApiV2 => document(openapi::v2(), headers),
        Route::OpenApiV3 => json_answer(StatusCode::OK, &openapi::index()),
        Route::OpenApiV3Group => document(openapi::v3(), headers),
        Route::Objects(_) | Route::Unknown => return Err(Refusal::no_such_path()),
    })
}

fn document(document: &openapi::Document, headers: &HeaderMap) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    if header(headers, IF_NONE_MATCH) == tag {
        return answer(StatusCode::NOT_MODIFIED, "application/json", Bytes::new());
    }
    let mut response = answer(StatusCode::OK, "application/json", document.json.clone());
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn text(code: StatusCode, text: &str) -> Answer {
    answer(code, "text/plain; charset=utf-8", text.to_owned())
}
