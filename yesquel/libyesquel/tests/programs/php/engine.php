<?php
// Fails unless the expected engine is in use: the library, and trees or files.

function assert_engine(callable $ask): void
{
    $source = getenv('YESQUEL_TEST_SOURCE_ID');
    if ($source !== false && $ask('SELECT sqlite_source_id()') !== $source) {
        throw new Exception('another SQLite answers: ' . $ask('SELECT sqlite_source_id()'));
    }
    $file = $ask("SELECT file FROM pragma_database_list WHERE name NOT IN ('temp') ORDER BY seq DESC");
    if (str_starts_with($file, 'yesquel:') !== (getenv('YESQUEL_TEST_ON_TREES') === '1')) {
        throw new Exception("it is on '$file'");
    }
}
