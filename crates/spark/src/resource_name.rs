//! How an application's name becomes part of Kubernetes names and labels.

/// The prefix of object names: the application's name and a unique part, as a valid DNS name.
pub(crate) fn prefix(app_name: &str, unique: &str) -> String {
    let dashed = dash_lower(&format!("{app_name}-{unique}"));
    let name = dashed.strip_prefix('-').unwrap_or(&dashed);
    match name.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("x{}", &name[1..]),
        _ => name.to_owned(),
    }
}

/// The longest value a label may have.
const MAX_LABEL: usize = 63;

/// The value of the `spark-app-name` label.
pub(crate) fn label_value(app_name: &str) -> String {
    let mut value = dash_lower(app_name);
    value.truncate(MAX_LABEL);
    let value = value.strip_prefix('-').unwrap_or(&value);
    value.strip_suffix('-').unwrap_or(value).to_owned()
}

/// Lower case, with each run of characters not allowed in DNS labels replaced by one dash. The result is ASCII.
fn dash_lower(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim().to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_fit_for_dns() {
        assert_eq!(prefix("spark-pi", "aa1"), "spark-pi-aa1");
        assert_eq!(prefix("My App__Name (prod) #42!", "aa1"), "my-app-name-prod-42-aa1");
        assert_eq!(prefix("123-Numbers", "aa1"), "x23-numbers-aa1");
        assert_eq!(prefix("  --dash", "aa1"), "dash-aa1");
        assert_eq!(prefix("日本", "aa1"), "aa1");
    }

    #[test]
    fn label_values_start_and_end_with_an_alphanumeric() {
        assert_eq!(label_value("123-Numbers"), "123-numbers");
        assert_eq!(label_value("My App__Name (prod) #42!"), "my-app-name-prod-42");
        assert_eq!(label_value(&"a".repeat(70)).len(), 63);
    }
}
