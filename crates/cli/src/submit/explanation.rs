//! `--explain`: every effective setting, its value and where it came from. Secrets are not shown.

use firesteel_spark::driver::DriverPlan;
use firesteel_spark::submission::Effective;

use crate::output::columns;

const REDACTED: &str = "*********(redacted)";

/// The table, by key.
pub(crate) fn table(effective: &Effective, plan: &DriverPlan) -> String {
    let row = |key: &str, value: &str, origin: String| vec![key.to_owned(), value.to_owned(), origin];
    let mut rows = vec![row("SETTING", "VALUE", "FROM".to_owned())];
    rows.push(row("(Spark version)", &effective.submission.version.to_string(), effective.version_from.to_string()));
    for (key, value) in &effective.submission.conf {
        let origin = effective.provenance.get(key).map_or_else(|| "worked out".to_owned(), ToString::to_string);
        rows.push(row(key, shown(key, value), origin));
    }
    for (key, value) in &plan.properties {
        if !effective.submission.conf.contains_key(key) {
            rows.push(row(key, shown(key, value), "set for the driver by the plan".to_owned()));
        } else if effective.submission.conf.get(key) != Some(value) {
            rows.push(row(key, shown(key, value), "changed for the driver by the plan".to_owned()));
        }
    }
    columns(&rows)
}

/// A value as it may be seen. The words are those of Spark's own default for `spark.redaction.regex`.
fn shown<'v>(key: &str, value: &'v str) -> &'v str {
    if names_only(key) || !(secret(key) || secret(value)) { value } else { REDACTED }
}

fn secret(text: &str) -> bool {
    let text = text.to_lowercase();
    ["secret", "password", "token", "access.key", "accesskey"].iter().any(|word| text.contains(word))
}

/// Keys whose values are names and paths of secrets, not secrets.
fn names_only(key: &str) -> bool {
    key.starts_with("spark.kubernetes.driver.secret")
        || key.starts_with("spark.kubernetes.executor.secret")
        || key.starts_with("spark.kubernetes.kerberos.tokenSecret.")
        || key.ends_with("oauthTokenFile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_but_their_names_are() {
        assert_eq!(shown("spark.hadoop.fs.s3a.secret.key", "x"), REDACTED);
        assert_eq!(shown("spark.hadoop.fs.s3a.access.key", "x"), REDACTED);
        assert_eq!(shown("spark.kubernetes.authenticate.submission.oauthToken", "x"), REDACTED);
        assert_eq!(shown("spark.driver.extraJavaOptions", "-Dpassword=x"), REDACTED);
        assert_eq!(shown("spark.kubernetes.driver.secrets.mine", "/etc/mine"), "/etc/mine");
        assert_eq!(shown("spark.executor.instances", "2"), "2");
    }
}
