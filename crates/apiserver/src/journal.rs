//! The store on disk: one redb file with the current state of every object and the revision.
//!
//! A write is acknowledged only after its transaction is synced. Writes that arrive during a sync share the next one. The watch log is
//! not persisted: after a restart, watches continue from the last revision, and older ones get 410.
//!
//! A failed write (full disk) is rejected without a trace: redb is unusable after an error, so the file is reopened for the next
//! write, which first restores what the failed one may have changed.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::oneshot;

use crate::store::{Key, StagedChange, Store, StoreError, Stored, Write};

/// The file format. A higher version is refused.
const FORMAT: u64 = 1;
/// A file of at least this size with less than half in use is compacted when opened.
const WORTH_COMPACTING: u64 = 8 << 20;

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("data directory {path} is in use by another server")]
    InUse { path: String },
    #[error("data directory {path} was written by a newer version (format {found}, this one knows {FORMAT})")]
    Newer { path: String, found: u64 },
    #[error("open {path}: {source}")]
    Open { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("read the objects stored in {path}: {source}")]
    Load { path: String, source: Box<dyn std::error::Error + Send + Sync> },
}

type Waiting = (Write, oneshot::Sender<Result<Arc<Stored>, StoreError>>);

pub(crate) struct Journal {
    path: PathBuf,
    disk: Mutex<Disk>,
    queue: Mutex<Vec<Waiting>>,
    /// A flush is scheduled and has not taken the queue yet.
    scheduled: AtomicBool,
    flushing: Mutex<()>,
}

struct Disk {
    /// `None` after an error, until the next write.
    database: Option<Database>,
    /// The previous state of objects in failed writes; `None` if they did not exist.
    undo: BTreeMap<String, Option<Bytes>>,
    /// Locks the directory until the journal is closed.
    lock: Option<File>,
}

impl Journal {
    pub(crate) fn open(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join("objects.redb");
        let shown = || directory.display().to_string();
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| JournalError::Open { path: shown(), source };
        std::fs::create_dir_all(directory).map_err(|e| failed(e.into()))?;
        // Some objects are secret.
        crate::pki::restrict(directory, 0o700).map_err(|e| failed(e.into()))?;
        let lock = File::create(directory.join("lock")).map_err(|e| failed(e.into()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { path: shown() }),
            Err(TryLockError::Error(error)) => return Err(failed(error.into())),
        }
        if !path.exists() {
            make(directory, &path).map_err(|e| failed(e.into()))?;
        }
        let mut database = match Database::create(&path) {
            Ok(database) => database,
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => return Err(JournalError::InUse { path: shown() }),
            Err(error) => return Err(failed(error.into())),
        };
        if let Some(found) = newer_format(&database).map_err(|e| failed(e.into()))? {
            return Err(JournalError::Newer { path: shown(), found });
        }
        if mostly_empty(&path, &database).map_err(|e| failed(e.into()))? {
            database.compact().map_err(|e| failed(e.into()))?;
        }
        Ok(Self {
            path,
            disk: Mutex::new(Disk { database: Some(database), undo: BTreeMap::new(), lock: Some(lock) }),
            queue: Mutex::default(),
            scheduled: AtomicBool::new(false),
            flushing: Mutex::new(()),
        })
    }

    /// Loads every object; returns the revision.
    pub(crate) fn load(&self, take: impl FnMut(Arc<str>, Key, Stored)) -> Result<u64, JournalError> {
        let failed = |source| JournalError::Load { path: self.path.display().to_string(), source };
        match &self.disk.lock().unwrap_or_else(PoisonError::into_inner).database {
            Some(database) => load(database, take).map_err(failed),
            None => Err(failed("it is not open".into())),
        }
    }

    /// Queues a write and waits until it is on disk or rejected.
    pub(crate) async fn submit(&self, store: &Arc<Store>, write: Write) -> Result<Arc<Stored>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((write, reply));
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            let store = store.clone();
            tokio::task::spawn_blocking(move || store.flush());
        }
        answer.await.unwrap_or_else(|_| Err(StoreError::Disk("the writer ended early".into())))
    }

    /// Flushes the queue and releases the directory; later writes are rejected.
    pub(crate) fn close(&self, store: &Store) {
        self.flush(store);
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.database = None;
        // Closing the file is not enough: a process that is being started holds a copy of it until it runs its own program.
        if let Some(Err(error)) = disk.lock.take().map(|lock| lock.unlock()) {
            tracing::warn!(%error, "the lock of the data directory is released only when this process ends");
        }
    }

    pub(crate) fn flush(&self, store: &Store) {
        let _turn = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.scheduled.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        let (writes, replies): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        let results = store.commit_batch(writes, |changes| {
            self.persist(changes).map_err(|error| {
                tracing::error!(%error, path = %self.path.display(), "a change could not be written");
                StoreError::Disk(error.to_string().into())
            })
        });
        for (reply, result) in replies.into_iter().zip(results) {
            let _ = reply.send(result);
        }
    }

    fn persist(&self, changes: &[StagedChange]) -> Result<(), redb::Error> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let Disk { database, undo, lock } = &mut *disk;
        let open = match database.take() {
            Some(open) => open,
            None if lock.is_none() => return Err(redb::Error::Io(std::io::Error::other("the server has stopped"))),
            None => Database::create(&self.path)?,
        };
        match write(&open, undo, changes) {
            Ok(()) => {
                undo.clear();
                *database = Some(open);
                Ok(())
            }
            Err(error) => {
                for change in changes {
                    undo.entry(key_of(change)).or_insert_with(|| change.before.as_ref().map(|stored| stored.text()));
                }
                Err(error)
            }
        }
    }
}

/// Creates an empty file. It is renamed into place when complete, so that no partial file is ever found.
fn make(directory: &Path, path: &Path) -> Result<(), redb::Error> {
    let unfinished = path.with_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(redb::Error::Io(error)),
        _ => {}
    }
    newer_format(&Database::create(&unfinished)?)?;
    std::fs::rename(&unfinished, path).map_err(redb::Error::Io)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(redb::Error::Io)
}

fn newer_format(database: &Database) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut facts = transaction.open_table(FACTS)?;
        transaction.open_table(OBJECTS)?;
        let format = facts.get("format")?.map(|v| v.value());
        match format {
            None => {
                facts.insert("format", FORMAT)?;
            }
            Some(found) if found > FORMAT => return Ok(Some(found)),
            Some(_) => {}
        }
    }
    transaction.commit()?;
    Ok(None)
}

fn mostly_empty(path: &Path, database: &Database) -> Result<bool, redb::Error> {
    let size = std::fs::metadata(path).map_or(0, |found| found.len());
    if size < WORTH_COMPACTING {
        return Ok(false);
    }
    let transaction = database.begin_write()?;
    let used = transaction.stats()?;
    let live = used.stored_bytes() + used.metadata_bytes();
    transaction.abort()?;
    Ok(live < size / 2)
}

fn load(
    database: &Database,
    mut take: impl FnMut(Arc<str>, Key, Stored),
) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    let transaction = database.begin_read()?;
    let revision = transaction.open_table(FACTS)?.get("revision")?.map_or(0, |v| v.value());
    for entry in transaction.open_table(OBJECTS)?.iter()? {
        let (key, value) = entry?;
        let mut parts = key.value().splitn(3, '\0');
        let (Some(table), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("unreadable key {:?}", key.value()).into());
        };
        let value: serde_json::Value = serde_json::from_slice(value.value())?;
        let revision = crate::meta::resource_version(&value).parse().unwrap_or_default();
        take(table.into(), (namespace.into(), name.into()), Stored::new(revision, value));
    }
    Ok(revision)
}

fn key_of(change: &StagedChange) -> String {
    format!("{}\0{}\0{}", change.table, change.key.0, change.key.1)
}

fn write(
    database: &Database,
    undo: &BTreeMap<String, Option<Bytes>>,
    changes: &[StagedChange],
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for (key, before) in undo {
            match before {
                Some(text) => objects.insert(key.as_str(), text.as_ref())?,
                None => objects.remove(key.as_str())?,
            };
        }
        for change in changes {
            let key = key_of(change);
            if change.removed {
                objects.remove(key.as_str())?;
            } else {
                objects.insert(key.as_str(), change.now.text().as_ref())?;
            }
        }
        if let Some(last) = changes.last() {
            transaction.open_table(FACTS)?.insert("revision", last.now.revision)?;
        }
    }
    transaction.commit()?;
    Ok(())
}
