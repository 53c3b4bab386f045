//! One client's Lua: what a script may do and how long.

use crate::{
    host::{Host, install},
    place::{CHUNK, Source},
};
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, VmState};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Memory of one client's Lua.
const MEMORY_MAX: usize = 64 << 20;

/// How many instructions pass from one look at the budget to the next, at
/// most.
const TICK_MAX: u64 = 10_000;

/// A state with the script in it.
pub(crate) struct Engine {
    lua: Lua,
    pub(crate) host: Rc<RefCell<Host>>,
    /// Goes on with a sequence.
    pub(crate) go: Function,
    /// Ticks since the client was last asked.
    ticks: Rc<Cell<u64>>,
}

impl Engine {
    /// Runs the file. `place` is the client's number and how many there are.
    pub(crate) fn new(
        source: &Source,
        host: Host,
        budget: u64,
        place: Option<(usize, usize)>,
    ) -> mlua::Result<Engine> {
        let libraries = StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let ticks = Rc::new(Cell::new(0));
        if budget > 0 {
            bound(&lua, budget, Rc::clone(&ticks))?;
        }
        let host = Rc::new(RefCell::new(host));
        let go = install(&lua, &host)?;
        if let Some((client, clients)) = place {
            lua.globals().set("client", client)?;
            lua.globals().set("clients", clients)?;
        }
        let name = format!("@{CHUNK}");
        lua.load(&source.text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text).exec()?;
        Ok(Engine { lua, host, go, ticks })
    }

    pub(crate) fn globals(&self) -> Table {
        self.lua.globals()
    }

    /// A function of the script, if it has it.
    pub(crate) fn function(&self, name: &str) -> mlua::Result<Option<Function>> {
        self.lua.globals().get(name)
    }

    /// The budget begins anew.
    #[inline]
    pub(crate) fn refill(&self) {
        self.ticks.set(0);
    }
}

/// Ends the script when it has taken more than `budget` instructions since the
/// last refill. A coroutine has the hook of the state that made it.
fn bound(lua: &Lua, budget: u64, ticks: Rc<Cell<u64>>) -> mlua::Result<()> {
    let tick = (budget / 10).clamp(1, TICK_MAX);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(tick as u32), move |_, at| {
        ticks.set(ticks.get() + 1);
        // What is left of a tick at a refill is the next operation's.
        if (ticks.get() - 1) * tick > budget {
            let inside = at.source().source.is_some_and(|source| source == format!("@{CHUNK}"));
            let line = at.current_line().filter(|_| inside);
            let place = line.map(|line| format!("{CHUNK}:{line}: ")).unwrap_or_default();
            return Err(mlua::Error::RuntimeError(format!(
                "{place}took more than {budget} instructions (script.budget) for one operation: does it loop for ever?"
            )));
        }
        Ok(VmState::Continue)
    })
}
