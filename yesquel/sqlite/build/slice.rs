//! Splits the amalgamation at its file markers and reassembles it, with dispatchers in place of the
//! functions of `btree.c`.

use std::{collections::BTreeMap, collections::BTreeSet, error::Error, fmt::Write as _};

/// Version whose b-tree interface this code knows.
const VERSION: &str = "3.54.1";

/// Functions of `btree.h` that stay as they are: for a database on trees they act on the small
/// b-tree in memory that it owns, or on fields that both kinds have.
const NATIVE: &[&str] = &[
    "ClearCache",
    "ClosesWithCursor",
    "ConnectionCount",
    "CursorHasHint",
    "CursorHasMoved",
    "CursorHint",
    "CursorHintFlags",
    "CursorHintTblCsr",
    "CursorIsValid",
    "CursorIsValidNN",
    "CursorPin",
    "CursorSize",
    "CursorUnpin",
    "CursorZero",
    "Eof",
    "FakeValidCursor",
    "GetJournalname",
    "GetPageSize",
    "GetRequestedReserve",
    "GetReserveNoMutex",
    "IncrblobCursor",
    "IsInBackup",
    "LastPage",
    "LockTable",
    "MaxPageCount",
    "Pager",
    "Schema",
    "SchemaLocked",
    "SecureDelete",
    "SeekCount",
    "SetMmapLimit",
    "SetPagerFlags",
    "SetPageSize",
    "SetSpillSize",
    "Sharable",
    "TxnState",
];

/// Change of a line elsewhere: the file, the old text, which must occur exactly once, and the new
/// text.
struct Edit {
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

const EDITS: &[Edit] = &[
    // Owner of the cursor; null means native. Zeroed with the rest at its creation.
    Edit {
        file: "btreeInt.h",
        old: "#ifndef SQLITE_OMIT_SHARED_CACHE\n  BtLock lock;       /* Object used to lock page 1 */\n#endif\n",
        new: "#ifndef SQLITE_OMIT_SHARED_CACHE\n  BtLock lock;       /* Object used to lock page 1 */\n#endif\n  struct YqBtree *pYq;\n  struct YqRow *pYqRow;\n",
    },
    Edit {
        file: "btreeInt.h",
        old: "  /* All fields above are zeroed when the cursor is allocated.  See\n",
        new: "  struct YqCursor *pYq;\n  /* All fields above are zeroed when the cursor is allocated.  See\n",
    },
    // Where the entries hold the key of the row that they refer to, if rows have no numbers; and
    // how many fields form the key of an index: nKeyField changes when a column loses its NOT NULL,
    // and the entries do not.
    Edit {
        file: "sqliteInt.h",
        old: "  u16 nAllField;      /* Total columns, including key plus others */\n",
        new: "  u16 nAllField;      /* Total columns, including key plus others */\n  u16 nYqKey;\n  u8 nYqPk;\n  u8 aYqPk[8];\n",
    },
    Edit {
        file: "select.c",
        old: "    p->nAllField = (u16)(N+X);\n",
        new: "    p->nAllField = (u16)(N+X);\n    p->nYqKey = (u16)(N+X);\n    p->nYqPk = 0;\n",
    },
    Edit {
        file: "build.c",
        old: "    assert( sqlite3KeyInfoIsWriteable(pKey) );\n    for(i=0; i<nCol; i++){\n      const char *zColl = pIdx->azColl[i];\n",
        new: "    assert( sqlite3KeyInfoIsWriteable(pKey) );\n    if( IsPrimaryKeyIndex(pIdx) && !HasRowid(pIdx->pTable) ) pKey->nYqKey = (u16)nKey;\n    yqRefers(pKey, pIdx);\n    for(i=0; i<nCol; i++){\n      const char *zColl = pIdx->azColl[i];\n",
    },
    // The direction of the scan, for prefetching.
    Edit {
        file: "vdbe.c",
        old: "    rc = sqlite3BtreeTableMoveto(pC->uc.pCursor, (u64)iKey, 0, &res);\n    pC->movetoTarget = iKey;  /* Used by OP_Delete */\n",
        new: "    rc = yqSeekRow(pC->uc.pCursor, (u64)iKey, oc, &res);\n    pC->movetoTarget = iKey;  /* Used by OP_Delete */\n",
    },
    Edit {
        file: "vdbe.c",
        old: "    r.eqSeen = 0;\n    rc = sqlite3BtreeIndexMoveto(pC->uc.pCursor, &r, &res);\n    if( rc!=SQLITE_OK ){\n      goto abort_due_to_error;\n    }\n    if( eqOnly && r.eqSeen==0 ){\n",
        new: "    r.eqSeen = 0;\n    rc = yqSeekEntry(pC->uc.pCursor, &r, oc, &res);\n    if( rc!=SQLITE_OK ){\n      goto abort_due_to_error;\n    }\n    if( eqOnly && r.eqSeen==0 ){\n",
    },
    // An index is created at the group of its table.
    Edit {
        file: "build.c",
        old: "      sqlite3VdbeAddOp3(v, OP_CreateBtree, iDb, iMem, BTREE_BLOBKEY);\n",
        new: "      sqlite3VdbeAddOp4Int(v, OP_CreateBtree, iDb, iMem, BTREE_BLOBKEY,\n                           pTblName ? (int)pTab->tnum : YQ_LAST_TABLE);\n",
    },
    Edit {
        file: "vdbe.c",
        old: "  rc = sqlite3BtreeCreateTable(pDb->pBt, &pgno, pOp->p3);\n",
        new: "  rc = yqCreateTree(pDb->pBt, &pgno, pOp->p3, pOp->p4type==P4_INT32 ? pOp->p4.i : 0);\n",
    },
    // Row numbers come from a counter: concurrent inserts would conflict on the last number plus
    // one.
    Edit {
        file: "vdbe.c",
        old: "      rc = sqlite3BtreeLast(pC->uc.pCursor, &res);\n      if( rc!=SQLITE_OK ){\n        goto abort_due_to_error;\n      }\n      if( res ){\n        v = 1;   /* IMP: R-61914-48074 */\n",
        new: "      if( pOp->p3 && yqIsOurs(pC->uc.pCursor) ){\n        res = -1;\n      }else{\n        rc = yqNewRowid(pC->uc.pCursor, &v, &res);\n      }\n      if( rc!=SQLITE_OK ){\n        goto abort_due_to_error;\n      }\n      if( res<0 ){\n        /* It is one of ours. */\n      }else if( res ){\n        v = 1;   /* IMP: R-61914-48074 */\n",
    },
    Edit {
        file: "vdbe.c",
        old: "      if( v<pMem->u.i+1 ){\n        v = pMem->u.i + 1;\n      }\n",
        new: "      if( yqIsOurs(pC->uc.pCursor) ){\n        rc = yqNewSequence(db, pC->uc.pCursor, pMem, &v);\n        if( rc!=SQLITE_OK ) goto abort_due_to_error;\n      }else if( v<pMem->u.i+1 ){\n        v = pMem->u.i + 1;\n      }\n",
    },
    // AUTOINCREMENT numbers come from a counter that the table's row in sqlite_sequence names, so
    // that inserts do not write that row.
    Edit {
        file: "insert.c",
        old: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenRead);\n",
        new: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenRead);\n    sqlite3VdbeChangeP5(v, OPFLAG_YQSEQ);\n",
    },
    Edit {
        file: "insert.c",
        old: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenWrite);\n",
        new: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenWrite);\n    sqlite3VdbeChangeP5(v, OPFLAG_YQSEQ);\n",
    },
    Edit {
        file: "insert.c",
        old: "    aOp[3].p5 = OPFLAG_APPEND;\n",
        new: "    aOp[3].p5 = OPFLAG_APPEND|OPFLAG_YQSEQ;\n",
    },
    // The number is requested together with that row.
    Edit {
        file: "insert.c",
        old: "    aOp[0].p3 = memId+2;\n    aOp[2].p3 = memId;\n",
        new: "    aOp[0].p3 = memId+2;\n    aOp[1].p3 = (int)p->pTab->tnum;\n    aOp[2].p3 = memId;\n",
    },
    Edit {
        file: "vdbe.c",
        old: "    rc = sqlite3BtreeFirst(pCrsr, &res);\n    pC->deferredMoveto = 0;\n",
        new: "    if( pOp->p3 && pOp->opcode==OP_Rewind ) yqExpectSequence(pCrsr, (u32)pOp->p3);\n    rc = sqlite3BtreeFirst(pCrsr, &res);\n    pC->deferredMoveto = 0;\n",
    },
    Edit {
        file: "vdbe.c",
        old: "  rc = sqlite3BtreeInsert(pC->uc.pCursor, &x,\n      (pOp->p5 & (OPFLAG_APPEND|OPFLAG_SAVEPOSITION|OPFLAG_PREFORMAT)),\n      seekResult\n  );\n",
        new: "  if( (pOp->p5 & OPFLAG_YQSEQ) && yqIsOurs(pC->uc.pCursor) ){\n    rc = yqPutSequence(pC->uc.pCursor, &x);\n  }else{\n  rc = sqlite3BtreeInsert(pC->uc.pCursor, &x,\n      (pOp->p5 & (OPFLAG_APPEND|OPFLAG_SAVEPOSITION|OPFLAG_PREFORMAT)),\n      seekResult\n  );\n  }\n",
    },
    // An autocommit statement that conflicted is run again, unless its effects were visible.
    Edit {
        file: "sqliteInt.h",
        old: "  i64 nTotalChange;             /* Value returned by sqlite3_total_changes() */\n",
        new: "  i64 nTotalChange;             /* Value returned by sqlite3_total_changes() */\n  u32 nYqCall;                  /* Calls of the application's functions */\n",
    },
    Edit {
        file: "vdbe.c",
        old: "  (*pCtx->pFunc->xSFunc)(pCtx, pCtx->argc, pCtx->argv);/* IMP: R-24505-23230 */\n",
        new: "  if( (pCtx->pFunc->funcFlags & SQLITE_FUNC_BUILTIN)==0 ) db->nYqCall++;\n  (*pCtx->pFunc->xSFunc)(pCtx, pCtx->argc, pCtx->argv);/* IMP: R-24505-23230 */\n",
    },
    Edit {
        file: "vdbe.c",
        old: "  (pCtx->pFunc->xSFunc)(pCtx,pCtx->argc,pCtx->argv); /* IMP: R-24505-23230 */\n",
        new: "  {\n    if( (pCtx->pFunc->funcFlags & SQLITE_FUNC_BUILTIN)==0 ) db->nYqCall++;\n    (pCtx->pFunc->xSFunc)(pCtx,pCtx->argc,pCtx->argv); /* IMP: R-24505-23230 */\n  }\n",
    },
    Edit {
        file: "vdbeapi.c",
        old: "  sqlite3_mutex_enter(db->mutex);\n  while( (rc = sqlite3Step(v))==SQLITE_SCHEMA\n         && cnt++ < SQLITE_MAX_SCHEMA_RETRY ){\n    int savedPc = v->pc;\n",
        new: "  YqAgain again;\n  sqlite3_mutex_enter(db->mutex);\n  yqRemember(v, &again);\n  while( ((rc = sqlite3Step(v))==SQLITE_SCHEMA\n         && cnt++ < SQLITE_MAX_SCHEMA_RETRY) || yqRunAgain(v, &again, &rc) ){\n    int savedPc = v->pc;\n    if( rc!=SQLITE_SCHEMA ){\n      sqlite3_reset(pStmt);\n      v->minWriteFileFormat = 254;\n      continue;\n    }\n    yqForgetSchemas(db);\n",
    },
    Edit {
        file: "vdbeapi.c",
        old: "    assert( v->expired==0 );\n  }\n  sqlite3_mutex_leave(db->mutex);\n",
        new: "    assert( v->expired==0 );\n  }\n  if( cnt ) yqLetGo(db);\n  sqlite3_mutex_leave(db->mutex);\n",
    },
    // A COMMIT that conflicted leaves the transaction open, for a rollback.
    Edit {
        file: "vdbeaux.c",
        old: "        if( rc==SQLITE_BUSY && p->readOnly ){\n          sqlite3VdbeLeave(p);\n          return SQLITE_BUSY;\n",
        new: "        if( (rc==SQLITE_BUSY || rc==SQLITE_BUSY_SNAPSHOT) && p->readOnly ){\n          sqlite3VdbeLeave(p);\n          return rc;\n",
    },
    Edit {
        file: "vdbe.c",
        old: "    if( sqlite3VdbeHalt(p)==SQLITE_BUSY ){\n      p->pc = (int)(pOp - aOp);\n      db->autoCommit = (u8)(1-desiredAutoCommit);\n      p->rc = rc = SQLITE_BUSY;\n",
        new: "    if( ((rc = sqlite3VdbeHalt(p)) & 0xff)==SQLITE_BUSY ){\n      p->pc = (int)(pOp - aOp);\n      db->autoCommit = (u8)(1-desiredAutoCommit);\n      p->rc = rc;\n",
    },
    Edit {
        file: "vdbe.c",
        old: "        if( sqlite3VdbeHalt(p)==SQLITE_BUSY ){\n          p->pc = (int)(pOp - aOp);\n          db->autoCommit = 0;\n          p->rc = rc = SQLITE_BUSY;\n",
        new: "        if( ((rc = sqlite3VdbeHalt(p)) & 0xff)==SQLITE_BUSY ){\n          p->pc = (int)(pOp - aOp);\n          db->autoCommit = 0;\n          p->rc = rc;\n",
    },
    // An error may follow from an outdated schema.
    Edit {
        file: "vdbeaux.c",
        old: "    /* Check for one of the special errors */\n    if( p->rc ){\n",
        new: "    yqVerifySchemaOfError(p);\n\n    /* Check for one of the special errors */\n    if( p->rc ){\n",
    },
    // BEGIN IMMEDIATE takes a lease before it reads.
    Edit {
        file: "build.c",
        old: "      sqlite3VdbeAddOp2(v, OP_Transaction, i, eTxnType);\n",
        new: "      sqlite3VdbeAddOp3(v, OP_Transaction, i, eTxnType, YQ_IMMEDIATE);\n",
    },
    Edit {
        file: "vdbe.c",
        old: "    rc = sqlite3BtreeBeginTrans(pBt, pOp->p2, &iMeta);\n",
        new: "    rc = yqBeginTrans(p, pOp, pBt, pOp->p2, pOp->p5==0 && pOp->p3==YQ_IMMEDIATE, &iMeta);\n",
    },
    // An unknown value is not 0; with an outdated schema nothing is done.
    Edit {
        file: "vdbe.c",
        old: "  sqlite3BtreeGetMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta);\n  pOut = out2Prerelease(p, pOp);\n",
        new: "  rc = yqReadMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta);\n  if( rc!=SQLITE_OK ) goto abort_due_to_error;\n  pOut = out2Prerelease(p, pOp);\n",
    },
    // The message says why the schema cannot be read.
    Edit {
        file: "prepare.c",
        old: "      sqlite3SetString(pzErrMsg, db, sqlite3ErrStr(rc));\n      goto initone_error_out;\n",
        new: "      sqlite3SetString(pzErrMsg, db, yqErrStr(rc));\n      goto initone_error_out;\n",
    },
    // A no-op because something exists or not must hold until the commit.
    Edit {
        file: "build.c",
        old: "    sqlite3VdbeAddOp3(v, OP_JournalMode, 0, iReg, PAGER_JOURNALMODE_QUERY);\n    sqlite3VdbeUsesBtree(v, 0);\n",
        new: "    int i;\n    for(i=0; i<pParse->db->nDb; i++){\n      if( i!=1 && DbMaskTest(pParse->cookieMask, i) ){\n        sqlite3VdbeAddOp3(v, OP_ReadCookie, i, iReg, BTREE_SCHEMA_VERSION);\n      }\n    }\n    sqlite3VdbeAddOp3(v, OP_JournalMode, 0, iReg, PAGER_JOURNALMODE_QUERY);\n    sqlite3VdbeUsesBtree(v, 0);\n",
    },
    // With many schema changes it may change again while it is read.
    Edit {
        file: "prepare.c",
        old: "(rc==SQLITE_SCHEMA && (sqlite3ResetOneSchema(db,-1), cnt)==1) );\n",
        new: "(rc==SQLITE_SCHEMA && (sqlite3ResetOneSchema(db,-1), cnt)<=SQLITE_MAX_PREPARE_RETRY/2) );\n",
    },
    // The absence of the value must hold until the commit.
    Edit {
        file: "vdbe.c",
        old: "  alreadyExists = (pC->seekResult==0);\n",
        new: "  alreadyExists = (pC->seekResult==0);\n  if( pOp->opcode==OP_NoConflict && !alreadyExists ){\n    rc = yqGuardSought(pC->uc.pCursor);\n    if( rc!=SQLITE_OK ) goto abort_due_to_error;\n  }\n",
    },
    // What a foreign key check has read must hold, too.
    Edit {
        file: "vdbe.c",
        old: "(pOp->p5 & (OPFLAG_BULKCSR|OPFLAG_SEEKEQ)));\n",
        new: "(pOp->p5 & (OPFLAG_BULKCSR|OPFLAG_SEEKEQ|OPFLAG_YQGUARD)));\n  yqOpened(p, pOp, pCur->uc.pCursor);\n",
    },
    Edit {
        file: "fkey.c",
        old: "  int iCur = pParse->nTab - 1;              /* Cursor number to use */\n  int iOk = sqlite3VdbeMakeLabel(pParse);   /* jump here if parent key found */\n",
        new: "  int iCur = pParse->nTab - 1;              /* Cursor number to use */\n  int iOk = sqlite3VdbeMakeLabel(pParse);   /* jump here if parent key found */\n  int iYq = sqlite3VdbeCurrentAddr(v);\n",
    },
    Edit {
        file: "fkey.c",
        old: "  sqlite3VdbeResolveLabel(v, iOk);\n  sqlite3VdbeAddOp1(v, OP_Close, iCur);\n",
        new: "  sqlite3VdbeResolveLabel(v, iOk);\n  sqlite3VdbeAddOp1(v, OP_Close, iCur);\n  yqGuardCursors(v, iYq);\n",
    },
    Edit {
        file: "fkey.c",
        old: "  if( pParse->nErr==0 ){\n    pWInfo = sqlite3WhereBegin(pParse, pSrc, pWhere, 0, 0, 0, 0, 0);\n    sqlite3VdbeAddOp2(v, OP_FkCounter, pFKey->isDeferred, nIncr);\n    if( pWInfo ){\n      sqlite3WhereEnd(pWInfo);\n    }\n",
        new: "  if( pParse->nErr==0 ){\n    int iYq = sqlite3VdbeCurrentAddr(v);\n    pWInfo = sqlite3WhereBegin(pParse, pSrc, pWhere, 0, 0, 0, 0, 0);\n    sqlite3VdbeAddOp2(v, OP_FkCounter, pFKey->isDeferred, nIncr);\n    if( pWInfo ){\n      sqlite3WhereEnd(pWInfo);\n    }\n    yqGuardCursors(v, iYq);\n",
    },
    // The row limit of a simple query does not change its program, so that a new limit needs no
    // recompilation, which takes longer than the query.
    Edit {
        file: "select.c",
        old: "    if( sqlite3ExprIsInteger(pLimit->pLeft, &n, pParse, 0) ){\n      sqlite3VdbeAddOp2(v, OP_Integer, n, iLimit);\n",
        new: "    int bYqAlone = pParse->nSelect==1 && p->pOrderBy==0 && p->pGroupBy==0\n                && (p->selFlags & (SF_Distinct|SF_Aggregate))==0 && p->pSrc->nSrc==1\n                && !IsVirtual(p->pSrc->a[0].pSTab);\n    if( sqlite3ExprIsInteger(pLimit->pLeft, &n, bYqAlone ? 0 : pParse, 0) ){\n      sqlite3VdbeAddOp2(v, OP_Integer, n, iLimit);\n",
    },
    // Root pages are numbers of trees: any number is valid.
    Edit {
        file: "vdbe.c",
        old: "    initData.mxPage = sqlite3BtreeLastPage(db->aDb[iDb].pBt);\n",
        new: "    initData.mxPage = yqMaxRoot(db->aDb[iDb].pBt);\n",
    },
    Edit {
        file: "prepare.c",
        old: "  initData.mxPage = sqlite3BtreeLastPage(pDb->pBt);\n",
        new: "  initData.mxPage = yqMaxRoot(pDb->pBt);\n",
    },
    // Backups copy pages, which trees do not have: copy tree by tree.
    Edit {
        file: "backup.c",
        old: "  int isAttached;          /* True once backup has been registered with pager */\n",
        new: "  YqCopy *pYq;             /* What a copy of trees has come to */\n  int isAttached;          /* True once backup has been registered with pager */\n",
    },
    Edit {
        file: "backup.c",
        old: "    /* If the destination database has not yet been locked (i.e. if this\n",
        new: "    if( rc==SQLITE_OK && (pDest->pYq || p->pSrc->pYq) ){\n      p->pDest = pDest;\n      rc = yqBackup(&p->pYq, p->pSrcDb, p->pSrc, p->pDestDb, pDest, nPage,\n                    &bCloseTrans, &p->nRemaining, &p->nPagecount);\n      goto yq_copied;\n    }\n\n    /* If the destination database has not yet been locked (i.e. if this\n",
    },
    Edit {
        file: "backup.c",
        old: "  /* If a transaction is still open on the Btree, roll it back. */\n  if( p->pDest ){\n",
        new: "  if( p->pYq ) yqEndCopy(p->pYq);\n\n  /* If a transaction is still open on the Btree, roll it back. */\n  if( p->pDest ){\n",
    },
    Edit {
        file: "backup.c",
        old: "    /* If bCloseTrans is true, then this function opened a read transaction\n",
        new: "yq_copied:\n    /* If bCloseTrans is true, then this function opened a read transaction\n",
    },
    // An estimate, which may need the server.
    Edit {
        file: "vdbe.c",
        old: "  pOut->u.i = sqlite3BtreeLastPage(db->aDb[pOp->p1].pBt);\n",
        new: "  rc = yqPageCount(db->aDb[pOp->p1].pBt, &pOut->u.i);\n  if( rc!=SQLITE_OK ) goto abort_due_to_error;\n",
    },
    // The decoder reads slightly beyond the end of a malformed record.
    Edit {
        file: "vdbeapi.c",
        old: "      aRec = sqlite3DbMallocRaw(db, nRec);\n",
        new: "      aRec = sqlite3DbMallocZero(db, (u64)nRec+YQ_PADDING);\n",
    },
    // There are no pages to compact: servers collect garbage.
    Edit {
        file: "vacuum.c",
        old: "  saved_openFlags = db->openFlags;\n  if( pOut ){\n",
        new: "  if( pOut==0 && db->aDb[iDb].pBt->pYq ) return SQLITE_OK;\n  saved_openFlags = db->openFlags;\n  if( pOut ){\n",
    },
    // Readers do not block writers, nor writers readers: this mode comes closest.
    Edit {
        file: "vdbe.c",
        old: "  pBt = db->aDb[pOp->p1].pBt;\n  pPager = sqlite3BtreePager(pBt);\n  eOld = sqlite3PagerGetJournalMode(pPager);\n",
        new: "  pBt = db->aDb[pOp->p1].pBt;\n  pPager = sqlite3BtreePager(pBt);\n  if( pBt->pYq ){\n    sqlite3VdbeMemSetStr(pOut, \"wal\", -1, SQLITE_UTF8, SQLITE_STATIC);\n    sqlite3VdbeChangeEncoding(pOut, encoding);\n    if( rc ) goto abort_due_to_error;\n    break;\n  }\n  eOld = sqlite3PagerGetJournalMode(pPager);\n",
    },
    // A database on trees has no file whose size would show its existence: VACUUM INTO must not
    // merge two.
    Edit {
        file: "vacuum.c",
        old: "    if( id->pMethods!=0 && (sqlite3OsFileSize(id, &sz)!=SQLITE_OK || sz>0) ){\n",
        new: "    if( pTemp->pYq ) sz = pDb->pSchema->schema_cookie || pDb->pSchema->tblHash.count>1;\n    if( sz || (id->pMethods!=0 && (sqlite3OsFileSize(id, &sz)!=SQLITE_OK || sz>0)) ){\n",
    },
    // Messages of servers and folders are passed on, also for a backup, which stores them in its
    // destination when it ends, and for a blob.
    Edit {
        file: "backup.c",
        old: "    sqlite3Error(p->pDestDb, rc);\n\n    /* Exit",
        new: "    if( rc==SQLITE_OK || p->pDestDb->errCode!=rc || yq_message(rc)==0 ) sqlite3Error(p->pDestDb, rc);\n\n    /* Exit",
    },
    Edit {
        file: "vdbeblob.c",
        old: "      v->rc = rc;\n    }\n  }\n  sqlite3Error(db, rc);\n",
        new: "      v->rc = rc;\n    }\n  }\n  if( yq_message(rc) ) sqlite3ErrorWithMsg(db, rc, \"%s\", yqErrStr(rc));\n  else sqlite3Error(db, rc);\n",
    },
    Edit {
        file: "vdbe.c",
        old: "    sqlite3VdbeError(p, \"%s\", sqlite3ErrStr(rc));\n  }\n  p->rc = rc;\n",
        new: "    sqlite3VdbeError(p, \"%s\", yqErrStr(rc));\n  }\n  p->rc = rc;\n",
    },
    Edit {
        file: "vdbeaux.c",
        old: "          rc = vdbeCommit(db, p);\n",
        new: "          rc = vdbeCommit(db, p);\n          if( rc && p->zErrMsg==0 && yq_message(rc) ) sqlite3VdbeError(p, \"%s\", yqErrStr(rc));\n",
    },
    Edit {
        file: "main.c",
        old: "      rc = SQLITE_NOMEM_BKPT;\n    }\n    sqlite3Error(db, rc);\n    goto opendb_out;\n  }\n  sqlite3BtreeEnter(db->aDb[0].pBt);\n",
        new: "      rc = SQLITE_NOMEM_BKPT;\n    }\n    if( yq_message(rc) ) sqlite3ErrorWithMsg(db, rc, \"%s\", yqErrStr(rc));\n    else sqlite3Error(db, rc);\n    goto opendb_out;\n  }\n  sqlite3BtreeEnter(db->aDb[0].pBt);\n",
    },
    Edit {
        file: "attach.c",
        old: "        zErrDyn = sqlite3MPrintf(db, \"unable to open database: %s\", zFile);\n",
        new: "        zErrDyn = yq_message(rc) ? sqlite3MPrintf(db, \"unable to open database: %s\", yqErrStr(rc))\n                                 : sqlite3MPrintf(db, \"unable to open database: %.*s\", yqShown(zFile), zFile);\n",
    },
];

/// Returns the file of each line, by the markers.
fn owners(lines: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
    let (mut stack, mut owners) = (Vec::<String>::new(), Vec::with_capacity(lines.len()));
    for (number, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_marker = line.starts_with("/*****") && line.ends_with("*/");
        if let (true, [_, "Begin", "file", name, ..]) = (is_marker, &words[..]) {
            stack.push((*name).to_owned());
        }
        owners.push(stack.last().cloned().unwrap_or_default());
        if let (true, [_, "End", "of", name, stars]) = (is_marker, &words[..])
            && stars.starts_with('*')
        {
            let begun = stack.pop();
            // The last marker belongs to the whole.
            if begun.is_some() && begun.as_deref() != Some(*name) {
                return Err(format!("line {}: {name} ends, but {begun:?} was begun", number + 1).into());
            }
        }
    }
    Ok(owners)
}

/// Removes comments and keeps line breaks.
fn without_comments(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        let comment = &rest[start..];
        let end = comment.find("*/").map_or(comment.len(), |end| end + 2);
        out.extend(comment[..end].chars().filter(|c| *c == '\n'));
        rest = &comment[end..];
    }
    out.push_str(rest);
    out
}

/// Function with its return type and its named parameters.
#[derive(Debug, Clone, PartialEq)]
struct Function {
    returns: String,
    parameters: Vec<(String, String)>,
}

/// Returns the name of a parameter, and what precedes it.
fn parameter(text: &str) -> (String, String) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // In a function pointer the name is in the middle.
    let at = match text.find("(*") {
        Some(at) => at + 2,
        None => text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1),
    };
    let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (name, text)
}

/// Returns the functions that a file defines whose names begin with `prefix`, without it.
fn functions(text: &str, start: &str, prefix: &str) -> BTreeMap<String, Function> {
    let mut found = BTreeMap::new();
    let text = without_comments(text);
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let begin = offset;
        offset += line.len();
        let Some(rest) = line.strip_prefix(start) else { continue };
        let Some(at) = rest.find(prefix) else { continue };
        let returns = rest[..at].trim().to_owned();
        let whole = &text[begin..];
        let Some(open) = whole.find('(') else { continue };
        let name = whole[start.len() + at + prefix.len()..open].trim().to_owned();
        // The parameters end at the matching parenthesis.
        let (mut depth, mut close) = (0, None);
        for (index, c) in whole[open..].char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                close = Some(open + index);
                break;
            }
        }
        let Some(close) = close else { continue };
        if !whole[close + 1..].trim_start().starts_with('{') || returns.contains('(') {
            continue;
        }
        let parameters = &whole[open + 1..close];
        let mut list = Vec::new();
        if !matches!(parameters.trim(), "" | "void") {
            let (mut depth, mut last) = (0, 0);
            for (index, c) in parameters.char_indices() {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    ',' if depth == 0 => {
                        list.push(parameter(&parameters[last..index]));
                        last = index + 1;
                    }
                    _ => {}
                }
            }
            list.push(parameter(&parameters[last..]));
        }
        found.insert(name, Function { returns, parameters: list });
    }
    found
}

/// Returns the types only, to compare two functions.
fn shape(function: &Function) -> Vec<String> {
    let parameters = function.parameters.iter().map(|(name, text)| text.replacen(name.as_str(), "", 1));
    std::iter::once(function.returns.clone())
        .chain(parameters)
        .map(|text| text.replace("struct ", "").split_whitespace().collect())
        .collect()
}

fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| format!(" sqlite3Btree{}", name.as_ref())).collect()
}

/// Changes one line or several adjacent ones.
fn edit(text: &str, edit: &Edit) -> Result<String, Box<dyn Error>> {
    let begin = format!("/************** Begin file {} *", edit.file);
    // A file may continue after another one included in its middle.
    let at: Vec<usize> = text.match_indices(edit.old).map(|(at, _)| at).collect();
    match (&at[..], text.find(&begin)) {
        ([at], Some(file)) if *at > file => Ok(text.replacen(edit.old, edit.new, 1)),
        (at, _) => Err(format!(
            "{}: this stands there {} times, and was expected once:\n{}",
            edit.file,
            at.len(),
            edit.old
        )
        .into()),
    }
}

/// Returns the amalgamation with dispatchers, followed by `border`, their targets, and by `copy`,
/// which uses them.
pub(crate) fn slice(amalgamation: &str, border: &str, copy: &str) -> Result<String, Box<dyn Error>> {
    let version =
        amalgamation.split("#define SQLITE_VERSION ").nth(1).and_then(|rest| rest.split('"').nth(1));
    if version != Some(VERSION) {
        return Err(format!(
            "this is SQLite {version:?}, and the border was made for {VERSION}: read what has changed in \
             btree.h and btree.c, then change VERSION in yesquel/sqlite/build/slice.rs"
        )
        .into());
    }
    let mut text = amalgamation.to_owned();
    for one in EDITS {
        text = edit(&text, one)?;
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let owners = owners(&lines)?;
    let first = owners.iter().position(|owner| owner == "btree.c").ok_or("there is no btree.c")?;
    let last = owners.iter().rposition(|owner| owner == "btree.c").ok_or("there is no btree.c")?;
    let native_text = lines[first..=last].join("\n");

    let native = functions(&native_text, "SQLITE_PRIVATE ", "sqlite3Btree");
    let ours = functions(border, "static ", "yqBtree");
    let known: BTreeSet<&str> = NATIVE.iter().copied().chain(ours.keys().map(String::as_str)).collect();
    let unknown: Vec<&String> = native.keys().filter(|name| !known.contains(name.as_str())).collect();
    if !unknown.is_empty() {
        return Err(
            format!("btree.c has functions that are neither ours nor native:{}", list(unknown)).into()
        );
    }
    let gone: Vec<&&str> = NATIVE.iter().filter(|name| !native.contains_key(**name)).collect();
    if !gone.is_empty() {
        return Err(format!("btree.c has none of these:{}", list(gone)).into());
    }
    let both: Vec<&&str> = NATIVE.iter().filter(|name| ours.contains_key(**name)).collect();
    if !both.is_empty() {
        return Err(format!("both ours and native:{}", list(both)).into());
    }

    let (mut renames, mut dispatchers) = (String::new(), String::new());
    for (name, our) in &ours {
        let Some(theirs) = native.get(name) else {
            return Err(format!("btree.c has no{}", list([name])).into());
        };
        if shape(our) != shape(theirs) {
            return Err(format!("{} is {theirs:?} in btree.c, and ours is {our:?}", list([name])).into());
        }
        let Function { returns, parameters } = theirs;
        let declared = parameters.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ");
        let arguments = parameters.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        writeln!(renames, "#define sqlite3Btree{name} nativeBtree{name}")?;
        writeln!(renames, "SQLITE_PRIVATE {returns} nativeBtree{name}({declared});")?;
        let gives = if returns == "void" { "" } else { "return " };
        // These have no b-tree yet, or two: they dispatch themselves.
        let condition = match name.as_str() {
            "Open" | "TransferRow" | "Insert" => "1".to_owned(),
            _ => {
                let this = parameters
                    .iter()
                    .find(|(_, text)| text.starts_with("Btree *") || text.starts_with("BtCursor *"));
                let (this, _) = this.ok_or(format!("{}has no b-tree", list([name])))?;
                format!("{this} && {this}->pYq")
            }
        };
        writeln!(dispatchers, "#undef sqlite3Btree{name}")?;
        writeln!(
            dispatchers,
            "SQLITE_PRIVATE {returns} sqlite3Btree{name}({declared}){{\n  if( {condition} ){{ \
             {gives}yqBtree{name}({arguments}); {} }}\n  {gives}nativeBtree{name}({arguments});\n}}",
            if returns == "void" { "return;" } else { "" }
        )?;
    }
    let mut out = String::with_capacity(text.len() + border.len() + (64 << 10));
    out.push_str(&lines[..first].join("\n"));
    write!(out, "\n{renames}{native_text}\n")?;
    // The border's own calls bypass the dispatchers.
    write!(out, "#line 1 \"border.c\"\n{border}\n")?;
    writeln!(out, "{dispatchers}#line 1 \"copy.c\"\n{copy}\n#line {} \"sqlite3.c\"", last + 2)?;
    out.push_str(&lines[last + 1..].join("\n"));
    Ok(out)
}
