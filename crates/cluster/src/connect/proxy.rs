//! Chooses the proxy, if any, for the API server.
//!
//! A kubeconfig's `proxy-url` comes first, then `HTTPS_PROXY`/`HTTP_PROXY`/`ALL_PROXY` (either case), unless `NO_PROXY`
//! covers the server.

use std::net::IpAddr;

use http::Uri;

use crate::connect::BadAccess;

/// The proxy for requests to `server`.
pub(super) fn choose(
    server: &Uri,
    configured: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Uri>> {
    let variable = |name: &str| {
        [name.to_owned(), name.to_lowercase()]
            .iter()
            .find_map(|name| env(name))
            .filter(|value| !value.trim().is_empty())
    };
    let by_scheme = if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    let (origin, proxy) = if let Some(proxy) = configured.filter(|proxy| !proxy.is_empty()) {
        ("proxy-url of the kubeconfig", proxy.to_owned())
    } else if variable("NO_PROXY").is_some_and(|list| exempt(server, &list)) {
        return Ok(None);
    } else if let Some(proxy) = variable(by_scheme) {
        (by_scheme, proxy)
    } else if let Some(proxy) = variable("ALL_PROXY") {
        ("ALL_PROXY", proxy)
    } else {
        return Ok(None);
    };
    let url = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
    match url.parse::<Uri>() {
        Ok(url) if url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https")) => Ok(Some(url)),
        _ => {
            Err(BadAccess(format!("{origin}={proxy}: not the URL of an HTTP proxy; expected http://HOST:PORT")).into())
        }
    }
}

/// Whether a `NO_PROXY` list covers the server: by `*`, host, domain and its subdomains, address, or CIDR block.
fn exempt(server: &Uri, list: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_lowercase();
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let address: Option<IpAddr> = host.parse().ok();
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let (Some(address), Some((block, bits))) = (address, entry.split_once('/')) {
            return block.parse().is_ok_and(|block| bits.parse().is_ok_and(|bits| inside(address, block, bits)));
        }
        let entry = entry.to_lowercase();
        let (name, wanted) = match entry.rsplit_once(':') {
            Some((name, digits)) if !name.contains(':') && digits.parse::<u16>().is_ok() => {
                (name.to_owned(), digits.parse().ok())
            }
            _ => (entry, None),
        };
        if wanted.is_some_and(|wanted: u16| wanted != port) {
            return false;
        }
        let name = name.trim_matches(['[', ']']).trim_start_matches('*').trim_start_matches('.');
        if address.is_some() { host == name } else { host == name || host.ends_with(&format!(".{name}")) }
    })
}

fn inside(address: IpAddr, block: IpAddr, bits: u32) -> bool {
    match (address, block) {
        (IpAddr::V4(a), IpAddr::V4(b)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            a.to_bits() & mask == b.to_bits() & mask
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            a.to_bits() & mask == b.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, env: &[(&str, &str)]) -> Option<String> {
        let find = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        choose(&server.parse().expect("URL"), None, &find).expect("valid").map(|uri| uri.to_string())
    }

    #[test]
    fn proxy_follows_the_scheme_of_the_server() {
        let env = [("HTTPS_PROXY", "http://p:1"), ("http_proxy", "q:2")];
        assert_eq!(chosen("https://api:6443", &env).as_deref(), Some("http://p:1/"));
        assert_eq!(chosen("http://api:8001", &env).as_deref(), Some("http://q:2/"));
        assert_eq!(chosen("https://api:6443", &[("ALL_PROXY", "p:3")]).as_deref(), Some("http://p:3/"));
    }

    #[test]
    fn no_proxy_covers_hosts_domains_addresses_and_blocks() {
        for (server, list) in [
            ("https://api.example.com", "example.com"),
            ("https://api.example.com", ".example.com"),
            ("https://kubernetes.default.svc", "localhost,.svc"),
            ("https://10.1.2.3:6443", "10.0.0.0/8"),
            ("https://127.0.0.1:6443", "127.0.0.1"),
            ("https://[::1]:6443", "::1"),
            ("https://anything", "*"),
            ("https://api:6443", "api:6443"),
        ] {
            assert_eq!(chosen(server, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", list)]), None, "{server} {list}");
        }
        for (server, list) in [
            ("https://notexample.com", "example.com"),
            ("https://11.1.2.3", "10.0.0.0/8"),
            ("https://api:6443", "api:443"),
            ("https://10.1.2.30", "10.1.2.3"),
        ] {
            assert!(chosen(server, &[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", list)]).is_some(), "{server} {list}");
        }
    }

    #[test]
    fn unusable_proxy_is_named() {
        let env = |name: &str| (name == "HTTPS_PROXY").then(|| "socks5://p:1".to_owned());
        let error = choose(&"https://api".parse().expect("URL"), None, &env).expect_err("refused");
        assert!(error.to_string().starts_with("HTTPS_PROXY=socks5://p:1:"), "{error}");
    }
}
