//! Ctrl-C: it stops a statement, or a copy between two of its steps, and not the
//! program; whoever presses it on and on ends the program.

use rusqlite::{Connection, InterruptHandle};
use signal_hook::{
    consts::{SIGINT, SIGXFSZ},
    flag,
    iterator::Signals,
};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// So often in vain, and the program ends: a server may not answer.
const PATIENCE: u32 = 3;

/// Instructions of SQLite's between two looks: some microseconds.
const INSTRUCTIONS: i32 = 1_000;

/// The status of a process that Ctrl-C has ended, as shells count it.
pub(crate) const STATUS: u8 = 130;

/// What Ctrl-C has asked for.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    pressed: Arc<AtomicU32>,
    running: Arc<Mutex<Option<InterruptHandle>>>,
}

impl Interrupt {
    /// Listens from now on.
    pub(crate) fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        // A file that may not grow any more is told of by the write, as a full disk
        // is, and not by a signal that kills.
        let _ = flag::register(SIGXFSZ, Arc::default());
        let heard = interrupt.clone();
        // Where it cannot be listened to it does what it does by default.
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

    /// Whose statements are stopped.
    pub(crate) fn attend(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        // SQLite forgets what it is told between two statements; this it sees.
        let pressed = Arc::clone(&self.pressed);
        connection.progress_handler(INSTRUCTIONS, Some(move || pressed.load(Relaxed) > 0))?;
        let handle = connection.get_interrupt_handle();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        Ok(())
    }

    /// Something else begins.
    pub(crate) fn forget(&self) {
        self.pressed.store(0, Relaxed);
    }

    /// It was pressed since.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Relaxed) > 0
    }
}
