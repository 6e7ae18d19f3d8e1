//! The handler for all requests: determines what a request wants and dispatches by verb, never by kind.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::authentication::User;
use crate::request::{ApiRequest, MediaTypeOptions, Query, RequestInfo, kind_of, media_type};
use crate::response::{self, ApiResponse};
use crate::state::State;
use crate::status::{ApiResult, StatusError};
use crate::write::Writer;

/// The maximum body size.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Handles any request; a panic becomes a 500.
pub(crate) async fn serve(state: Arc<State>, certificate: Option<Arc<User>>, request: Request<Body>) -> ApiResponse {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let handled = AssertUnwindSafe(dispatch(&state, certificate.as_deref(), request)).catch_unwind().await;
    let mut reply = match handled {
        Ok(Ok(reply)) => reply,
        Ok(Err(failure)) => response::failure(&failure),
        Err(_) => {
            tracing::error!(%method, path, "a handler panicked");
            response::failure(&StatusError::internal("the server could not handle the request"))
        }
    };
    if let Ok(id) = http::HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        reply.headers_mut().insert("audit-id", id);
    }
    reply
}

async fn dispatch(state: &Arc<State>, certificate: Option<&User>, request: Request<Body>) -> ApiResult<ApiResponse> {
    let (mut parts, body) = request.into_parts();
    let user = crate::authentication::authenticate(state, &parts.headers, certificate)?;
    let user = crate::authorization::impersonate(state, &parts.headers, user)?;
    let path = parts.uri.path().to_owned();
    let Some(target) = RequestInfo::parse(&path) else {
        crate::authorization::check_path(state, &user, &parts.method, &path)?;
        return crate::discovery::serve(state, &parts);
    };
    let query = Query::parse(&parts.uri);
    let verb = verb(&parts.method, &target, &query)?;
    crate::authorization::check(state, &user, verb, &target, &query)?;
    let kinds = state.kinds.load_full();
    let kind = kind_of(&kinds, &target)?;
    let user_agent = parts.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let req = ApiRequest {
        method: parts.method.clone(),
        target,
        query,
        kind,
        accepted: MediaTypeOptions::parse(&parts.headers)?,
        media_type: media_type(&parts.headers),
        user_agent,
        user,
    };
    if req.kind.virtual_
        || !matches!(
            req.target.subresource.as_str(),
            "" | "status" | "approval" | "ephemeralcontainers" | "finalize" | "resize"
        )
    {
        return crate::subresource::serve(state, &req, &mut parts, body).await;
    }
    let served = serve_objects(state, &req, &mut parts, body).await;
    if !req.kind.is("", "endpoints") {
        return served;
    }
    let mut reply = served.unwrap_or_else(|failure| response::failure(&failure));
    {
        response::warn(
            &mut reply,
            &["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()],
        );
    }
    Ok(reply)
}

async fn serve_objects(state: &Arc<State>, req: &ApiRequest, parts: &mut Parts, body: Body) -> ApiResult<ApiResponse> {
    let named = !req.target.name.is_empty();
    let whole = req.target.subresource.is_empty();
    match (&req.method, named) {
        (&Method::GET, _) if req.is_watch()? => crate::watch::watch(state, req, parts).await,
        (&Method::GET, true) => crate::get::get(state, req),
        (&Method::GET, false) => crate::get::list(state, req),
        (&Method::POST, false) if req.kind.namespaced && req.target.namespace.is_empty() => {
            Err(StatusError::method_not_allowed())
        }
        (&Method::POST, false) => Writer::new(state, req)?.create(&read(body).await?).await,
        (&Method::PUT, true) => Writer::new(state, req)?.update(&read(body).await?).await,
        (&Method::PATCH, true) => Writer::new(state, req)?.patch(&read(body).await?).await,
        (&Method::DELETE, true) if whole => crate::delete::delete(state, req, &read(body).await?).await,
        (&Method::DELETE, false) if !req.kind.is("", "namespaces") => {
            crate::delete::delete_collection(state, req, &read(body).await?).await
        }
        _ => Err(StatusError::method_not_allowed()),
    }
}

/// The verb for RBAC and admission.
fn verb(method: &Method, target: &RequestInfo, query: &Query) -> ApiResult<&'static str> {
    let named = !target.name.is_empty();
    Ok(match *method {
        Method::GET | Method::HEAD if target.watch_path || query.flag("watch")? => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => return Err(StatusError::method_not_allowed()),
    })
}

/// Reads the body, up to the limit.
pub(crate) async fn read(body: Body) -> ApiResult<Bytes> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(StatusError::too_large(BODY_LIMIT)),
        Err(error) => Err(StatusError::bad_request(format!("the body could not be read: {error}"))),
    }
}
