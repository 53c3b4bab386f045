# Ruby's sqlite3 on a database: ruby shop.rb NAME. The output must not depend on
# the engine.

require "sqlite3"

db = SQLite3::Database.new(ARGV.fetch(0))
source = ENV["YESQUEL_TEST_SOURCE_ID"]
if source && db.get_first_value("SELECT sqlite_source_id()") != source
  abort "another SQLite answers"
end
file = db.get_first_value("SELECT file FROM pragma_database_list WHERE name = 'main'")
abort "it is on '#{file}'" if file.start_with?("yesquel:") != (ENV["YESQUEL_TEST_ON_TREES"] == "1")

db.execute_batch <<~SQL
  CREATE TABLE page(id INTEGER PRIMARY KEY, title TEXT NOT NULL, body TEXT, rating REAL);
  CREATE UNIQUE INDEX page_title ON page(title COLLATE NOCASE);
  CREATE VIRTUAL TABLE search USING fts5(title, body, content='page', content_rowid='id');
  CREATE TRIGGER page_insert AFTER INSERT ON page BEGIN
    INSERT INTO search(rowid, title, body) VALUES(new.id, new.title, new.body);
  END;
SQL
db.transaction do
  statement = db.prepare("INSERT INTO page(title, body, rating) VALUES(?, ?, ?)")
  200.times { |n| statement.execute("Page #{n}", "about #{n % 7 == 0 ? 'trees' : 'tables'} and #{n}", n / 8.0) }
  statement.close
end
p db.last_insert_row_id, db.total_changes > 200
p db.get_first_value("SELECT count(*) FROM search WHERE search MATCH 'trees'")
p db.execute("SELECT id, title FROM page WHERE title = 'PAGE 42' COLLATE NOCASE")
begin
  db.execute("INSERT INTO page(title) VALUES('page 7')")
rescue SQLite3::ConstraintException => error
  puts error.message
end
begin
  db.transaction do
    db.execute("DELETE FROM page WHERE id > 10")
    p db.changes
    raise "taken back"
  end
rescue RuntimeError => error
  puts error.message
end
db.results_as_hash = true
p db.execute("SELECT max(rating) AS best, json_group_array(title) AS titles FROM page WHERE id <= 3").first.to_a
db.results_as_hash = false
db.create_function("twice", 1) { |function, value| function.result = value * 2 }
p db.get_first_value("SELECT twice(id) FROM page WHERE title = 'Page 20'")
db.execute("SAVEPOINT a")
db.execute("UPDATE page SET rating = 0")
db.execute("ROLLBACK TO a")
db.execute("RELEASE a")
p db.get_first_value("SELECT sum(rating) FROM page")
p db.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 40 FROM n WHERE x < 160)
              SELECT x, title, rank() OVER (ORDER BY rating DESC) FROM n JOIN page ON page.id = n.x ORDER BY x")
other = SQLite3::Database.new(ARGV.fetch(0))
p other.get_first_value("SELECT count(*) FROM page")
p other.table_info("page").map { |column| column.values_at("name", "type", "notnull", "pk") }
