//! Names and labels, by the API server's rules.

/// The longest name of most objects.
pub const MAX_NAME: usize = 253;
/// The longest label, and the longest name of a container, a volume or a namespace.
pub const MAX_LABEL: usize = 63;

/// Lower case letters, digits and dashes; the length is not checked.
pub fn is_dns_label(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

/// What a label may have as its value.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= MAX_LABEL && is_name_part(text))
}

fn is_name_part(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// `name` or `domain/name`.
pub fn is_qualified_name(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    name.len() <= MAX_LABEL
        && is_name_part(name)
        && domain.is_none_or(|d| d.len() <= MAX_NAME && d.split('.').all(is_dns_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_api_server() {
        assert!(is_qualified_name("app.kubernetes.io/part-of"));
        assert!(is_qualified_name("Team_1"));
        assert!(!is_qualified_name("a/b/c"));
        assert!(!is_qualified_name("-a"));
        assert!(!is_qualified_name(""));
        assert!(is_label_value(""));
        assert!(!is_label_value("has space"));
        assert!(!is_label_value(&"a".repeat(64)));
        assert!(is_dns_label("a-1"));
        assert!(!is_dns_label("A"));
        assert!(!is_dns_label("a-"));
    }
}
