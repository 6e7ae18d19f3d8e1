//! The subset of JSONPath in printer columns: `.a.b`, `[0]`, `['a.b']`, `[*]`, `[?(@.type=="Ready")]`, but not `..`.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Where { path: Vec<String>, value: String, equal: bool },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JsonPath(Vec<Step>);

impl JsonPath {
    /// An invalid path selects nothing.
    pub(crate) fn parse(text: &str) -> Self {
        parse(text.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$'))
            .map(Self)
            .unwrap_or_default()
    }

    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut found = vec![value];
        for step in &self.0 {
            found = found.into_iter().flat_map(|v| step.select(v)).collect();
        }
        found.into_iter().next()
    }
}

impl Step {
    fn select<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let Some(list) = value.as_array() else { return Vec::new() };
                let at = if *index < 0 { list.len() as i64 + index } else { *index };
                usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
            }
            Self::All => match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Where { path, value: wanted, equal } => {
                let matches = |item: &Value| {
                    let mut at = item;
                    for name in path {
                        match at.get(name) {
                            Some(next) => at = next,
                            None => return false,
                        }
                    }
                    let text = at.as_str().map_or_else(|| at.to_string(), str::to_owned);
                    (text == *wanted) == *equal
                };
                value.as_array().into_iter().flatten().filter(|item| matches(item)).collect()
            }
        }
    }
}

fn parse(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let mut name = String::new();
            let mut end = after.len();
            let mut escaped = false;
            for (at, c) in after.char_indices() {
                if escaped {
                    name.push(c);
                    escaped = false;
                } else if c == '\\' {
                    escaped = true;
                } else if c == '.' || c == '[' {
                    end = at;
                    break;
                } else {
                    name.push(c);
                }
            }
            if !name.is_empty() {
                steps.push(if name == "*" { Step::All } else { Step::Field(name) });
            }
            rest = &after[end..];
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after)?;
            steps.push(bracket(&after[..end])?);
            rest = &after[end + 1..];
        } else {
            return None;
        }
    }
    Some(steps)
}

/// The position of the closing `]`, skipping quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = text.strip_prefix(['\'', '"']) {
        return Some(Step::Field(name.trim_end_matches(['\'', '"']).to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (path, equal, value) = match filter.split_once("==") {
            Some((path, value)) => (path, true, value),
            None => filter.split_once("!=").map(|(path, value)| (path, false, value))?,
        };
        let path = path.trim().strip_prefix('@')?.split('.').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        return Some(Step::Where { path, value: value.trim().trim_matches(['"', '\'']).to_owned(), equal });
    }
    text.parse().ok().map(Step::Index)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_of_real_definitions_are_found() {
        let object = json!({"status": {"applicationState": {"state": "RUNNING"}, "conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}]}, "metadata": {"labels": {"a.b/c": "v"}}});
        let at = |path: &str| JsonPath::parse(path).first(&object).cloned();
        assert_eq!(at(".status.applicationState.state"), Some(json!("RUNNING")));
        assert_eq!(at(".status.conditions[?(@.type==\"Ready\")].status"), Some(json!("True")));
        assert_eq!(at(".status.conditions[0].status"), Some(json!("x")));
        assert_eq!(at(".metadata.labels['a.b/c']"), Some(json!("v")));
        assert_eq!(at(".metadata.labels.a\\.b/c"), Some(json!("v")));
        assert_eq!(at(".nothing"), None);
    }
}
