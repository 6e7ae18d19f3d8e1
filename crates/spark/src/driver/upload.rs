//! Local dependencies: which ones have to be shipped, and the URIs they will have then.

use super::{Draft, PlanError, Upload};
use crate::names::{NO_RESOURCE, key};

/// Whether a URI names a file of the submitter: no scheme, or `file:`.
pub(super) fn is_local(uri: &str) -> bool {
    uri != NO_RESOURCE && scheme(uri).is_none_or(|scheme| scheme == "file")
}

fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let mut letters = scheme.chars();
    let valid = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    valid.then_some(scheme)
}

/// Replaces local entries of jars, files, archives and Python files by where they will be uploaded to.
pub(super) fn dependencies(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    for key in [key::JARS, key::FILES, key::ARCHIVES, key::PY_FILES] {
        let (local, remote): (Vec<&str>, Vec<&str>) = draft.conf.list(key).into_iter().partition(|uri| is_local(uri));
        if local.is_empty() {
            continue;
        }
        let mut uris = Vec::with_capacity(local.len() + remote.len());
        for uri in local {
            let (file, fragment) = match uri.split_once('#') {
                Some((file, fragment)) => (file, Some(fragment)),
                None => (uri, None),
            };
            let target = one(draft, key, file)?;
            uris.push(match fragment {
                Some(fragment) if key == key::ARCHIVES => format!("{target}#{fragment}"),
                _ => target,
            });
        }
        uris.extend(remote.into_iter().map(str::to_owned));
        draft.set_property(key, uris.join(","));
    }
    Ok(())
}

/// Plans the upload of one local file and gives its URI. `origin` is the setting that names it.
pub(super) fn one(draft: &mut Draft<'_>, origin: &str, uri: &str) -> Result<String, PlanError> {
    let base = draft.conf.get(key::UPLOAD_PATH).ok_or_else(|| PlanError::Missing {
        key: key::UPLOAD_PATH.to_owned(),
        remedy: format!(
            "{origin} names the local file {uri}: give a place to upload it to (s3a://, gs://, abfss:// or a shared \
             file:// path), or use a local:// path inside the image"
        ),
    })?;
    let from = crate::surroundings::local_path(uri);
    let name = from.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let to = format!("{base}/spark-upload-{}/{name}", draft.around.ids.upload(draft.uploads.len()));
    draft.uploads.push(Upload { from, to: to.clone() });
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_submitter_are_local() {
        for uri in ["/a/b.jar", "b.jar", "file:/a", "file:///a", "/a:b"] {
            assert!(is_local(uri), "{uri}");
        }
        for uri in ["local:///a", "s3a://b/c", "https://h/x.jar", "spark-internal"] {
            assert!(!is_local(uri), "{uri}");
        }
    }
}
