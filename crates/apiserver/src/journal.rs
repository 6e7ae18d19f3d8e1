//! The store on disk: one redb file holding the current state of every object and the revision.
//!
//! A write is acknowledged only after its transaction is synced. Writers that arrive while a sync is under way share the
//! next one. The recent past (the watch log) is not kept: after a restart watches continue from the last revision, older
//! ones get 410.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::oneshot;

use crate::store::{Key, Refused, StagedChange, Store, Stored, Write};

/// The layout of the file. A higher number than ours is refused.
const FORMAT: u64 = 1;

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
    #[error("read the stored objects: {0}")]
    Load(Box<dyn std::error::Error + Send + Sync>),
}

type Waiting = (Write, oneshot::Sender<Result<Arc<Stored>, Refused>>);

pub(crate) struct Journal {
    database: Database,
    queue: Mutex<Vec<Waiting>>,
    /// A flush is on its way that has not taken the queue yet.
    scheduled: AtomicBool,
    flushing: Mutex<()>,
}

pub(crate) struct Loaded {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Arc<str>, Key, Stored)>,
}

impl Journal {
    pub(crate) fn open(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join("objects.redb");
        let shown = directory.display().to_string();
        let open =
            |source: Box<dyn std::error::Error + Send + Sync>| JournalError::Open { path: shown.clone(), source };
        std::fs::create_dir_all(directory).map_err(|e| open(e.into()))?;
        let database = match Database::create(&path) {
            Ok(database) => database,
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => return Err(JournalError::InUse { path: shown }),
            Err(error) => return Err(open(error.into())),
        };
        let transaction = database.begin_write().map_err(|e| open(e.into()))?;
        {
            let mut facts = transaction.open_table(FACTS).map_err(|e| open(e.into()))?;
            transaction.open_table(OBJECTS).map_err(|e| open(e.into()))?;
            let format = facts.get("format").map_err(|e| open(e.into()))?.map(|v| v.value());
            match format {
                None => {
                    facts.insert("format", FORMAT).map_err(|e| open(e.into()))?;
                }
                Some(found) if found > FORMAT => return Err(JournalError::Newer { path: shown, found }),
                Some(_) => {}
            }
        }
        transaction.commit().map_err(|e| open(e.into()))?;
        Ok(Self { database, queue: Mutex::default(), scheduled: AtomicBool::new(false), flushing: Mutex::new(()) })
    }

    pub(crate) fn load(&self) -> Result<Loaded, JournalError> {
        let failed = |e: redb::Error| JournalError::Load(e.into());
        let transaction = self.database.begin_read().map_err(|e| failed(e.into()))?;
        let facts = transaction.open_table(FACTS).map_err(|e| failed(e.into()))?;
        let revision = facts.get("revision").map_err(|e| failed(e.into()))?.map_or(0, |v| v.value());
        let mut objects = Vec::new();
        for entry in
            transaction.open_table(OBJECTS).map_err(|e| failed(e.into()))?.iter().map_err(|e| failed(e.into()))?
        {
            let (key, value) = entry.map_err(|e| failed(e.into()))?;
            let mut parts = key.value().splitn(3, '\0');
            let (Some(table), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(JournalError::Load(format!("unreadable key {:?}", key.value()).into()));
            };
            let value: serde_json::Value =
                serde_json::from_slice(value.value()).map_err(|e| JournalError::Load(e.into()))?;
            let revision = crate::meta::resource_version(&value).parse().unwrap_or_default();
            objects.push((table.into(), (namespace.into(), name.into()), Stored::new(revision, value)));
        }
        Ok(Loaded { revision, objects })
    }

    /// Queues a write and waits until it is on disk (or refused).
    pub(crate) async fn submit(&self, store: &Arc<Store>, write: Write) -> Result<Arc<Stored>, Refused> {
        let (reply, answer) = oneshot::channel();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push((write, reply));
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            let store = store.clone();
            tokio::task::spawn_blocking(move || store.flush());
        }
        answer.await.unwrap_or(Err(Refused::Disk))
    }

    pub(crate) fn flush(&self, store: &Store) {
        let _turn = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.scheduled.store(false, Ordering::Release);
        let waiting = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        let (writes, replies): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        let results = store.commit_batch(writes, |changes| match self.persist(changes) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "the journal could not be written");
                false
            }
        });
        for (reply, result) in replies.into_iter().zip(results) {
            let _ = reply.send(result);
        }
    }

    fn persist(&self, changes: &[StagedChange]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut facts = transaction.open_table(FACTS)?;
            for change in changes {
                let key = format!("{}\0{}\0{}", change.table, change.key.0, change.key.1);
                if change.removed {
                    objects.remove(key.as_str())?;
                } else {
                    objects.insert(key.as_str(), change.now.text().as_ref())?;
                }
                facts.insert("revision", change.now.revision)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
