//! Work on many items by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Calls `work` for each item, with up to `threads` items at once. After an error no other item is begun.
///
/// # Errors
/// The first error.
pub(crate) fn for_each<T: Sync, E: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(usize, &T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let run = || {
        while failed.lock().is_none() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { break };
            if let Err(error) = work(number, item) {
                failed.lock().get_or_insert(error);
            }
        }
    };
    match threads.min(items.len()) {
        0 | 1 => run(),
        threads => std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(run);
            }
        }),
    }
    failed.into_inner().map_or(Ok(()), Err)
}
