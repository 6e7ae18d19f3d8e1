//! Archives of small root file systems, without Spark or network.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;

struct Bed {
    scratch: tempfile::TempDir,
    runtimes: Runtimes,
}

impl Bed {
    /// A root file system of a few files, known as `team/app:1`.
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("temporary directory");
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).expect("usr");
        fs::write(root.join("usr/bin/tool"), "#!/bin/sh\n").expect("a program");
        fs::set_permissions(root.join("usr/bin/tool"), fs::Permissions::from_mode(0o755)).expect("mode");
        symlink("usr/bin", root.join("bin")).expect("a link");
        let runtimes = Runtimes::new(scratch.path().join("cache"), Arc::new(|_| {}));
        runtimes.mappings().add("team/app:1", &root).expect("a mapping");
        Self { scratch, runtimes }
    }

    fn save(&self, reference: &str, file: &str, compression: Compression) -> Result<Saved, RuntimeError> {
        let file = self.scratch.path().join(file);
        self.runtimes.save(reference, &Save { file: &file, name: None, base: None, compression })
    }

    fn read(&self, file: &str) -> BTreeMap<String, Vec<u8>> {
        let bytes = fs::read(self.scratch.path().join(file)).expect("the archive");
        members(&bytes)
    }

    fn files(&self) -> Vec<String> {
        let all = fs::read_dir(self.scratch.path()).expect("scratch").flatten();
        let mut names: Vec<String> = all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

fn members(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bytes);
    let mut found = BTreeMap::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("content");
        found.insert(name, content);
    }
    found
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("JSON")
}

fn blob<'a>(all: &'a BTreeMap<String, Vec<u8>>, digest: &serde_json::Value) -> &'a [u8] {
    let digest = digest.as_str().expect("a digest").strip_prefix("sha256:").expect("sha256");
    let bytes = &all[&format!("blobs/sha256/{digest}")];
    use sha2::Digest as _;
    let hash: String = sha2::Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hash, digest, "a blob's name is its hash");
    bytes
}

#[test]
fn every_reader_of_images_finds_its_way_to_the_files() {
    let bed = Bed::new();
    for compression in [Compression::Gzip, Compression::None] {
        let saved = bed.save("team/app:1", "app.tar", compression).expect("an archive");
        assert_eq!(saved.name, "docker.io/team/app:1");
        let all = bed.read("app.tar");
        // containerd: index, manifest, configuration, layers.
        let index = json(&all["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "docker.io/team/app:1");
        assert_eq!(entry["digest"], saved.digest.as_str());
        let manifest = json(blob(&all, &entry["digest"]));
        let config = json(blob(&all, &manifest["config"]["digest"]));
        let layer = blob(&all, &manifest["layers"][0]["digest"]);
        let mut unpacked = Vec::new();
        match compression {
            Compression::Gzip => {
                flate2::read::GzDecoder::new(layer).read_to_end(&mut unpacked).expect("gzip");
            }
            Compression::None => unpacked.extend(layer),
        }
        let files = members(&unpacked);
        assert_eq!(files["usr/bin/tool"], b"#!/bin/sh\n");
        assert!(files.contains_key("bin"), "the link too: {:?}", files.keys());
        let hash: String = {
            use sha2::Digest as _;
            sha2::Sha256::digest(&unpacked).iter().map(|b| format!("{b:02x}")).collect()
        };
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{hash}"));
        assert_eq!(config["config"]["Cmd"][0], "sh");
        // docker: its own list, the same blobs.
        let docker = json(&all["manifest.json"]);
        assert_eq!(docker[0]["RepoTags"][0], "team/app:1");
        assert!(all.contains_key(docker[0]["Config"].as_str().expect("a path")));
        assert!(all.contains_key(docker[0]["Layers"][0].as_str().expect("a path")));
        assert_eq!(json(&all["oci-layout"])["imageLayoutVersion"], "1.0.0");
    }
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let bed = Bed::new();
    let first = bed.save("team/app:1", "a.tar", Compression::Gzip).expect("an archive");
    fs::write(bed.scratch.path().join("root/usr/bin/tool"), "#!/bin/sh\n").expect("written again, later");
    let second = bed.save("team/app:1", "b.tar", Compression::Gzip).expect("an archive");
    assert_eq!(first, second);
    let bytes = |name: &str| fs::read(bed.scratch.path().join(name)).expect("bytes");
    assert!(bytes("a.tar") == bytes("b.tar"));
}

#[test]
fn what_cannot_be_saved_is_said_and_leaves_nothing() {
    let bed = Bed::new();
    let before = bed.files();
    let refused = |reference: &str, file: &str, words: &str| {
        let error = bed.save(reference, file, Compression::None).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("busybox:1", "x.tar", "stands for the programs of this machine");
    refused("nobody/knows:1", "x.tar", "firesteel local image add");
    refused("team/app:1", "no/such/dir/x.tar", "No such file or directory");
    let file = bed.scratch.path().join("x.tar");
    let save = Save { file: &file, name: Some("Not A Name"), base: None, compression: Compression::None };
    let error = bed.runtimes.save("team/app:1", &save).expect_err("no name").to_string();
    assert!(error.contains("is not a name for an image"), "{error}");
    fs::remove_dir_all(bed.scratch.path().join("root")).expect("the files are gone");
    refused("team/app:1", "x.tar", "which is not a directory");
    let mut expected = before;
    expected.retain(|n| n != "root");
    assert_eq!(bed.files(), expected);
}

#[test]
fn a_full_disk_is_said() {
    // Every write to it fails with "no space left on device".
    let mut archive =
        Archive::new(fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full"), Compression::None);
    let big = vec![1_u8; 4 << 20];
    let error = archive.layer("x", |out| out.file("big", 0o644, Owner::Of(0, 0), &big)).expect_err("a full disk");
    assert!(error.to_string().contains("No space left"), "{error}");
}

#[test]
fn a_failure_in_the_middle_leaves_neither_a_part_nor_harm_to_an_older_archive() {
    let bed = Bed::new();
    bed.save("team/app:1", "x.tar", Compression::None).expect("an archive");
    let before = (bed.files(), fs::read(bed.scratch.path().join("x.tar")).expect("bytes"));
    // Names that are not UTF-8 cannot be packed; this one comes last.
    use std::os::unix::ffi::OsStrExt as _;
    fs::write(bed.scratch.path().join("root").join(std::ffi::OsStr::from_bytes(b"zz\xff")), "x").expect("a file");
    let error = bed.save("team/app:1", "x.tar", Compression::None).expect_err("a strange name").to_string();
    assert!(error.contains("the name is not text"), "{error}");
    assert_eq!((bed.files(), fs::read(bed.scratch.path().join("x.tar")).expect("bytes")), before);
}

#[test]
fn a_base_must_have_java_and_bash() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let words = |base: &Path| environment_on(base).expect_err("no Java").to_string();
    assert!(words(dir.path()).contains("contains no Java"), "{}", words(dir.path()));
    fs::create_dir_all(dir.path().join("usr/bin")).expect("usr");
    fs::write(dir.path().join("usr/bin/java"), "").expect("java");
    assert!(words(dir.path()).contains("contains no bash"));
    fs::write(dir.path().join("usr/bin/bash"), "").expect("bash");
    let env = environment_on(dir.path()).expect("an environment");
    assert!(env.iter().all(|(k, _)| k != "JAVA_HOME"), "the entry point finds it: {env:?}");
}
