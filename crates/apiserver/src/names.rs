//! Name validation: DNS labels, subdomains, qualified names, label values. Each `*_complaint` returns the real server's message, or
//! `None` if the name is valid.

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const VALUE_FORM: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

fn is_label(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

pub(crate) fn subdomain_complaint(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 bytes".into());
    }
    (!is_subdomain(text)).then(|| {
        format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN_FORM}')"
        )
    })
}

pub(crate) fn label_complaint(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    if text.contains('.') && is_subdomain(text) {
        return Some("must not contain dots".into());
    }
    (!is_label(text)).then(|| {
        format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_FORM}')"
        )
    })
}

/// RFC 1035: a label that starts with a letter. Services use it.
pub(crate) fn dns1035_complaint(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    let good = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    (!good).then(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned()
    })
}

/// Names that only need to be a path segment (RBAC objects).
pub(crate) fn path_segment_complaint(text: &str) -> Option<String> {
    if text == "." || text == ".." {
        return Some(format!("may not be '{text}'"));
    }
    ["/", "%"].into_iter().find(|part| text.contains(part)).map(|part| format!("may not contain '{part}'"))
}

pub(crate) fn qualified_name_complaint(text: &str) -> Option<String> {
    let mut parts = text.splitn(3, '/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return Some(format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                qualified_words()
            ));
        }
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".into());
        }
        if let Some(complaint) = subdomain_complaint(prefix) {
            return Some(format!("prefix part {complaint}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!is_qualified(name)).then(|| format!("name part {}", qualified_words()))
}

fn qualified_words() -> String {
    format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED_FORM}')"
    )
}

pub(crate) fn label_value_complaint(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!text.is_empty() && !is_qualified(text)).then(|| {
        format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{VALUE_FORM}')"
        )
    })
}

/// Port names (RFC 6335).
pub(crate) fn port_name_complaint(text: &str) -> Option<String> {
    if text.len() > 15 {
        return Some("must be no more than 15 characters".into());
    }
    if !text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.chars().any(|c| c.is_ascii_lowercase()) {
        return Some("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        return Some("must not contain consecutive hyphens".into());
    }
    (text.starts_with('-') || text.ends_with('-')).then(|| "must not begin or end with a hyphen".to_owned())
}

/// Keys of ConfigMaps and Secrets.
pub(crate) fn config_key_complaint(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 bytes".into());
    }
    if text == "." || text == ".." {
        return Some(format!("must not be '{text}'"));
    }
    if text.starts_with("..") {
        return Some("must not start with '..'".into());
    }
    let good = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (!good).then(|| {
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".to_owned()
    })
}
