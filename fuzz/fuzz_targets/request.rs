//! Any request to the API server: see `entry.rs`.
#![no_main]

#[path = "../entry.rs"]
mod entry;

use std::sync::LazyLock;

use firesteel_apiserver::{ApiServer, RunningServer};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;

static SERVER: LazyLock<(Runtime, RunningServer)> = LazyLock::new(|| {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::builder().history(64).start()).expect("a server");
    (runtime, server)
});

fuzz_target!(|input: &[u8]| {
    let (runtime, server) = &*SERVER;
    if let Err(wrong) = runtime.block_on(entry::run(server, input)) {
        panic!("{wrong}");
    }
});
