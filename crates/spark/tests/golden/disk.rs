//! The files that the golden cases name.

use std::io;

use firesteel_spark::surroundings::Files;

pub(crate) struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(firesteel_spark::surroundings::local_path(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
            }
        }
        Ok(files)
    }
}
