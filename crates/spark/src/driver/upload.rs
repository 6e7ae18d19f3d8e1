//! Local dependencies: which ones to upload, and their URIs after that.

use super::{Draft, PlanError, Upload};
use crate::input::Input;
use crate::names::{NO_RESOURCE, key};
use crate::submission::MainResource;

/// Whether a URI names a file on the submitting side: no scheme, or `file:`.
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

/// Replaces local jars, files, archives and Python files by their upload targets.
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
            // The application's jar is in the list too.
            let is_main = matches!(&draft.submission.main, MainResource::Jar(jar) if jar == uri);
            let input = if is_main && key == key::JARS { Input::Application } else { Input::key(key) };
            let target = one(draft, &input, file)?;
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

/// Plans the upload of one local file and returns its target URI. `input` is the setting that names the file.
pub(super) fn one(draft: &mut Draft<'_>, input: &Input, uri: &str) -> Result<String, PlanError> {
    let no_place = || PlanError::NoUploadPath { input: input.clone(), uri: uri.to_owned() };
    let base = draft.conf.get(key::UPLOAD_PATH).ok_or_else(no_place)?;
    let from = crate::context::local_path(uri);
    let name = from.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let to = format!("{base}/spark-upload-{}/{name}", draft.context.ids.upload(draft.uploads.len()));
    draft.uploads.push(Upload { from, to: to.clone(), input: input.clone() });
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
