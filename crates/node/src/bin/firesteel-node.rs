//! The node agent on its own, without the rest of `firesteel`: what this crate's tests start.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["shim", rest @ ..] => ExitCode::from(firesteel_node::shim::main(rest)),
        _ => {
            eprintln!("usage: {} shim …", Path::new("firesteel-node").display());
            ExitCode::from(2)
        }
    }
}
