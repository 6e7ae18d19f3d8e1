//! Validation by the API server, as CEL rules in the definition.
//!
//! The messages are those of [`validate`](crate::validate), which makes the same checks for objects stored without these
//! rules. Checks of embedded objects (volumes, mounts, containers) and of lists of any length are not possible here and
//! are left to it.

use serde_json::{Value, json};

use crate::validate::{
    DENIED_KEYS, NAME, NO_IMAGE, NO_MAIN_CLASS, NO_MAIN_FILE, NOT_NEGATIVE, ONE_SELECTOR, POLICIES, TOO_MANY,
};

const LONGEST_SIZE: u32 = 40;
const RULES: &str = "x-kubernetes-validations";
/// Spark's sizes; see `firesteel_spark::value::memory_mib`.
const SIZE: &str = r"^\\s*-?[0-9]+([bB]|([kKmMgGtTpP][iI]?[bB]?))?\\s*$";

/// The rule for the name, at the root.
pub(super) fn name(schema: &mut Value) {
    schema[RULES] = json!([{
        "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63",
        "messageExpression": format!("'metadata.name: \"' + self.metadata.name + '\" {NAME}'"),
        "message": format!("metadata.name: {NAME}"),
    }]);
}

/// The rules of a schedule; those of its template come on top.
pub(super) fn schedule(spec: &mut Value) {
    let fields = &mut spec["properties"];
    fields["concurrencyPolicy"][RULES] = json!([{
        "rule": "self in ['', 'Allow', 'Forbid', 'Replace']",
        "messageExpression": format!("'\"' + self + '\" {POLICIES}'"),
        "message": POLICIES,
    }]);
    // The API server estimates a rule's cost from the maximum length.
    fields["concurrencyPolicy"]["maxLength"] = json!(LONGEST_SIZE);
    for limit in ["startingDeadlineSeconds", "successfulRunHistoryLimit", "failedRunHistoryLimit"] {
        fields[limit][RULES] = json!([{"rule": "self >= 0", "message": NOT_NEGATIVE}]);
    }
}

/// All rules of a specification.
pub(super) fn put(spec: &mut Value) {
    let empty = |field: &str| format!("(!has({field}) || {field}.size() == 0)");
    let no_selector = empty("self.nodeSelector");
    let filled = |field: &str| format!("(has({field}) && {field} != '')");
    let image = filled("self.image");
    let mut rules = vec![
        json!({
            "rule": "!has(self.mode) || self.mode == 'cluster'",
            "message": "the driver would run inside the operator; write cluster",
            "fieldPath": ".mode",
        }),
        json!({
            "rule": "!(self.type in ['Java', 'Scala']) || (has(self.mainClass) && self.mainClass != '')",
            "messageExpression": format!("'{}'", NO_MAIN_CLASS.replace("{}", "' + self.type + '")),
            "message": NO_MAIN_CLASS.replace("{} ", "JVM "),
            "fieldPath": ".mainClass",
        }),
    ];
    for role in ["driver", "executor"] {
        rules.push(json!({
            "rule": format!("{no_selector} || {}", empty(&format!("self.{role}.nodeSelector"))),
            "message": ONE_SELECTOR,
            "fieldPath": format!(".{role}.nodeSelector"),
        }));
        rules.push(json!({
            "rule": format!("{image} || {}", filled(&format!("self.{role}.image"))),
            "message": NO_IMAGE,
            "fieldPath": format!(".{role}.image"),
        }));
    }
    spec[RULES] = json!(rules);

    let fields = &mut spec["properties"];
    fields["mainApplicationFile"][RULES] = json!([{"rule": "self != ''", "message": NO_MAIN_FILE}]);
    fields["timeToLiveSeconds"][RULES] = json!([{"rule": "self >= 0", "message": NOT_NEGATIVE}]);
    let denied = DENIED_KEYS.iter().map(|(key, instead)| {
        json!({"rule": format!("!('{key}' in self)"), "message": format!("{key} must not be set; {instead}")})
    });
    fields["sparkConf"][RULES] = denied.collect();
    fields["dynamicAllocation"][RULES] = bounds();
    for role in ["driver", "executor"] {
        let role = &mut fields[role]["properties"];
        for size in ["memory", "memoryOverhead"] {
            // The API server estimates a rule's cost from the maximum length.
            role[size]["maxLength"] = json!(LONGEST_SIZE);
            role[size][RULES] = json!([{
                "rule": format!("self.matches('{SIZE}')"),
                "messageExpression": "'\"' + self + '\" is not a size; write one such as 512m or 2g'",
                "message": "is not a size; write one such as 512m or 2g",
            }]);
        }
        role["gpu"][RULES] = json!([
            {"rule": "self.quantity >= 1", "message": "must be at least 1", "fieldPath": ".quantity"},
            {
                "rule": "self.name != ''", "fieldPath": ".name",
                "message": "is missing: name the resource, such as nvidia.com/gpu",
            },
        ]);
    }
}

/// Initial and minimum number of executors do not exceed the maximum.
fn bounds() -> Value {
    let fits = |field: &str| {
        json!({
            "rule": format!(
                "!self.enabled || !has(self.{field}) || !has(self.maxExecutors) || self.{field} <= self.maxExecutors"
            ),
            "message": TOO_MANY,
            "fieldPath": format!(".{field}"),
        })
    };
    json!([fits("minExecutors"), fits("initialExecutors")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_for_sizes_takes_what_spark_takes() {
        let rule = regex::Regex::new(&SIZE.replace("\\\\", "\\")).unwrap();
        let texts = [
            "1", "512m", "2g", "2G", "1gb", "1GB", "1kb", "1b", "1Gi", "1GiB", "1t", "1p", "-1", " 1g ", "lots", "",
            "1.5g", "g", "1x", "1 g", "1bb", "1bi", "2gib ",
        ];
        for text in texts {
            assert_eq!(rule.is_match(text), firesteel_spark::value::memory_mib(text).is_ok(), "{text:?}");
        }
    }
}
