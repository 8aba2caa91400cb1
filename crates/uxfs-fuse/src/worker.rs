//! A thread that runs the jobs that it is given, one after the other.
//!
//! 1. Every job runs. Jobs added before the end run before it; a job added while there is no thread
//!    is run by the caller.
//! 2. The thread does not end while there is a [`JobSender`].
//!
//! Called by [`crate::volume`] and [`crate::durability`].

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// A job. Its argument is the worker's state.
pub(crate) type Job<T> = Box<dyn FnOnce(&T) + Send>;

/// Submits a job to a thread later, from any other thread.
pub(crate) struct JobSender<T>(Sender<Job<T>>);

impl<T> JobSender<T> {
    pub(crate) fn submit(self, job: Job<T>) {
        // The thread waits for this sender, and a panic there was reported where it happened.
        let _ = self.0.send(job);
    }
}

/// A worker, with or without a thread.
pub(crate) struct Worker<T>(Mutex<Option<Thread<T>>>);

struct Thread<T> {
    jobs: Sender<Job<T>>,
    thread: JoinHandle<()>,
}

impl<T> Default for Worker<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Send + Sync + 'static> Worker<T> {
    /// Starts the thread with its state.
    ///
    /// # Errors
    /// The host cannot start a thread.
    pub(crate) fn start(&self, name: &str, on: Arc<T>) -> io::Result<()> {
        let (jobs, todo) = channel::<Job<T>>();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || todo.into_iter().for_each(|job| job(&on)))?;
        *self.0.lock() = Some(Thread { jobs, thread });
        Ok(())
    }

    pub(crate) fn submit(&self, on: &T, job: Job<T>) {
        let refused = match &*self.0.lock() {
            Some(thread) => thread.jobs.send(job).err().map(|refused| refused.0),
            None => Some(job),
        };
        if let Some(job) = refused {
            job(on);
        }
    }

    /// A sender for one job, if there is a thread.
    pub(crate) fn sender(&self) -> Option<JobSender<T>> {
        self.0.lock().as_ref().map(|thread| JobSender(thread.jobs.clone()))
    }

    /// Waits until all jobs have run and no sender is left, and ends the thread.
    pub(crate) fn end(&self) {
        let thread = self.0.lock().take();
        if let Some(Thread { jobs, thread }) = thread {
            drop(jobs);
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done() {
        type Done = Mutex<Vec<(u32, bool)>>;
        let done = Arc::new(Done::default());
        let worker = Worker::<Done>::default();
        let job = |n| -> Job<Done> {
            let by = std::thread::current().id();
            Box::new(move |done| done.lock().push((n, by == std::thread::current().id())))
        };
        worker.submit(&done, job(0));
        worker.start("worker", Arc::clone(&done)).unwrap();
        (1..100).for_each(|n| worker.submit(&done, job(n)));
        let sender = worker.sender().unwrap();
        let late = job(100);
        let later = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            sender.submit(late);
        });
        worker.end();
        later.join().unwrap();
        worker.end();
        worker.submit(&done, job(101));
        assert!(worker.sender().is_none());
        // The caller runs the job if there is no thread.
        let expected: Vec<_> = (0..=101).map(|n| (n, n == 0 || n == 101)).collect();
        assert_eq!(*done.lock(), expected);
    }
}
