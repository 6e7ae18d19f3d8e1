//! Master URLs: `k8s://`, with `https` unless `http` is given.

/// Why Firesteel cannot submit to a master.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MasterError {
    #[error("master `{0}` is not Kubernetes: it does not start with k8s://; write --master k8s://https://HOST:PORT")]
    NotKubernetes(String),
    #[error(
        "master `{0}`: the API server is reached over https or http, not `{1}`; write --master k8s://https://HOST:PORT"
    )]
    Scheme(String, String),
    #[error("master `{0}` is not a valid address ({1}); write --master k8s://https://HOST:PORT")]
    Malformed(String, String),
}

const PREFIX: &str = "k8s://";

/// The master as Spark passes it on (`https://` is added if there is no scheme), and a warning if it is plain http.
pub(super) fn check(raw: &str) -> Result<(String, Option<String>), MasterError> {
    let inner = raw.strip_prefix(PREFIX).ok_or_else(|| MasterError::NotKubernetes(raw.to_owned()))?;
    let url = if inner.contains("://") { inner.to_owned() } else { format!("https://{inner}") };
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let warning = match scheme.as_str() {
        "https" => None,
        "http" => Some(format!("master {raw} uses http: credentials and configuration travel unencrypted")),
        _ => return Err(MasterError::Scheme(raw.to_owned(), scheme)),
    };
    let malformed = |why: String| MasterError::Malformed(raw.to_owned(), why);
    let parsed = url::Url::parse(&url).map_err(|e| malformed(e.to_string()))?;
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err(malformed("no host".to_owned()));
    }
    // The URL parser trims white space and control characters; Spark refuses them.
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(malformed("white space in it".to_owned()));
    }
    Ok((format!("{PREFIX}{url}"), warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_the_default_and_the_rest_is_kept_as_written() {
        for (raw, master) in [
            ("k8s://https://h:6443", "k8s://https://h:6443"),
            ("k8s://127.0.0.1:6443", "k8s://https://127.0.0.1:6443"),
            ("k8s://HTTPS://Host/path", "k8s://HTTPS://Host/path"),
            ("k8s://[::1]:6443", "k8s://https://[::1]:6443"),
            ("k8s://https://kubernetes.default.svc", "k8s://https://kubernetes.default.svc"),
        ] {
            assert_eq!(check(raw), Ok((master.to_owned(), None)), "{raw}");
        }
    }

    #[test]
    fn http_is_allowed_with_a_warning() {
        let (master, warning) = check("k8s://http://h:8080").unwrap();
        assert_eq!(master, "k8s://http://h:8080");
        assert!(warning.unwrap().contains("http"));
    }

    #[test]
    fn other_masters_are_refused_with_the_right_form() {
        for raw in [
            "kubernetes://h:1",
            "yarn",
            "local[2]",
            "spark://h:7077",
            "k8s:/h",
            "k8s://ftp://h",
            "k8s://https://not a host",
            "k8s://",
            "k8s://https://",
            "k8s://https:// h",
            "k8s://h:port",
        ] {
            let message = check(raw).unwrap_err().to_string();
            assert!(message.contains("k8s://https://HOST:PORT") && message.contains(raw), "{message}");
        }
    }
}
