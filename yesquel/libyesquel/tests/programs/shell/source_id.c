/* For Debian's sqlite3, which accepts one version of its library only. */
const char *sqlite3_sourceid(void);
const char *sqlite3_sourceid(void) { return SOURCE_ID; }
