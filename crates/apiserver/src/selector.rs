//! Label and field selectors: parsing with the real server's error messages, and matching.

use serde_json::{Map, Value};

use crate::status::go_quote;

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Mark(&'static str),
}

fn tokens(text: &str) -> Vec<Token> {
    const MARKS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", ">", "<"];
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(mark) = MARKS.into_iter().find(|m| rest.starts_with(m)) {
            out.push(Token::Mark(mark));
            rest = rest[mark.len()..].trim_start();
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || "=!,()><".contains(c)).unwrap_or(rest.len());
        out.push(Token::Word(rest[..end].to_owned()));
        rest = rest[end..].trim_start();
    }
    out
}

impl Labels {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text);
        let mut at = 0;
        let mut requirements = Vec::new();
        while at < tokens.len() {
            let (requirement, next) =
                parse_requirement(&tokens, at).map_err(|why| format!("unable to parse requirement: {why}"))?;
            requirements.push(requirement);
            at = next;
            match tokens.get(at) {
                None => break,
                Some(Token::Mark(",")) => {
                    at += 1;
                    if at == tokens.len() {
                        return Err("found '', expected: identifier after ','".into());
                    }
                }
                Some(other) => return Err(format!("found '{}', expected: ',' or 'end of string'", shown(Some(other)))),
            }
        }
        Ok(Self(requirements))
    }

    /// A `metav1.LabelSelector`.
    pub(crate) fn from_object(selector: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        if let Some(exact) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in exact {
                requirements.push(Requirement {
                    key: key.clone(),
                    test: Test::In(vec![value.as_str().unwrap_or_default().to_owned()]),
                });
            }
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let values = || {
                expression
                    .get("values")
                    .and_then(Value::as_array)
                    .map(|list| list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>())
                    .unwrap_or_default()
            };
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
            let test = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                other => return Err(format!("{} is not a valid label selector operator", go_quote(other))),
            };
            requirements.push(Requirement { key, test });
        }
        Ok(Self(requirements))
    }

    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|map| map.get(&requirement.key)).and_then(Value::as_str);
            match (&requirement.test, value) {
                (Test::In(allowed), Some(value)) => allowed.iter().any(|a| a == value),
                (Test::NotIn(refused), Some(value)) => refused.iter().all(|r| r != value),
                (Test::Greater(bound), Some(value)) => value.parse::<i64>().is_ok_and(|v| v > *bound),
                (Test::Less(bound), Some(value)) => value.parse::<i64>().is_ok_and(|v| v < *bound),
                (Test::Exists, found) => found.is_some(),
                (Test::Absent, found) => found.is_none(),
                (Test::NotIn(_), None) => true,
                (Test::In(_) | Test::Greater(_) | Test::Less(_), None) => false,
            }
        })
    }
}

fn shown(token: Option<&Token>) -> &str {
    match token {
        Some(Token::Word(word)) => word,
        Some(Token::Mark(mark)) => mark,
        None => "",
    }
}

fn parse_requirement(tokens: &[Token], mut at: usize) -> Result<(Requirement, usize), String> {
    let negated = tokens.get(at) == Some(&Token::Mark("!"));
    if negated {
        at += 1;
    }
    let Some(Token::Word(key)) = tokens.get(at) else {
        return Err(format!("found '{}', expected: identifier", shown(tokens.get(at))));
    };
    if let Some(complaint) = crate::names::qualified_name_complaint(key) {
        return Err(format!("key: Invalid value: {}: {complaint}", go_quote(key)));
    }
    let key = key.clone();
    at += 1;
    if negated {
        return Ok((Requirement { key, test: Test::Absent }, at));
    }
    let test = match tokens.get(at) {
        None | Some(Token::Mark(",")) => return Ok((Requirement { key, test: Test::Exists }, at)),
        Some(Token::Mark(mark @ ("=" | "==" | "!=" | ">" | "<"))) => {
            at += 1;
            let value = match tokens.get(at) {
                Some(Token::Word(word)) => {
                    at += 1;
                    word.clone()
                }
                None | Some(Token::Mark(",")) => String::new(),
                other => return Err(format!("found '{}', expected: identifier", shown(other))),
            };
            check_value(&value)?;
            let number = |value: &str| {
                value.parse::<i64>().map_err(|_| {
                    format!(
                        "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        go_quote(value)
                    )
                })
            };
            match *mark {
                "!=" => Test::NotIn(vec![value]),
                ">" => Test::Greater(number(&value)?),
                "<" => Test::Less(number(&value)?),
                _ => Test::In(vec![value]),
            }
        }
        Some(Token::Word(word)) if word == "in" || word == "notin" => {
            let inside = word == "in";
            at += 1;
            if tokens.get(at) != Some(&Token::Mark("(")) {
                return Err(format!("found '{}' expected: '('", shown(tokens.get(at))));
            }
            at += 1;
            let mut values = Vec::new();
            let mut expects_value = true;
            loop {
                match tokens.get(at) {
                    Some(Token::Word(word)) if expects_value => {
                        check_value(word)?;
                        values.push(word.clone());
                        expects_value = false;
                    }
                    Some(Token::Mark(",")) => {
                        if expects_value {
                            values.push(String::new());
                        }
                        expects_value = true;
                    }
                    Some(Token::Mark(")")) => {
                        if expects_value {
                            values.push(String::new());
                        }
                        at += 1;
                        break;
                    }
                    other => {
                        let expected = match (expects_value, values.is_empty()) {
                            (true, true) => "',', ')' or identifier",
                            (true, false) => "',', or identifier",
                            (false, _) => "',' or ')'",
                        };
                        return Err(format!("found '{}', expected: {expected}", shown(other)));
                    }
                }
                at += 1;
            }
            if inside { Test::In(values) } else { Test::NotIn(values) }
        }
        other => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", shown(other))),
    };
    Ok((Requirement { key, test }, at))
}

fn check_value(value: &str) -> Result<(), String> {
    match crate::names::label_value_complaint(value) {
        Some(complaint) => Err(format!("values[0]: Invalid value: {}: {complaint}", go_quote(value))),
        None => Ok(()),
    }
}

/// A field selector: `path=value` terms that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields(Vec<FieldTerm>);

#[derive(Debug, Clone, PartialEq)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl Fields {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split_unescaped(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = split_term(&part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            terms.push(FieldTerm { field: field.to_owned(), value: unescape(value)?, equal });
        }
        Ok(Self(terms))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|t| t.field.as_str())
    }

    /// Renames fields with this prefix.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        for term in &mut self.0 {
            if let Some(rest) = term.field.strip_prefix(from) {
                term.field = format!("{to}{rest}");
            }
        }
    }

    /// The single object name that this selector requires, if any.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        self.0.iter().find(|t| t.equal && t.field == "metadata.name").map(|t| t.value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }
}

fn split_unescaped(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn split_term(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.find(['=', '!'])?;
    let (field, rest) = part.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        Some((field, false, value))
    } else if let Some(value) = rest.strip_prefix("==") {
        Some((field, true, value))
    } else {
        rest.strip_prefix('=').map(|value| (field, true, value))
    }
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                _ => return Err(format!("invalid field selector: invalid escape sequence: {value}")),
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {c}")),
            other => out.push(other),
        }
    }
    Ok(out)
}

/// The text of a selectable field; missing fields are empty, booleans are `true`/`false`.
fn field_text(object: &Value, field: &str) -> String {
    if let Some(text) = special_field(object, field) {
        return text;
    }
    let mut at = object;
    for step in field.split('.') {
        match at.get(step) {
            Some(next) => at = next,
            None => return default_field(field),
        }
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Null => default_field(field),
        other => other.to_string(),
    }
}

fn special_field(object: &Value, field: &str) -> Option<String> {
    match field {
        "source" => {
            let component = crate::meta::text(object, "/source/component");
            let reporter = crate::meta::text(object, "/reportingComponent");
            Some(if component.is_empty() { reporter } else { component }.to_owned())
        }
        "status.successful" => {
            Some(object.pointer("/status/succeeded").and_then(Value::as_i64).unwrap_or_default().to_string())
        }
        _ => None,
    }
}

/// The value of a missing field: Go's zero value of its type.
fn default_field(field: &str) -> String {
    match field {
        "spec.hostNetwork" | "spec.unschedulable" => "false".into(),
        "status.replicas" => "0".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        Labels::parse(selector).expect("selector").matches(labels.as_object())
    }

    #[test]
    fn every_form_of_label_selector_matches() {
        let labels = json!({"a": "s", "b": "2", "n": "10"});
        for good in [
            "a=s",
            "a==s",
            "a!=t",
            "b in (1,2)",
            "b notin (3)",
            "a",
            "!c",
            "c!=x",
            "n>9",
            "n<11",
            "a=s,b in (2)",
            " a = s , b ",
        ] {
            assert!(matches(good, &labels), "{good}");
        }
        for bad in ["a=t", "c", "!a", "b notin (2)", "n>10", "c=x", "c in (x)"] {
            assert!(!matches(bad, &labels), "{bad}");
        }
    }

    #[test]
    fn broken_label_selectors_are_refused() {
        for bad in ["a=b=c", "a in b", "a in (b", "=x", "a b", "a,,b", "a=b,"] {
            assert!(Labels::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_terms_compare_text() {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}});
        assert!(Fields::parse("metadata.name=x,spec.nodeName!=n2").expect("fields").matches(&pod));
        assert!(Fields::parse("status.phase=").expect("fields").matches(&pod));
        assert!(Fields::parse("spec.hostNetwork=false").expect("fields").matches(&pod));
        assert!(Fields::parse("nonsense").is_err());
    }
}
