//! A hash of a pod template for object names.

use k8s_openapi::api::core::v1::PodTemplateSpec;

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A ten-character hash of a template. It must never change, because it is stored in objects.
pub(crate) fn of(template: &PodTemplateSpec) -> String {
    // FNV-1a over the JSON: serde writes fields and sorted maps in a fixed order.
    let json = serde_json::to_vec(template).unwrap_or_default();
    let hash = json.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    safe_encode(hash, 10)
}

/// A hash in the alphabet of generated names: no vowels, so that no words appear.
pub(crate) fn safe_encode(mut hash: u64, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        text.push(char::from(ALPHABET[(hash % 27) as usize]));
        hash /= 27;
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_templates_have_equal_names() {
        let template = |image: &str| -> PodTemplateSpec {
            serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": image}]}})).unwrap()
        };
        assert_eq!(of(&template("a")), of(&template("a")));
        assert_ne!(of(&template("a")), of(&template("b")));
        assert_eq!(of(&template("a")).len(), 10);
    }
}
