//! What runs a client's futures.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Runs a client's futures. `Copy` because every thread of a case takes one.
pub trait Executor: Copy + Send + Sync + 'static {
    /// Runs one to its end. For a store on event loops: makes a current-thread
    /// runtime with I/O and timers and blocks on the future; everything that a
    /// case does with a store's clients happens within one call.
    fn run<F: Future>(self, future: F) -> F::Output;
}

/// Runs futures that are ready when first polled: those of stores on threads.
#[derive(Debug, Clone, Copy)]
pub struct Ready;

impl Executor for Ready {
    fn run<F: Future>(self, future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("a store on threads must be ready when first polled"),
        }
    }
}

/// Runs futures of stores on event loops, as a loop of the runner does: a
/// runtime of one thread, with I/O and timers, and tasks that stay on it.
#[derive(Debug, Clone, Copy)]
pub struct Loop;

impl Executor for Loop {
    fn run<F: Future>(self, future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }
}
