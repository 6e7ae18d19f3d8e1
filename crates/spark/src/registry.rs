//! Known Spark settings: type, default and the versions they exist in. Used to warn, never to refuse.
//!
//! The table holds every setting of Spark's core and Kubernetes modules, taken from the jars of one release of each
//! line (`crates/spark/registry/collect.py`). Users invent keys under `spark.`, but not under `spark.kubernetes.`, so
//! only there is every unknown key reported; elsewhere only a likely misspelling of a known key is.

mod spelling;
mod table;

use std::fmt;

use crate::pod::volumes::ON_DEMAND;
use crate::submission::SparkConf;
use crate::value;
use crate::version::{Line, SparkVersion};

pub(crate) use spelling::nearest;
pub use table::{Default, Setting, ValueKind, all, find};
use table::{FAMILIES, FOREIGN, VOLUME_FAMILIES, VOLUME_OPTIONS, VOLUMES};

const KUBERNETES: &str = "spark.kubernetes.";

/// A setting that is probably a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// No version of Spark has the key.
    Unknown { key: String, suggestion: Option<String> },
    /// The user's own key, or a known one misspelt.
    Misspelt { key: String, suggestion: String },
    /// This version does not have the key yet.
    NotYet { key: String, version: String, since: Line },
    /// This version no longer has the key.
    NoLonger { key: String, version: String, last: Line },
    /// The driver will refuse the value.
    Value { key: String, problem: String },
    /// An on-demand claim lacks settings that Spark needs to create it.
    NoClaim { key: String, missing: Vec<String> },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Unknown { key, suggestion: Some(suggestion) } => {
                write!(f, "Spark has no setting {key}; did you mean {suggestion}?")
            }
            Warning::Unknown { key, suggestion: None } => write!(f, "Spark has no setting {key}: it will be ignored"),
            Warning::Misspelt { key, suggestion } => write!(f, "{key}: did you mean {suggestion}?"),
            Warning::NotYet { key, version, since } => {
                write!(f, "Spark {version} does not have {key}, which was added in {since}: it will be ignored")
            }
            Warning::NoLonger { key, version, last } => {
                write!(f, "Spark {version} no longer has {key} (removed after {last}): it will be ignored")
            }
            Warning::Value { key, problem } => write!(f, "{key}: {problem}"),
            Warning::NoClaim { key, missing } => {
                let are = if missing.len() == 1 { "is" } else { "are" };
                write!(
                    f,
                    "{key} asks for an on-demand claim, which Spark creates only if {} {are} also set: pods will wait for a \
                     claim that is never created",
                    missing.join(" and ")
                )
            }
        }
    }
}

/// Warnings about settings that this version of Spark does not have, or whose values it will not accept.
pub fn check(conf: &SparkConf, version: &SparkVersion) -> Vec<Warning> {
    let each = conf.iter().filter_map(|(key, value)| check_one(key, value, version));
    each.chain(claims(conf)).collect()
}

/// The oldest line that has all settings of a configuration and accepts their values.
pub fn oldest(conf: &SparkConf) -> Line {
    conf.iter().map(|(key, value)| oldest_for(key, value)).max().unwrap_or(Line::V3_5)
}

fn oldest_for(key: &str, text: &str) -> Line {
    if let Some(Setting { kind, since, .. }) = find(key) {
        let takes =
            |line: &Line| line >= since && (*kind != ValueKind::Bytes || value::check_suffix(text, *line).is_ok());
        return Line::ALL.into_iter().find(takes).unwrap_or(*since);
    }
    let volume = VOLUMES.iter().find_map(|prefix| key.strip_prefix(prefix));
    volume.and_then(volume_option).map_or(Line::V3_5, |(_, since)| since)
}

/// On-demand claims that Spark will not create.
fn claims(conf: &SparkConf) -> impl Iterator<Item = Warning> {
    conf.iter().filter(|(_, name)| name.contains(ON_DEMAND)).filter_map(|(key, _)| {
        let stem = key.strip_suffix("claimName").filter(|stem| stem.ends_with(".options."))?;
        VOLUMES.iter().find(|volumes| key.starts_with(&format!("{volumes}persistentVolumeClaim.")))?;
        let needed = ["storageClass", "sizeLimit"].map(|option| format!("{stem}{option}"));
        let missing: Vec<String> = needed.into_iter().filter(|needed| !conf.contains_key(needed)).collect();
        (!missing.is_empty()).then(|| Warning::NoClaim { key: key.clone(), missing })
    })
}

fn check_one(key: &str, value: &str, version: &SparkVersion) -> Option<Warning> {
    if let Some(setting) = find(key) {
        let named = |line| (key.to_owned(), version.to_string(), line);
        if !key.starts_with(KUBERNETES) || setting.exists_in(version.line()) {
            return check_value(setting, value, version.line());
        }
        return Some(match setting.until {
            Some(last) if last < version.line() => {
                let (key, version, last) = named(last);
                Warning::NoLonger { key, version, last }
            }
            _ => {
                let (key, version, since) = named(setting.since);
                Warning::NotYet { key, version, since }
            }
        });
    }
    if let Some(rest) = VOLUMES.iter().find_map(|prefix| key.strip_prefix(prefix)) {
        return check_volume(key, rest, version);
    }
    if FAMILIES.iter().any(|family| key.starts_with(family)) {
        return None;
    }
    if key.starts_with(KUBERNETES) {
        return Some(Warning::Unknown { key: key.to_owned(), suggestion: suggest(key) });
    }
    misspelt(key).map(|suggestion| Warning::Misspelt { key: key.to_owned(), suggestion: suggestion.to_owned() })
}

fn check_value(setting: &Setting, text: &str, line: Line) -> Option<Warning> {
    // Spark expands references when it reads a setting; their values are not known here.
    if text.contains("${") {
        return None;
    }
    let problem = match setting.kind {
        ValueKind::Boolean => value::boolean(text).err().map(|e| e.to_string()),
        ValueKind::Int => value::int(text).err().map(|e| e.to_string()),
        ValueKind::Long => value::long(text).err().map(|e| e.to_string()),
        ValueKind::Double => value::double(text).err().map(|e| e.to_string()),
        ValueKind::Time => value::time(text, value::TimeUnit::Milliseconds).err().map(|e| e.to_string()),
        ValueKind::Bytes => {
            let size = value::size(text, value::ByteUnit::Byte);
            size.and_then(|_| value::check_suffix(text, line)).err().map(|e| e.to_string())
        }
        ValueKind::List | ValueKind::String => None,
    };
    problem.map(|problem| Warning::Value { key: setting.key.to_owned(), problem })
}

/// The option in `<type>.<name>.<option>`; if the name contains dots, with the rest of the name before it.
fn option_of(rest: &str) -> Option<&str> {
    rest.splitn(3, '.').nth(2)
}

/// The known option in `<type>.<name>.<option>`; names may contain dots, so it is matched at the end.
fn volume_option(rest: &str) -> Option<(&'static str, Line)> {
    let option = option_of(rest)?;
    let known = VOLUME_OPTIONS.iter().find(|(o, _)| option == *o || option.ends_with(&format!(".{o}")));
    let known = known.or_else(|| {
        VOLUME_FAMILIES.iter().find(|(family, _)| option.starts_with(family) || option.contains(&format!(".{family}")))
    });
    known.copied()
}

fn check_volume(key: &str, rest: &str, version: &SparkVersion) -> Option<Warning> {
    let option = option_of(rest)?;
    match volume_option(rest) {
        Some((_, since)) if since > version.line() => {
            Some(Warning::NotYet { key: key.to_owned(), version: version.to_string(), since })
        }
        Some(_) => None,
        None => {
            let nearest = nearest(option, VOLUME_OPTIONS.iter().map(|(o, _)| *o), 3);
            let stem = &key[..key.len() - option.len()];
            Some(Warning::Unknown { key: key.to_owned(), suggestion: nearest.map(|o| format!("{stem}{o}")) })
        }
    }
}

/// The known key, or known prefix with the user's suffix, nearest to an unknown Kubernetes key.
fn suggest(key: &str) -> Option<String> {
    let known = || all().map(|s| s.key).filter(|k| k.starts_with(KUBERNETES));
    let limit = if key.len() > 35 { 4 } else { 3 };
    if let Some(near) = nearest(key, known(), limit) {
        return Some(near.to_owned());
    }
    let dots = key.match_indices('.').map(|(at, _)| at + 1);
    let completed = dots.filter_map(|at| {
        let (stem, rest) = key.split_at(at);
        (!rest.is_empty()).then(|| nearest(stem, FAMILIES, 2).map(|family| format!("{family}{rest}")))?
    });
    if let Some(family) = completed.max_by_key(String::len) {
        return Some(family);
    }
    // The right last word in the wrong place: `….driver.serviceAccountName`.
    let last = |k: &str| k.rsplit('.').next().unwrap_or(k).to_ascii_lowercase();
    let same_end = known().filter(|k| last(k) == last(key) && last(key).len() > 6);
    same_end.min_by_key(|k| spelling::distance(key, k)).map(str::to_owned)
}

/// The public key that this one is probably a misspelling of.
fn misspelt(key: &str) -> Option<&'static str> {
    if FOREIGN.iter().any(|family| key.starts_with(family)) {
        return None;
    }
    let known = || all().filter(|s| !s.internal).map(|s| s.key);
    if let Some(same) = known().find(|k| k.eq_ignore_ascii_case(key)) {
        return Some(same);
    }
    // Short keys are too close to each other, and a number at the end is a user's own series.
    if key.len() < 12 || key.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    nearest(key, known(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(version: &str, key: &str, value: &str) -> Vec<String> {
        let conf = SparkConf::from([(key.to_owned(), value.to_owned())]);
        check(&conf, &version.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_row_of_the_table_is_read() {
        let rows = include_str!("registry/settings.tsv").lines().filter(|row| !row.starts_with('#')).count();
        assert_eq!(all().count(), rows);
        assert!(all().filter(|s| s.key.starts_with(KUBERNETES)).count() > 120);
    }

    #[test]
    fn defaults_follow_the_line() {
        let setting = find("spark.kubernetes.allocation.batch.size").unwrap();
        assert_eq!(setting.default_in(Line::V3_5), Default::Value("5"));
        assert_eq!(setting.default_in(Line::V4_1), Default::Value("10"));
        assert_eq!(setting.default_in(Line::V4_3), Default::Value("20"));
        let image = find("spark.kubernetes.driver.container.image").unwrap();
        assert_eq!(image.default_in(Line::V4_0), Default::SameAs("spark.kubernetes.container.image"));
        assert_eq!(find("spark.kubernetes.context").unwrap().default_in(Line::V4_0), Default::None);
        assert_eq!(
            find("spark.kubernetes.container.image.pullSecrets").unwrap().default_in(Line::V4_0),
            Default::Value("")
        );
        assert_eq!(
            find("spark.kubernetes.executor.useDriverPodIP").unwrap().default_in(Line::V3_5),
            Default::Value("false")
        );
    }

    #[test]
    fn defaults_are_valid_values_of_their_kind() {
        for (setting, line) in all().flat_map(|s| Line::ALL.map(|line| (s, line))) {
            if let Default::Value(text) = setting.default_in(line) {
                assert_eq!(check_value(setting, text, line), None, "{}", setting.key);
            }
        }
    }

    #[test]
    fn a_claim_on_demand_that_nobody_makes_is_worth_a_word() {
        let said = |role: &str, settings: &[(&str, &str)]| -> Vec<String> {
            let volume = format!("spark.kubernetes.{role}.volumes.persistentVolumeClaim.data.");
            let conf = settings.iter().map(|(key, value)| (format!("{volume}{key}"), (*value).to_owned())).collect();
            check(&conf, &"4.1.4".parse().unwrap()).iter().map(ToString::to_string).collect()
        };
        let on_demand = ("options.claimName", "OnDemand");
        let (class, size) = (("options.storageClass", "fast"), ("options.sizeLimit", "1Gi"));
        let options = "spark.kubernetes.executor.volumes.persistentVolumeClaim.data.options";
        assert_eq!(
            said("executor", &[("mount.path", "/data"), on_demand]),
            [format!(
                "{options}.claimName asks for an on-demand claim, which Spark creates only if {options}.storageClass and \
                 {options}.sizeLimit are also set: pods will wait for a claim that is never created"
            )]
        );
        assert!(said("driver", &[on_demand, class])[0].contains("data.options.sizeLimit is also set"));
        assert!(said("driver", &[("options.claimName", "my-OnDemand"), size])[0].contains("storageClass is also set"));
        assert!(said("executor", &[on_demand, class, size]).is_empty());
        assert!(said("executor", &[("options.claimName", "there-already")]).is_empty());
    }

    #[test]
    fn an_unknown_kubernetes_key_gets_the_nearest_known_one() {
        for (key, meant) in [
            ("spark.kubernetes.namspace", "spark.kubernetes.namespace"),
            ("spark.kubernetes.container.images", "spark.kubernetes.container.image"),
            ("spark.kubernetes.driver.serviceAccountName", "spark.kubernetes.authenticate.driver.serviceAccountName"),
            ("spark.kubernetes.driver.labels.team", "spark.kubernetes.driver.label.team"),
            ("spark.kubernetes.driver.env.FOO", "spark.kubernetes.driverEnv.FOO"),
            (
                "spark.kubernetes.driver.volumes.emptyDir.x.mount.pth",
                "spark.kubernetes.driver.volumes.emptyDir.x.mount.path",
            ),
        ] {
            assert_eq!(warnings("4.1.4", key, "x"), [format!("Spark has no setting {key}; did you mean {meant}?")]);
        }
        assert_eq!(
            warnings("4.1.4", "spark.kubernetes.whatever", "x"),
            ["Spark has no setting spark.kubernetes.whatever: it will be ignored"]
        );
    }

    #[test]
    fn keys_of_other_versions_are_named_as_such() {
        let key = "spark.kubernetes.executor.useDriverPodIP";
        assert_eq!(
            warnings("3.5.9", key, "true"),
            [format!("Spark 3.5.9 does not have {key}, which was added in 4.1: it will be ignored")]
        );
        assert!(warnings("4.1.4", key, "true").is_empty());
        let old = "spark.kubernetes.pyspark.pythonVersion";
        assert!(warnings("4.0.1", old, "3").is_empty());
        assert!(warnings("4.1.4", old, "3")[0].contains("(removed after 4.0)"));
        let option = "spark.kubernetes.driver.volumes.hostPath.x.options.type";
        assert!(warnings("3.5.9", option, "Directory")[0].contains("added in 4.0"));
        assert!(warnings("4.0.0", option, "Directory").is_empty());
    }

    #[test]
    fn the_oldest_line_that_knows_a_configuration_follows_its_newest_part() {
        let oldest = |settings: &[(&str, &str)]| {
            oldest(&settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        let image = ("spark.kubernetes.container.image", "spark:latest");
        let claim = ("spark.kubernetes.driver.volumes.persistentVolumeClaim.d.label.team", "a");
        let pod_ip = ("spark.kubernetes.executor.useDriverPodIP", "true");
        assert_eq!(oldest(&[]), Line::V3_5);
        assert_eq!(oldest(&[image, ("spark.executor.memory", "2g"), ("spark.my.own", "1Gi")]), Line::V3_5);
        assert_eq!(oldest(&[image, claim]), Line::V4_0);
        assert_eq!(oldest(&[image, claim, pod_ip]), Line::V4_1);
        assert_eq!(oldest(&[("spark.executor.memory", "2Gi"), pod_ip]), Line::V4_2);
    }

    #[test]
    fn keys_that_users_complete_or_make_up_are_left_alone() {
        for key in [
            "spark.kubernetes.driver.label.app.kubernetes.io/part-of",
            "spark.kubernetes.driverEnv.FOO",
            "spark.kubernetes.executor.volumes.persistentVolumeClaim.a.b.options.claimName",
            "spark.kubernetes.executor.volumes.persistentVolumeClaim.data.label.team",
            "spark.executorEnv.FOO",
            "spark.hadoop.fs.s3a.access.key",
            "spark.sql.shuffle.partitions",
            "spark.sql.catalog.my",
            "spark.myapp.memory",
            "spark.executor.resource.gpu.amount",
            "spark.from.file",
            "spark.x",
            "spark.driver.port2",
            "spark.mycompany.executor.cores",
        ] {
            assert!(warnings("4.1.4", key, "x").is_empty(), "{key}");
        }
    }

    #[test]
    fn a_slip_in_a_well_known_key_is_pointed_out() {
        for (key, meant) in [
            ("spark.executor.memry", "spark.executor.memory"),
            ("spark.executor.memoryoverhead", "spark.executor.memoryOverhead"),
            ("spark.dynamicAllocation.enable", "spark.dynamicAllocation.enabled"),
        ] {
            assert_eq!(warnings("4.1.4", key, "x"), [format!("{key}: did you mean {meant}?")]);
        }
    }

    #[test]
    fn values_that_the_driver_would_refuse_are_pointed_out() {
        assert_eq!(
            warnings("4.1.4", "spark.kubernetes.executor.deleteOnTermination", "yes"),
            ["spark.kubernetes.executor.deleteOnTermination: `yes` is neither `true` nor `false`"]
        );
        assert!(warnings("4.1.4", "spark.executor.memoryOverhead", "1.5g")[0].contains("fraction"));
        assert!(warnings("4.1.4", "spark.executor.memoryOverhead", "1Gi")[0].contains("since 4.2"));
        assert!(warnings("4.2.1", "spark.executor.memoryOverhead", "1Gi").is_empty());
        assert!(warnings("4.1.4", "spark.kubernetes.report.interval", "${env:X}").is_empty());
    }

    #[test]
    fn no_known_key_is_called_unknown_by_the_version_that_has_it() {
        for setting in all() {
            let version: SparkVersion = format!("{}.0", setting.since).parse().unwrap();
            let warning = check_one(setting.key, "${x}", &version);
            assert_eq!(warning, None, "{}", setting.key);
        }
    }
}
