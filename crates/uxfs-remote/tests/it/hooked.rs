//! A store in which something happens before or after a request of a kind, or which refuses it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use uxfs_remote::{Bytes, Entry, Parts, Store};

use crate::sim_store::{Between, SimStore};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Put,
    Get,
    GetRange,
}

/// What is done at a request.
struct Hook {
    at: (Request, &'static str, When),
    work: Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Before,
    After,
}

/// A store whose requests are watched.
pub(crate) struct Hooked {
    pub(crate) store: Arc<SimStore>,
    hook: Mutex<Option<Hook>>,
    /// Puts, also of parts, that pass; those that are refused after them; and how.
    refused: Mutex<(u64, u64, io::ErrorKind)>,
}

impl Hooked {
    /// Over a store that answers all requests.
    pub(crate) fn new() -> Self {
        let store = Arc::new(SimStore::new(1));
        store.set_calm();
        Self { store, hook: Mutex::default(), refused: Mutex::new((0, 0, io::ErrorKind::Other)) }
    }

    /// Does something once, before or after the next request of this kind for a name that begins so.
    pub(crate) fn once(
        &self,
        when: When,
        request: Request,
        prefix: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) {
        let at = (request, prefix, when);
        *self.hook.lock() = Some(Hook { at, work: Box::new(work) });
    }

    /// Has what was to be done been done?
    pub(crate) fn is_done(&self) -> bool {
        self.hook.lock().is_none()
    }

    /// Lets some puts pass, and refuses some after them.
    pub(crate) fn refuse(&self, pass: u64, refused: u64, kind: io::ErrorKind) {
        *self.refused.lock() = (pass, refused, kind);
    }

    /// How many puts will still be refused?
    pub(crate) fn refusing(&self) -> u64 {
        self.refused.lock().1
    }

    fn look(&self, when: When, request: Request, name: &str) {
        let is_due =
            |hook: &Hook| (hook.at.0, hook.at.2) == (request, when) && name.starts_with(hook.at.1);
        let due = self.hook.lock().take_if(|hook| is_due(hook));
        if let Some(hook) = due {
            (hook.work)();
        }
    }

    fn check(&self) -> io::Result<()> {
        let (pass, refused, kind) = &mut *self.refused.lock();
        if *refused == 0 {
            return Ok(());
        }
        if *pass > 0 {
            *pass -= 1;
            return Ok(());
        }
        *refused -= 1;
        Err((*kind).into())
    }
}

struct HookedParts<'s> {
    store: &'s Hooked,
    parts: Box<dyn Parts + 's>,
}

impl Parts for HookedParts<'_> {
    fn put(&self, number: usize, bytes: Bytes) -> io::Result<()> {
        self.store.check()?;
        self.parts.put(number, bytes)
    }

    fn finish(&self) -> io::Result<()> {
        self.store.check()?;
        self.parts.finish()
    }

    fn abandon(&self) {
        self.parts.abandon();
    }
}

impl Store for Hooked {
    fn put_new(&self, name: &str, bytes: Bytes) -> io::Result<bool> {
        self.look(When::Before, Request::Put, name);
        self.check()?;
        let done = self.store.put_new(name, bytes);
        self.look(When::After, Request::Put, name);
        done
    }

    fn replace(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        self.check()?;
        self.store.replace(name, bytes)
    }

    fn begin_parts<'s>(&'s self, name: &str) -> io::Result<Box<dyn Parts + 's>> {
        self.check()?;
        let parts = self.store.begin_parts(name)?;
        Ok(Box::new(HookedParts { store: self, parts }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Bytes> {
        self.look(When::Before, Request::Get, name);
        let done = self.store.get(name, most);
        self.look(When::After, Request::Get, name);
        done
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        self.look(When::Before, Request::GetRange, name);
        let done = self.store.get_range(name, range);
        self.look(When::After, Request::GetRange, name);
        done
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Entry>> {
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.store.delete(name)
    }
}
