# Runs one of SQLite's test scripts in testfixture: run.tcl SCRIPT
#
# This command follows a pointer that only files have, and a database that is
# no file has none, here as in memory.
rename atomic_batch_write {}
proc atomic_batch_write {file} {return 0}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
