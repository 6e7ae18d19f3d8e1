//! The Spark version that a plan is for.
//!
//! Behaviour depends on the feature line (3.5, 4.0, …); labels and `{{SPARK_VERSION}}` use the full version. If the
//! version is unknown, the plan is for an assumed line and has no version label.

use std::fmt;
use std::str::FromStr;

/// A line of Spark releases that behave alike on Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Line {
    V3_5,
    V4_0,
    V4_1,
    V4_2,
    V4_3,
}

impl Line {
    /// Every line Firesteel supports, oldest first.
    pub const ALL: [Line; 5] = [Line::V3_5, Line::V4_0, Line::V4_1, Line::V4_2, Line::V4_3];

    /// The newest line; later releases of Spark are treated as this line.
    pub const NEWEST: Line = Line::V4_3;

    /// `"4.1"` and so on.
    pub fn name(self) -> &'static str {
        match self {
            Line::V3_5 => "3.5",
            Line::V4_0 => "4.0",
            Line::V4_1 => "4.1",
            Line::V4_2 => "4.2",
            Line::V4_3 => "4.3",
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A full Spark version, such as `4.1.4`, and the line whose behaviour it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparkVersion {
    line: Line,
    text: String,
    assumed: bool,
}

/// The major version of the newest line.
const LAST_MAJOR: u32 = 4;

/// Why Firesteel cannot plan for a Spark version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("`{0}` is not a Spark version; write it as 4.1.4 or 4.1")]
    Malformed(String),
    #[error("Spark {0} is older than 3.5, the oldest version Firesteel supports")]
    TooOld(String),
}

impl SparkVersion {
    /// The newest version Firesteel supports.
    pub fn newest() -> Self {
        SparkVersion { line: Line::NEWEST, text: "4.3.0".to_owned(), assumed: false }
    }

    /// An unknown version that is assumed to be of this line.
    pub fn assumed(line: Line) -> Self {
        SparkVersion { line, text: line.name().to_owned(), assumed: true }
    }

    /// The version in an image's tag: `apache/spark:4.1.4-scala2.13-java17` is 4.1.4. Tags too new to be a Spark version, such
    /// as dates (2026.01) or 5.0 on an image not named Spark, are not versions of Spark.
    pub fn from_image(image: &str) -> Option<Self> {
        let (name, number) = name_and_number(image)?;
        let major = number.split('.').next()?.parse::<u32>().ok()?;
        let last = if name.contains("spark") { LAST_MAJOR + 1 } else { LAST_MAJOR };
        number.parse().ok().filter(|_| major <= last)
    }

    /// The version in a Spark image's tag, if it is older than Firesteel supports.
    pub fn too_old_in(image: &str) -> Option<&str> {
        let (name, number) = name_and_number(image)?;
        let old = matches!(number.parse::<SparkVersion>(), Err(VersionError::TooOld(_)));
        Some(number).filter(|number| old && name.contains("spark") && number.starts_with(['2', '3']))
    }

    /// The version in the first line of a Spark distribution's RELEASE file: `Spark 4.1.4 (git revision …`.
    pub fn from_release(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        words.next().filter(|word| *word == "Spark")?;
        words.next()?.parse().ok()
    }

    /// The version in the name of Spark's core jar: `spark-core_2.13-4.1.4.jar`.
    pub fn from_core_jar(name: &str) -> Option<Self> {
        let (_, version) = name.strip_prefix("spark-core_")?.strip_suffix(".jar")?.split_once('-')?;
        version.parse().ok()
    }

    /// Whether the version is assumed.
    pub fn is_assumed(&self) -> bool {
        self.assumed
    }

    pub fn line(&self) -> Line {
        self.line
    }

    /// The full version, as used in labels.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The last part of an image's name, and the number that its tag begins with.
fn name_and_number(image: &str) -> Option<(&str, &str)> {
    let (name, tag) = image.split('@').next()?.rsplit('/').next()?.split_once(':')?;
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    Some((name, tag.split(['-', '_']).next()?))
}

impl fmt::Display for SparkVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for SparkVersion {
    type Err = VersionError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let malformed = || VersionError::Malformed(s.to_owned());
        let numeric = s.split(['-', '_']).next().unwrap_or(s);
        let mut parts = numeric.split('.').map(str::parse::<u32>);
        let major = parts.next().ok_or_else(malformed)?.map_err(|_| malformed())?;
        let minor = parts.next().ok_or_else(malformed)?.map_err(|_| malformed())?;
        if parts.any(|p| p.is_err()) || numeric.split('.').count() > 3 {
            return Err(malformed());
        }
        let line = match (major, minor) {
            (3, 5) => Line::V3_5,
            (0..=3, _) => return Err(VersionError::TooOld(s.to_owned())),
            (4, 0) => Line::V4_0,
            (4, 1) => Line::V4_1,
            (4, 2) => Line::V4_2,
            // Newer versions are treated as the newest known line.
            (4.., _) => Line::NEWEST,
        };
        Ok(SparkVersion { line, text: s.to_owned(), assumed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_tags_tell_their_version() {
        let version = |image| SparkVersion::from_image(image).map(|v| v.to_string());
        assert_eq!(version("apache/spark:4.1.4").as_deref(), Some("4.1.4"));
        assert_eq!(version("docker.io/apache/spark:3.5.9-scala2.12-java17-ubuntu").as_deref(), Some("3.5.9"));
        assert_eq!(version("host:5000/spark:v4.0.1").as_deref(), Some("4.0.1"));
        assert_eq!(version("host:5000/spark"), None);
        assert_eq!(version("spark:latest"), None);
        assert_eq!(version("spark:20260101"), None);
        assert_eq!(version("spark:2026.01.15"), None);
        assert_eq!(version("apache/spark:5.0.0").as_deref(), Some("5.0.0"));
        assert_eq!(version("team/etl:5.0.0"), None);
        assert_eq!(version("team/etl:1.2.3"), None);
        assert_eq!(version("team/etl:3.5.9-r7").as_deref(), Some("3.5.9"));
        assert_eq!(version("apache/spark:3.4.1-java17"), None);
        assert_eq!(SparkVersion::too_old_in("apache/spark:3.4.1-java17"), Some("3.4.1"));
        assert_eq!(SparkVersion::too_old_in("apache/spark:3.5.1"), None);
        assert_eq!(SparkVersion::too_old_in("team/etl:3.4.1"), None);
        assert_eq!(version("spark:4.1.4@sha256:abc").as_deref(), Some("4.1.4"));
    }

    #[test]
    fn a_distribution_tells_its_version_in_a_file_and_in_the_name_of_a_jar() {
        let text = |version: Option<SparkVersion>| version.map(|v| v.to_string());
        let release = "Spark 4.1.4 (git revision 29434ea766b) built for Hadoop 3.4.2\nBuild flags: -Pkubernetes\n";
        assert_eq!(text(SparkVersion::from_release(release)).as_deref(), Some("4.1.4"));
        assert_eq!(text(SparkVersion::from_release("Hadoop 3.4.2")), None);
        assert_eq!(text(SparkVersion::from_core_jar("spark-core_2.12-3.5.9.jar")).as_deref(), Some("3.5.9"));
        let snapshot = "spark-core_2.13-4.2.0-SNAPSHOT.jar";
        assert_eq!(text(SparkVersion::from_core_jar(snapshot)).as_deref(), Some("4.2.0-SNAPSHOT"));
        assert_eq!(text(SparkVersion::from_core_jar("spark-sql_2.13-4.1.4.jar")), None);
    }

    #[test]
    fn lines_follow_the_first_two_numbers() {
        assert_eq!("3.5.9".parse::<SparkVersion>().unwrap().line(), Line::V3_5);
        assert_eq!("4.2".parse::<SparkVersion>().unwrap().line(), Line::V4_2);
        assert_eq!("4.9.0".parse::<SparkVersion>().unwrap().line(), Line::V4_3);
        assert_eq!("3.4.1".parse::<SparkVersion>(), Err(VersionError::TooOld("3.4.1".into())));
        assert!("four".parse::<SparkVersion>().is_err());
    }
}
