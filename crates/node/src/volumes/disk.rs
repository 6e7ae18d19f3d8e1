//! Writes planned volumes to disk.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{FileSpec, HostKind, Planned, VolumeError, atomic, beneath};
use crate::shim_protocol::Mount;

/// Creates or updates a planned volume and returns the path to bind.
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
            let mode_of = |file: &FileSpec| match fs_group {
                Some(_) => file.mode | (file.mode & 0o400) >> 3,
                None => file.mode,
            };
            atomic::write(dir, files, |path| give_to_group(path, fs_group), mode_of).map_err(said(dir))?;
            Ok(dir.to_owned())
        }
        Planned::Empty { memory } => {
            let place = if *memory { memory_dir } else { dir };
            if let Some(parent) = memory_dir.parent().filter(|_| *memory) {
                crate::private_directory::directory(parent).map_err(said(parent))?;
            }
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
        // Container runtimes create a missing directory for a bind mount.
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
        // Only root can; an ordinary user's pods have a single user and group anyway.
        let _ = nix::unistd::chown(path, None, Some(nix::unistd::Gid::from_raw(group)));
    }
}

/// Creates the directory of a subPath, and rejects one that leads out of its volume. The mounting code opens it again, because it
/// may have been changed in between.
pub(crate) fn make_sub_path(mount: &Mount) -> io::Result<()> {
    let Some((volume, part)) = mount.sub_path() else { return Ok(()) };
    // As in a kubelet: the volume's permissions plus setgid.
    let mode = fs::metadata(volume)?.permissions().mode() & 0o6777;
    let made = beneath::make(volume, part, mode).and_then(|_| beneath::open(volume, part));
    made.map(drop).map_err(|e| io::Error::other(format!("subPath \"{}\": {e}", part.display())))
}
