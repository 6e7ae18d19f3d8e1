//! CEL rules of custom resources (`x-kubernetes-validations`): validated with the definition, compiled once per version.
//!
//! A rule with optional selection (`.?`) is stored but not evaluated, because the interpreter does not support it. Any other invalid
//! rule is rejected together with its definition.

use kube_cel::CompiledSchema;
use serde_json::{Value, json};

use crate::admission::cel_expression;
use crate::status::Cause;

const RULES: &str = "x-kubernetes-validations";

fn uses_optionals(source: &str) -> bool {
    source.contains(".?") || source.contains("[?")
}

/// Validates the rules of one schema node.
pub(super) fn check(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in schema.get(RULES).and_then(Value::as_array).into_iter().flatten().enumerate() {
        for field in ["rule", "messageExpression"] {
            let Some(source) = rule.get(field).and_then(Value::as_str).filter(|s| !s.is_empty()) else {
                if field == "rule" {
                    causes.push(Cause::required(format!("{path}.{RULES}[{index}].rule"), "rule is not specified"));
                }
                continue;
            };
            if let Some(why) =
                cel_expression::complaint(source, &["self", "oldSelf"]).filter(|_| !uses_optionals(source))
            {
                let message = format!("Invalid value: {}: {why}", printed(rule));
                let field = format!("{path}.{RULES}[{index}].{field}");
                causes.push(Cause { reason: "FieldValueInvalid", message, field });
            }
        }
    }
}

/// A rule as Go prints it.
fn printed(rule: &Value) -> String {
    let of = |field: &str, missing: Value| rule.get(field).cloned().unwrap_or(missing);
    let fields = [
        ("Rule", of("rule", "".into())),
        ("Message", of("message", "".into())),
        ("MessageExpression", of("messageExpression", "".into())),
        ("Reason", of("reason", Value::Null)),
        ("FieldPath", of("fieldPath", "".into())),
        ("OptionalOldSelf", of("optionalOldSelf", Value::Null)),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// The compiled rules of a schema.
pub(super) fn compile(schema: &Value) -> CompiledSchema {
    let mut evaluable = schema.clone();
    keep_readable(&mut evaluable);
    let nothing = || kube_cel::compile_schema(&json!({"type": "object"}));
    cel_expression::on_deep_stack(|| kube_cel::compile_schema(&evaluable)).unwrap_or_else(nothing)
}

fn keep_readable(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(rules) = map.get_mut(RULES).and_then(Value::as_array_mut) {
                let text = |rule: &Value| rule.get("rule").and_then(Value::as_str).unwrap_or_default().to_owned();
                rules.retain(|rule| cel_expression::parse(&text(rule)).is_ok());
            }
            map.values_mut().for_each(keep_readable);
        }
        Value::Array(list) => list.iter_mut().for_each(keep_readable),
        _ => {}
    }
}
