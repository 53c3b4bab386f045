//! Lua state of one client, with limits on memory and instructions.

use crate::{
    host::{ScriptHost, install},
    source::{CHUNK, ScriptSource},
};
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, VmState};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Memory limit of one client's Lua state, bytes.
const MEMORY_MAX: usize = 64 << 20;

/// Maximum number of instructions between two checks of the budget.
const TICK_MAX: u64 = 10_000;

/// A Lua state that has run the script's file.
pub(crate) struct LuaState {
    lua: Lua,
    pub(crate) host: Rc<RefCell<ScriptHost>>,
    /// Lua function that resumes a sequence.
    pub(crate) resume: Function,
    /// Checks of the budget since the last refill.
    ticks: Rc<Cell<u64>>,
}

impl LuaState {
    /// Runs the file. `client` is the client's number and the number of clients.
    pub(crate) fn new(
        source: &ScriptSource,
        host: ScriptHost,
        budget: u64,
        client: Option<(usize, usize)>,
    ) -> mlua::Result<LuaState> {
        let libraries = StdLib::COROUTINE | StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let ticks = Rc::new(Cell::new(0));
        if budget > 0 {
            bound(&lua, budget, Rc::clone(&ticks))?;
        }
        let host = Rc::new(RefCell::new(host));
        let resume = install(&lua, &host)?;
        if let Some((client, clients)) = client {
            lua.globals().set("client", client)?;
            lua.globals().set("clients", clients)?;
        }
        let name = format!("@{CHUNK}");
        lua.load(&source.text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text).exec()?;
        Ok(LuaState { lua, host, resume, ticks })
    }

    pub(crate) fn globals(&self) -> Table {
        self.lua.globals()
    }

    /// Returns a function of the script, if it is defined.
    pub(crate) fn function(&self, name: &str) -> mlua::Result<Option<Function>> {
        self.lua.globals().get(name)
    }

    /// Resets the budget.
    #[inline]
    pub(crate) fn refill(&self) {
        self.ticks.set(0);
    }
}

/// Ends the script when it has executed more than `budget` instructions since the
/// last refill, at most two ticks later. The hook is global, so coroutines have it too.
fn bound(lua: &Lua, budget: u64, ticks: Rc<Cell<u64>>) -> mlua::Result<()> {
    let tick = (budget / 10).clamp(1, TICK_MAX);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(tick as u32), move |_, at| {
        ticks.set(ticks.get() + 1);
        // The first tick after a refill may have started before it.
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
