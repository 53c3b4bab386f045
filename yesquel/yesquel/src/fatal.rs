//! Error after which a server must end.

use crate::Error;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Handler = Box<dyn FnOnce(Error) + Send>;

#[derive(Default)]
struct FatalState {
    handler: Option<Handler>,
    /// The error, if it came before the handler.
    error: Option<Error>,
    is_set: bool,
}

/// The first such error, for a handler. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct FatalError(Arc<Mutex<FatalState>>);

impl fmt::Debug for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FatalError").finish_non_exhaustive()
    }
}

impl FatalError {
    fn lock(&self) -> MutexGuard<'_, FatalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the error. Later ones are dropped.
    pub(crate) fn set(&self, error: Error) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_set, true) {
            return;
        }
        match state.handler.take() {
            Some(handler) => {
                drop(state);
                handler(error);
            }
            None => state.error = Some(error),
        }
    }

    /// Sets what takes the error, now or later.
    pub(crate) fn handle(&self, handler: Handler) {
        let mut state = self.lock();
        match state.error.take() {
            Some(error) => {
                drop(state);
                handler(error);
            }
            None => state.handler = Some(handler),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_first_error_is_handled_once() {
        for is_early in [false, true] {
            let (fatal, (sender, errors)) = (FatalError::default(), channel());
            let set = || {
                fatal.set(Error::MachineRemoved { machine: 1 });
                fatal.set(Error::MachineRemoved { machine: 2 });
            };
            if is_early {
                set();
            }
            fatal.handle(Box::new(move |error| sender.send(error.to_string()).unwrap()));
            if !is_early {
                set();
            }
            let errors: Vec<String> = errors.try_iter().collect();
            assert_eq!(errors, [Error::MachineRemoved { machine: 1 }.to_string()]);
        }
    }
}
