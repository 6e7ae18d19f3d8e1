//! The validating webhook, called by a real API server: refusals with field paths, quotas, rotation under load, restarts, and
//! what others do to its Secret and its configuration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use firesteel_api::{ScheduledSparkApplication, SparkApplication, SparkConnect};
use firesteel_core::certificates::Policy;
use firesteel_operator::{Certificates, Listen, Options, WebhookOptions};
use firesteel_testenv::TestEnv;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::jiff::SignedDuration;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::DropGuard;

use crate::fixture::{Fixture, PATIENCE, block_on, install, json_patch, options, start_with};
use crate::rights::{Forbidden, install_role};
use crate::witness;

const SECRET: &str = "spark-operator-webhook-certs";
const PATH: &str = "/validate-sparkoperator-k8s-io-v1beta2-sparkapplication";

/// Waits until a condition holds.
macro_rules! until {
    ($what:literal, $holds:expr) => {{
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !$holds {
            assert!(tokio::time::Instant::now() < deadline, "never {}", $what);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }};
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A namespace whose operator serves the webhook for it alone.
struct Hooked {
    f: Fixture,
    options: Options,
    port: u16,
}

impl Hooked {
    async fn start(prefix: &str, tune: impl FnOnce(&mut WebhookOptions)) -> Option<Hooked> {
        let hooked = Hooked::prepare(prefix, tune).await?;
        hooked.in_force().await;
        Some(hooked)
    }

    /// The same without waiting for it.
    async fn prepare(prefix: &str, tune: impl FnOnce(&mut WebhookOptions)) -> Option<Hooked> {
        let env = TestEnv::get()?;
        let client = env.client().await;
        install(&client).await;
        let namespace = env.namespace(prefix).await;
        let (options, port) = hooked_options(namespace.name(), tune);
        let operator = start_with(client.clone(), options.clone());
        Some(Hooked { f: Fixture::around(namespace, client, operator), options, port })
    }

    fn name(&self) -> &str {
        self.f.namespace.name()
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.f.client.clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.f.client.clone(), self.name())
    }

    fn api<K: kube::Resource<DynamicType = ()>>(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.f.client.clone(), self.name(), &ApiResource::erase::<K>(&()))
    }

    /// Waits until the API server asks about this namespace.
    async fn in_force(&self) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.try_app("probe", &bad_image(), true).await;
            if answer.as_ref().is_err_and(|refused| refused.to_string().contains("containers[0].image")) {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "the webhook is never asked: {answer:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn try_app(&self, name: &str, patch: &Value, dry_run: bool) -> Result<DynamicObject, kube::Error> {
        let params = PostParams { dry_run, field_manager: None };
        self.api::<SparkApplication>().create(&params, &object("v1beta2", "SparkApplication", name, &app(patch))).await
    }

    async fn refusal(&self, patch: &Value) -> kube::core::Status {
        match self.try_app("bad", patch, true).await {
            Err(kube::Error::Api(status)) => *status,
            other => panic!("{patch}: {other:?}"),
        }
    }

    /// The bundle of the first webhook.
    async fn bundle(&self) -> String {
        let found = self.configurations().get_opt(self.name()).await.unwrap();
        let webhook = found.and_then(|found| found.webhooks?.into_iter().next());
        let bundle = webhook.and_then(|webhook| webhook.client_config.ca_bundle);
        bundle.map(|bundle| String::from_utf8(bundle.0).unwrap()).unwrap_or_default()
    }

    async fn data(&self) -> Option<std::collections::BTreeMap<String, ByteString>> {
        self.secrets().get_opt(SECRET).await.unwrap().and_then(|secret| secret.data)
    }

    /// Ends the operator, which would restore the configuration, and removes it.
    async fn end(mut self) {
        let name = self.options.webhook.as_ref().unwrap().configuration.clone();
        self.f.stop_operator();
        until!("stopped", is_refused(self.port).await);
        self.configurations().delete(&name, &DeleteParams::default()).await.unwrap();
    }
}

fn hooked_options(namespace: &str, tune: impl FnOnce(&mut WebhookOptions)) -> (Options, u16) {
    let port = free_port();
    let mut webhook = WebhookOptions {
        listen: Listen::At("127.0.0.1".to_owned(), port),
        url: Some(format!("https://127.0.0.1:{port}")),
        configuration: namespace.to_owned(),
        secret: (namespace.to_owned(), SECRET.to_owned()),
        ..WebhookOptions::default()
    };
    tune(&mut webhook);
    (Options { webhook: Some(webhook), ..options(namespace) }, port)
}

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("sparkoperator.k8s.io/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn app(patch: &Value) -> Value {
    let mut spec = json!({
        "type": "Scala", "sparkVersion": "4.1.4", "image": "apache/spark:4.1.4", "mainClass": "org.example.Main",
        "mainApplicationFile": "local:///opt/app.jar",
        "driver": {"serviceAccount": "spark", "nodeSelector": {"no": "where"}}, "executor": {"instances": 1},
    });
    json_patch(&mut spec, patch);
    spec
}

/// What the definition cannot see.
fn bad_image() -> Value {
    json!({"driver": {"template": {"spec": {"containers": [{"name": "spark-kubernetes-driver", "image": 3}]}}}})
}

fn quick() -> Certificates {
    let seconds = SignedDuration::from_secs;
    Certificates::Own(Policy { server: seconds(10), renew_before: seconds(8), authority: seconds(20) })
}

/// A TLS connection that is verified against a bundle.
async fn connect(port: u16, bundle: &str) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Whether nobody listens.
async fn is_refused(port: u16) -> bool {
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.err();
    refused.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// The certificate that is served.
async fn served(port: u16, bundle: &str) -> std::io::Result<Vec<u8>> {
    let stream = connect(port, bundle).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].to_vec())
}

/// The status code of a raw request.
async fn post(port: u16, bundle: &str, path: &str, body: &[u8]) -> u16 {
    let mut stream = connect(port, bundle).await.unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may answer before it has read everything.
    let _ = stream.write_all(body).await;
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[9..12]).parse().unwrap()
}

#[test]
fn refusals_of_every_kind_name_the_field() {
    block_on(async {
        let Some(h) = Hooked::start("hook", |_| {}).await else { return };
        let status = h.refusal(&bad_image()).await;
        let field = "spec.driver.template.spec.containers[0].image";
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        let prefix = "admission webhook \"validate-sparkoperator-k8s-io-v1beta2-sparkapplication.sparkoperator.k8s.io\" denied the request: ";
        assert!(status.message.starts_with(&format!("{prefix}{field}: ")), "{}", status.message);
        assert_eq!(status.details.unwrap().causes[0].field, field);
        let cases = [
            (
                json!({"sparkConf": {"spark.kubernetes.namespace": "other"}}),
                "spec.sparkConf[spark.kubernetes.namespace]",
            ),
            (json!({"driver": {"sidecars": [{"name": "a"}]}}), "spec.driver.sidecars[0].image"),
            (json!({"driver": {"labels": {"a": "not a label"}}}), "spec.driver.labels[a]"),
            (
                json!({"executor": {"sidecars": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}}),
                "spec.executor.sidecars[0].volumeMounts[0].name",
            ),
        ];
        for (patch, field) in cases {
            let status = h.refusal(&patch).await;
            assert!(status.message.contains(&format!("{prefix}{field}: ")), "{patch}: {}", status.message);
        }
        let kinds: [(Api<DynamicObject>, DynamicObject, &str); 3] = [
            (
                h.api::<ScheduledSparkApplication>(),
                object(
                    "v1beta2",
                    "ScheduledSparkApplication",
                    "bad",
                    &json!({"schedule": "61 * * * *", "template": app(&json!({}))}),
                ),
                "spec.schedule: ",
            ),
            (
                h.api::<ScheduledSparkApplication>(),
                object(
                    "v1beta2",
                    "ScheduledSparkApplication",
                    "bad",
                    &json!({"schedule": "@daily", "timeZone": "Europe/Atlantis", "template": app(&json!({}))}),
                ),
                "spec.timeZone: ",
            ),
            (
                h.api::<SparkConnect>(),
                object(
                    "v1alpha1",
                    "SparkConnect",
                    "bad",
                    &json!({
                    "sparkVersion": "4.1.4", "image": "i", "server": {"service": {"spec": {"ports": [{"port": 0}]}}}, "executor": {}}),
                ),
                "spec.server.service.spec.ports[0].port: ",
            ),
        ];
        for (api, object, field) in kinds {
            for dry_run in [true, false] {
                let refused = api.create(&PostParams { dry_run, field_manager: None }, &object).await.unwrap_err();
                assert!(refused.to_string().contains(field), "{refused}");
            }
        }
        // What is good is stored, and the operator carries on with it.
        h.try_app("good", &json!({}), true).await.unwrap();
        h.f.create("good", &json!({})).await;
        h.f.driver("good", 1).await;
        let edit = Patch::Merge(json!({"spec": bad_image()}));
        let refused = h.f.apps.patch("good", &PatchParams::default(), &edit).await.unwrap_err();
        assert!(refused.to_string().contains(field), "{refused}");
        h.end().await;
    });
}

#[test]
fn objects_from_before_the_webhook_can_be_marked_stopped_and_deleted() {
    block_on(async {
        let Some(mut f) = Fixture::new("hook-old").await else { return };
        f.create("old", &bad_image()).await;
        f.event("SparkApplicationFailed").await;
        f.stop_operator();
        let (options, port) = hooked_options(f.namespace.name(), |_| {});
        f.run_operator(start_with(f.client.clone(), options.clone()));
        let h = Hooked { f, options, port };
        h.in_force().await;
        let apps = h.api::<SparkApplication>();
        let merge = |patch: Value| Patch::Merge(patch);
        apps.patch("old", &PatchParams::default(), &merge(json!({"metadata": {"labels": {"a": "b"}}}))).await.unwrap();
        apps.patch("old", &PatchParams::default(), &merge(json!({"spec": {"suspend": true}}))).await.unwrap();
        let refused = apps.patch("old", &PatchParams::default(), &merge(json!({"spec": {"arguments": ["1"]}}))).await;
        assert!(refused.unwrap_err().to_string().contains("containers[0].image"));
        apps.delete("old", &DeleteParams::default()).await.unwrap();
        h.end().await;
    });
}

#[test]
fn applications_that_do_not_fit_the_quota_are_refused() {
    block_on(async {
        let Some(h) = Hooked::start("hook-quota", |webhook| webhook.quotas = true).await else { return };
        h.try_app("free", &json!({}), true).await.unwrap();
        let quotas: Api<ResourceQuota> = Api::namespaced(h.f.client.clone(), h.name());
        let quota =
            json!({"metadata": {"name": "compute"}, "spec": {"hard": {"requests.memory": "4Gi", "pods": "10"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        let status = h.refusal(&json!({"executor": {"instances": 2}})).await;
        let expected = "spec.executor.instances: exceeds ResourceQuota \"compute\": requests.memory needed 4224Mi (driver 1408Mi, \
                        2 executors 1408Mi each), used 0, hard 4Gi; request less, or raise the quota";
        assert!(status.message.contains(expected), "{}", status.message);
        let dynamic = json!({"dynamicAllocation": {"enabled": true, "maxExecutors": 20}});
        let status = h.refusal(&dynamic).await;
        assert!(status.message.contains("spec.dynamicAllocation.maxExecutors: "), "{}", status.message);
        assert!(status.message.contains("pods needed 21"), "{}", status.message);
        // Its own pods do not count against an edit.
        h.f.create("fits", &json!({"executor": {"instances": 1}})).await;
        h.f.driver("fits", 1).await;
        until!("counted", {
            let quota = quotas.get("compute").await.unwrap();
            quota.status.and_then(|status| status.used?.get("pods").map(|used| used.0 == "1")).unwrap_or_default()
        });
        h.f.edit("fits", &json!({"driver": {"memory": "1500m"}})).await;
        let more = json!({"driver": {"memory": "2g"}});
        until!("refused with the new pod counted", {
            let refused = h.try_app("more", &more, true).await;
            refused.is_err_and(|error| error.to_string().contains("used 1884Mi"))
        });
        // Suspended, it takes nothing.
        h.try_app("later", &json!({"executor": {"instances": 50}, "suspend": true}), true).await.unwrap();
        h.end().await;
    });
}

#[test]
fn certificates_rotate_under_load_without_a_failed_request() {
    block_on(async {
        let Some(h) = Hooked::start("hook-rotate", |webhook| webhook.certificates = quick()).await else { return };
        let h = Arc::new(h);
        let (requests, ends) = (Arc::new(AtomicUsize::new(0)), tokio::time::Instant::now() + Duration::from_secs(30));
        let mut load = tokio::task::JoinSet::new();
        for worker in 0..3 {
            let (h, requests) = (h.clone(), requests.clone());
            load.spawn(async move {
                for i in 0.. {
                    if tokio::time::Instant::now() > ends {
                        break;
                    }
                    let name = format!("app-{worker}-{i}");
                    h.try_app(&name, &json!({"suspend": true}), i % 4 != 0).await.unwrap();
                    let status = h.refusal(&bad_image()).await;
                    assert!(
                        status.message.contains("containers[0].image"),
                        "the webhook was not asked: {}",
                        status.message
                    );
                    if i % 4 == 0 {
                        h.f.edit(&name, &json!({"arguments": ["1"]})).await;
                    }
                    requests.fetch_add(2 + usize::from(i % 4 == 0), Ordering::Relaxed);
                }
            });
        }
        // Each connection verifies what is served against what API servers were told before.
        let (mut certificates, mut authorities) = (BTreeSet::new(), BTreeSet::new());
        while tokio::time::Instant::now() < ends {
            let bundle = h.bundle().await;
            certificates.insert(served(h.port, &bundle).await.unwrap());
            authorities.extend(bundle.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while let Some(ended) = load.join_next().await {
            ended.unwrap();
        }
        let requests = requests.load(Ordering::Relaxed);
        eprintln!("{requests} requests, {} certificates, {} authorities", certificates.len(), authorities.len());
        assert!(requests > 300, "{requests}");
        assert!(certificates.len() >= 5, "{} certificates", certificates.len());
        assert!(authorities.len() >= 3, "{} authorities", authorities.len());
        Arc::into_inner(h).unwrap().end().await;
    });
}

#[test]
fn an_operator_that_restarts_serves_what_it_served_before() {
    block_on(async {
        let Some(mut h) = Hooked::start("hook-restart", |_| {}).await else { return };
        let before = h.secrets().get(SECRET).await.unwrap();
        let certificate = served(h.port, &h.bundle().await).await.unwrap();
        h.f.stop_operator();
        until!("stopped", is_refused(h.port).await);
        let failed = h.try_app("meanwhile", &json!({}), true).await.unwrap_err().to_string();
        assert!(failed.contains("failed calling webhook"), "{failed}");
        let operator = start_with(h.f.client.clone(), h.options.clone());
        h.f.run_operator(operator);
        until!("back", h.try_app("again", &json!({}), true).await.is_ok());
        let after = h.secrets().get(SECRET).await.unwrap();
        assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "nothing was issued again");
        assert_eq!(served(h.port, &h.bundle().await).await.unwrap(), certificate);
        assert!(h.refusal(&bad_image()).await.message.contains("containers[0].image"));
        h.end().await;
    });
}

#[test]
fn what_others_do_to_the_webhook_is_mended() {
    block_on(async {
        let Some(h) = Hooked::start("hook-tamper", |_| {}).await else { return };
        let bundle = h.bundle().await;
        let certificate = served(h.port, &bundle).await.unwrap();
        let configurations = h.configurations();
        // A foreign bundle, and another policy.
        let mut found = configurations.get(h.name()).await.unwrap();
        for webhook in found.webhooks.as_mut().unwrap() {
            webhook.client_config.ca_bundle = Some(ByteString(other_authority().into_bytes()));
            webhook.failure_policy = Some("Ignore".to_owned());
        }
        configurations.replace(h.name(), &PostParams::default(), &found).await.unwrap();
        until!("mended", h.bundle().await == bundle);
        let found = configurations.get(h.name()).await.unwrap();
        assert!(found.webhooks.unwrap().iter().all(|webhook| webhook.failure_policy.as_deref() == Some("Fail")));
        configurations.delete(h.name(), &DeleteParams::default()).await.unwrap();
        until!("there again", h.bundle().await == bundle);
        // The Secret comes back with what is served, so nothing is distrusted in between.
        h.secrets().delete(SECRET, &DeleteParams::default()).await.unwrap();
        until!("written again", h.data().await.is_some());
        assert_eq!((h.bundle().await, served(h.port, &bundle).await.unwrap()), (bundle.clone(), certificate.clone()));
        let broken = json!({"stringData": {"server-cert.pem": "nonsense"}});
        h.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();
        let nonsense = ByteString(b"nonsense".to_vec());
        until!("whole again", h.data().await.is_some_and(|data| data["server-cert.pem"] != nonsense));
        assert_eq!(served(h.port, &bundle).await.unwrap(), certificate);
        let note = h.f.event("WebhookCertificateUnusable").await;
        assert!(note.contains(SECRET) && note.contains("it was replaced"), "{note}");
        h.in_force().await;
        h.end().await;
    });
}

#[test]
fn replicas_share_one_certificate() {
    block_on(async {
        let Some(h) = Hooked::start("hook-replicas", |webhook| webhook.certificates = quick()).await else { return };
        let other = free_port();
        let mut options = h.options.clone();
        options.webhook.as_mut().unwrap().listen = Listen::At("127.0.0.1".to_owned(), other);
        let _second = start_with(h.f.client.clone(), options);
        until!("served twice", connect(other, &h.bundle().await).await.is_ok());
        // Over several rotations both serve what the bundle of that moment trusts.
        for _ in 0..60 {
            let bundle = h.bundle().await;
            for port in [h.port, other] {
                served(port, &bundle).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        until!("the same", {
            let bundle = h.bundle().await;
            served(h.port, &bundle).await.unwrap() == served(other, &bundle).await.unwrap()
        });
        h.end().await;
    });
}

fn other_authority() -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// An authority, and a certificate by it with its key, as cert-manager writes them.
fn issued() -> [String; 3] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::from_ca_cert_pem(&authority, key).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap().pem();
    [authority, certificate, key.serialize_pem()]
}

fn write(directory: &std::path::Path, files: &[String; 3]) {
    for (name, text) in ["ca.crt", "tls.crt", "tls.key"].iter().zip(files) {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

#[test]
fn files_of_cert_manager_are_read_again_and_bad_ones_change_nothing() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let first = issued();
        write(directory.path(), &first);
        let files = Certificates::Files {
            directory: directory.path().to_owned(),
            certificate: "tls.crt".to_owned(),
            key: "tls.key".to_owned(),
        };
        let Some(h) = Hooked::start("hook-files", |webhook| webhook.certificates = files).await else { return };
        assert!(h.bundle().await.contains(first[0].trim()));
        let certificate = served(h.port, &first[0]).await.unwrap();
        // A key that belongs to another certificate.
        let second = issued();
        write(directory.path(), &[first[0].clone(), first[1].clone(), second[2].clone()]);
        let note = h.f.event("WebhookCertificateUnusable").await;
        assert!(note.contains("cannot be used together") && note.contains("still served"), "{note}");
        assert_eq!(served(h.port, &first[0]).await.unwrap(), certificate);
        h.in_force().await;
        write(directory.path(), &second);
        until!("renewed", served(h.port, &second[0]).await.is_ok());
        assert!(h.bundle().await.contains(second[0].trim()));
        h.in_force().await;
        assert!(h.data().await.is_none(), "nothing is stored");
        h.end().await;
    });
}

#[test]
fn cert_manager_injects_the_bundle_if_it_is_asked_to() {
    block_on(async {
        let Some(h) = Hooked::prepare("hook-inject", |webhook| {
            webhook.certificates = Certificates::Managed;
            webhook.injected_from = Some("webhook".to_owned());
        })
        .await
        else {
            return;
        };
        let note = h.f.event("WebhookCertificateUnusable").await;
        assert!(note.contains("create a Certificate with secretName"), "{note}");
        let [authority, certificate, key] = issued();
        let secret = json!({"metadata": {"name": SECRET}, "type": "kubernetes.io/tls",
            "stringData": {"ca.crt": authority, "tls.crt": certificate, "tls.key": key}});
        h.secrets().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        until!("configured", h.configurations().get_opt(h.name()).await.unwrap().is_some());
        let mut found = h.configurations().get(h.name()).await.unwrap();
        let annotations = found.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], format!("{}/webhook", h.name()));
        // As its injector does.
        for webhook in found.webhooks.as_mut().unwrap() {
            webhook.client_config.ca_bundle = Some(ByteString(authority.clone().into_bytes()));
        }
        h.configurations().replace(h.name(), &PostParams::default(), &found).await.unwrap();
        // Until then the API server did not trust it, and stored nothing.
        until!("asked", {
            let refused = h.try_app("bad", &bad_image(), true).await;
            refused.is_err_and(|error| error.to_string().contains("containers[0].image"))
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(h.bundle().await, authority, "it is left to cert-manager");
        h.end().await;
    });
}

#[test]
fn what_is_not_a_review_is_answered_with_400() {
    block_on(async {
        let Some(h) = Hooked::start("hook-garbage", |_| {}).await else { return };
        let bundle = h.bundle().await;
        let deep = format!("{{\"request\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let bodies: [&[u8]; 6] =
            [b"", b"{}", b"nonsense", b"{\"request\": {\"uid\": 3}}", b"\xff\xfe", deep.as_bytes()];
        for body in bodies {
            let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            assert_eq!(post(h.port, &bundle, PATH, body).await, 400, "{start}");
        }
        assert_eq!(post(h.port, &bundle, PATH, &vec![b' '; (8 << 20) + 1]).await, 400);
        assert_eq!(post(h.port, &bundle, "/elsewhere", b"{}").await, 404);
        let odd = json!({"request": {"uid": "1", "operation": "CREATE", "namespace": "n", "object": {"spec": [1]}}});
        assert_eq!(post(h.port, &bundle, PATH, odd.to_string().as_bytes()).await, 200, "it is refused as an object");
        h.in_force().await;
        h.end().await;
    });
}

/// A client with the permissions of the role for the webhook, and its forbidden requests.
async fn limited(env: &'static TestEnv, namespace: &str) -> (Client, Forbidden) {
    let client = env.client().await;
    install_role(env).await;
    let user = format!("system:serviceaccount:{namespace}:operator");
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
    for name in ["firesteel-operator", "firesteel-operator-certificates"] {
        let binding = json!({"metadata": {"name": name}, "roleRef": role(name), "subjects": subjects});
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    for name in ["firesteel-operator-definitions", "firesteel-operator-webhook"] {
        let meta = json!({"name": format!("{namespace}-{name}")});
        let binding = json!({"metadata": meta, "roleRef": role(name), "subjects": subjects});
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    }
    let mut config = crate::crash::config(env).await;
    config.auth_info.impersonate = Some(user);
    let forbidden = Forbidden::default();
    (witness::client(config, &forbidden), forbidden)
}

#[test]
fn the_role_has_every_right_that_the_webhook_uses() {
    block_on(async {
        let Some(env) = TestEnv::get() else { return };
        let client = env.client().await;
        install(&client).await;
        let namespace = env.namespace("hook-rights").await;
        let (operator, forbidden) = limited(env, namespace.name()).await;
        // The role names these two objects, so no other test uses them.
        let (options, port) = hooked_options(namespace.name(), |webhook| {
            webhook.configuration = WebhookOptions::default().configuration;
            webhook.certificates = quick();
            webhook.quotas = true;
        });
        let configuration = options.webhook.as_ref().unwrap().configuration.clone();
        let allowed: Api<ValidatingWebhookConfiguration> = Api::all(operator.clone());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while allowed.get_opt(&configuration).await.is_err() {
            assert!(tokio::time::Instant::now() < deadline, "the binding has no effect");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        forbidden.clear();
        let guard: DropGuard = start_with(operator, options.clone());
        let h = Hooked { f: Fixture::around(namespace, client.clone(), guard), options, port };
        let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), h.name());
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
        h.in_force().await;
        assert!(h.refusal(&json!({"executor": {"instances": 9}})).await.message.contains("pods needed 10"));
        h.f.create("pi", &json!({})).await;
        h.f.edit("pi", &json!({"arguments": ["1"]})).await;
        let first = h.data().await;
        until!("renewed", h.data().await != first);
        h.f.event("WebhookCertificateRenewed").await;
        assert_eq!(forbidden.requests(), [""; 0]);
        h.end().await;
    });
}
