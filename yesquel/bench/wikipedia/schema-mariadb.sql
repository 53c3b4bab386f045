-- Tables of MediaWiki 1.39.17 that a view and an edit use, as its installer creates them on MariaDB
-- (GPL-2.0-or-later; README.md).

CREATE TABLE page (
  page_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  page_namespace int(11) NOT NULL,
  page_title varbinary(255) NOT NULL,
  page_is_redirect tinyint(3) unsigned NOT NULL DEFAULT 0,
  page_is_new tinyint(3) unsigned NOT NULL DEFAULT 0,
  page_random double unsigned NOT NULL,
  page_touched binary(14) NOT NULL,
  page_links_updated varbinary(14) DEFAULT NULL,
  page_latest int(10) unsigned NOT NULL,
  page_len int(10) unsigned NOT NULL,
  page_content_model varbinary(32) DEFAULT NULL,
  page_lang varbinary(35) DEFAULT NULL,
  PRIMARY KEY (page_id),
  UNIQUE KEY page_name_title (page_namespace,page_title),
  KEY page_random (page_random),
  KEY page_len (page_len),
  KEY page_redirect_namespace_len (page_is_redirect,page_namespace,page_len)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE revision (
  rev_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  rev_page int(10) unsigned NOT NULL,
  rev_comment_id bigint(20) unsigned NOT NULL DEFAULT 0,
  rev_actor bigint(20) unsigned NOT NULL DEFAULT 0,
  rev_timestamp binary(14) NOT NULL,
  rev_minor_edit tinyint(3) unsigned NOT NULL DEFAULT 0,
  rev_deleted tinyint(3) unsigned NOT NULL DEFAULT 0,
  rev_len int(10) unsigned DEFAULT NULL,
  rev_parent_id int(10) unsigned DEFAULT NULL,
  rev_sha1 varbinary(32) NOT NULL DEFAULT '',
  PRIMARY KEY (rev_id),
  KEY rev_timestamp (rev_timestamp),
  KEY rev_page_timestamp (rev_page,rev_timestamp),
  KEY rev_actor_timestamp (rev_actor,rev_timestamp,rev_id),
  KEY rev_page_actor_timestamp (rev_page,rev_actor,rev_timestamp)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE revision_comment_temp (
  revcomment_rev int(10) unsigned NOT NULL,
  revcomment_comment_id bigint(20) unsigned NOT NULL,
  PRIMARY KEY (revcomment_rev,revcomment_comment_id),
  UNIQUE KEY revcomment_rev (revcomment_rev)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE comment (
  comment_id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  comment_hash int(11) NOT NULL,
  comment_text blob NOT NULL,
  comment_data blob DEFAULT NULL,
  PRIMARY KEY (comment_id),
  KEY comment_hash (comment_hash)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE actor (
  actor_id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  actor_user int(10) unsigned DEFAULT NULL,
  actor_name varbinary(255) NOT NULL,
  PRIMARY KEY (actor_id),
  UNIQUE KEY actor_name (actor_name),
  UNIQUE KEY actor_user (actor_user)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE user (
  user_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  user_name varbinary(255) NOT NULL DEFAULT '',
  user_real_name varbinary(255) NOT NULL DEFAULT '',
  user_password tinyblob NOT NULL,
  user_newpassword tinyblob NOT NULL,
  user_newpass_time binary(14) DEFAULT NULL,
  user_email tinyblob NOT NULL,
  user_touched binary(14) NOT NULL,
  user_token binary(32) NOT NULL DEFAULT '',
  user_email_authenticated binary(14) DEFAULT NULL,
  user_email_token binary(32) DEFAULT NULL,
  user_email_token_expires binary(14) DEFAULT NULL,
  user_registration binary(14) DEFAULT NULL,
  user_editcount int(10) unsigned DEFAULT NULL,
  user_password_expires varbinary(14) DEFAULT NULL,
  PRIMARY KEY (user_id),
  UNIQUE KEY user_name (user_name),
  KEY user_email_token (user_email_token),
  KEY user_email (user_email(50))
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE slots (
  slot_revision_id bigint(20) unsigned NOT NULL,
  slot_role_id smallint(5) unsigned NOT NULL,
  slot_content_id bigint(20) unsigned NOT NULL,
  slot_origin bigint(20) unsigned NOT NULL,
  PRIMARY KEY (slot_revision_id,slot_role_id),
  KEY slot_revision_origin_role (slot_revision_id,slot_origin,slot_role_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE content (
  content_id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  content_size int(10) unsigned NOT NULL,
  content_sha1 varbinary(32) NOT NULL,
  content_model smallint(5) unsigned NOT NULL,
  content_address varbinary(255) NOT NULL,
  PRIMARY KEY (content_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE slot_roles (
  role_id int(11) NOT NULL AUTO_INCREMENT,
  role_name varbinary(64) NOT NULL,
  PRIMARY KEY (role_id),
  UNIQUE KEY role_name (role_name)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE content_models (
  model_id int(11) NOT NULL AUTO_INCREMENT,
  model_name varbinary(64) NOT NULL,
  PRIMARY KEY (model_id),
  UNIQUE KEY model_name (model_name)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE page_restrictions (
  pr_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  pr_page int(10) unsigned NOT NULL,
  pr_type varbinary(60) NOT NULL,
  pr_level varbinary(60) NOT NULL,
  pr_cascade tinyint(4) NOT NULL,
  pr_expiry varbinary(14) DEFAULT NULL,
  PRIMARY KEY (pr_id),
  UNIQUE KEY pr_pagetype (pr_page,pr_type),
  KEY pr_typelevel (pr_type,pr_level),
  KEY pr_level (pr_level),
  KEY pr_cascade (pr_cascade)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE text (
  old_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  old_text mediumblob NOT NULL,
  old_flags tinyblob NOT NULL,
  PRIMARY KEY (old_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE page_props (
  pp_page int(10) unsigned NOT NULL,
  pp_propname varbinary(60) NOT NULL,
  pp_value blob NOT NULL,
  pp_sortkey float DEFAULT NULL,
  PRIMARY KEY (pp_page,pp_propname),
  UNIQUE KEY pp_propname_page (pp_propname,pp_page),
  UNIQUE KEY pp_propname_sortkey_page (pp_propname,pp_sortkey,pp_page)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE user_newtalk (
  user_id int(10) unsigned NOT NULL DEFAULT 0,
  user_ip varbinary(40) NOT NULL DEFAULT '',
  user_last_timestamp binary(14) DEFAULT NULL,
  KEY un_user_id (user_id),
  KEY un_user_ip (user_ip)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE linktarget (
  lt_id bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  lt_namespace int(11) NOT NULL,
  lt_title varbinary(255) NOT NULL,
  PRIMARY KEY (lt_id),
  UNIQUE KEY lt_namespace_title (lt_namespace,lt_title)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE templatelinks (
  tl_from int(10) unsigned NOT NULL DEFAULT 0,
  tl_target_id bigint(20) unsigned NOT NULL,
  tl_from_namespace int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (tl_from,tl_target_id),
  KEY tl_target_id (tl_target_id,tl_from),
  KEY tl_backlinks_namespace_target_id (tl_from_namespace,tl_target_id,tl_from)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE ipblocks (
  ipb_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  ipb_address tinyblob NOT NULL,
  ipb_user int(10) unsigned NOT NULL DEFAULT 0,
  ipb_by_actor bigint(20) unsigned NOT NULL,
  ipb_reason_id bigint(20) unsigned NOT NULL,
  ipb_timestamp binary(14) NOT NULL,
  ipb_auto tinyint(1) NOT NULL DEFAULT 0,
  ipb_anon_only tinyint(1) NOT NULL DEFAULT 0,
  ipb_create_account tinyint(1) NOT NULL DEFAULT 1,
  ipb_enable_autoblock tinyint(1) NOT NULL DEFAULT 1,
  ipb_expiry varbinary(14) NOT NULL,
  ipb_range_start tinyblob NOT NULL,
  ipb_range_end tinyblob NOT NULL,
  ipb_deleted tinyint(1) NOT NULL DEFAULT 0,
  ipb_block_email tinyint(1) NOT NULL DEFAULT 0,
  ipb_allow_usertalk tinyint(1) NOT NULL DEFAULT 0,
  ipb_parent_block_id int(10) unsigned DEFAULT NULL,
  ipb_sitewide tinyint(1) NOT NULL DEFAULT 1,
  PRIMARY KEY (ipb_id),
  UNIQUE KEY ipb_address_unique (ipb_address(255),ipb_user,ipb_auto),
  KEY ipb_user (ipb_user),
  KEY ipb_range (ipb_range_start(8),ipb_range_end(8)),
  KEY ipb_timestamp (ipb_timestamp),
  KEY ipb_expiry (ipb_expiry),
  KEY ipb_parent_block_id (ipb_parent_block_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE pagelinks (
  pl_from int(10) unsigned NOT NULL DEFAULT 0,
  pl_namespace int(11) NOT NULL DEFAULT 0,
  pl_title varbinary(255) NOT NULL DEFAULT '',
  pl_from_namespace int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (pl_from,pl_namespace,pl_title),
  KEY pl_namespace (pl_namespace,pl_title,pl_from),
  KEY pl_backlinks_namespace (pl_from_namespace,pl_namespace,pl_title,pl_from)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE ip_changes (
  ipc_rev_id int(10) unsigned NOT NULL DEFAULT 0,
  ipc_rev_timestamp binary(14) NOT NULL,
  ipc_hex varbinary(35) NOT NULL DEFAULT '',
  PRIMARY KEY (ipc_rev_id),
  KEY ipc_rev_timestamp (ipc_rev_timestamp),
  KEY ipc_hex_time (ipc_hex,ipc_rev_timestamp)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE categorylinks (
  cl_from int(10) unsigned NOT NULL DEFAULT 0,
  cl_to varbinary(255) NOT NULL DEFAULT '',
  cl_sortkey varbinary(230) NOT NULL DEFAULT '',
  cl_sortkey_prefix varbinary(255) NOT NULL DEFAULT '',
  cl_timestamp timestamp NOT NULL,
  cl_collation varbinary(32) NOT NULL DEFAULT '',
  cl_type enum('page','subcat','file') NOT NULL DEFAULT 'page',
  PRIMARY KEY (cl_from,cl_to),
  KEY cl_sortkey (cl_to,cl_type,cl_sortkey,cl_from),
  KEY cl_timestamp (cl_to,cl_timestamp),
  KEY cl_collation_ext (cl_collation,cl_to,cl_type,cl_from)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE externallinks (
  el_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  el_from int(10) unsigned NOT NULL DEFAULT 0,
  el_to blob NOT NULL,
  el_index blob NOT NULL,
  el_index_60 varbinary(60) NOT NULL,
  PRIMARY KEY (el_id),
  KEY el_from (el_from,el_to(40)),
  KEY el_to (el_to(60),el_from),
  KEY el_index (el_index(60)),
  KEY el_index_60 (el_index_60,el_id),
  KEY el_from_index_60 (el_from,el_index_60,el_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE imagelinks (
  il_from int(10) unsigned NOT NULL DEFAULT 0,
  il_to varbinary(255) NOT NULL DEFAULT '',
  il_from_namespace int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (il_from,il_to),
  KEY il_to (il_to,il_from),
  KEY il_backlinks_namespace (il_from_namespace,il_to,il_from)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE iwlinks (
  iwl_from int(10) unsigned NOT NULL DEFAULT 0,
  iwl_prefix varbinary(32) NOT NULL DEFAULT '',
  iwl_title varbinary(255) NOT NULL DEFAULT '',
  PRIMARY KEY (iwl_from,iwl_prefix,iwl_title),
  KEY iwl_prefix_title_from (iwl_prefix,iwl_title,iwl_from),
  KEY iwl_prefix_from_title (iwl_prefix,iwl_from,iwl_title)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE langlinks (
  ll_from int(10) unsigned NOT NULL DEFAULT 0,
  ll_lang varbinary(35) NOT NULL DEFAULT '',
  ll_title varbinary(255) NOT NULL DEFAULT '',
  PRIMARY KEY (ll_from,ll_lang),
  KEY ll_lang (ll_lang,ll_title)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE recentchanges (
  rc_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  rc_timestamp binary(14) NOT NULL,
  rc_actor bigint(20) unsigned NOT NULL,
  rc_namespace int(11) NOT NULL DEFAULT 0,
  rc_title varbinary(255) NOT NULL DEFAULT '',
  rc_comment_id bigint(20) unsigned NOT NULL,
  rc_minor tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_bot tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_new tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_cur_id int(10) unsigned NOT NULL DEFAULT 0,
  rc_this_oldid int(10) unsigned NOT NULL DEFAULT 0,
  rc_last_oldid int(10) unsigned NOT NULL DEFAULT 0,
  rc_type tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_source varbinary(16) NOT NULL DEFAULT '',
  rc_patrolled tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_ip varbinary(40) NOT NULL DEFAULT '',
  rc_old_len int(11) DEFAULT NULL,
  rc_new_len int(11) DEFAULT NULL,
  rc_deleted tinyint(3) unsigned NOT NULL DEFAULT 0,
  rc_logid int(10) unsigned NOT NULL DEFAULT 0,
  rc_log_type varbinary(255) DEFAULT NULL,
  rc_log_action varbinary(255) DEFAULT NULL,
  rc_params blob DEFAULT NULL,
  PRIMARY KEY (rc_id),
  KEY rc_timestamp (rc_timestamp),
  KEY rc_namespace_title_timestamp (rc_namespace,rc_title,rc_timestamp),
  KEY rc_cur_id (rc_cur_id),
  KEY rc_new_name_timestamp (rc_new,rc_namespace,rc_timestamp),
  KEY rc_ip (rc_ip),
  KEY rc_ns_actor (rc_namespace,rc_actor),
  KEY rc_actor (rc_actor,rc_timestamp),
  KEY rc_name_type_patrolled_timestamp (rc_namespace,rc_type,rc_patrolled,rc_timestamp),
  KEY rc_this_oldid (rc_this_oldid)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE watchlist (
  wl_id int(10) unsigned NOT NULL AUTO_INCREMENT,
  wl_user int(10) unsigned NOT NULL,
  wl_namespace int(11) NOT NULL DEFAULT 0,
  wl_title varbinary(255) NOT NULL DEFAULT '',
  wl_notificationtimestamp binary(14) DEFAULT NULL,
  PRIMARY KEY (wl_id),
  UNIQUE KEY wl_user (wl_user,wl_namespace,wl_title),
  KEY wl_namespace_title (wl_namespace,wl_title),
  KEY wl_user_notificationtimestamp (wl_user,wl_notificationtimestamp)
) ENGINE=InnoDB DEFAULT CHARSET=binary;

CREATE TABLE site_stats (
  ss_row_id int(10) unsigned NOT NULL,
  ss_total_edits bigint(20) unsigned DEFAULT NULL,
  ss_good_articles bigint(20) unsigned DEFAULT NULL,
  ss_total_pages bigint(20) unsigned DEFAULT NULL,
  ss_users bigint(20) unsigned DEFAULT NULL,
  ss_active_users bigint(20) unsigned DEFAULT NULL,
  ss_images bigint(20) unsigned DEFAULT NULL,
  PRIMARY KEY (ss_row_id)
) ENGINE=InnoDB DEFAULT CHARSET=binary;
