-- Statements of a page view and of an edit of MediaWiki 1.39.17, as it sends them to SQLite and to
-- MariaDB, with parameters in the place of values. README.md says how they were traced and which
-- ones are left out. `-- NAME` begins a statement; `-- NAME [sqlite]` and `-- NAME [mariadb]` begin
-- its forms where they differ. `?*` is a list of parameters.

-- page
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_random,page_touched,
  page_links_updated,page_latest,page_len,page_content_model
FROM page
WHERE page_namespace = 0 AND page_title = ? LIMIT 1;

-- page-by-id
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_random,page_touched,
  page_links_updated,page_latest,page_len,page_content_model
FROM page
WHERE page_id = ? LIMIT 1;

-- page-by-link
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_touched,
  page_links_updated,page_latest,page_len,page_content_model
FROM page
WHERE page_namespace = ? AND page_title = ? LIMIT 1;

-- page-by-number
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_touched,
  page_links_updated,page_latest,page_len,page_content_model
FROM page
WHERE page_id = ? LIMIT 1;

-- revision
SELECT rev_id,rev_page,rev_timestamp,rev_minor_edit,rev_deleted,rev_len,rev_parent_id,rev_sha1,
  comment_rev_comment.comment_text AS rev_comment_text,
  comment_rev_comment.comment_data AS rev_comment_data,
  comment_rev_comment.comment_id AS rev_comment_cid,
  actor_rev_user.actor_user AS rev_user,actor_rev_user.actor_name AS rev_user_text,rev_actor,
  page_namespace,page_title,page_id,page_latest,page_is_redirect,page_len,user_name
FROM revision
JOIN revision_comment_temp temp_rev_comment ON ((temp_rev_comment.revcomment_rev = rev_id))
JOIN comment comment_rev_comment
  ON ((comment_rev_comment.comment_id = temp_rev_comment.revcomment_comment_id))
JOIN actor actor_rev_user ON ((actor_rev_user.actor_id = rev_actor))
JOIN page ON ((page_id = rev_page))
LEFT JOIN user
  ON ((actor_rev_user.actor_user != 0) AND (user_id = actor_rev_user.actor_user))
WHERE rev_id = ? LIMIT 1;

-- revision-by-title
SELECT rev_id,rev_page,rev_timestamp,rev_minor_edit,rev_deleted,rev_len,rev_parent_id,rev_sha1,
  comment_rev_comment.comment_text AS rev_comment_text,
  comment_rev_comment.comment_data AS rev_comment_data,
  comment_rev_comment.comment_id AS rev_comment_cid,
  actor_rev_user.actor_user AS rev_user,actor_rev_user.actor_name AS rev_user_text,rev_actor,
  page_namespace,page_title,page_id,page_latest,page_is_redirect,page_len,user_name
FROM revision
JOIN revision_comment_temp temp_rev_comment ON ((temp_rev_comment.revcomment_rev = rev_id))
JOIN comment comment_rev_comment
  ON ((comment_rev_comment.comment_id = temp_rev_comment.revcomment_comment_id))
JOIN actor actor_rev_user ON ((actor_rev_user.actor_id = rev_actor))
JOIN page ON ((page_id = rev_page))
LEFT JOIN user
  ON ((actor_rev_user.actor_user != 0) AND (user_id = actor_rev_user.actor_user))
WHERE page_namespace = 0 AND page_title = ? AND (rev_id=page_latest) LIMIT 1;

-- slots
SELECT slot_revision_id,slot_content_id,slot_origin,slot_role_id,content_size,content_sha1,
  content_address,content_model
FROM slots
JOIN content ON ((slot_content_id = content_id))
WHERE slot_revision_id = ?;

-- roles
SELECT role_id AS id,role_name AS name FROM slot_roles ORDER BY id;

-- models
SELECT model_id AS id,model_name AS name FROM content_models ORDER BY id;

-- restrictions
SELECT pr_type,pr_expiry,pr_level,pr_cascade FROM page_restrictions WHERE pr_page = ?;

-- text
SELECT old_id,old_text,old_flags FROM text WHERE old_id = ?;

-- links
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_latest,page_touched,
  page_len,page_content_model
FROM page
WHERE ((page_namespace = 0 AND page_title IN (?*) ));

-- categories
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_latest,page_touched,
  page_len,page_content_model,pp_value
FROM page
LEFT JOIN page_props ON (pp_propname = 'hiddencat' AND (pp_page = page_id))
WHERE ((page_namespace = 14 AND page_title IN (?*) ));

-- talk
SELECT page_id,page_namespace,page_title,page_is_redirect,page_is_new,page_latest,page_touched,
  page_len,page_content_model
FROM page
WHERE (page_namespace = 1 AND page_title = ?);

-- newtalk
SELECT user_ip FROM user_newtalk WHERE user_ip = ? LIMIT 1;

-- styles
SELECT page_namespace,page_title,page_touched,page_len,page_latest
FROM page
WHERE (page_namespace = 8
  AND page_title IN ('Common.css','Noscript.css','Print.css','Vector.css') );

-- linktarget
SELECT lt_id,lt_namespace,lt_title FROM linktarget WHERE lt_namespace = 0 AND lt_title = ? LIMIT 1;

-- cascading-sources
SELECT pr_page,page_namespace,page_title,pr_expiry,pr_type,pr_level
FROM templatelinks,page_restrictions,page
WHERE tl_target_id IS NULL AND (tl_from=pr_page) AND pr_cascade = 1 AND (page_id=pr_page);

-- block
SELECT ipb_id,ipb_address,ipb_timestamp,ipb_auto,ipb_anon_only,ipb_create_account,
  ipb_enable_autoblock,ipb_expiry,ipb_deleted,ipb_block_email,ipb_allow_usertalk,
  ipb_parent_block_id,ipb_sitewide,ipb_by_actor,ipblocks_actor.actor_user AS ipb_by,
  ipblocks_actor.actor_name AS ipb_by_text,comment_ipb_reason.comment_text AS ipb_reason_text,
  comment_ipb_reason.comment_data AS ipb_reason_data,
  comment_ipb_reason.comment_id AS ipb_reason_cid
FROM ipblocks
JOIN actor ipblocks_actor ON ((actor_id=ipb_by_actor))
JOIN comment comment_ipb_reason ON ((comment_ipb_reason.comment_id = ipb_reason_id))
WHERE ipb_address = ? OR ((ipb_range_start LIKE ? ESCAPE '`' )
  AND (ipb_range_start <= ?) AND (ipb_range_end >= ?));

-- countable
SELECT 1 FROM pagelinks WHERE pl_from = ? LIMIT 1;

-- identical
SELECT * FROM (
  SELECT rev_id,rev_page,rev_timestamp,rev_minor_edit,rev_deleted,rev_len,rev_parent_id,rev_sha1,
    comment_rev_comment.comment_text AS rev_comment_text,
    comment_rev_comment.comment_data AS rev_comment_data,
    comment_rev_comment.comment_id AS rev_comment_cid,
    actor_rev_user.actor_user AS rev_user,actor_rev_user.actor_name AS rev_user_text,rev_actor
  FROM revision
  JOIN revision_comment_temp temp_rev_comment ON ((temp_rev_comment.revcomment_rev = rev_id))
  JOIN comment comment_rev_comment
    ON ((comment_rev_comment.comment_id = temp_rev_comment.revcomment_comment_id))
  JOIN actor actor_rev_user ON ((actor_rev_user.actor_id = rev_actor))
  WHERE rev_page = ?
  ORDER BY rev_timestamp DESC,rev_id DESC LIMIT 1,15 ) recent_revs
WHERE rev_sha1 = ? LIMIT 1;

-- lock [sqlite]
SELECT page_latest FROM page WHERE page_id = ? AND page_namespace = 0 AND page_title = ? LIMIT 1;

-- lock [mariadb]
SELECT page_latest FROM page WHERE page_id = ? AND page_namespace = 0 AND page_title = ? LIMIT 1
FOR UPDATE;

-- comment
SELECT comment_id FROM comment
WHERE comment_hash = ? AND comment_text = ? AND comment_data IS NULL LIMIT 1;

-- insert-comment
INSERT INTO comment (comment_hash,comment_text,comment_data) VALUES (?,?,NULL);

-- actor
SELECT actor_user,actor_name,actor_id FROM actor WHERE actor_name = ? LIMIT 1;

-- insert-revision
INSERT INTO revision (rev_page,rev_parent_id,rev_minor_edit,rev_timestamp,rev_deleted,rev_len,
  rev_sha1,rev_actor)
VALUES (?,?,0,?,0,?,?,?);

-- insert-revision-comment
INSERT INTO revision_comment_temp (revcomment_rev,revcomment_comment_id) VALUES (?,?);

-- insert-text
INSERT INTO text (old_text,old_flags) VALUES (?,'utf-8');

-- insert-content
INSERT INTO content (content_size,content_sha1,content_model,content_address) VALUES (?,?,?,?);

-- insert-slot
INSERT INTO slots (slot_revision_id,slot_role_id,slot_content_id,slot_origin) VALUES (?,?,?,?);

-- insert-ip-change
INSERT INTO ip_changes (ipc_rev_id,ipc_rev_timestamp,ipc_hex) VALUES (?,?,?);

-- update-page
UPDATE page SET page_latest = ?,page_touched = ?,page_is_new = 0,page_is_redirect = 0,
  page_len = ?,page_content_model = 'wikitext'
WHERE page_id = ?;

-- categories-of
SELECT cl_to,cl_sortkey_prefix FROM categorylinks WHERE cl_from = ?;

-- external-links-of
SELECT el_to FROM externallinks WHERE el_from = ?;

-- images-of
SELECT il_to FROM imagelinks WHERE il_from = ?;

-- interwiki-links-of
SELECT iwl_prefix,iwl_title FROM iwlinks WHERE iwl_from = ?;

-- language-links-of
SELECT ll_lang,ll_title FROM langlinks WHERE ll_from = ?;

-- links-of
SELECT pl_namespace AS ns,pl_title AS title FROM pagelinks WHERE pl_from = ?;

-- delete-links
DELETE FROM pagelinks WHERE (pl_from = ? AND (pl_namespace = 0 AND pl_title IN (?*)));

-- insert-link [sqlite]
INSERT OR IGNORE INTO pagelinks (pl_from_namespace,pl_namespace,pl_title,pl_from)
VALUES (0,0,?,?);

-- insert-link [mariadb]
INSERT IGNORE INTO pagelinks (pl_from_namespace,pl_namespace,pl_title,pl_from)
VALUES (0,0,?,?);

-- properties-of
SELECT pp_propname,pp_value FROM page_props WHERE pp_page = ?;

-- templates-of
SELECT lt_namespace AS ns,lt_title AS title
FROM templatelinks JOIN linktarget ON ((tl_target_id=lt_id))
WHERE tl_from = ?;

-- backlinks
SELECT /*! STRAIGHT_JOIN */ page_namespace,page_title,page_id
FROM templatelinks,page
WHERE tl_target_id IS NULL AND (page_id=tl_from)
ORDER BY tl_from LIMIT 1;

-- cascading-backlinks
SELECT DISTINCT page_namespace,page_title,page_id
FROM templatelinks,page_restrictions,page
WHERE (tl_from = pr_page) AND pr_cascade = 1 AND (page_id = tl_from) AND tl_target_id IS NULL;

-- update-links-time
UPDATE page SET page_links_updated = ? WHERE page_id = ?;

-- insert-change
INSERT INTO recentchanges (rc_timestamp,rc_namespace,rc_title,rc_type,rc_source,rc_minor,
  rc_cur_id,rc_this_oldid,rc_last_oldid,rc_bot,rc_ip,rc_patrolled,rc_new,rc_old_len,rc_new_len,
  rc_deleted,rc_logid,rc_log_type,rc_log_action,rc_params,rc_comment_id,rc_actor)
VALUES (?,0,?,0,'mw.edit',0,?,?,?,0,?,0,0,?,?,0,0,NULL,'','',?,?);

-- watchers
SELECT wl_user AS value
FROM watchlist
WHERE (wl_user != 0) AND wl_namespace = 0 AND wl_title = ? AND (wl_notificationtimestamp IS NULL);

-- statistics [sqlite]
WITH __VALS (__ss_row_id,__ss_total_edits,__ss_total_pages,__ss_good_articles,__ss_users,__ss_images)
  AS (VALUES (1,1,0,0,0,0))
UPDATE site_stats SET ss_total_edits=MAX(ss_total_edits+1,0) WHERE (ss_row_id = 1);

-- statistics [mariadb]
INSERT INTO site_stats (ss_row_id,ss_total_edits,ss_total_pages,ss_good_articles,ss_users,ss_images)
VALUES (1,1,0,0,0,0)
ON DUPLICATE KEY UPDATE ss_total_edits=GREATEST(ss_total_edits+1,0);
