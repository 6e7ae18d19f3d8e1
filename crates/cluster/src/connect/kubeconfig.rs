//! Credentials: from a kubeconfig, else from the pod's service account, overridden by explicit settings.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context as _;
use base64::Engine as _;
use kube::config::{AuthInfo, Cluster, ExecAuthCluster, Kubeconfig};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use crate::connect::Access;
use crate::connect::BadAccess;

/// Where a pod finds the credentials of its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The cluster and the credentials found; empty where none were.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) cluster: Cluster,
    pub(super) auth: AuthInfo,
    pub(super) namespace: Option<String>,
}

/// Reads the kubeconfig or, if there is none, the pod's service account, then applies the explicit settings.
pub(super) fn find(access: &Access) -> anyhow::Result<Found> {
    let mut found = match read(access)? {
        Some(kubeconfig) => select(&kubeconfig, access)?,
        None => {
            if let Some(context) = &access.context {
                return Err(BadAccess(format!(
                    "context {context} needs a kubeconfig, but there is none: set KUBECONFIG, or remove spark.kubernetes.context"
                ))
                .into());
            }
            in_cluster().unwrap_or_default()
        }
    };
    lay_over(&mut found.auth, access)?;
    Ok(found)
}

/// The kubeconfig, merged from all files in `KUBECONFIG` as kubectl does. A missing kubeconfig is not an error: credentials
/// may come from elsewhere, and a server behind `kubectl proxy` needs none.
fn read(access: &Access) -> anyhow::Result<Option<Kubeconfig>> {
    let paths: Vec<PathBuf> = match (&access.kubeconfig, std::env::var_os("KUBECONFIG")) {
        (Some(path), _) => {
            if !path.exists() {
                return Err(BadAccess(format!("there is no kubeconfig {}", path.display())).into());
            }
            vec![path.clone()]
        }
        (None, Some(list)) if !list.is_empty() => {
            std::env::split_paths(&list).filter(|p| !p.as_os_str().is_empty()).collect()
        }
        (None, _) => std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
    };
    let mut merged: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| path.exists()) {
        let text = || format!("cannot read the kubeconfig {}", path.display());
        let one = Kubeconfig::read_from(path).with_context(text)?;
        merged = Some(match merged {
            Some(first) => first.merge(one).with_context(text)?,
            None => one,
        });
    }
    Ok(merged.filter(|kubeconfig| !kubeconfig.contexts.is_empty()))
}

/// The cluster and user of the requested or current context; empty if there is neither.
fn select(kubeconfig: &Kubeconfig, access: &Access) -> anyhow::Result<Found> {
    let Some(name) = access.context.as_ref().or(kubeconfig.current_context.as_ref()).filter(|name| !name.is_empty())
    else {
        return Ok(Found::default());
    };
    let known = || kubeconfig.contexts.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ");
    let context = kubeconfig
        .contexts
        .iter()
        .find(|named| &named.name == name)
        .and_then(|named| named.context.clone())
        .ok_or_else(|| BadAccess(format!("the kubeconfig has no context {name}; it has: {}", known())))?;
    let cluster =
        kubeconfig.clusters.iter().find(|named| named.name == context.cluster).and_then(|named| named.cluster.clone());
    if cluster.is_none() && access.master.is_none() {
        return Err(BadAccess(format!(
            "context {name} of the kubeconfig refers to cluster {}, which the kubeconfig does not define",
            context.cluster
        ))
        .into());
    }
    let cluster = cluster.unwrap_or_default();
    let user = context.user.as_ref().and_then(|user| kubeconfig.auth_infos.iter().find(|named| &named.name == user));
    let mut auth = user.and_then(|named| named.auth_info.clone()).unwrap_or_default();
    if let Some(exec) = auth.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(ExecAuthCluster::try_from(&cluster)?);
    }
    Ok(Found { cluster, auth, namespace: context.namespace })
}

/// The service account of this pod.
fn in_cluster() -> Option<Found> {
    let base = Path::new(SERVICE_ACCOUNT);
    let token = base.join("token");
    token.exists().then(|| {
        let address = |host: String| {
            let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
            if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
        };
        let authority = base.join("ca.crt");
        Found {
            cluster: Cluster {
                server: std::env::var("KUBERNETES_SERVICE_HOST").ok().map(address),
                certificate_authority: authority.exists().then(|| authority.display().to_string()),
                ..Cluster::default()
            },
            auth: AuthInfo { token_file: Some(token.display().to_string()), ..AuthInfo::default() },
            namespace: fs::read_to_string(base.join("namespace")).ok().map(|text| text.trim().to_owned()),
        }
    })
}

/// Explicit credentials replace those found; impersonation settings stay.
fn lay_over(auth: &mut AuthInfo, access: &Access) -> anyhow::Result<()> {
    let token = match (&access.oauth_token, &access.oauth_token_file) {
        (Some(_), Some(_)) => {
            return Err(BadAccess(
                "spark.kubernetes.authenticate.submission.oauthToken and …oauthTokenFile are both set; keep one of them".to_owned(),
            )
            .into());
        }
        (Some(token), None) => Some(token.clone()),
        (None, Some(path)) => Some(text_of("spark.kubernetes.authenticate.submission.oauthTokenFile", path)?),
        (None, None) => None,
    };
    let (key, cert) = (access.client_key_file.clone(), access.client_cert_file.clone());
    if token.is_none() && key.is_none() && cert.is_none() {
        return Ok(());
    }
    for (name, path) in [("clientKeyFile", &key), ("clientCertFile", &cert)] {
        if let Some(path) = path {
            text_of(&format!("spark.kubernetes.authenticate.submission.{name}"), path)?;
        }
    }
    let pair = AuthInfo {
        client_key: key.or_else(|| auth.client_key.clone()),
        client_certificate: cert.or_else(|| auth.client_certificate.clone()),
        ..AuthInfo::default()
    };
    let explicit_pair = access.client_key_file.is_some() || access.client_cert_file.is_some();
    *auth = AuthInfo {
        token: token.map(Into::into),
        impersonate: auth.impersonate.take(),
        impersonate_uid: auth.impersonate_uid.take(),
        impersonate_groups: auth.impersonate_groups.take(),
        impersonate_user_extra: auth.impersonate_user_extra.take(),
        ..if explicit_pair { pair } else { AuthInfo::default() }
    };
    if explicit_pair && (auth.client_key.is_none() || auth.client_certificate.is_none()) {
        return Err(BadAccess(
            "spark.kubernetes.authenticate.submission.clientKeyFile and …clientCertFile belong together; set both"
                .to_owned(),
        )
        .into());
    }
    Ok(())
}

/// The CA certificates to trust, as DER: the explicit file, else the kubeconfig's. `None` means the system's.
pub(super) fn authorities(access: &Access, cluster: &Cluster) -> anyhow::Result<Option<Vec<Vec<u8>>>> {
    let (origin, pem) = if let Some(path) = &access.ca_cert_file {
        let key = "spark.kubernetes.authenticate.submission.caCertFile";
        (format!("{key}={path}"), text_of(key, path)?.into_bytes())
    } else if let Some(data) = &cluster.certificate_authority_data {
        let origin = "certificate-authority-data of the kubeconfig".to_owned();
        let pem = base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .with_context(|| format!("{origin} is not base64"))?;
        (origin, pem)
    } else if let Some(path) = &cluster.certificate_authority {
        (path.clone(), fs::read(path).with_context(|| format!("cannot read the certificate authority {path}"))?)
    } else {
        return Ok(None);
    };
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(Some(found)),
        _ => Err(BadAccess(format!("{origin} contains no PEM certificate")).into()),
    }
}

fn text_of(key: &str, path: &str) -> anyhow::Result<String> {
    let path = path.strip_prefix("file://").or_else(|| path.strip_prefix("file:")).unwrap_or(path);
    fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|error| {
        let reason = if error.kind() == io::ErrorKind::NotFound {
            "there is no such file".to_owned()
        } else {
            error.to_string()
        };
        BadAccess(format!("{key}={path}: {reason}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CONTEXTS: &str = "
current-context: a
contexts:
- {name: a, context: {cluster: one, user: me, namespace: spark}}
- {name: b, context: {cluster: two, user: you}}
clusters:
- {name: one, cluster: {server: 'https://one:6443'}}
- {name: two, cluster: {server: 'https://two:6443'}}
users:
- {name: me, user: {token: mine}}
- {name: you, user: {client-certificate: /c, client-key: /k, as: someone}}
";

    fn kubeconfig() -> Kubeconfig {
        Kubeconfig::from_yaml(TWO_CONTEXTS).expect("valid")
    }

    #[test]
    fn current_context_is_taken_unless_another_is_named() {
        let found = select(&kubeconfig(), &Access::default()).expect("found");
        assert_eq!(
            (found.cluster.server.as_deref(), found.namespace.as_deref()),
            (Some("https://one:6443"), Some("spark"))
        );
        let access = Access { context: Some("b".to_owned()), ..Access::default() };
        assert_eq!(select(&kubeconfig(), &access).expect("found").cluster.server.as_deref(), Some("https://two:6443"));
    }

    #[test]
    fn unknown_context_is_named_with_the_known_ones() {
        let access = Access { context: Some("c".to_owned()), ..Access::default() };
        let error = select(&kubeconfig(), &access).expect_err("unknown");
        assert_eq!(error.to_string(), "the kubeconfig has no context c; it has: a, b");
    }

    #[test]
    fn explicit_token_replaces_the_certificate_but_not_the_impersonation() {
        let access = Access { context: Some("b".to_owned()), oauth_token: Some("t".to_owned()), ..Access::default() };
        let mut found = select(&kubeconfig(), &access).expect("found");
        lay_over(&mut found.auth, &access).expect("laid over");
        assert!(found.auth.token.is_some() && found.auth.client_certificate.is_none());
        assert_eq!(found.auth.impersonate.as_deref(), Some("someone"));
    }

    #[test]
    fn token_and_token_file_exclude_each_other() {
        let access =
            Access { oauth_token: Some("t".to_owned()), oauth_token_file: Some("/f".to_owned()), ..Access::default() };
        let error = lay_over(&mut AuthInfo::default(), &access).expect_err("both");
        assert!(error.to_string().contains("keep one of them"), "{error}");
    }
}
