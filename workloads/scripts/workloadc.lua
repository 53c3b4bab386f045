-- Workload C: reads of whole records, zipfian. The same as workloads/workloadc, in Lua.

summary = "Workload C as a script: read only, zipfian"
operations = { "read" }
defaults = { recordcount = 1000, operationcount = 1000, requestdistribution = "zipfian" }

local choose

function start()
    choose = keys()
end

function step()
    read(choose())
end
