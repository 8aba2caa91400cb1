//! Threads that answer requests beside the threads of the queues.
//!
//! 1. A job is accepted only by a thread that is idle, so jobs never wait and take no memory.
//! 2. When the pool is dropped, every accepted job has run.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

pub(crate) struct Pool<J> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<J> {
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    jobs: Vec<J>,
    /// Threads that wait for a job.
    idle: usize,
    ends: bool,
}

impl<J: Send + 'static> Pool<J> {
    /// Starts threads that run jobs.
    ///
    /// # Errors
    /// The host starts no thread.
    pub(crate) fn start(
        threads: usize,
        run: impl Fn(J) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let state = Mutex::new(State { jobs: Vec::new(), idle: 0, ends: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let run = Arc::new(run);
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let (shared, run) = (Arc::clone(&pool.shared), Arc::clone(&run));
            let thread = std::thread::Builder::new().name(format!("virtiofs-{number}"));
            pool.threads.push(thread.spawn(move || {
                while let Some(job) = shared.next() {
                    run(job);
                }
            })?);
        }
        Ok(pool)
    }

    /// Gives a job to an idle thread; returns it if there is none.
    pub(crate) fn give(&self, job: J) -> Result<(), J> {
        let mut state = self.shared.state.lock();
        if state.idle <= state.jobs.len() {
            return Err(job);
        }
        state.jobs.push(job);
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl<J> Shared<J> {
    /// The next job, or `None` when the pool ends.
    fn next(&self) -> Option<J> {
        let mut state = self.state.lock();
        state.idle += 1;
        let job = loop {
            match state.jobs.pop() {
                Some(job) => break Some(job),
                None if state.ends => break None,
                None => self.changed.wait(&mut state),
            }
        };
        state.idle -= 1;
        job
    }
}

impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.shared.state.lock().ends = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idle_threads_take_jobs_and_all_of_them_run() {
        let done = Arc::new(Mutex::new(0));
        let count = Arc::clone(&done);
        let pool = Pool::start(2, move |n: u32| *count.lock() += n).unwrap();
        let mut given = 0;
        while given < 100 {
            match pool.give(1) {
                Ok(()) => given += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        drop(pool);
        assert_eq!(*done.lock(), 100);
        let nobody = Pool::start(0, |(): ()| {}).unwrap();
        assert!(nobody.give(()).is_err());
    }
}
