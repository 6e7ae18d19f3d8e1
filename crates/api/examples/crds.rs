//! Prints the custom resource definitions as one JSON list, for tests in other languages.

fn main() {
    println!("{}", serde_json::Value::from(firesteel_api::crds::manifests()));
}
