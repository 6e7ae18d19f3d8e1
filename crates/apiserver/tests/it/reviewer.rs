//! A small HTTPS server that answers admission reviews.

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use firesteel_apiserver::RunningServer;
use firesteel_testenv::serve_https;
use serde_json::{Value, json};

/// Responds as its path says.
async fn review(Path(manner): Path<String>, Json(review): Json<Value>) -> Response {
    let request = &review["request"];
    let name = request["name"].as_str().unwrap_or_default();
    let mut response = json!({"uid": request["uid"], "allowed": false});
    match manner.as_str() {
        "allow" => response["allowed"] = true.into(),
        "validate" => {
            response["allowed"] =
                (name != "bad" && request["operation"] == "CREATE" && request["object"]["kind"] == "ConfigMap").into();
            response["warnings"] = json!([format!("looked at {name}")]);
            response["status"] = json!({"message": "no bad ones"});
        }
        "deny" => {}
        "deny-reason" => response["status"] = json!({"reason": "Because"}),
        "deny-invalid" => {
            response["status"] = json!({
                "code": 422, "reason": "Invalid", "message": "wrong", "details": {"name": name, "kind": "thing", "causes": [{"field": "a", "message": "b"}]},
            });
        }
        "tell" => {
            // Returns the request itself, for comparison.
            let mut told = review.clone();
            told["request"]["uid"] = "<uid>".into();
            response["status"] = json!({"code": 403, "message": told["request"].to_string()});
        }
        "slow" => tokio::time::sleep(std::time::Duration::from_secs(5)).await,
        "absent" => {
            return Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})).into_response();
        }
        "garbage" => return "not json".into_response(),
        "broken" => return (http::StatusCode::INTERNAL_SERVER_ERROR, "it broke").into_response(),
        "other-uid" => response["uid"] = "other".into(),
        "other-kind" => {
            return Json(json!({"kind": "Odd", "apiVersion": "v1", "response": response})).into_response();
        }
        _ => return http::StatusCode::NOT_FOUND.into_response(),
    }
    Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})).into_response()
}

/// With a certificate from the server's own CA.
pub(crate) async fn start(server: &RunningServer) -> u16 {
    serve_pem(&server.serving_certificate("reviewer", &[], &["127.0.0.1".into()]).expect("certificate")).await
}

pub(crate) async fn serve_pem(made: &firesteel_apiserver::Credentials) -> u16 {
    let der = |pem: &str| {
        use base64::Engine as _;
        let body: String = pem.lines().filter(|l| !l.starts_with("---")).collect();
        base64::engine::general_purpose::STANDARD.decode(body).expect("base64")
    };
    serve(der(&made.certificate), der(&made.key)).await
}

pub(crate) async fn serve(certificate: Vec<u8>, key: Vec<u8>) -> u16 {
    serve_https(certificate, key, axum::Router::new().route("/{manner}", post(review))).await
}
