//! The archive file: an OCI image layout in a tar file, with the `manifest.json` for `docker load`.
//!
//! A layer is written directly into the file; its name, which is its hash, is filled in afterwards.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};

use flate2::write::GzEncoder;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};

use super::layer::Layer;
use crate::runtime::RuntimeError;

const BLOCK: u64 = 512;
const BUFFER: usize = 1 << 20;
/// 2024-01-01, the default time of files: the same content gives the same image.
const CREATED: &str = "2024-01-01T00:00:00Z";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Layer compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    /// Faster to write and to load, about twice as large.
    None,
}

/// An image name, with Docker's default registry and tag filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    registry: String,
    path: String,
    tag: String,
}

impl Name {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().split('@').next()?;
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (text, "latest"),
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
            Some(_) => ("docker.io", name.to_owned()),
            None => ("docker.io", format!("library/{name}")),
        };
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
        let tag_is_legal = !tag.is_empty()
            && tag.len() <= 128
            && !tag.starts_with(['.', '-'])
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let parts_are_legal =
            path.split('/').all(|p| !p.is_empty() && p.starts_with(|c: char| c.is_ascii_alphanumeric()));
        let path_is_legal = path.chars().all(legal) && parts_are_legal;
        (tag_is_legal && path_is_legal).then(|| Self { registry: registry.to_owned(), path, tag: tag.to_owned() })
    }

    /// In containerd's spelling.
    pub(super) fn full(&self) -> String {
        format!("{}/{}:{}", self.registry, self.path, self.tag)
    }

    /// In Docker's spelling: without the default registry.
    fn short(&self) -> String {
        let path = self.path.strip_prefix("library/").unwrap_or(&self.path);
        if self.registry == "docker.io" { format!("{path}:{}", self.tag) } else { self.full() }
    }
}

/// An image's run configuration.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) architecture: &'static str,
    pub(super) env: Vec<(String, String)>,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    pub(super) working_dir: String,
    pub(super) user: String,
}

struct Packed {
    /// The digest of the layer in the file.
    digest: String,
    bytes: u64,
    /// The digest of the unpacked layer.
    content: String,
    from: String,
}

pub(super) struct Archive {
    out: BufWriter<File>,
    /// Where the next layer starts. All layers come first.
    at: u64,
    compression: Compression,
    layers: Vec<Packed>,
}

impl Archive {
    pub(super) fn new(file: File, compression: Compression) -> Self {
        Self { out: BufWriter::with_capacity(BUFFER, file), at: 0, compression, layers: Vec::new() }
    }

    /// Writes a layer, which `fill` populates. `from` describes its origin in the image's history.
    pub(super) fn layer(
        &mut self,
        from: &str,
        fill: impl FnOnce(&mut Layer<'_>) -> Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        let start = self.at;
        self.out.write_all(&[0; BLOCK as usize])?;
        let mut packed = Hashed::new(&mut self.out);
        let content = match self.compression {
            Compression::None => {
                let mut unpacked = Hashed::new(&mut packed);
                fill_layer(&mut unpacked, fill)?;
                unpacked.finish().0
            }
            Compression::Gzip => {
                let mut unpacked = Hashed::new(GzEncoder::new(&mut packed, flate2::Compression::new(4)));
                fill_layer(&mut unpacked, fill)?;
                let (content, _, gzip) = unpacked.finish();
                gzip.finish()?;
                content
            }
        };
        let (digest, bytes, _) = packed.finish();
        self.seal(start, (digest, bytes), content, from)
    }

    /// Fills in a layer's name once it is known.
    fn seal(
        &mut self,
        start: u64,
        (digest, bytes): (String, u64),
        content: String,
        from: &str,
    ) -> Result<(), RuntimeError> {
        self.pad(bytes)?;
        let end = start + BLOCK + bytes.next_multiple_of(BLOCK);
        self.out.seek(SeekFrom::Start(start))?;
        let header = header(&format!("blobs/sha256/{digest}"), bytes)?;
        self.out.write_all(header.as_bytes())?;
        self.out.seek(SeekFrom::Start(end))?;
        self.at = end;
        self.layers.push(Packed { digest, bytes, content, from: from.to_owned() });
        Ok(())
    }

    /// Writes the metadata. Returns the image's digest and the file size.
    pub(super) fn finish(mut self, config: &Config, name: &Name) -> io::Result<(String, u64)> {
        let config = self.config(config);
        let (config_digest, config_size) = self.blob(&config)?;
        let suffix = if self.compression == Compression::Gzip { "+gzip" } else { "" };
        let layer = |l: &Packed| json!({"mediaType": format!("{LAYER}{suffix}"), "digest": format!("sha256:{}", l.digest), "size": l.bytes});
        let layers: Vec<Value> = self.layers.iter().map(layer).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": format!("sha256:{config_digest}"), "size": config_size},
            "layers": layers,
        });
        let (digest, size) = self.blob(&manifest)?;
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": MANIFEST,
                "digest": format!("sha256:{digest}"),
                "size": size,
                "annotations": {"io.containerd.image.name": name.full(), "org.opencontainers.image.ref.name": name.tag},
            }],
        });
        let paths: Vec<String> = self.layers.iter().map(|l| format!("blobs/sha256/{}", l.digest)).collect();
        let docker = json!([{
            "Config": format!("blobs/sha256/{config_digest}"), "RepoTags": [name.short()], "Layers": paths,
        }]);
        self.member("index.json", index.to_string().as_bytes())?;
        self.member("manifest.json", docker.to_string().as_bytes())?;
        self.member("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.out.write_all(&[0; 2 * BLOCK as usize])?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Sync, so that a full disk fails now and not after the rename.
        file.sync_all()?;
        Ok((format!("sha256:{digest}"), file.metadata()?.len()))
    }

    fn config(&self, config: &Config) -> Value {
        let env: Vec<String> = config.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mut run = json!({"Env": env, "WorkingDir": config.working_dir});
        for (key, words) in [("Entrypoint", &config.entrypoint), ("Cmd", &config.command)] {
            if !words.is_empty() {
                run[key] = json!(words);
            }
        }
        if !config.user.is_empty() {
            run["User"] = json!(config.user);
        }
        let contents: Vec<String> = self.layers.iter().map(|l| format!("sha256:{}", l.content)).collect();
        let history: Vec<Value> = self
            .layers
            .iter()
            .map(|l| json!({"created": CREATED, "created_by": format!("firesteel: {}", l.from)}))
            .collect();
        json!({
            "created": CREATED,
            "architecture": config.architecture,
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": contents},
            "history": history,
        })
    }

    fn blob(&mut self, value: &Value) -> io::Result<(String, usize)> {
        let bytes = value.to_string().into_bytes();
        let digest = hex(ring::digest::digest(&SHA256, &bytes).as_ref());
        self.member(&format!("blobs/sha256/{digest}"), &bytes)?;
        Ok((digest, bytes.len()))
    }

    fn member(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(header(name, bytes.len() as u64)?.as_bytes())?;
        self.out.write_all(bytes)?;
        self.pad(bytes.len() as u64)
    }

    fn pad(&mut self, bytes: u64) -> io::Result<()> {
        let rest = bytes.next_multiple_of(BLOCK) - bytes;
        self.out.write_all(&vec![0; rest as usize])
    }
}

fn fill_layer(
    out: &mut dyn Write,
    fill: impl FnOnce(&mut Layer<'_>) -> Result<(), RuntimeError>,
) -> Result<(), RuntimeError> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    {
        let mut layer = Layer::new(&mut out);
        fill(&mut layer)?;
        layer.finish()?;
    }
    out.flush()?;
    Ok(())
}

fn header(name: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    Ok(header)
}

/// Passes bytes on, and computes their hash and count.
struct Hashed<W> {
    inner: W,
    digest: Context,
    bytes: u64,
}

impl<W: Write> Hashed<W> {
    fn new(inner: W) -> Self {
        Self { inner, digest: Context::new(&SHA256), bytes: 0 }
    }

    fn finish(self) -> (String, u64, W) {
        (hex(self.digest.finish().as_ref()), self.bytes, self.inner)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.inner.write(bytes)?;
        self.digest.update(&bytes[..taken]);
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_docker_does() {
        let names = |text: &str| Name::parse(text).map(|n| (n.full(), n.short()));
        let pair = |full: &str, short: &str| Some((full.to_owned(), short.to_owned()));
        assert_eq!(names("apache/spark:4.1.4"), pair("docker.io/apache/spark:4.1.4", "apache/spark:4.1.4"));
        assert_eq!(names("spark"), pair("docker.io/library/spark:latest", "spark:latest"));
        assert_eq!(names("docker.io/apache/spark:1"), pair("docker.io/apache/spark:1", "apache/spark:1"));
        assert_eq!(names("localhost:5000/a/b:c"), pair("localhost:5000/a/b:c", "localhost:5000/a/b:c"));
        for wrong in ["", "A/b", "a//b", "a:", "a:b c", "/a", "a:-x"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }
}
