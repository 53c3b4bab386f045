-- What scripts find beside the functions of host.rs: sequences of operations,
-- and a standard library that does the same in every run of a seed.
-- Returns the function that goes on with a sequence.

local host = ...
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield
local error, next, type, sort = error, next, type, table.sort

-- What would reach outside, hide errors, differ from run to run, or call the
-- script in the middle of a function of the host (metatables).
for _, name in ipairs({ "coroutine", "collectgarbage", "dofile", "load", "loadfile", "next", "pcall", "require",
    "setmetatable", "warn", "xpcall" }) do
    _G[name] = nil
end
string.dump = nil
math.random = random
math.randomseed = nil

-- The table's keys in their order: Lua's own differs from run to run.
function pairs(table)
    local keys = {}
    for key in next, table do keys[#keys + 1] = key end
    sort(keys, function(a, b)
        if type(a) ~= type(b) then return type(a) < type(b) end
        return a < b
    end)
    local at = 0
    return function()
        at = at + 1
        local key = keys[at]
        if key ~= nil then return key, table[key] end
    end
end

-- In a sequence each operation waits for its outcome.
local sequence_operations = {}
for _, name in ipairs({ "read", "scan", "update", "insert", "delete" }) do
    local ask = _G[name]
    sequence_operations[name] = function(...)
        ask(...)
        return yield()
    end
end

local work

-- One coroutine a client does one sequence after the other.
local function turn(...)
    host.finish(work(sequence_operations, ...))
    return turn(yield())
end
local thread = create(turn)

local function go(...)
    local fine, problem = resume(thread, ...)
    if not fine then error(problem, 0) end
end

function transaction(name, f, ...)
    host.begin(name, f)
    work = f
    go(...)
end

function sequence(f, ...)
    host.begin(nil, f)
    work = f
    go(...)
end

return go
