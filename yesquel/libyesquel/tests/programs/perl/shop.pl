# Perl's DBD::SQLite on a database: perl shop.pl NAME. The output must not depend
# on the engine.

use strict;
use warnings;
no warnings 'numeric';
use DBI;
use JSON::PP;

my $json = JSON::PP->new->canonical;
my $dbh = DBI->connect("dbi:SQLite:dbname=$ARGV[0]", '', '', { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
my ($source) = $dbh->selectrow_array('SELECT sqlite_source_id()');
die "another SQLite answers: $source" if defined $ENV{YESQUEL_TEST_SOURCE_ID} && $ENV{YESQUEL_TEST_SOURCE_ID} ne $source;
my ($file) = $dbh->selectrow_array("SELECT file FROM pragma_database_list WHERE name = 'main'");
die "it is on '$file'" if ($file =~ /^yesquel:/ xor ($ENV{YESQUEL_TEST_ON_TREES} // '') eq '1');

$dbh->do('CREATE TABLE word(word TEXT COLLATE NOCASE, lang TEXT, uses INTEGER DEFAULT 0, PRIMARY KEY(word, lang)) WITHOUT ROWID');
$dbh->do('CREATE INDEX often ON word(uses DESC) WHERE uses > 5');
my $put = $dbh->prepare('INSERT INTO word VALUES(?, ?, 1) ON CONFLICT(word, lang) DO UPDATE SET uses = uses + 1 RETURNING uses');
$dbh->begin_work;
for my $n (0 .. 299) {
    $put->execute("w" . $n * $n % 23, $n % 2 ? 'en' : 'cs');
    $put->fetchall_arrayref;
}
$dbh->commit;
print $json->encode($dbh->selectall_arrayref('SELECT lang, count(*), sum(uses) FROM word GROUP BY lang ORDER BY lang')), "\n";
print $json->encode($dbh->selectall_arrayref('SELECT word, uses FROM word WHERE uses > 5 ORDER BY uses DESC, word, lang LIMIT 4')), "\n";
print $json->encode($dbh->selectcol_arrayref("SELECT uses FROM word WHERE word = 'W1' ORDER BY lang")), "\n";

$dbh->begin_work;
print $dbh->do('DELETE FROM word WHERE uses < 10') + 0, "\n";
$dbh->rollback;
print $dbh->selectrow_array('SELECT count(*) FROM word'), "\n";

eval { $dbh->do("INSERT INTO word VALUES('W1', 'en', 0)") };
print $dbh->err, ' ', $dbh->errstr, "\n";

# A function, an aggregate and a collation of the application.
$dbh->sqlite_create_function('reversed', 1, sub { scalar reverse $_[0] });
$dbh->sqlite_create_collation('by_number', sub { substr($_[0], 1) <=> substr($_[1], 1) });
print $json->encode($dbh->selectcol_arrayref(
    "SELECT reversed(word) FROM word WHERE lang = 'en' ORDER BY word COLLATE by_number LIMIT 5")), "\n";
print join(' ', map { $_->{COLUMN_NAME} } @{ $dbh->column_info(undef, undef, 'word', undef)->fetchall_arrayref({}) }), "\n";
print join(' ', sort map { s/"//gr } grep { /word/ } $dbh->tables(undef, 'main', undef, 'TABLE')), "\n";
my $other = DBI->connect("dbi:SQLite:dbname=$ARGV[0]", '', '', { RaiseError => 1 });
print $other->selectrow_array('SELECT sum(uses) FROM word'), "\n";
