//! The ValidatingWebhookConfiguration: which writes API servers ask about. Only the three kinds of this operator, and only in
//! its namespaces. Pods are never among them, so the webhook cannot block one.

use firesteel_api::names;
use firesteel_core::admission::Kind;
use firesteel_core::label_selector;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Value, json};

use super::pki;
use crate::options::WebhookOptions;

/// The label by which namespaces are selected by name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
const INJECT: &str = "cert-manager.io/inject-ca-from";
const TIMEOUT_SECONDS: i32 = 10;

/// The configuration, as it is applied. `bundle` is left to cert-manager if it is `None`.
pub(super) fn wanted(
    options: &WebhookOptions,
    namespaces: &[String],
    selector: Option<&str>,
    bundle: Option<&str>,
) -> Result<Value, String> {
    let mut webhooks = Vec::new();
    for (suffix, selected) in scopes(namespaces, selector)? {
        for kind in Kind::ALL {
            webhooks.push(webhook(options, kind, suffix, selected.as_ref(), bundle));
        }
    }
    let mut metadata = json!({"name": options.configuration});
    if let Some(certificate) = &options.injected_from {
        metadata["annotations"] = json!({INJECT: format!("{}/{certificate}", options.secret.0)});
    }
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": metadata, "webhooks": webhooks,
    }))
}

/// The namespaces to ask about. A selector cannot say "one of these or this label", so there may be two.
fn scopes(namespaces: &[String], selector: Option<&str>) -> Result<Vec<(&'static str, Option<LabelSelector>)>, String> {
    let named = |operator: &str| LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: operator.to_owned(),
        values: Some(namespaces.to_vec()),
    };
    let only = |terms: Vec<LabelSelectorRequirement>| LabelSelector {
        match_expressions: Some(terms),
        ..LabelSelector::default()
    };
    let mut scopes = Vec::new();
    if !namespaces.is_empty() {
        scopes.push(("", Some(only(vec![named("In")]))));
    }
    if let Some(text) = selector {
        let mut terms = label_selector::parse(text)?.match_expressions.unwrap_or_default();
        if namespaces.is_empty() {
            scopes.push(("", Some(only(terms))));
        } else {
            terms.push(named("NotIn"));
            scopes.push(("-selected", Some(only(terms))));
        }
    }
    if scopes.is_empty() {
        scopes.push(("", None));
    }
    Ok(scopes)
}

fn webhook(
    options: &WebhookOptions,
    kind: Kind,
    suffix: &str,
    selected: Option<&LabelSelector>,
    bundle: Option<&str>,
) -> Value {
    let path = kind.path();
    let (version, plural) = kind.resource();
    let mut client = match &options.url {
        Some(url) => json!({"url": format!("{}{path}", url.trim_end_matches('/'))}),
        None => json!({"service": {
            "namespace": options.service.0, "name": options.service.1, "path": path, "port": options.listen.port(),
        }}),
    };
    if let Some(bundle) = bundle {
        client["caBundle"] = json!(ByteString(bundle.as_bytes().to_vec()));
    }
    let mut webhook = json!({
        "name": format!("{}{suffix}.{}", path.trim_start_matches('/'), names::GROUP),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": options.failure_policy.word(),
        "matchPolicy": "Equivalent",
        "rules": [{
            "apiGroups": [names::GROUP], "apiVersions": [version], "operations": ["CREATE", "UPDATE"],
            "resources": [plural], "scope": "Namespaced",
        }],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    });
    if let Some(selected) = selected {
        webhook["namespaceSelector"] = json!(selected);
    }
    webhook
}

/// Whether everything that is wanted is there, whatever else may be.
pub(super) fn is_in_force(wanted: &Value, found: &ValidatingWebhookConfiguration) -> bool {
    let found = serde_json::to_value(found).unwrap_or_default();
    let by_name = |name: &Value| found["webhooks"].as_array().into_iter().flatten().find(|each| each["name"] == *name);
    let annotations = wanted["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotated = annotations.into_iter().all(|(name, value)| found["metadata"]["annotations"][name] == *value);
    let webhooks = wanted["webhooks"].as_array().into_iter().flatten();
    annotated && webhooks.into_iter().all(|each| by_name(&each["name"]).is_some_and(|found| is_part(each, found)))
}

fn is_part(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().all(|(name, value)| found.get(name).is_some_and(|found| is_part(value, found)))
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| is_part(wanted, found))
        }
        (wanted, found) => wanted == found,
    }
}

/// The authorities that API servers trust for every one of our webhooks.
pub(super) fn trusted(wanted: &Value, found: &ValidatingWebhookConfiguration) -> Vec<String> {
    let mut common: Option<Vec<String>> = None;
    for each in wanted["webhooks"].as_array().into_iter().flatten() {
        let webhook = found.webhooks.iter().flatten().find(|found| each["name"] == *found.name);
        let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle.as_ref());
        let bundle = bundle.map(|bundle| String::from_utf8_lossy(&bundle.0).into_owned()).unwrap_or_default();
        let mut authorities = pki::blocks(&bundle);
        authorities.retain(|pem| common.as_ref().is_none_or(|common| common.contains(pem)));
        common = Some(authorities);
    }
    common.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &Value) -> ValidatingWebhookConfiguration {
        serde_json::from_value(wanted.clone()).unwrap()
    }

    fn selectors(wanted: &Value) -> Vec<String> {
        let webhooks = wanted["webhooks"].as_array().unwrap();
        webhooks.iter().step_by(3).map(|webhook| webhook["namespaceSelector"].to_string()).collect()
    }

    #[test]
    fn only_our_kinds_are_asked_about_and_never_pods() {
        let wanted = wanted(&WebhookOptions::default(), &[], None, Some("x")).unwrap();
        let rules: Vec<&Value> = wanted["webhooks"].as_array().unwrap().iter().map(|w| &w["rules"]).collect();
        assert_eq!(rules.len(), 3);
        for rule in rules {
            assert_eq!(rule[0]["apiGroups"], json!(["sparkoperator.k8s.io"]));
            assert_eq!(rule[0]["operations"], json!(["CREATE", "UPDATE"]));
            assert!(rule[0]["resources"].as_array().unwrap().iter().all(|r| r.as_str().unwrap().starts_with("s")));
        }
        let first = &wanted["webhooks"][0];
        assert_eq!(first["clientConfig"]["service"]["path"], "/validate-sparkoperator-k8s-io-v1beta2-sparkapplication");
        assert_eq!(first["clientConfig"]["service"]["port"], 9443);
        assert_eq!((&first["failurePolicy"], &first["timeoutSeconds"]), (&json!("Fail"), &json!(10)));
    }

    #[test]
    fn the_namespaces_are_those_of_the_operator() {
        let options = WebhookOptions::default();
        let of = |namespaces: &[&str], selector: Option<&str>| {
            let namespaces: Vec<String> = namespaces.iter().map(ToString::to_string).collect();
            selectors(&wanted(&options, &namespaces, selector, None).unwrap())
        };
        assert_eq!(of(&[], None), ["null"]);
        let named = of(&["a", "b"], None);
        assert!(named.len() == 1 && named[0].contains(r#""operator":"In","values":["a","b"]"#), "{named:?}");
        let selected = of(&[], Some("spark=on"));
        assert!(selected.len() == 1 && selected[0].contains(r#""key":"spark""#), "{selected:?}");
        let both = of(&["a"], Some("spark=on"));
        assert!(both.len() == 2 && both[1].contains("NotIn") && both[1].contains("spark"), "{both:?}");
    }

    #[test]
    fn a_change_of_anything_of_ours_is_noticed_and_other_webhooks_are_not() {
        let wanted = wanted(&WebhookOptions::default(), &["a".to_owned()], None, Some("x")).unwrap();
        let mut stored = found(&wanted);
        assert!(is_in_force(&wanted, &stored));
        let mut other = stored.webhooks.as_ref().unwrap()[0].clone();
        other.name = "other.example.org".to_owned();
        stored.webhooks.as_mut().unwrap().push(other);
        assert!(is_in_force(&wanted, &stored));
        let tamper = |change: fn(&mut k8s_openapi::api::admissionregistration::v1::ValidatingWebhook)| {
            let mut stored = found(&wanted);
            change(&mut stored.webhooks.as_mut().unwrap()[1]);
            assert!(!is_in_force(&wanted, &stored));
        };
        tamper(|webhook| webhook.client_config.ca_bundle = None);
        tamper(|webhook| webhook.failure_policy = Some("Ignore".to_owned()));
        tamper(|webhook| webhook.namespace_selector = None);
        tamper(|webhook| webhook.name = "x.y.z".to_owned());
    }

    #[test]
    fn an_authority_is_trusted_once_every_webhook_has_it() {
        let block = |word: &str| format!("-----BEGIN CERTIFICATE-----\n{word}\n-----END CERTIFICATE-----\n");
        let bundle = format!("{}{}", block("one"), block("two"));
        let wanted = wanted(&WebhookOptions::default(), &[], None, Some(&bundle)).unwrap();
        let mut stored = found(&wanted);
        assert_eq!(trusted(&wanted, &stored), [block("one"), block("two")]);
        let webhook = &mut stored.webhooks.as_mut().unwrap()[2];
        webhook.client_config.ca_bundle = Some(ByteString(block("two").into_bytes()));
        assert_eq!(trusted(&wanted, &stored), [block("two")]);
    }
}
