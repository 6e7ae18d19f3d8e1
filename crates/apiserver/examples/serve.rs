//! Serves an empty cluster until Ctrl-C: `cargo run --example serve -- kubeconfig.yaml [data directory]`, then
//! `kubectl --kubeconfig kubeconfig.yaml get namespaces`.

use firesteel_apiserver::ApiServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let kubeconfig = arguments.next().ok_or("say where to write the kubeconfig")?;
    let server = ApiServer::builder().data_dir(arguments.next().map(Into::into)).start().await?;
    std::fs::write(&kubeconfig, server.admin_kubeconfig())?;
    println!("{}", server.url());
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
