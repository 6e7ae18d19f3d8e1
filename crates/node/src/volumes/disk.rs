//! Planned volumes on disk.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{HostKind, Planned, VolumeError};
use crate::launch::Mount;

/// Writes a planned volume and gives the path to bind. Doing it again brings it up to date.
pub(crate) fn materialise(
    planned: &Planned,
    dir: &Path,
    memory_dir: &Path,
    fs_group: Option<u32>,
) -> Result<PathBuf, VolumeError> {
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| VolumeError::Path(format!("{path}: {e}"))
    };
    match planned {
        Planned::Files(files) => {
            fs::create_dir_all(dir).map_err(said(dir))?;
            for (name, file) in files {
                let path = dir.join(name);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).map_err(said(parent))?;
                }
                if fs::read(&path).is_ok_and(|old| old == file.bytes) {
                    continue;
                }
                // A file that is bound by subPath keeps its old content, as in a kubelet: the new one is another file.
                let temporary =
                    path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()));
                fs::write(&temporary, &file.bytes).map_err(said(&temporary))?;
                let mode = if fs_group.is_some() { file.mode | (file.mode & 0o400) >> 3 } else { file.mode };
                fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)).map_err(said(&temporary))?;
                give_to_group(&temporary, fs_group);
                fs::rename(&temporary, &path).map_err(said(&path))?;
            }
            Ok(dir.to_owned())
        }
        Planned::Empty { memory } => {
            let place = if *memory { memory_dir } else { dir };
            if !place.is_dir() {
                fs::DirBuilder::new().recursive(true).mode(0o777).create(place).map_err(said(place))?;
                let mode = if fs_group.is_some() { 0o2777 } else { 0o777 };
                fs::set_permissions(place, fs::Permissions::from_mode(mode)).map_err(said(place))?;
                give_to_group(place, fs_group);
            }
            Ok(place.to_owned())
        }
        Planned::Host { path, kind } => host_place(path, *kind),
    }
}

fn host_place(path: &Path, kind: HostKind) -> Result<PathBuf, VolumeError> {
    use std::os::unix::fs::FileTypeExt as _;
    let refuse = |wanted| VolumeError::HostPath { path: path.display().to_string(), wanted };
    let said = |e: io::Error| VolumeError::Path(format!("{}: {e}", path.display()));
    let meta = fs::metadata(path);
    match (kind, &meta) {
        (HostKind::Any, Ok(_)) => {}
        // A container runtime makes a missing directory for a bind mount.
        (HostKind::Any | HostKind::DirectoryOrCreate, Err(_)) => fs::create_dir_all(path).map_err(said)?,
        (HostKind::FileOrCreate, Err(_)) => fs::write(path, b"").map_err(said)?,
        (HostKind::Directory | HostKind::DirectoryOrCreate, Ok(m)) if m.is_dir() => {}
        (HostKind::Directory | HostKind::DirectoryOrCreate, _) => return Err(refuse("directory")),
        (HostKind::File | HostKind::FileOrCreate, Ok(m)) if m.is_file() => {}
        (HostKind::File | HostKind::FileOrCreate, _) => return Err(refuse("file")),
        (HostKind::Socket, Ok(m)) if m.file_type().is_socket() => {}
        (HostKind::Socket, _) => return Err(refuse("socket file")),
        (HostKind::Device, Ok(m)) if m.file_type().is_char_device() || m.file_type().is_block_device() => {}
        (HostKind::Device, _) => return Err(refuse("device")),
    }
    Ok(path.to_owned())
}

fn give_to_group(path: &Path, group: Option<u32>) {
    if let Some(group) = group {
        // Only root may; an ordinary user's pods have one user and one group anyway.
        let _ = nix::unistd::chown(path, None, Some(nix::unistd::Gid::from_raw(group)));
    }
}

/// Makes the directory a subPath names, where that is the volume's business (not for ConfigMaps and the like).
pub(crate) fn make_sub_path(mount: &Mount) -> io::Result<()> {
    if mount.source.exists() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o777).create(&mount.source)?;
    fs::set_permissions(&mount.source, fs::Permissions::from_mode(0o777))
}
