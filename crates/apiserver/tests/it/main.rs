//! The server as its clients see it: kube-rs over TLS, and raw requests.

mod client;
mod objects;
