//! Label selectors as text, such as `spark=on,env in (prod,staging),!legacy`, turned into the form that objects have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Reads a selector; the error says which part is wrong.
pub fn parse(text: &str) -> Result<LabelSelector, String> {
    let terms = split(text).into_iter().map(str::trim).filter(|term| !term.is_empty());
    let expressions = terms.map(term).collect::<Result<Vec<_>, _>>()?;
    Ok(LabelSelector { match_expressions: Some(expressions).filter(|all| !all.is_empty()), match_labels: None })
}

/// The parts between commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (i, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn term(text: &str) -> Result<LabelSelectorRequirement, String> {
    let refuse =
        || format!("`{text}` is not a part of a label selector; write a=b, a!=b, a in (b,c), a notin (b,c), a or !a");
    let make = |key: &str, operator: &str, values: Option<Vec<String>>| {
        let key = key.trim();
        if key.is_empty() || key.contains(|c: char| c.is_whitespace() || "(),=!".contains(c)) {
            return Err(refuse());
        }
        Ok(LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
    };
    let one = |value: &str| Some(vec![value.trim().to_owned()]);
    if let Some((head, rest)) = text.split_once('(') {
        let values = rest.trim_end().strip_suffix(')').ok_or_else(refuse)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, word) = head.trim().rsplit_once(char::is_whitespace).ok_or_else(refuse)?;
        return match word {
            "in" => make(key, "In", Some(values)),
            "notin" => make(key, "NotIn", Some(values)),
            _ => Err(refuse()),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, "NotIn", one(value));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, "In", one(value));
    }
    match text.strip_prefix('!') {
        Some(key) => make(key, "DoesNotExist", None),
        None => make(text, "Exists", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let selector = parse(text).unwrap();
        let terms = selector.match_expressions.unwrap_or_default().into_iter();
        terms.map(|t| format!("{} {} {}", t.key, t.operator, t.values.unwrap_or_default().join("|"))).collect()
    }

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        assert_eq!(words("spark=on"), ["spark In on"]);
        assert_eq!(words("a==b, c != d"), ["a In b", "c NotIn d"]);
        assert_eq!(words("env in (prod, staging),tier notin (x)"), ["env In prod|staging", "tier NotIn x"]);
        assert_eq!(words("example.org/spark,!legacy"), ["example.org/spark Exists ", "legacy DoesNotExist "]);
        assert_eq!(words("a="), ["a In "]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn what_is_not_a_selector_is_refused_with_the_part() {
        for bad in ["=b", "a in b", "a of (b)", "a in (b", "a b"] {
            assert!(parse(bad).unwrap_err().contains(bad), "{bad}");
        }
    }
}
