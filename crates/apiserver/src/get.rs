//! GET of objects and lists: selectors, paging and resource version rules.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::request::ApiRequest;
use crate::response::{self, ApiResponse, Page};
use crate::selector::{Fields, Labels};
use crate::state::State;
use crate::status::{ApiResult, Cause, StatusError};
use crate::store::{Key, Stored};
use crate::table::Include;

/// The selected objects of a resource.
#[derive(Debug, Clone)]
pub(crate) struct SelectionPredicate {
    pub(crate) namespace: Option<String>,
    name: Option<String>,
    labels: Labels,
    fields: Fields,
}

impl SelectionPredicate {
    pub(crate) fn parse(req: &ApiRequest) -> ApiResult<Self> {
        let label_text = req.query.get("labelSelector");
        let field_text = req.query.get("fieldSelector");
        let labels = Labels::parse(label_text).map_err(StatusError::bad_request)?;
        let fields = stored_fields(&req.kind, Fields::parse(field_text).map_err(StatusError::bad_request)?);
        for field in fields.names() {
            if !selectable(&req.kind, field) {
                let kind = &req.kind;
                if kind.custom.is_none() && !has_own_fields(kind) {
                    return Err(StatusError::bad_request(format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )));
                }
                return Err(StatusError::bad_request(format!("field label not supported: {field}")));
            }
        }
        Ok(Self {
            namespace: (!req.target.namespace.is_empty()).then(|| req.target.namespace.clone()),
            name: (!req.target.name.is_empty()).then(|| req.target.name.clone()),
            labels,
            fields,
        })
    }

    pub(crate) fn selects_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    pub(crate) fn in_scope(&self, key: &Key) -> bool {
        self.namespace.as_deref().is_none_or(|n| n == &*key.0) && self.name.as_deref().is_none_or(|n| n == &*key.1)
    }

    /// Checks labels and fields only; the scope is checked by key.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        (self.labels.is_empty() || self.labels.matches(object.labels()))
            && (self.fields.is_empty() || self.fields.matches(&object.value()))
    }

    fn only_name(&self) -> Option<&str> {
        self.name.as_deref().or_else(|| self.fields.exact_name())
    }
}

/// Kinds with selectable fields have another error message.
fn has_own_fields(kind: &Kind) -> bool {
    selectable(kind, "spec.nodeName")
        || selectable(kind, "type")
        || selectable(kind, "spec.type")
        || selectable(kind, "status.phase")
        || selectable(kind, "spec.unschedulable")
        || selectable(kind, "status.replicas")
        || selectable(kind, "status.successful")
        || selectable(kind, "spec.signerName")
        || selectable(kind, "reason")
}

/// Selectable fields besides name and namespace.
fn selectable(kind: &Kind, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && kind.namespaced) {
        return true;
    }
    if let Some(custom) = &kind.custom {
        return custom.selectable_fields.iter().any(|f| f.trim_start_matches('.') == field);
    }
    let known: &[&str] = match (&*kind.group, &*kind.resource) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase", "name"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("" | "apps", "replicasets" | "replicationcontrollers") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    };
    known.contains(&field)
}

pub(crate) fn get(state: &State, req: &ApiRequest) -> ApiResult<ApiResponse> {
    let stored = state.get(&req.kind, &req.target.namespace, &req.target.name).ok_or_else(|| req.not_found())?;
    if let Some(wanted) = revision_parameter(req)?
        && wanted > state.store.revision()
    {
        return Err(StatusError::resource_version_too_large(wanted, state.store.revision()));
    }
    Ok(response::object(&req.kind, req.accepted, 200, &stored))
}

/// Maps field names of `events.k8s.io` to the stored ones.
fn stored_fields(kind: &Kind, mut fields: Fields) -> Fields {
    if &*kind.group == "events.k8s.io" {
        fields.rename("regarding.", "involvedObject.");
    }
    fields
}

pub(crate) fn revision_parameter(req: &ApiRequest) -> ApiResult<Option<u64>> {
    match req.query.get("resourceVersion") {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            StatusError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

/// Validates `resourceVersion`, `resourceVersionMatch`, `continue` and `sendInitialEvents` together.
fn check_options(req: &ApiRequest, watch: bool) -> ApiResult<()> {
    let matching = req.query.get("resourceVersionMatch");
    let revision = req.query.get("resourceVersion");
    let initial = req.query.get("sendInitialEvents");
    let mut causes = Vec::new();
    if !initial.is_empty() {
        if !watch {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        } else if matching != "NotOlderThan" {
            causes.push(if matching.is_empty() {
                Cause::forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            } else {
                Cause::unsupported("resourceVersionMatch", &matching.into(), &["NotOlderThan"])
            });
        }
    } else if !matching.is_empty() {
        if watch {
            causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        } else if revision.is_empty() {
            causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !req.query.get("continue").is_empty() {
            causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause::unsupported("resourceVersionMatch", &matching.into(), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && revision == "0" {
            causes.push(Cause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(StatusError::invalid("meta.k8s.io", "ListOptions", "", &causes)) }
}

pub(crate) fn check_watch_options(req: &ApiRequest) -> ApiResult<()> {
    check_options(req, true)
}

pub(crate) fn include(req: &ApiRequest) -> Include {
    match req.query.get("includeObject") {
        "None" => Include::Nothing,
        "Object" => Include::Object,
        _ => Include::Metadata,
    }
}

pub(crate) fn list(state: &State, req: &ApiRequest) -> ApiResult<ApiResponse> {
    check_options(req, false)?;
    let filter = SelectionPredicate::parse(req)?;
    let wanted = revision_parameter(req)?;
    let token = req.query.get("continue");
    let mut limit = req.query.number("limit")?.unwrap_or_default();
    if limit < 0 {
        return Err(StatusError::bad_request(format!("invalid limit: {limit}")));
    }
    if wanted == Some(0) && token.is_empty() {
        // Like the real server's watch cache: the whole list.
        limit = 0;
    }
    let current = state.store.revision();
    let (after, at) = if token.is_empty() {
        match wanted {
            Some(revision) if revision > current => {
                return Err(StatusError::resource_version_too_large(revision, current));
            }
            Some(revision) if req.query.get("resourceVersionMatch") == "Exact" => (None, Some(revision)),
            _ => (None, None),
        }
    } else {
        if wanted.is_some_and(|r| r != 0) {
            return Err(StatusError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (revision, key) = read_token(token)?;
        (Some(key), Some(revision))
    };
    let (items, revision, more, remaining) = match filter.only_name() {
        Some(name) if filter.namespace.is_some() || !req.kind.namespaced => {
            let found = state
                .get(&req.kind, filter.namespace.as_deref().unwrap_or_default(), name)
                .filter(|stored| filter.matches(stored));
            (found.into_iter().collect::<Vec<_>>(), current, None, 0)
        }
        _ => {
            let size = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
            let snapshot = state
                .store
                .list(&req.kind.table, filter.namespace.as_deref(), after.as_ref(), size, at, |stored| {
                    filter.selects_everything() || filter.matches(stored)
                })
                .map_err(|_| expired(!token.is_empty(), at, current))?;
            let last = snapshot.items.last().map(|(key, _)| key.clone()).filter(|_| snapshot.more);
            let items: Vec<Arc<Stored>> = snapshot.items.into_iter().map(|(_, stored)| stored).collect();
            (items, snapshot.revision, last, snapshot.remaining)
        }
    };
    let next = more.map(|key| write_token(revision, &key)).unwrap_or_default();
    let remaining = if filter.selects_everything() { remaining } else { 0 };
    response::list(&req.kind, req.accepted, include(req), &Page { items: &items, revision, next: &next, remaining })
}

fn expired(continued: bool, at: Option<u64>, current: u64) -> Box<StatusError> {
    if continued {
        StatusError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        )
    } else {
        StatusError::expired(format!("too old resource version: {} ({current})", at.unwrap_or_default()))
    }
}

fn write_token(revision: u64, key: &Key) -> String {
    URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{}/{}", key.0, key.1)}).to_string())
}

fn read_token(token: &str) -> ApiResult<(u64, Key)> {
    let parse = || {
        let text = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
        let (namespace, name) = value.get("start")?.as_str()?.split_once('/')?;
        Some((value.get("rv")?.as_u64()?, (namespace.into(), name.into())))
    };
    parse().ok_or_else(|| {
        let why = match URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')) {
            Err(_) => "illegal base64 data at input byte 0".to_owned(),
            Ok(bytes) => match bytes.first() {
                Some(first) if *first >= 0x80 => {
                    format!("invalid character '\\u{:04x}' looking for beginning of value", first)
                }
                Some(first) if *first != b'{' => {
                    format!("invalid character '{}' looking for beginning of value", char::from(*first))
                }
                _ => "unexpected end of JSON input".to_owned(),
            },
        };
        StatusError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    })
}
