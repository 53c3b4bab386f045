-- Tables of MediaWiki 1.39.17 that a view and an edit use, as its installer creates them on SQLite
-- (GPL-2.0-or-later; README.md).

CREATE TABLE page (
  page_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  page_namespace INTEGER NOT NULL,
  page_title BLOB NOT NULL,
  page_is_redirect INTEGER DEFAULT 0 NOT NULL,
  page_is_new INTEGER DEFAULT 0 NOT NULL,
  page_random REAL NOT NULL,
  page_touched BLOB NOT NULL,
  page_links_updated BLOB DEFAULT NULL,
  page_latest INTEGER NOT NULL,
  page_len INTEGER NOT NULL,
  page_content_model BLOB DEFAULT NULL,
  page_lang BLOB DEFAULT NULL
);
CREATE UNIQUE INDEX page_name_title ON page (page_namespace, page_title);
CREATE INDEX page_random ON page (page_random);
CREATE INDEX page_len ON page (page_len);
CREATE INDEX page_redirect_namespace_len ON page (page_is_redirect, page_namespace, page_len);

CREATE TABLE revision (
  rev_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  rev_page INTEGER NOT NULL,
  rev_comment_id INTEGER DEFAULT 0 NOT NULL,
  rev_actor INTEGER DEFAULT 0 NOT NULL,
  rev_timestamp BLOB NOT NULL,
  rev_minor_edit INTEGER DEFAULT 0 NOT NULL,
  rev_deleted INTEGER DEFAULT 0 NOT NULL,
  rev_len INTEGER DEFAULT NULL,
  rev_parent_id INTEGER DEFAULT NULL,
  rev_sha1 BLOB DEFAULT '' NOT NULL
);
CREATE INDEX rev_timestamp ON revision (rev_timestamp);
CREATE INDEX rev_page_timestamp ON revision (rev_page, rev_timestamp);
CREATE INDEX rev_actor_timestamp ON revision (rev_actor, rev_timestamp, rev_id);
CREATE INDEX rev_page_actor_timestamp ON revision (rev_page, rev_actor, rev_timestamp);

CREATE TABLE revision_comment_temp (
  revcomment_rev INTEGER NOT NULL,
  revcomment_comment_id INTEGER NOT NULL,
  PRIMARY KEY(revcomment_rev, revcomment_comment_id )
);
CREATE UNIQUE INDEX revcomment_rev ON revision_comment_temp (revcomment_rev);

CREATE TABLE comment (
  comment_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  comment_hash INTEGER NOT NULL,
  comment_text BLOB NOT NULL,
  comment_data BLOB DEFAULT NULL
);
CREATE INDEX comment_hash ON comment (comment_hash);

CREATE TABLE actor (
  actor_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  actor_user INTEGER DEFAULT NULL,
  actor_name BLOB NOT NULL
);
CREATE UNIQUE INDEX actor_user ON actor (actor_user);
CREATE UNIQUE INDEX actor_name ON actor (actor_name);

CREATE TABLE user (
  user_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  user_name BLOB DEFAULT '' NOT NULL,
  user_real_name BLOB DEFAULT '' NOT NULL,
  user_password BLOB NOT NULL,
  user_newpassword BLOB NOT NULL,
  user_newpass_time BLOB DEFAULT NULL,
  user_email CLOB NOT NULL,
  user_touched BLOB NOT NULL,
  user_token BLOB DEFAULT '' NOT NULL,
  user_email_authenticated BLOB DEFAULT NULL,
  user_email_token BLOB DEFAULT NULL,
  user_email_token_expires BLOB DEFAULT NULL,
  user_registration BLOB DEFAULT NULL,
  user_editcount INTEGER DEFAULT NULL,
  user_password_expires BLOB DEFAULT NULL
);
CREATE UNIQUE INDEX user_name ON user (user_name);
CREATE INDEX user_email_token ON user (user_email_token);
CREATE INDEX user_email ON user (user_email);

CREATE TABLE slots (
  slot_revision_id INTEGER NOT NULL,
  slot_role_id INTEGER NOT NULL,
  slot_content_id INTEGER NOT NULL,
  slot_origin INTEGER NOT NULL,
  PRIMARY KEY(slot_revision_id, slot_role_id)
);
CREATE INDEX slot_revision_origin_role ON slots (slot_revision_id, slot_origin, slot_role_id);

CREATE TABLE content (
  content_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  content_size INTEGER NOT NULL,
  content_sha1 BLOB NOT NULL,
  content_model INTEGER NOT NULL,
  content_address BLOB NOT NULL
);

CREATE TABLE slot_roles (
  role_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  role_name BLOB NOT NULL
);
CREATE UNIQUE INDEX role_name ON slot_roles (role_name);

CREATE TABLE content_models (
  model_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  model_name BLOB NOT NULL
);
CREATE UNIQUE INDEX model_name ON content_models (model_name);

CREATE TABLE page_restrictions (
  pr_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  pr_page INTEGER NOT NULL,
  pr_type BLOB NOT NULL,
  pr_level BLOB NOT NULL,
  pr_cascade INTEGER NOT NULL,
  pr_expiry BLOB DEFAULT NULL
);
CREATE UNIQUE INDEX pr_pagetype ON page_restrictions (pr_page, pr_type);
CREATE INDEX pr_typelevel ON page_restrictions (pr_type, pr_level);
CREATE INDEX pr_level ON page_restrictions (pr_level);
CREATE INDEX pr_cascade ON page_restrictions (pr_cascade);

CREATE TABLE text (
  old_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  old_text BLOB NOT NULL,
  old_flags BLOB NOT NULL
);

CREATE TABLE page_props (
  pp_page INTEGER NOT NULL,
  pp_propname BLOB NOT NULL,
  pp_value BLOB NOT NULL,
  pp_sortkey REAL DEFAULT NULL,
  PRIMARY KEY(pp_page, pp_propname)
);
CREATE UNIQUE INDEX pp_propname_page ON page_props (pp_propname, pp_page);
CREATE UNIQUE INDEX pp_propname_sortkey_page ON page_props (pp_propname, pp_sortkey, pp_page);

CREATE TABLE user_newtalk (
  user_id INTEGER DEFAULT 0 NOT NULL,
  user_ip BLOB DEFAULT '' NOT NULL,
  user_last_timestamp BLOB DEFAULT NULL
);
CREATE INDEX un_user_id ON user_newtalk (user_id);
CREATE INDEX un_user_ip ON user_newtalk (user_ip);

CREATE TABLE linktarget (
  lt_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  lt_namespace INTEGER NOT NULL,
  lt_title BLOB NOT NULL
);
CREATE UNIQUE INDEX lt_namespace_title ON linktarget (lt_namespace, lt_title);

CREATE TABLE templatelinks (
  tl_from INTEGER DEFAULT 0 NOT NULL,
  tl_target_id INTEGER NOT NULL,
  tl_from_namespace INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY(tl_from, tl_target_id)
);
CREATE INDEX tl_target_id ON templatelinks (tl_target_id, tl_from);
CREATE INDEX tl_backlinks_namespace_target_id ON templatelinks (tl_from_namespace, tl_target_id, tl_from);

CREATE TABLE ipblocks (
  ipb_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  ipb_address BLOB NOT NULL,
  ipb_user INTEGER DEFAULT 0 NOT NULL,
  ipb_by_actor INTEGER NOT NULL,
  ipb_reason_id INTEGER NOT NULL,
  ipb_timestamp BLOB NOT NULL,
  ipb_auto INTEGER DEFAULT 0 NOT NULL,
  ipb_anon_only INTEGER DEFAULT 0 NOT NULL,
  ipb_create_account INTEGER DEFAULT 1 NOT NULL,
  ipb_enable_autoblock INTEGER DEFAULT 1 NOT NULL,
  ipb_expiry BLOB NOT NULL,
  ipb_range_start BLOB NOT NULL,
  ipb_range_end BLOB NOT NULL,
  ipb_deleted INTEGER DEFAULT 0 NOT NULL,
  ipb_block_email INTEGER DEFAULT 0 NOT NULL,
  ipb_allow_usertalk INTEGER DEFAULT 0 NOT NULL,
  ipb_parent_block_id INTEGER DEFAULT NULL,
  ipb_sitewide INTEGER DEFAULT 1 NOT NULL
);
CREATE UNIQUE INDEX ipb_address_unique ON ipblocks (ipb_address, ipb_user, ipb_auto);
CREATE INDEX ipb_user ON ipblocks (ipb_user);
CREATE INDEX ipb_range ON ipblocks (ipb_range_start, ipb_range_end);
CREATE INDEX ipb_timestamp ON ipblocks (ipb_timestamp);
CREATE INDEX ipb_expiry ON ipblocks (ipb_expiry);
CREATE INDEX ipb_parent_block_id ON ipblocks (ipb_parent_block_id);

CREATE TABLE pagelinks (
  pl_from INTEGER DEFAULT 0 NOT NULL,
  pl_namespace INTEGER DEFAULT 0 NOT NULL,
  pl_title BLOB DEFAULT '' NOT NULL,
  pl_from_namespace INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY(pl_from, pl_namespace, pl_title)
);
CREATE INDEX pl_namespace ON pagelinks (pl_namespace, pl_title, pl_from);
CREATE INDEX pl_backlinks_namespace ON pagelinks (pl_from_namespace, pl_namespace, pl_title, pl_from);

CREATE TABLE ip_changes (
  ipc_rev_id INTEGER DEFAULT 0 NOT NULL,
  ipc_rev_timestamp BLOB NOT NULL,
  ipc_hex BLOB DEFAULT '' NOT NULL,
  PRIMARY KEY(ipc_rev_id)
);
CREATE INDEX ipc_rev_timestamp ON ip_changes (ipc_rev_timestamp);
CREATE INDEX ipc_hex_time ON ip_changes (ipc_hex, ipc_rev_timestamp);

CREATE TABLE categorylinks (
  cl_from INTEGER DEFAULT 0 NOT NULL,
  cl_to BLOB DEFAULT '' NOT NULL,
  cl_sortkey BLOB DEFAULT '' NOT NULL,
  cl_sortkey_prefix BLOB DEFAULT '' NOT NULL,
  cl_timestamp TEXT NOT NULL,
  cl_collation BLOB DEFAULT '' NOT NULL,
  cl_type TEXT DEFAULT 'page' NOT NULL,
  PRIMARY KEY(cl_from, cl_to)
);
CREATE INDEX cl_sortkey ON categorylinks (cl_to, cl_type, cl_sortkey, cl_from);
CREATE INDEX cl_timestamp ON categorylinks (cl_to, cl_timestamp);
CREATE INDEX cl_collation_ext ON categorylinks (cl_collation, cl_to, cl_type, cl_from);

CREATE TABLE externallinks (
  el_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  el_from INTEGER DEFAULT 0 NOT NULL,
  el_to BLOB NOT NULL,
  el_index BLOB NOT NULL,
  el_index_60 BLOB NOT NULL
);
CREATE INDEX el_from ON externallinks (el_from, el_to);
CREATE INDEX el_to ON externallinks (el_to, el_from);
CREATE INDEX el_index ON externallinks (el_index);
CREATE INDEX el_index_60 ON externallinks (el_index_60, el_id);
CREATE INDEX el_from_index_60 ON externallinks (el_from, el_index_60, el_id);

CREATE TABLE imagelinks (
  il_from INTEGER DEFAULT 0 NOT NULL,
  il_to BLOB DEFAULT '' NOT NULL,
  il_from_namespace INTEGER DEFAULT 0 NOT NULL,
  PRIMARY KEY(il_from, il_to)
);
CREATE INDEX il_to ON imagelinks (il_to, il_from);
CREATE INDEX il_backlinks_namespace ON imagelinks (il_from_namespace, il_to, il_from);

CREATE TABLE iwlinks (
  iwl_from INTEGER DEFAULT 0 NOT NULL,
  iwl_prefix BLOB DEFAULT '' NOT NULL,
  iwl_title BLOB DEFAULT '' NOT NULL,
  PRIMARY KEY(iwl_from, iwl_prefix, iwl_title)
);
CREATE INDEX iwl_prefix_title_from ON iwlinks (iwl_prefix, iwl_title, iwl_from);
CREATE INDEX iwl_prefix_from_title ON iwlinks (iwl_prefix, iwl_from, iwl_title);

CREATE TABLE langlinks (
  ll_from INTEGER DEFAULT 0 NOT NULL,
  ll_lang BLOB DEFAULT '' NOT NULL,
  ll_title BLOB DEFAULT '' NOT NULL,
  PRIMARY KEY(ll_from, ll_lang)
);
CREATE INDEX ll_lang ON langlinks (ll_lang, ll_title);

CREATE TABLE recentchanges (
  rc_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  rc_timestamp BLOB NOT NULL,
  rc_actor INTEGER NOT NULL,
  rc_namespace INTEGER DEFAULT 0 NOT NULL,
  rc_title BLOB DEFAULT '' NOT NULL,
  rc_comment_id INTEGER NOT NULL,
  rc_minor INTEGER DEFAULT 0 NOT NULL,
  rc_bot INTEGER DEFAULT 0 NOT NULL,
  rc_new INTEGER DEFAULT 0 NOT NULL,
  rc_cur_id INTEGER DEFAULT 0 NOT NULL,
  rc_this_oldid INTEGER DEFAULT 0 NOT NULL,
  rc_last_oldid INTEGER DEFAULT 0 NOT NULL,
  rc_type INTEGER DEFAULT 0 NOT NULL,
  rc_source BLOB DEFAULT '' NOT NULL,
  rc_patrolled INTEGER DEFAULT 0 NOT NULL,
  rc_ip BLOB DEFAULT '' NOT NULL,
  rc_old_len INTEGER DEFAULT NULL,
  rc_new_len INTEGER DEFAULT NULL,
  rc_deleted INTEGER DEFAULT 0 NOT NULL,
  rc_logid INTEGER DEFAULT 0 NOT NULL,
  rc_log_type BLOB DEFAULT NULL,
  rc_log_action BLOB DEFAULT NULL,
  rc_params BLOB DEFAULT NULL
);
CREATE INDEX rc_timestamp ON recentchanges (rc_timestamp);
CREATE INDEX rc_namespace_title_timestamp ON recentchanges (rc_namespace, rc_title, rc_timestamp);
CREATE INDEX rc_cur_id ON recentchanges (rc_cur_id);
CREATE INDEX rc_new_name_timestamp ON recentchanges (rc_new, rc_namespace, rc_timestamp);
CREATE INDEX rc_ip ON recentchanges (rc_ip);
CREATE INDEX rc_ns_actor ON recentchanges (rc_namespace, rc_actor);
CREATE INDEX rc_actor ON recentchanges (rc_actor, rc_timestamp);
CREATE INDEX rc_name_type_patrolled_timestamp ON recentchanges (rc_namespace, rc_type, rc_patrolled, rc_timestamp);
CREATE INDEX rc_this_oldid ON recentchanges (rc_this_oldid);

CREATE TABLE watchlist (
  wl_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
  wl_user INTEGER NOT NULL,
  wl_namespace INTEGER DEFAULT 0 NOT NULL,
  wl_title BLOB DEFAULT '' NOT NULL,
  wl_notificationtimestamp BLOB DEFAULT NULL
);
CREATE UNIQUE INDEX wl_user ON watchlist (wl_user, wl_namespace, wl_title);
CREATE INDEX wl_namespace_title ON watchlist (wl_namespace, wl_title);
CREATE INDEX wl_user_notificationtimestamp ON watchlist (wl_user, wl_notificationtimestamp);

CREATE TABLE site_stats (
  ss_row_id INTEGER NOT NULL,
  ss_total_edits INTEGER DEFAULT NULL,
  ss_good_articles INTEGER DEFAULT NULL,
  ss_total_pages INTEGER DEFAULT NULL,
  ss_users INTEGER DEFAULT NULL,
  ss_active_users INTEGER DEFAULT NULL,
  ss_images INTEGER DEFAULT NULL,
  PRIMARY KEY(ss_row_id)
);
