# Runs one of SQLite's test scripts in testfixture: run.tcl SCRIPT
#
# This command follows a pointer that only databases in files have, so that it
# would crash on trees as on databases in memory.
rename atomic_batch_write {}
proc atomic_batch_write {file} {return 0}

# A copy of a file that names a database copies the database too, at this moment
# (hook.c would copy it when the file is opened).
rename file yesquel_file
proc file {args} {
  set result [uplevel 1 [list yesquel_file {*}$args]]
  if {[lindex $args 0] eq "copy"} {
    yesquel_copied [lindex $args end-1] [lindex $args end]
  }
  return $result
}
proc yesquel_address {folder} {
  return yesquel://$::env(YESQUEL_TEST_SERVERS)/$::env(YESQUEL_TEST_PREFIX)[yesquel_file tail $folder]
}
proc yesquel_copied {from to} {
  if {[yesquel_file isdirectory $to]} {
    set to [yesquel_file join $to [yesquel_file tail $from]]
  }
  if {![info exists ::env(YESQUEL_TEST_FOLDERS)] || ![yesquel_file isfile $to]} return
  set channel [open $to rb]
  set text [read $channel 4096]
  close $channel
  if {![regexp {^yesquel test database \d+ (.*/[-0-9copy]+)\n$} $text -> folder]} return
  if {[yesquel_file dirname $folder] ne $::env(YESQUEL_TEST_FOLDERS)} return
  set copy [yesquel_file join [yesquel_file dirname $folder] copy-[pid]-[clock microseconds]]
  if {[yesquel_file isdirectory $folder]} {
    yesquel_file copy $folder $copy
    # At servers the folder is empty.
    if {[info exists ::env(YESQUEL_TEST_PROGRAM)]} {
      exec $::env(YESQUEL_TEST_PROGRAM) shell [yesquel_address $folder] \
        ".backup [yesquel_address $copy]?placement=tables"
    }
  }
  yesquel_file stat $to stat
  set channel [open $to wb]
  puts $channel "yesquel test database $stat(ino) $copy"
  close $channel
}

set argv0 [lindex $argv 0]
set argv [lrange $argv 1 end]
source $argv0
