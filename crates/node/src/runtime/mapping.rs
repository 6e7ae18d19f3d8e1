//! The user's image mappings: a file that maps references to directories.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::runtime::RuntimeError;
use crate::shim_protocol::write_atomically;

/// The file `images.json` of a cache directory.
#[derive(Debug, Clone)]
pub struct Mappings {
    file: PathBuf,
}

impl Mappings {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// All mappings, by reference.
    pub fn read(&self) -> Result<BTreeMap<String, PathBuf>, RuntimeError> {
        match fs::read(&self.file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| RuntimeError::Mapping(format!("{} is damaged: {e}", self.file.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(RuntimeError::file(&self.file, error)),
        }
    }

    /// Maps a reference to a directory: a Spark directory or a root file system.
    pub fn add(&self, reference: &str, dir: &Path) -> Result<(), RuntimeError> {
        let dir = fs::canonicalize(dir).map_err(|e| RuntimeError::file(dir, e))?;
        self.change(|all| {
            all.insert(reference.to_owned(), dir);
        })
    }

    /// Removes a mapping; `false` if there was none.
    pub fn remove(&self, reference: &str) -> Result<bool, RuntimeError> {
        let mut known = false;
        self.change(|all| known = all.remove(reference).is_some())?;
        Ok(known)
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<String, PathBuf>)) -> Result<(), RuntimeError> {
        let mut all = self.read()?;
        edit(&mut all);
        if let Some(parent) = self.file.parent() {
            fs::create_dir_all(parent).map_err(|e| RuntimeError::file(parent, e))?;
        }
        let text = serde_json::to_vec_pretty(&all).map_err(|e| RuntimeError::Mapping(e.to_string()))?;
        write_atomically(&self.file, &text).map_err(|e| RuntimeError::file(&self.file, e))
    }
}
