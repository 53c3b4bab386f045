-- A session store: most requests read a recent session, some begin a new one,
-- some change one, and the oldest sessions are deleted one after the other.

summary = "Sessions: reads of recent ones, new ones, expiry of the oldest"
operations = { "read", "update", "insert", "delete" }

properties = {
    { name = "sessions.begin", default = 0.05, min = 0, max = 1, meaning = "Share of requests that begin a session." },
    { name = "sessions.expire", default = 0.04, min = 0, max = 1, meaning = "Share of requests that delete the oldest." },
    { name = "sessions.change", default = 0.2, min = 0, max = 1, meaning = "Share of requests that write to a session." },
    { name = "sessions.kept", default = 1000, min = 1, max = 1000000000, unit = "sessions",
      meaning = "Requests go to this many sessions, the newest. There are more: the oldest of all are deleted." },
    { name = "sessions.length", default = 400, min = 1, max = 1000000, unit = "bytes",
      meaning = "Longest state of a session; short ones are frequent." },
}

fields = { "state" }
defaults = { recordcount = 10000, operationcount = 100000, insertorder = "ordered", zeropadding = 12 }

local age, oldest, state
local begin, expire, change

-- Key of a session, for example session000000000007: keys are in the order in which sessions begin.
local function name(number)
    return key(number, "session")
end

function start()
    age = ranks(0, property("sessions.kept") - 1)   -- 0 is the newest and the most frequent
    oldest = sequential(0, 1 << 62)                 -- shared by all clients: each session is deleted once
    state = text(1, property("sessions.length"), "zipfian")
    begin = property("sessions.begin")
    expire = begin + property("sessions.expire")
    change = expire + property("sessions.change")
end

-- Key of a recent session.
local function recent()
    return name(math.max(newest() - age(), 0))
end

function load(number)
    insert(name(number), "state", state)
end

function step()
    local request = random()
    if request < begin then
        insert(name(next_record()), "state", state)
    elseif request < expire then
        delete(name(oldest()))
    elseif request < change then
        update(recent(), "state", state)
    else
        read(recent())
    end
end
