//! The store: objects of all kinds under one revision counter, and a log of recent changes for watches.
//!
//! A write is a [`Write`]: put this value if the object is still at that revision. Watches have no queues: each tracks the revision it
//! has read and continues in its resource's log, so a slow reader costs nothing and falls off the end (410) instead of growing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::watch;

pub(crate) use crate::stored::Stored;

/// The number of changes kept per resource, and how long those beyond the newest few are kept. Older revisions get 410.
pub(crate) const HISTORY: usize = 16_384;
const ALWAYS_KEPT: usize = 1024;
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The maximum size of a resource's log in bytes, whatever its number of changes.
const HISTORY_BYTES: usize = 64 << 20;
/// How many of a resource's latest objects are kept parsed in addition to their text.
const KEPT_AS_TREES: usize = 256;

/// `namespace`, `name`; the namespace is empty for cluster-scoped kinds.
pub(crate) type Key = (Arc<str>, Arc<str>);

/// A change: the state before and after. After a removal, `now` is the last state at the removal's revision.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) now: Arc<Stored>,
    pub(crate) removed: bool,
    at: Instant,
}

impl Change {
    /// Bytes kept only for this change: the current state is kept anyway.
    fn weight(&self) -> usize {
        let removed = if self.removed { self.now.text().len() } else { 0 };
        removed + self.before.as_ref().map_or(0, |before| before.text().len())
    }
}

struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    log: VecDeque<Arc<Change>>,
    /// The size of all changes in the log.
    log_bytes: usize,
    /// The objects that are kept parsed.
    trees: VecDeque<Arc<Stored>>,
    /// Changes up to this revision are no longer in the log.
    floor: u64,
    wake: watch::Sender<u64>,
}

impl Table {
    fn new(floor: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_bytes: 0,
            trees: VecDeque::new(),
            floor,
            wake: watch::channel(0).0,
        }
    }

    fn keep_tree(&mut self, stored: &Arc<Stored>) {
        self.trees.push_back(stored.clone());
        if self.trees.len() > KEPT_AS_TREES
            && let Some(oldest) = self.trees.pop_front()
        {
            oldest.forget_value();
        }
    }
}

struct Inner {
    /// The number of changes kept per resource.
    history: usize,
    revision: u64,
    /// The revision at startup: nothing before it is known.
    start: u64,
    tables: HashMap<Arc<str>, Table>,
}

pub(crate) struct Store {
    inner: RwLock<Inner>,
    journal: Option<crate::journal::Journal>,
}

/// A write.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) table: Arc<str>,
    pub(crate) key: Key,
    /// The revision the object must have; `None` if it must not exist.
    pub(crate) expected: Option<u64>,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Put(Value),
    /// With the last state for watchers; `None` for the stored one.
    Remove(Option<Value>),
}

/// Why a write failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreError {
    /// The object already exists.
    Exists,
    /// It was changed or removed in the meantime.
    Changed,
    /// The journal could not be written, and why.
    Disk(Arc<str>),
}

/// A consistent view of one resource.
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) items: Vec<(Key, Arc<Stored>)>,
    pub(crate) more: bool,
    /// How many objects follow the page.
    pub(crate) remaining: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResourceVersionTooOld {
    pub(crate) oldest: u64,
}

impl Store {
    pub(crate) fn in_memory(history: usize) -> Self {
        Self { inner: RwLock::new(Inner { history, revision: 1, start: 1, tables: HashMap::new() }), journal: None }
    }

    /// A store that persists every write in `journal` and starts with its contents.
    pub(crate) fn journaled(
        journal: crate::journal::Journal,
        history: usize,
    ) -> Result<Self, crate::journal::JournalError> {
        let mut tables: HashMap<Arc<str>, Table> = HashMap::new();
        let start = journal.load(|table, key, stored| {
            let slot = tables.entry(table).or_insert_with(|| Table::new(0));
            let stored = Arc::new(stored);
            slot.keep_tree(&stored);
            slot.objects.insert(key, stored);
        })?;
        let start = start.max(1);
        tables.values_mut().for_each(|table| table.floor = start);
        let inner = Inner { history, revision: start, start, tables };
        Ok(Self { inner: RwLock::new(inner), journal: Some(journal) })
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.read().revision
    }

    pub(crate) fn get(&self, table: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let key: Key = (namespace.into(), name.into());
        self.read().tables.get(table)?.objects.get(&key).cloned()
    }

    /// Performs one write; returns the object as stored, or its last state.
    pub(crate) async fn commit(self: &Arc<Self>, write: Write) -> Result<Arc<Stored>, StoreError> {
        let Some(journal) = &self.journal else {
            let mut inner = self.write();
            let change = stage(&inner, &Staged::default(), write, inner.revision + 1)?;
            return Ok(publish(&mut inner, change));
        };
        journal.submit(self, write).await
    }

    /// Flushes the journal's queue; a no-op for a store in memory.
    pub(crate) fn flush(&self) {
        if let Some(journal) = &self.journal {
            journal.flush(self);
        }
    }

    /// Releases the data directory.
    pub(crate) fn close(&self) {
        if let Some(journal) = &self.journal {
            journal.close(self);
        }
    }

    /// Performs many writes with one sync. Called only by the journal, one batch at a time.
    pub(crate) fn commit_batch(
        &self,
        writes: Vec<Write>,
        persist: impl FnOnce(&[StagedChange]) -> Result<(), StoreError>,
    ) -> Vec<Result<Arc<Stored>, StoreError>> {
        let mut results: Vec<Option<Result<Arc<Stored>, StoreError>>> = Vec::with_capacity(writes.len());
        let mut staged = Staged::default();
        {
            // Nobody else writes: a journaled store is written only here, and the journal runs one batch at a time.
            let inner = self.read();
            let mut revision = inner.revision;
            for write in writes {
                match stage(&inner, &staged, write, revision + 1) {
                    Ok(change) => {
                        revision += 1;
                        staged.push(change);
                        results.push(None);
                    }
                    Err(refused) => results.push(Some(Err(refused))),
                }
            }
        }
        let persisted = if staged.changes.is_empty() { Ok(()) } else { persist(&staged.changes) };
        if let Err(refused) = persisted {
            return results.into_iter().map(|result| result.unwrap_or_else(|| Err(refused.clone()))).collect();
        }
        let mut inner = self.write();
        let mut changes = staged.changes.into_iter();
        results
            .into_iter()
            .map(|result| match result {
                Some(done) => done,
                None => match changes.next() {
                    Some(change) => Ok(publish(&mut inner, change)),
                    None => Err(StoreError::Changed),
                },
            })
            .collect()
    }

    /// A page of a resource. `at` asks for an older revision, reconstructed from the log.
    pub(crate) fn list(
        &self,
        table: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
        limit: usize,
        at: Option<u64>,
        mut wanted: impl FnMut(&Stored) -> bool,
    ) -> Result<Snapshot, ResourceVersionTooOld> {
        let inner = self.read();
        let revision = at.unwrap_or(inner.revision);
        let Some(found) = inner.tables.get(table) else {
            return Ok(Snapshot { revision, items: Vec::new(), more: false, remaining: 0 });
        };
        let rewound;
        let objects = if revision < inner.revision {
            rewound = rewind(found, revision, inner.start)?;
            &rewound
        } else {
            &found.objects
        };
        let start = match (after, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included((namespace.into(), "".into())),
            (None, None) => Bound::Unbounded,
        };
        let mut items = Vec::new();
        let mut remaining = 0;
        for (key, stored) in objects.range((start, Bound::Unbounded)) {
            if namespace.is_some_and(|n| *n != *key.0) {
                break;
            }
            if !wanted(stored) {
                continue;
            }
            if items.len() == limit {
                remaining += 1;
                continue;
            }
            items.push((key.clone(), stored.clone()));
        }
        Ok(Snapshot { revision, items, more: remaining > 0, remaining })
    }

    /// Wakes when the resource changes.
    pub(crate) fn subscribe(&self, table: &Arc<str>) -> watch::Receiver<u64> {
        let mut inner = self.write();
        let floor = inner.start;
        inner.tables.entry(table.clone()).or_insert_with(|| Table::new(floor)).wake.subscribe()
    }

    /// At most `limit` changes after `revision`, and the revision the reader has then reached.
    pub(crate) fn changes_after(
        &self,
        table: &str,
        revision: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Change>>, u64), ResourceVersionTooOld> {
        let inner = self.read();
        let Some(found) = inner.tables.get(table) else {
            return if revision < inner.start {
                Err(ResourceVersionTooOld { oldest: inner.start })
            } else {
                Ok((Vec::new(), inner.revision))
            };
        };
        if revision < found.floor {
            return Err(ResourceVersionTooOld { oldest: found.floor });
        }
        let from = found.log.partition_point(|change| change.revision <= revision);
        let changes: Vec<_> = found.log.range(from..).take(limit).cloned().collect();
        let reached =
            if changes.len() == limit { changes.last().map_or(revision, |c| c.revision) } else { inner.revision };
        Ok((changes, reached))
    }

    /// Removes a resource entirely (its CRD is gone).
    pub(crate) fn names_of(&self, table: &str) -> Vec<Key> {
        self.read().tables.get(table).map(|t| t.objects.keys().cloned().collect()).unwrap_or_default()
    }
}

fn rewind(table: &Table, revision: u64, start: u64) -> Result<BTreeMap<Key, Arc<Stored>>, ResourceVersionTooOld> {
    if revision < table.floor || revision < start {
        return Err(ResourceVersionTooOld { oldest: table.floor.max(start) });
    }
    let mut objects = table.objects.clone();
    for change in table.log.iter().rev().take_while(|c| c.revision > revision) {
        match &change.before {
            Some(before) => objects.insert(change.key.clone(), before.clone()),
            None => objects.remove(&change.key),
        };
    }
    Ok(objects)
}

/// A change that has its revision but is not visible yet.
pub(crate) struct StagedChange {
    pub(crate) table: Arc<str>,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) now: Arc<Stored>,
    pub(crate) removed: bool,
}

#[derive(Default)]
struct Staged {
    changes: Vec<StagedChange>,
    latest: HashMap<(Arc<str>, Key), usize>,
}

impl Staged {
    fn push(&mut self, change: StagedChange) {
        self.latest.insert((change.table.clone(), change.key.clone()), self.changes.len());
        self.changes.push(change);
    }

    fn current(&self, inner: &Inner, table: &Arc<str>, key: &Key) -> Option<Arc<Stored>> {
        match self.latest.get(&(table.clone(), key.clone())) {
            Some(&at) => (!self.changes[at].removed).then(|| self.changes[at].now.clone()),
            None => inner.tables.get(table).and_then(|t| t.objects.get(key)).cloned(),
        }
    }
}

fn stage(inner: &Inner, staged: &Staged, write: Write, revision: u64) -> Result<StagedChange, StoreError> {
    let before = staged.current(inner, &write.table, &write.key);
    match (write.expected, &before) {
        (None, Some(_)) => return Err(StoreError::Exists),
        (Some(_), None) => return Err(StoreError::Changed),
        (Some(expected), Some(found)) if found.revision != expected => return Err(StoreError::Changed),
        _ => {}
    }
    let (mut value, removed) = match (write.action, &before) {
        (Action::Put(value), _) => (value, false),
        (Action::Remove(last), Some(found)) => (last.unwrap_or_else(|| Value::clone(&found.value())), true),
        (Action::Remove(_), None) => return Err(StoreError::Changed),
    };
    crate::meta::set_resource_version(&mut value, revision);
    Ok(StagedChange {
        table: write.table,
        key: write.key,
        before,
        now: Arc::new(Stored::new(revision, value)),
        removed,
    })
}

fn publish(inner: &mut Inner, change: StagedChange) -> Arc<Stored> {
    let (floor, history) = (inner.start, inner.history);
    let StagedChange { table, key, before, now, removed } = change;
    inner.revision = now.revision;
    let slot = inner.tables.entry(table).or_insert_with(|| Table::new(floor));
    if removed {
        slot.objects.remove(&key);
    } else {
        slot.objects.insert(key.clone(), now.clone());
    }
    if let Some(before) = &before {
        before.forget_value();
    }
    slot.keep_tree(&now);
    let at = Instant::now();
    let change = Arc::new(Change { revision: now.revision, key, before, now: now.clone(), removed, at });
    slot.log_bytes += change.weight();
    slot.log.push_back(change);
    while slot.log.len() > history
        || slot.log_bytes > HISTORY_BYTES
        || (slot.log.len() > ALWAYS_KEPT && slot.log.front().is_some_and(|c| at.duration_since(c.at) > KEPT_FOR))
    {
        let Some(dropped) = slot.log.pop_front() else { break };
        slot.log_bytes -= dropped.weight();
        slot.floor = dropped.revision;
    }
    slot.wake.send_replace(now.revision);
    now
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_past_is_bounded_in_bytes_too() {
        let store = Store::in_memory(HISTORY);
        let write = |action, expected| {
            let mut inner = store.write();
            let key: Key = ("default".into(), "large".into());
            let write = Write { table: "configmaps".into(), key, expected, action };
            let change = stage(&inner, &Staged::default(), write, inner.revision + 1).expect("accepted");
            publish(&mut inner, change).revision
        };
        let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(1 << 20)}});
        let first = write(Action::Put(large.clone()), None);
        let mut last = first;
        for _ in 0..90 {
            last = write(Action::Put(large.clone()), Some(last));
        }
        let inner = store.read();
        let table = &inner.tables["configmaps"];
        assert!(table.log_bytes <= HISTORY_BYTES && table.log.len() < 70, "{} changes", table.log.len());
        drop(inner);
        assert!(store.changes_after("configmaps", first, 1000).is_err(), "told to list again");
        assert_eq!(store.changes_after("configmaps", last - 10, 1000).expect("the recent past").0.len(), 10);
        write(Action::Remove(None), Some(last));
        let inner = store.read();
        let sum: usize = inner.tables["configmaps"].log.iter().map(|change| change.weight()).sum();
        assert_eq!(sum, inner.tables["configmaps"].log_bytes);
    }
}
