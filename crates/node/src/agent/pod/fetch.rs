//! Fetches the objects a pod refers to: ConfigMaps, Secrets, claims and tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};

use crate::agent::Shared;
use crate::objects::Objects;
use crate::volumes::{Needs, Supplies, TokenNeed, needs};

/// The ConfigMap that exists in every namespace of a real cluster.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Tokens are refreshed after this share of their lifetime.
const TOKEN_LIFE_PERCENT: u32 = 80;

/// Fetches everything that exists. Missing objects are omitted; each consumer reports them in its own words.
pub(super) async fn fetch(shared: &Shared, pod: &Pod) -> Result<Supplies, String> {
    let Needs { config_maps, secrets, claims, tokens } = needs(pod);
    let namespace = pod.namespace().unwrap_or_default();
    let client = &shared.client;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let secret_api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let (config_maps, secrets, claims, tokens) = futures::join!(
        join_all(config_maps.iter().map(|n| maps.get_opt(n))),
        join_all(secrets.iter().map(|n| secret_api.get_opt(n))),
        join_all(claims.iter().map(|n| bound_volume(shared, &namespace, n))),
        join_all(tokens.iter().map(|n| token(shared, pod, n))),
    );
    let said = |e: kube::Error| e.to_string();
    let mut objects = Objects::default();
    for map in config_maps {
        objects.config_maps.extend(map.map_err(said)?.map(|m| (m.name_any(), m)));
    }
    for secret in secrets {
        objects.secrets.extend(secret.map_err(said)?.map(|s| (s.name_any(), s)));
    }
    if let Some(ca) = &shared.ca
        && !objects.config_maps.contains_key(ROOT_CA)
    {
        let map = ConfigMap { data: Some(BTreeMap::from([("ca.crt".to_owned(), ca.clone())])), ..ConfigMap::default() };
        objects.config_maps.insert(ROOT_CA.to_owned(), map);
    }
    let mut supplies = Supplies { objects, ..Supplies::default() };
    for claim in claims {
        supplies.claims.extend(claim.map_err(said)?);
    }
    for token in tokens {
        let (need, text) = token?;
        supplies.tokens.insert((need.volume, need.path), text);
    }
    Ok(supplies)
}

/// A claim and its bound volume; `None` if the claim does not exist.
async fn bound_volume(
    shared: &Shared,
    namespace: &str,
    claim: &str,
) -> Result<Option<(String, Option<PersistentVolume>)>, kube::Error> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), namespace);
    let Some(found) = claims.get_opt(claim).await? else { return Ok(None) };
    let bound = found.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let volume = match found.spec.and_then(|s| s.volume_name).filter(|_| bound) {
        Some(volume) => Api::<PersistentVolume>::all(shared.client.clone()).get_opt(&volume).await?,
        None => None,
    };
    Ok(Some((claim.to_owned(), volume)))
}

async fn token(shared: &Shared, pod: &Pod, need: &TokenNeed) -> Result<(TokenNeed, String), String> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|s| s.service_account_name.clone())
        .filter(|n| !n.is_empty())
        .unwrap_or_else(|| "default".to_owned());
    let accounts: Api<ServiceAccount> = Api::namespaced(shared.client.clone(), &pod.namespace().unwrap_or_default());
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(need.audience.clone().into_iter().collect()),
            expiration_seconds: Some(need.seconds),
            bound_object_ref: Some(BoundObjectReference {
                kind: Some("Pod".to_owned()),
                api_version: Some("v1".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(&account, &PostParams::default(), &request)
        .await
        .map_err(|e| format!("failed to fetch token for service account {account}: {e}"))?;
    let text = answer
        .status
        .and_then(|s| s.token)
        .filter(|t| !t.is_empty())
        .ok_or_else(|| format!("the API server gave no token for service account {account}"))?;
    Ok((need.clone(), text))
}

/// When the first of the pod's tokens is due for refresh.
pub(super) fn shortest_token(pod: &Pod) -> Option<Duration> {
    let seconds = needs(pod).tokens.iter().map(|t| t.seconds).min()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(600)) * TOKEN_LIFE_PERCENT / 100)
}
