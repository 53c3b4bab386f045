-- Defines sequences of operations, and restricts the standard library to functions that behave
-- the same in every run with a seed. Returns the function that resumes a sequence.

local host = ...
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield
local error, next, type, sort = error, next, type, table.sort

-- Removes functions that access files, hide errors, differ from run to run, or could call the
-- script from inside a host function (metatables).
for _, name in ipairs({ "coroutine", "collectgarbage", "dofile", "load", "loadfile", "next", "pcall", "require",
    "setmetatable", "warn", "xpcall" }) do
    _G[name] = nil
end
string.dump = nil
math.random = random
math.randomseed = nil

-- Iterates over keys in sorted order, because the order of Lua's own pairs differs from run to run.
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

-- Operations of a sequence: each yields until its outcome is known.
local sequence_operations = {}
for _, name in ipairs({ "read", "scan", "update", "insert", "delete" }) do
    local request = _G[name]
    sequence_operations[name] = function(...)
        request(...)
        return yield()
    end
end

local work

-- A client has one coroutine, which runs its sequences one after the other.
local function run_sequences(...)
    host.finish(work(sequence_operations, ...))
    return run_sequences(yield())
end
local thread = create(run_sequences)

local function resume_sequence(...)
    local fine, problem = resume(thread, ...)
    if not fine then error(problem, 0) end
end

function transaction(name, f, ...)
    host.begin(name, f)
    work = f
    resume_sequence(...)
end

function sequence(f, ...)
    host.begin(nil, f)
    work = f
    resume_sequence(...)
end

return resume_sequence
