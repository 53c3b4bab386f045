-- A bank: transfers between accounts, each of them two reads and two writes
-- that are timed together as TX-TRANSFER, and reads of a balance.
-- The store receives four separate operations: those of other clients may come
-- between them, and then the sum over all accounts may change.

summary = "A bank: transfers of two reads and two writes, timed as TX-TRANSFER"
operations = { "read", "update" }
transactions = { "TX-TRANSFER" }

properties = {
    { name = "transfer.share", default = 0.5, min = 0, max = 1, meaning = "Share of transfers; the rest reads a balance." },
    { name = "transfer.amount", default = 100, min = 1, max = 1000000, meaning = "Largest amount of a transfer." },
    { name = "transfer.opening", default = 10000, meaning = "Balance of an account when it is loaded." },
}

fields = { "balance" }
defaults = { recordcount = 1000, operationcount = 10000, requestdistribution = "zipfian" }

local account, records, share, amount, opening

function start()
    account = keys()
    records = property("recordcount")
    share = property("transfer.share")
    amount = property("transfer.amount")
    opening = property("transfer.opening")
end

function load(number)
    insert(number, "balance", opening)
end

local function transfer(op, from, to, sum)
    if not op.read(from) then return end
    local has = tonumber(field("balance"))
    if not op.read(to) then return end
    local gets = tonumber(field("balance"))
    if not has or not gets or has < sum then return false end
    op.update(from, "balance", has - sum)
    op.update(to, "balance", gets + sum)
end

function step()
    local from = account()
    if random() >= share then return read(from) end
    local to = account()
    if to == from then to = (from + 1) % records end
    transaction("TX-TRANSFER", transfer, from, to, random(amount))
end
