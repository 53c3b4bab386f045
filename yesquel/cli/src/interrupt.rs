//! Ctrl-C: stops a statement, or a copy between two steps, and not the program. Repeated presses
//! end the program.

use rusqlite::{Connection, InterruptHandle};
use signal_hook::{
    consts::{SIGINT, SIGXFSZ},
    flag,
    iterator::Signals,
};
use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};
use yesquel::{CancelCheck, CancelGuard};

/// Number of presses without effect after which the program ends, for a server may not answer.
const PATIENCE: u32 = 3;

/// Virtual-machine instructions between two checks: some microseconds.
const INSTRUCTIONS: i32 = 1_000;

/// Exit status of a process that Ctrl-C has ended, as shells report it.
pub(crate) const STATUS: u8 = 130;

thread_local! {
    /// The presses that cancel the calls of this thread.
    static PRESSED: RefCell<Arc<AtomicU32>> = RefCell::default();
}

/// State of Ctrl-C.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    pressed: Arc<AtomicU32>,
    running: Arc<Mutex<Option<InterruptHandle>>>,
}

impl Interrupt {
    /// Installs the handler.
    pub(crate) fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        // At the file size limit, let the write fail as on a full disk, instead of being killed by
        // the signal.
        let _ = flag::register(SIGXFSZ, Arc::default());
        let heard = interrupt.clone();
        // On failure, Ctrl-C keeps its default action.
        if let Ok(mut signals) = Signals::new([SIGINT]) {
            std::thread::spawn(move || {
                for _ in signals.forever() {
                    if heard.pressed.fetch_add(1, Relaxed) + 1 >= PATIENCE {
                        std::process::exit(STATUS.into());
                    }
                    if let Some(running) = &*heard.running.lock().unwrap_or_else(PoisonError::into_inner) {
                        running.interrupt();
                    }
                }
            });
        }
        interrupt
    }

    /// Stops the statements of a connection.
    pub(crate) fn attend(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        // SQLite drops an interrupt between two statements; this check does not.
        let pressed = Arc::clone(&self.pressed);
        connection.progress_handler(INSTRUCTIONS, Some(move || pressed.load(Relaxed) > 0))?;
        let handle = connection.get_interrupt_handle();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Cancels the waits of the calling thread for servers once it is pressed, until the result is
    /// dropped.
    pub(crate) fn cancel_calls(&self) -> CancelGuard {
        PRESSED.set(Arc::clone(&self.pressed));
        let is_cancelled = |_| PRESSED.with_borrow(|pressed| pressed.load(Relaxed) > 0);
        CancelCheck { is_cancelled, argument: 0 }.begin()
    }

    /// Clears earlier presses.
    pub(crate) fn forget(&self) {
        self.pressed.store(0, Relaxed);
    }

    /// Returns whether it was pressed since.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed) > 0
    }
}
