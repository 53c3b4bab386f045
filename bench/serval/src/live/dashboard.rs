//! The dashboard's terminal: set up, restored on every exit, and drawn by a thread of its own.

use super::{
    background::Background,
    draw::{LiveView, draw},
    live_state::LiveState,
};
use crate::{
    interrupt::{Screen, Unfinished},
    locked,
};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::Show,
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
};
use rustix::{
    process::getpgrp,
    termios::{tcgetattr, tcgetpgrp},
};
use serval_runner::Control;
use signal_hook::consts::SIGINT;
use std::{
    io::{self, IsTerminal, Stderr},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Time between frames.
const FRAME: Duration = Duration::from_millis(200);

/// Time that an immediate exit waits for a frame in progress: a blocked terminal must not hold the
/// process.
const GIVE_BACK_MAX: Duration = Duration::from_millis(200);

/// Returns whether standard error and input are a terminal and this process is in the foreground.
pub(super) fn possible() -> bool {
    let named = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    // The kernel stops a background process that changes the terminal.
    let in_front = || tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
    named && io::stderr().is_terminal() && io::stdin().is_terminal() && in_front()
}

/// The terminal while the dashboard owns it.
struct Tty {
    /// Whether the dashboard owns it; locked during writes.
    open: Mutex<bool>,
    seen: Arc<Mutex<LiveState>>,
}

impl Tty {
    fn take(seen: Arc<Mutex<LiveState>>) -> io::Result<Arc<Tty>> {
        let tty = Tty { open: Mutex::new(true), seen };
        enable_raw_mode()?;
        if let Err(error) = execute!(io::stderr(), EnterAlternateScreen) {
            let _ = disable_raw_mode();
            return Err(error);
        }
        Ok(Arc::new(tty))
    }

    /// Draws, unless the terminal was restored.
    fn draw(&self, draw: impl FnOnce()) -> bool {
        let open = locked(&self.open);
        if *open {
            draw();
        }
        *open
    }
}

impl Screen for Tty {
    fn ending(&self) {
        locked(&self.seen).ending = true;
    }

    fn give_back(&self) {
        let since = Instant::now();
        let mut open = loop {
            match self.open.try_lock() {
                Ok(open) => break Some(open),
                Err(std::sync::TryLockError::Poisoned(open)) => break Some(open.into_inner()),
                Err(_) if since.elapsed() > GIVE_BACK_MAX => break None,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        let was_open = open.as_mut().is_none_or(|open| std::mem::replace(&mut **open, false));
        if was_open {
            if open.is_some() {
                let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
            }
            let _ = disable_raw_mode();
        }
    }
}

/// The dashboard. Dropping it restores the terminal.
pub(super) struct Dashboard {
    tty: Arc<Tty>,
    unfinished: Unfinished,
    thread: Background<mpsc::Sender<()>>,
}

impl Dashboard {
    /// Sets up the terminal.
    pub(super) fn begin(
        seen: &Arc<Mutex<LiveState>>,
        control: &Control,
        unfinished: &Unfinished,
    ) -> io::Result<Dashboard> {
        let tty = Tty::take(Arc::clone(seen))?;
        let terminal = match Terminal::new(CrosstermBackend::new(io::stderr())) {
            Ok(terminal) => terminal,
            Err(error) => {
                tty.give_back();
                return Err(error);
            }
        };
        let screen: Arc<dyn Screen> = Arc::clone(&tty) as _;
        unfinished.set_screen(Some(screen));
        // The user must be able to read the message of a panic.
        let before = std::panic::take_hook();
        let weak = Arc::downgrade(&tty);
        std::panic::set_hook(Box::new(move |panic| {
            if let Some(tty) = weak.upgrade() {
                tty.give_back();
            }
            before(panic);
        }));
        let (end, ended) = mpsc::channel();
        let keys = Keys { control: control.clone(), unfinished: unfinished.clone(), gone: false };
        let (on, seen) = (Arc::clone(&tty), Arc::clone(seen));
        let work = move || show(&on, terminal, &seen, keys, &ended);
        match Background::start("serval-dashboard", end, work) {
            Ok(thread) => Ok(Dashboard { tty, unfinished: unfinished.clone(), thread }),
            Err(error) => {
                unfinished.set_screen(None);
                tty.give_back();
                Err(error)
            }
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.thread.end();
        self.unfinished.set_screen(None);
        self.tty.give_back();
    }
}

/// Interval of polling for keys.
const KEY_WAIT: Duration = Duration::from_millis(40);

/// Effects of keys.
struct Keys {
    control: Control,
    unfinished: Unfinished,
    /// End of input.
    gone: bool,
}

impl Keys {
    /// Handles keys for the duration of a frame. Returns whether a full redraw is needed.
    fn take(&mut self, ended: &mpsc::Receiver<()>) -> bool {
        let until = Instant::now() + FRAME;
        let mut redraw = false;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            // On a terminal that has hung up, crossterm reads nothing, forever: so poll without a
            // timeout, and only if there is a terminal.
            self.gone |= tcgetattr(std::io::stdin()).is_err();
            if self.gone {
                let _ = ended.recv_timeout(left);
                break;
            }
            match event::poll(Duration::ZERO) {
                Ok(false) => {
                    if ended.recv_timeout(left.min(KEY_WAIT)) == Err(RecvTimeoutError::Disconnected) {
                        break;
                    }
                }
                Ok(true) => match event::read() {
                    Ok(event) => redraw |= self.obey(&event),
                    Err(_) => self.gone = true,
                },
                Err(_) => self.gone = true,
            }
        }
        redraw
    }

    fn obey(&self, event: &Event) -> bool {
        let Event::Key(KeyEvent { code: KeyCode::Char(key), modifiers, kind, .. }) = event else {
            return false;
        };
        if *kind != KeyEventKind::Press {
            return false;
        }
        match (key, modifiers.contains(KeyModifiers::CONTROL)) {
            // Same as the signal that the key sends without raw mode.
            ('c', true) => self.unfinished.asked(&self.control, SIGINT),
            // A held key repeats, which must not force an immediate exit.
            ('q', false) if !self.control.interrupted() => self.unfinished.asked(&self.control, SIGINT),
            ('l', true) => return true,
            _ => {}
        }
        false
    }
}

fn show(
    tty: &Tty,
    mut terminal: Terminal<CrosstermBackend<Stderr>>,
    seen: &Mutex<LiveState>,
    mut keys: Keys,
    ended: &mpsc::Receiver<()>,
) {
    let begun = Instant::now();
    loop {
        // Copied, so that the conductor never waits for a terminal.
        let seen = locked(seen).clone();
        let step_taken = seen.step.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        let view = LiveView { seen: &seen, elapsed: begun.elapsed(), step_taken };
        let open = tty.draw(|| {
            // A failed draw is repeated with the next frame.
            let _ = terminal.draw(|frame| draw(frame, &view));
        });
        if !open {
            return;
        }
        let redraw = keys.take(ended);
        if let Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(Duration::ZERO) {
            return;
        }
        if redraw {
            tty.draw(|| drop(terminal.clear()));
        }
    }
}
