//! Prints the custom resource definitions as one JSON list, for tests that are not written in Rust.

fn main() {
    println!("{}", serde_json::Value::from(firesteel_api::crds::manifests()));
}
