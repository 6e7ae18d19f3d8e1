//! Turns watch events, including the lists that follow an interruption, into changes: what exists and what is gone.

use std::collections::HashMap;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

/// Uids by namespace and name.
pub(crate) type Listed = HashMap<(String, String), String>;

/// What an event means.
pub(crate) enum Change<'a, K> {
    /// A list starts.
    Lists,
    /// An object is part of the list.
    InList(&'a K),
    /// An object was created or changed.
    Seen(&'a K),
    Gone(&'a K),
    /// The list is complete: objects not in it were deleted while the watch was interrupted.
    Listed(Listed),
}

/// A list in progress.
#[derive(Debug, Default)]
pub(crate) struct Relist(Listed);

impl Relist {
    pub(crate) fn fold<'a, K: Resource>(&mut self, event: &'a Event<K>) -> Change<'a, K> {
        match event {
            Event::Init => {
                self.0.clear();
                Change::Lists
            }
            Event::InitApply(object) => {
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                self.0.insert(key, object.uid().unwrap_or_default());
                Change::InList(object)
            }
            Event::Apply(object) => Change::Seen(object),
            Event::Delete(object) => Change::Gone(object),
            Event::InitDone => Change::Listed(std::mem::take(&mut self.0)),
        }
    }
}
