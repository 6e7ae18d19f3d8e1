//! `${…}` in values, as Spark expands them when it reads a setting.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

/// Expands `${spark.key}` from `conf` and `${env:NAME}` from `env`. Unknown references stay as written, as does
/// `${system:…}`, which only a JVM knows. A circular reference stays unexpanded; Spark fails there.
pub fn substitute(value: &str, conf: &BTreeMap<String, String>, env: &BTreeMap<String, String>) -> String {
    if !value.contains("${") {
        return value.to_owned();
    }
    expand(value, conf, env, &mut BTreeSet::new())
}

fn expand(
    value: &str,
    conf: &BTreeMap<String, String>,
    env: &BTreeMap<String, String>,
    seen: &mut BTreeSet<String>,
) -> String {
    let Ok(reference) = Regex::new(r"\$\{(?:(\w+?):)?(\S+?)\}") else { return value.to_owned() };
    reference
        .replace_all(value, |found: &regex::Captures<'_>| {
            let name = &found[2];
            let target = match found.get(1).map(|m| m.as_str()) {
                None if name.starts_with("spark.") => conf.get(name),
                Some("env") => env.get(name),
                _ => None,
            };
            let whole = found[0].to_owned();
            match target {
                Some(text) if seen.insert(whole.clone()) => {
                    let expanded = expand(text, conf, env, seen);
                    seen.remove(&whole);
                    expanded
                }
                _ => whole,
            }
        })
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_environment_are_expanded() {
        let conf = BTreeMap::from([
            ("spark.a".to_owned(), "1".to_owned()),
            ("spark.b".to_owned(), "<${spark.a}>".to_owned()),
            ("spark.loop".to_owned(), "${spark.loop}".to_owned()),
        ]);
        let env = BTreeMap::from([("HOME".to_owned(), "/root".to_owned())]);
        let expand = |text| substitute(text, &conf, &env);
        assert_eq!(expand("x${spark.b}y${env:HOME}"), "x<1>y/root");
        assert_eq!(
            expand("${spark.none} ${env:NONE} ${other} ${system:x}"),
            "${spark.none} ${env:NONE} ${other} ${system:x}"
        );
        assert_eq!(expand("${spark.loop}"), "${spark.loop}");
        assert_eq!(expand("{{APP_ID}} $HOME"), "{{APP_ID}} $HOME");
    }
}
