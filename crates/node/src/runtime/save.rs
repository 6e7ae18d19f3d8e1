//! Exports a runtime as an image for containerd and docker: an OCI archive with a base system, Java, Python and Spark.
//!
//! In the local cluster, containers see this machine's programs; a real node has only what the image contains. The archive gets a
//! base layer of Debian packages (see [`debian`]) or a root file system that the user provides, and a second layer with Spark and
//! our entry point. The same inputs give the same bytes. The file appears under its name only when it is complete.

mod archive;
mod debian;
mod layer;
mod truststore;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use self::archive::{Archive, Config};
use self::layer::{Layer, Owner};
use crate::names::{DEFAULT_PATH, JAVA_HOME, QUICK_ENV, SPARK_HOME, SPARK_UID};
use crate::runtime::{Image, OnProgress, Progress, RuntimeError, Runtimes};
use crate::shim_protocol::Root;

pub use archive::Compression;

/// What to write, and where.
#[derive(Debug, Clone)]
pub struct Save<'a> {
    /// The file to write; replaced if it exists.
    pub file: &'a Path,
    /// The image's name; by default the reference it was requested by.
    pub name: Option<&'a str>,
    /// A root file system with Java to use instead of Debian packages.
    pub base: Option<&'a Path>,
    pub compression: Compression,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The full name of the image: `docker.io/apache/spark:4.1.4`.
    pub name: String,
    /// The digest of the image's manifest: `sha256:…`.
    pub digest: String,
    pub bytes: u64,
}

impl Runtimes {
    /// Writes an image's runtime as an OCI archive. Blocks for about a minute.
    pub fn save(&self, reference: &str, save: &Save<'_>) -> Result<Saved, RuntimeError> {
        let name = archive::Name::parse(save.name.unwrap_or(reference)).ok_or_else(|| {
            RuntimeError::Mapping(format!(
                "\"{}\" is not a name for an image: use REPOSITORY:TAG",
                save.name.unwrap_or(reference)
            ))
        })?;
        let image = self.resolve(reference)?;
        if matches!(&image.root, Root::Host { overlays } if overlays.is_empty()) {
            return Err(RuntimeError::Mapping(format!(
                "image \"{reference}\" stands for the programs of this machine and cannot be saved"
            )));
        }
        let partial = partial_name(save.file);
        let written = self.write(&image, &name, save, &partial).and_then(|saved| {
            fs::rename(&partial, save.file).map_err(|e| RuntimeError::file(save.file, e))?;
            Ok(saved)
        });
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written
    }

    fn write(
        &self,
        image: &Image,
        name: &archive::Name,
        save: &Save<'_>,
        partial: &Path,
    ) -> Result<Saved, RuntimeError> {
        let file = File::create(partial).map_err(|e| RuntimeError::file(partial, e))?;
        let failed = |e: io::Error| RuntimeError::file(save.file, e);
        let mut archive = Archive::new(file, save.compression);
        let mut env: Vec<(String, String)> = image.env.iter().filter(|(k, _)| k != QUICK_ENV).cloned().collect();
        match &image.root {
            Root::Directory(dir) => {
                self.tell("packing", dir);
                archive.layer("the root file system", |out| pack_directory(out, dir, &self.progress))?;
            }
            Root::Host { overlays } => {
                match save.base {
                    Some(base) => {
                        env = environment_on(base)?;
                        archive.layer("base", |out| pack_directory(out, base, &self.progress))?;
                    }
                    None => {
                        let packages = debian::fetch(&self.cache.join("debian"), &self.progress)?;
                        archive.layer("Debian packages", |out| packages.pack(out, &self.progress))?;
                    }
                }
                let homes: Vec<&PathBuf> = overlays.iter().map(|o| &o.lower).collect();
                archive.layer("Spark", |out| pack_spark(out, &homes, image, &self.progress))?;
            }
        }
        let config = Config {
            architecture: debian::oci_architecture(),
            env,
            entrypoint: image.entrypoint.clone(),
            command: image.arguments.clone(),
            working_dir: image.working_dir.clone(),
            user: if image.user.uid == 0 { String::new() } else { format!("{}:{}", image.user.uid, image.user.gid) },
        };
        let (digest, bytes) = archive.finish(&config, name).map_err(failed)?;
        Ok(Saved { name: name.full(), digest, bytes })
    }

    fn tell(&self, what: &str, of: &Path) {
        (self.progress)(&Progress { what: format!("{what} {}", of.display()), done: 0, total: None });
    }
}

/// In the same directory, so that the final rename stays within one file system.
fn partial_name(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}.partial", std::process::id()))
}

/// The environment for a user-provided base: it must have Java, in its own place or in ours.
fn environment_on(base: &Path) -> Result<Vec<(String, String)>, RuntimeError> {
    let has = |path: &str| fs::symlink_metadata(base.join(path)).is_ok();
    let mut env = vec![("SPARK_HOME".to_owned(), SPARK_HOME.to_owned())];
    if has("opt/java/openjdk/bin/java") {
        env.push(("JAVA_HOME".to_owned(), JAVA_HOME.to_owned()));
        env.push(("PATH".to_owned(), format!("{JAVA_HOME}/bin:{DEFAULT_PATH}:{SPARK_HOME}/bin")));
    } else if has("usr/bin/java") || has("usr/local/bin/java") {
        env.push(("PATH".to_owned(), format!("{DEFAULT_PATH}:{SPARK_HOME}/bin")));
    } else {
        return Err(RuntimeError::Mapping(format!(
            "{} contains no Java (opt/java/openjdk, usr/bin/java, usr/local/bin/java): Spark cannot run on it",
            base.display()
        )));
    }
    if !has("bin/bash") && !has("usr/bin/bash") {
        return Err(RuntimeError::Mapping(format!("{} contains no bash, which Spark's scripts need", base.display())));
    }
    Ok(env)
}

fn pack_directory(out: &mut Layer<'_>, dir: &Path, progress: &OnProgress) -> Result<(), RuntimeError> {
    let what = format!("packing {}", dir.display());
    out.tree(dir, "", Owner::AsOnDisk, &mut |done| progress(&Progress { what: what.clone(), done, total: None }))
}

fn pack_spark(
    out: &mut Layer<'_>,
    homes: &[&PathBuf],
    image: &Image,
    progress: &OnProgress,
) -> Result<(), RuntimeError> {
    let owner = Owner::Of(SPARK_UID, SPARK_UID);
    out.directory("opt", 0o755, Owner::Of(0, 0))?;
    for home in homes {
        out.tree(home, SPARK_HOME, owner, &mut |done| {
            progress(&Progress { what: "packing Spark".to_owned(), done, total: None });
        })?;
    }
    out.directory(&format!("{SPARK_HOME}/conf"), 0o755, owner)?;
    out.directory(&format!("{SPARK_HOME}/work-dir"), 0o775, owner)?;
    for (path, content) in &image.files {
        out.file(path, 0o755, Owner::Of(0, 0), content.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
