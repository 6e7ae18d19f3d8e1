//! Resolves image references on this machine. Pure; [`crate::runtime`] does the provisioning.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where the files of an image come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A directory that the user has mapped to this reference.
    Mapped(PathBuf),
    /// This machine's programs, for `firesteel/host` and `busybox`.
    Host,
    /// This version of Spark, from the PySpark package.
    Spark { version: String },
}

/// Why a reference cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("couldn't parse image name \"{0}\": invalid reference format{hint}", hint = lower_case_hint(.0))]
    Invalid(String),
    #[error(
        "image \"{0}\" is not known on this machine; register a directory for it with: firesteel local image add {0} DIR"
    )]
    Unknown(String),
    #[error("image \"{0}\" has no Spark version in its tag; use one such as apache/spark:4.1.4")]
    NoVersion(String),
}

/// The hint a kubelet adds when only the letter case is wrong.
fn lower_case_hint(reference: &str) -> String {
    let lower = reference.to_lowercase();
    match (Reference::parse(&lower), Reference::parse(reference)) {
        (Some(_), None) => {
            let name = Reference::split(reference).0;
            let name = if name.contains('/') { name.to_owned() } else { format!("library/{name}") };
            format!(": repository name ({name}) must be lowercase")
        }
        _ => String::new(),
    }
}

/// A parsed reference, with Docker's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    repository: String,
    tag: String,
}

impl Reference {
    /// Name and tag.
    fn split(text: &str) -> (&str, &str) {
        let without_digest = text.split('@').next().unwrap_or_default();
        match without_digest.rsplit_once(':') {
            // A colon before a slash belongs to a registry port.
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (without_digest, "latest"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, tag) = Self::split(text.trim());
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/:".contains(c);
        if name.is_empty() || tag.is_empty() || !name.chars().all(legal) || name.starts_with('/') || name.ends_with('/')
        {
            return None;
        }
        let name = name.strip_prefix("docker.io/").or_else(|| name.strip_prefix("index.docker.io/")).unwrap_or(name);
        let name = name.strip_prefix("library/").unwrap_or(name);
        Some(Self { repository: name.to_owned(), tag: tag.to_owned() })
    }
}

/// Resolves a reference. The user's mappings come first, so that any name can be mapped.
pub(crate) fn resolve(reference: &str, mappings: &BTreeMap<String, PathBuf>) -> Result<Source, ImageError> {
    if let Some(dir) = mappings.get(reference) {
        return Ok(Source::Mapped(dir.clone()));
    }
    let parsed = Reference::parse(reference).ok_or_else(|| ImageError::Invalid(reference.to_owned()))?;
    let same = |key: &String| Reference::parse(key).as_ref() == Some(&parsed);
    if let Some((_, dir)) = mappings.iter().find(|(key, _)| same(key)) {
        return Ok(Source::Mapped(dir.clone()));
    }
    match parsed.repository.as_str() {
        "firesteel/host" | "busybox" => Ok(Source::Host),
        "apache/spark" | "apache/spark-py" | "spark" | "firesteel/spark" => spark_version(&parsed.tag)
            .map(|version| Source::Spark { version })
            .ok_or_else(|| ImageError::NoVersion(reference.to_owned())),
        _ => Err(ImageError::Unknown(reference.to_owned())),
    }
}

/// `4.1.4-scala2.13-java17-python3-ubuntu` → `4.1.4`; previews keep the package's spelling (`4.2.0.dev1`).
fn spark_version(tag: &str) -> Option<String> {
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    let (version, rest) = tag.split_once('-').unwrap_or((tag, ""));
    let numbers: Vec<&str> = version.split('.').collect();
    let numeric = numbers.len() == 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let first = rest.split('-').next().unwrap_or_default();
    match first.strip_prefix("preview") {
        Some(number) if numeric => Some(format!("{version}.dev{}", if number.is_empty() { "1" } else { number })),
        _ => numeric.then(|| version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spark(version: &str) -> Result<Source, ImageError> {
        Ok(Source::Spark { version: version.to_owned() })
    }

    #[test]
    fn the_names_of_stock_images_mean_a_version_of_spark() {
        let none = BTreeMap::new();
        assert_eq!(resolve("apache/spark:4.1.4", &none), spark("4.1.4"));
        assert_eq!(resolve("spark:3.5.9-scala2.12-java17-python3-ubuntu", &none), spark("3.5.9"));
        assert_eq!(resolve("docker.io/library/spark:4.0.1-python3", &none), spark("4.0.1"));
        assert_eq!(resolve("docker.io/apache/spark:v4.1.4", &none), spark("4.1.4"));
        assert_eq!(resolve("apache/spark:4.2.0-preview3-python3", &none), spark("4.2.0.dev3"));
        assert_eq!(resolve("busybox:1.36", &none), Ok(Source::Host));
    }

    #[test]
    fn an_unknown_image_says_how_to_map_it() {
        let error = resolve("registry.local:5000/team/app:1", &BTreeMap::new()).expect_err("unknown");
        assert!(error.to_string().ends_with("firesteel local image add registry.local:5000/team/app:1 DIR"), "{error}");
        assert_eq!(resolve("apache/spark", &BTreeMap::new()), Err(ImageError::NoVersion("apache/spark".to_owned())));
        assert_eq!(resolve("Not A Name", &BTreeMap::new()), Err(ImageError::Invalid("Not A Name".to_owned())));
    }

    #[test]
    fn a_name_that_is_none_is_said_with_the_words_of_a_kubelet() {
        let said = |name: &str| resolve(name, &BTreeMap::new()).expect_err("invalid").to_string();
        assert_eq!(said("no such name"), "couldn't parse image name \"no such name\": invalid reference format");
        let hint = "couldn't parse image name \"team/App:1\": invalid reference format: repository name (team/App) must be lowercase";
        assert_eq!(said("team/App:1"), hint);
        assert!(said("App").ends_with("repository name (library/App) must be lowercase"));
    }

    #[test]
    fn a_mapping_wins_however_the_name_is_spelled() {
        let mappings = BTreeMap::from([("docker.io/apache/spark:4.1.4".to_owned(), PathBuf::from("/x"))]);
        assert_eq!(resolve("apache/spark:4.1.4", &mappings), Ok(Source::Mapped(PathBuf::from("/x"))));
    }
}
