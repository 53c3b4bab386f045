-- The engine in use.
SELECT sqlite_version();
SELECT CASE WHEN file LIKE 'yesquel:%' THEN 'on trees' ELSE 'on pages' END FROM pragma_database_list WHERE name = 'main';
