//! The standalone server: an empty cluster for kubectl and other clients, without controllers and pods.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use firesteel_apiserver::ApiServer;

/// Requests make many small allocations; this allocator takes a third of the system allocator's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: firesteel-apiserver --kubeconfig FILE [--data-dir DIRECTORY] [--port PORT]

Serves a Kubernetes API on 127.0.0.1 until SIGINT or SIGTERM. Writes the administrator's kubeconfig to FILE, then prints the URL.
Without --data-dir everything is gone at the end; without --port the system picks one.";

fn main() -> ExitCode {
    let settings = match Settings::parse(std::env::args().skip(1)) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("firesteel-apiserver: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let served =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(serve(settings)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("firesteel-apiserver: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let address = SocketAddr::from(([127, 0, 0, 1], settings.port));
    let server = ApiServer::builder().bind(address).data_dir(settings.data_dir).start().await?;
    write_private(&settings.kubeconfig, &server.admin_kubeconfig())
        .map_err(|error| format!("write {}: {error}", settings.kubeconfig.display()))?;
    println!("{}", server.url());
    stopped().await?;
    server.shutdown().await;
    Ok(())
}

/// Writes a file that only its owner can read, even if others could before.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    file.write_all(text.as_bytes())
}

#[cfg(unix)]
async fn stopped() -> std::io::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn stopped() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

struct Settings {
    kubeconfig: PathBuf,
    data_dir: Option<PathBuf>,
    port: u16,
}

impl Settings {
    /// `None` if help was requested.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut kubeconfig, mut data_dir, mut port) = (None, None, 0);
        while let Some(word) = arguments.next() {
            if matches!(word.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            let mut value = || arguments.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--kubeconfig" => kubeconfig = Some(value()?.into()),
                "--data-dir" => data_dir = Some(value()?.into()),
                "--port" => {
                    let text = value()?;
                    port = text.parse().map_err(|_| format!("--port {text} is not a port number"))?;
                }
                other => return Err(format!("unknown argument {other}")),
            }
        }
        let kubeconfig = kubeconfig.ok_or("--kubeconfig FILE is required: the kubeconfig to write")?;
        Ok(Some(Self { kubeconfig, data_dir, port }))
    }
}
