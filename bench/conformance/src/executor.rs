//! Executors of clients' futures.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Runs a client's futures. `Copy`, because each thread of a case gets one.
pub trait Executor: Copy + Send + Sync + 'static {
    /// Runs a future to its end. All uses of a store's clients in a case happen
    /// within one call.
    fn run<F: Future>(self, future: F) -> F::Output;
}

/// Runs futures of blocking stores, which are ready when first polled.
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

/// Runs futures of asynchronous stores like an event loop of the runner: on a
/// current-thread runtime with I/O, timers and local tasks.
#[derive(Debug, Clone, Copy)]
pub struct EventLoop;

impl Executor for EventLoop {
    fn run<F: Future>(self, future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }
}
