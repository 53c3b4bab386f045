/*
** The border between SQLite and Yesquel's trees.
**
** Compiled after btree.c in the same compilation unit.  For each function
** yqBtreeX() here, the build script puts a dispatcher in place of
** sqlite3BtreeX(): a b-tree or cursor whose pYq is set calls the function here,
** all others call btree.c's, renamed to nativeBtreeX().
**
** This file knows SQLite's structures and keeps the states of cursors, as
** btree.c does.  Only Rust knows trees (src/border.rs); the functions yq_...()
** call it.
*/

typedef struct YqDatabase YqDatabase;       /* A connection's database */
typedef struct YqScan YqScan;       /* A cursor over a tree */

/* Zero bytes after a copied record: SQLite reads up to two varints beyond the
** end of a malformed one (nOverrun in btree.c). */
#define YQ_PADDING 18

/* Row at a cursor; valid until the cursor moves. */
typedef struct YqPlace {
  const u8 *aRecord;
  u32 nRecord;
  i64 iRowid;
} YqPlace;

/* A field of a search key. */
typedef struct YqField {
  u8 eType;                         /* SQLITE_INTEGER, ... SQLITE_NULL */
  i64 i;
  double r;
  const u8 *a;
  u32 n;
  u32 nZero;                        /* Zero bytes after them */
} YqField;

/* Layout of the keys of an index. */
typedef struct YqForm {
  u16 nKey;                         /* Fields of the key.  0: rows by number */
  u16 nAll;                         /* Fields of the record */
  u8 enc;                           /* SQLITE_UTF8, ... */
  const u8 *aSort;                  /* KEYINFO_ORDER_... */
  const u8 *aColl;                  /* YQ_COLL_... */
  u8 nPk;                           /* Fields of the row's key, without a number */
  const u8 *aPk;                    /* Their positions, and YQ_PK_DESC */
} YqForm;
#define YQ_PK_DESC 0x80
#define YQ_COLL_BINARY 0
#define YQ_COLL_NOCASE 1
#define YQ_COLL_RTRIM  2
#define YQ_COLL_OTHER  3

/* Target of a seek. */
#define YQ_SEEK_EXACT   0           /* The key, or a neighbour */
#define YQ_SEEK_LT      1
#define YQ_SEEK_LE      2
#define YQ_SEEK_GE      3
#define YQ_SEEK_GT      4

/* P3 of the OP_Transaction of a BEGIN IMMEDIATE or EXCLUSIVE, whose P5 is 0. */
#define YQ_IMMEDIATE 1

/* OP_CreateBtree, P4: the table of the index was created last. */
#define YQ_LAST_TABLE (-1)

/* P5 of OP_OpenRead, and a cursor hint: the results of its searches must
** still hold at the commit. */
#define OPFLAG_YQGUARD 0x80

struct YqBtree {
  YqDatabase *pDatabase;
  BtCursor *pCursor;                /* Open cursors, linked by pNext */
  char *zName;                      /* The address, as a sqlite3_filename */
};

struct YqCursor {
  YqScan *pScan;
  YqPlace place;
};

/* P5 of OP_OpenRead, OP_OpenWrite and OP_Insert: AUTOINCREMENT's access to
** sqlite_sequence. */
#define OPFLAG_YQSEQ 0x100

/* A row between TransferRow and the Insert that follows it. */
struct YqRow {
  u8 *a;
  u32 n;
};

/* Functions in Rust. Hidden, so that a shared library exports SQLite's
** interface only: the strictest visibility of a symbol's declarations
** applies. */
#pragma GCC visibility push(hidden)
#ifdef YESQUEL_TEST
extern void yqTestAddress(sqlite3_vfs*, int flags, const char **pzName, const char **pzShown);
#endif
extern int yq_address(const char *zName, char **pzAddress);
extern int yq_compare_sought(const u8 *a, u32 n, void *p, int nField);
extern int yq_compare_records(void *pKeyInfo, const u8 *a, u32 n, const u8 *b, u32 m, int nField, int *pRes);
extern int yq_open(const char *zName, const char *zAddress, int flags, YqDatabase **apOther, int nOther, sqlite3 *db,
                   YqDatabase **ppDatabase);
extern void yq_close(YqDatabase*);
extern int yq_is_readonly(const YqDatabase*);
extern int yq_begin(YqDatabase*, int onlyReads, u32 *piCookie);
extern int yq_commit(YqDatabase*, int msWait);
extern void yq_end(YqDatabase*, int goesOn);
extern void yq_end_kept_transaction(YqDatabase*);
extern int yq_known_cookie(const YqDatabase*, u32 *piCookie);
extern void yq_rollback(YqDatabase*);
extern int yq_open_savepoints(YqDatabase*, int n);
extern int yq_savepoint(YqDatabase*, int isRollback, int iSavepoint);
extern int yq_create(YqDatabase*, int iBeside, u32 *piRoot);
extern int yq_clear(YqDatabase*, u32 iRoot, i64 *pnChange);
extern int yq_drop(YqDatabase*, u32 iRoot);
extern int yq_meta(YqDatabase*, int idx, u32 *pValue);
extern int yq_prove(YqDatabase*);
extern int yq_set_meta(YqDatabase*, int idx, u32 value);
extern int yq_check(YqDatabase*, u32 iRoot, i64 *pnEntry);
extern int yq_cursor(YqDatabase*, u32 iRoot, const YqForm*, void *pKeyInfo, YqScan **ppScan);
extern void yq_close_cursor(YqScan*);
extern void yq_follow(YqScan*, YqDatabase*, u32 iRoot);
extern int yq_first(YqScan*, YqPlace*);
extern int yq_last(YqScan*, YqPlace*);
extern int yq_next(YqScan*, YqPlace*);
extern int yq_previous(YqScan*, YqPlace*);
extern void yq_pad(YqScan*, YqPlace*);
extern int yq_restore(YqScan*, YqPlace*, int *pRes);
extern int yq_seek_row(YqScan*, i64 iRow, int eSeek, YqPlace*, int *pRes);
extern int yq_seek_fields(YqScan*, const YqField*, int n, void *pIdxKey, int eSeek, YqPlace*, int *pRes,
                          u8 *pEqSeen);
extern int yq_put_row(YqScan*, i64 iRow, const u8*, u32 n, u32 nZero);
extern int yq_put_entry(YqScan*, const u8*, u32 n);
extern int yq_delete(YqScan*);
extern int yq_count(YqScan*, i64 *pn);
extern int yq_new_row(YqScan*, i64 iAbove, i64 *piRow);
extern int yq_new_sequence(YqScan*, YqDatabase*, u32 iSeqRoot, int hasRow, i64 iRow, i64 iAbove, const char *zName,
                           i64 *piRow);
extern void yq_expect_sequence(YqScan*, u32 iRoot);
extern int yq_put_sequence(YqScan*, i64 iRow, const u8*, u32 n);
extern void yq_show_sequence(YqScan*);
extern int yq_guard_sought(YqScan*);
extern int yq_guard_row(YqScan*, i64 iRow);
extern int yq_guard_all(YqScan*);
extern int yq_lease(const YqDatabase*, YqDatabase*const *apAll, int nAll, int msWait);
extern void yq_stop_waiting(const YqDatabase*);
extern void yq_wants_turn(YqDatabase*);
extern void yq_keep(YqDatabase*, i64 nByte);
extern int yq_pages(YqDatabase*, u32 szPage, u32 *pnPage);
extern const char *yq_message(int rc);
#pragma GCC visibility pop

static int nocaseCollatingFunc(void*,int,const void*,int,const void*);
static int rtrimCollFunc(void*,int,const void*,int,const void*);

/* This thread's message for its last error code, or SQLite's own text. */
static const char *yqErrStr(int rc){
  const char *z = yq_message(rc);
  return z ? z : sqlite3ErrStr(rc);
}

/* Number of bytes of an address without its credential. */
static int yqShown(const char *z){
  const char *zSecret = strstr(z, "credential=");
  return (int)(zSecret ? zSecret-z : (i64)strlen(z));
}

static YqDatabase *yqDatabase(Btree *p){ return p->pYq->pDatabase; }

/* Whether a wait for a server or a lock must end because another thread has
** interrupted the connection. The progress handler is not called: it counts
** instructions, and none run during a wait. */
int yq_is_cancelled(sqlite3 *db){
  return AtomicLoad(&db->u1.isInterrupted)!=0;
}

/* Interval at which a waiting request calls the application's busy handler. */
#define YQ_HANDLER_MS 50

/* Milliseconds that a request may wait in the server's queue for a lease of
** another connection: the busy timeout. The application's own busy handler is
** called before the first wait, and after each. */
static int yqMsWait(sqlite3 *db){
  if( db->busyTimeout>0 ) return db->busyTimeout;
  return db->busyHandler.nBusy>0 ? YQ_HANDLER_MS : 0;
}

/* Whether to retry after SQLITE_BUSY; if not, the result code. A request with
** a busy timeout has waited for all of it. */
static int yqWaits(sqlite3 *db, int *pRc){
  if( *pRc!=SQLITE_BUSY || db->busyTimeout>0 || !sqlite3InvokeBusyHandler(&db->busyHandler) ) return 0;
  if( yq_is_cancelled(db)==0 ) return 1;
  *pRc = SQLITE_INTERRUPT;
  return 0;
}

/* The trees of a connection's database, null if it has none. The caller
** holds the mutex. */
YqDatabase *yq_database_of(sqlite3 *db, const char *zName){
  int i = sqlite3FindDbName(db, zName);
  Btree *p = i>=0 ? db->aDb[i].pBt : 0;
  return p && p->pYq ? yqDatabase(p) : 0;
}

/*
** ---- For trees that the application's own collations order
*/

/* Compares a record with a search key, by this number of fields. */
int yq_compare_sought(const u8 *a, u32 n, void *p, int nField){
  UnpackedRecord *pIdxKey = p;
  i8 default_rc = pIdxKey->default_rc;
  u16 nOwn = pIdxKey->nField;
  int c;
  pIdxKey->default_rc = 0;
  if( nField<nOwn ) pIdxKey->nField = (u16)nField;
  c = sqlite3VdbeRecordCompare((int)n, a, pIdxKey);
  pIdxKey->default_rc = default_rc;
  pIdxKey->nField = nOwn;
  return c;
}

/* Compares two records by this number of fields. */
int yq_compare_records(void *pKeyInfo, const u8 *a, u32 n, const u8 *b, u32 m, int nField, int *pRes){
  UnpackedRecord *pOther = sqlite3VdbeAllocUnpackedRecord(pKeyInfo);
  if( pOther==0 ) return SQLITE_NOMEM_BKPT;
  sqlite3VdbeRecordUnpack((int)m, b, pOther);
  *pRes = yq_compare_sought(a, n, pOther, nField);
  sqlite3DbFree(((KeyInfo*)pKeyInfo)->db, pOther);
  return SQLITE_OK;
}

/*
** ---- Opening and closing
*/

static int yqBtreeOpen(
  sqlite3_vfs *pVfs,
  const char *zFilename,
  sqlite3 *db,
  Btree **ppBtree,
  int flags,
  int vfsFlags
){
  YqDatabase *pDatabase = 0;
  YqDatabase *apOther[SQLITE_MAX_ATTACHED+2];
  int i, nOther = 0;
  int rc;
  struct YqBtree *pYq;
  char *zAddress = 0;
  Btree *p;
  const char *zShown = 0;           /* Result of sqlite3_db_filename() */

#ifdef YESQUEL_TEST
  /* A plain name of SQLite's own tests (tests/tcl/hook.c). */
  yqTestAddress(pVfs, vfsFlags, &zFilename, &zShown);
#endif
  if( zFilename==0 || (flags & BTREE_MEMORY)!=0
   || (vfsFlags & (SQLITE_OPEN_MEMORY|SQLITE_OPEN_TEMP_DB|SQLITE_OPEN_TRANSIENT_DB))!=0
   || (rc = yq_address(zFilename, &zAddress))==SQLITE_NOTFOUND
  ){
    return nativeBtreeOpen(pVfs, zFilename, db, ppBtree, flags, vfsFlags);
  }
  *ppBtree = 0;
  if( rc ) return rc;
  for(i=0; i<db->nDb && nOther<ArraySize(apOther); i++){
    Btree *pOther = db->aDb[i].pBt;
    if( pOther && pOther->pYq ) apOther[nOther++] = pOther->pYq->pDatabase;
  }
  rc = yq_open(zFilename, zAddress, vfsFlags, apOther, nOther, db, &pDatabase);
  if( rc ){
    sqlite3_free(zAddress);
    return rc;
  }
  /* The options of an address are not shown: they may contain a credential. */
  if( sqlite3_strnicmp(zAddress, "yesquel://", 10)==0 ){
    char *zQuery = strchr(zAddress, '?');
    if( zQuery ) *zQuery = 0;
  }
  pYq = sqlite3MallocZero(sizeof(*pYq));
  if( pYq ) pYq->zName = (char*)sqlite3_create_filename(zShown ? zShown : zAddress, "", "", 0, 0);
  sqlite3_free(zAddress);
  if( pYq==0 || pYq->zName==0 ){
    rc = SQLITE_NOMEM_BKPT;
  }else{
    /* A small native b-tree, for questions about pages and files. */
    rc = nativeBtreeOpen(pVfs, 0, db, &p, flags|BTREE_MEMORY, vfsFlags);
  }
  if( rc ){
    yq_close(pDatabase);
    if( pYq ) sqlite3_free_filename(pYq->zName);
    sqlite3_free(pYq);
    return rc;
  }
  pYq->pDatabase = pDatabase;
  p->pYq = pYq;
  *ppBtree = p;
  return SQLITE_OK;
}

static void yqDropRow(Btree *p);
static int yqBtreeCloseCursor(BtCursor *pCur);
static int yqBtreeRollback(Btree *p, int tripCode, int writeOnly);

static int yqBtreeClose(Btree *p){
  struct YqBtree *pYq = p->pYq;
  while( pYq->pCursor ) yqBtreeCloseCursor(pYq->pCursor);
  yqBtreeRollback(p, SQLITE_OK, 0);
  yq_close(pYq->pDatabase);
  sqlite3_free_filename(pYq->zName);
  yqDropRow(p);
  sqlite3_free(pYq);
  p->pYq = 0;
  return nativeBtreeClose(p);
}

static const char *yqBtreeGetFilename(Btree *p){ return p->pYq->zName; }
static int yqBtreeIsReadonly(Btree *p){ return yq_is_readonly(yqDatabase(p)); }

/* Root pages are numbers of trees, and any number is possible. */
static Pgno yqMaxRoot(Btree *p){ return p->pYq ? 0x7fffffff : sqlite3BtreeLastPage(p); }

static int yqBtreeNewDb(Btree *p){ UNUSED_PARAMETER(p); return SQLITE_OK; }
static int yqBtreeSetAutoVacuum(Btree *p, int autoVacuum){
  UNUSED_PARAMETER2(p, autoVacuum);
  return SQLITE_OK;
}
static int yqBtreeGetAutoVacuum(Btree *p){ UNUSED_PARAMETER(p); return BTREE_AUTOVACUUM_NONE; }
static int yqBtreeIncrVacuum(Btree *p){ UNUSED_PARAMETER(p); return SQLITE_DONE; }
static int yqBtreeSetVersion(Btree *pBtree, int iVersion){
  UNUSED_PARAMETER2(pBtree, iVersion);
  return SQLITE_OK;
}
/* PRAGMA page_count: an estimate. */
SQLITE_PRIVATE int yqPageCount(Btree *p, i64 *pnPage){
  u32 nPage = 0;
  int rc = SQLITE_OK;
  if( p->pYq ){
    rc = yq_pages(yqDatabase(p), p->pBt->pageSize, &nPage);
  }else{
    nPage = sqlite3BtreeLastPage(p);
  }
  *pnPage = nPage;
  return rc;
}
/* There are no pages: the size is whatever SQLite has set. */
static int yqBtreeSetCacheSize(Btree *p, int mxPage){
  yq_keep(yqDatabase(p), mxPage<0 ? -(i64)mxPage*1024 : (i64)mxPage*p->pBt->pageSize);
  return nativeBtreeSetCacheSize(p, mxPage);  /* PRAGMA cache_spill tells it */
}
static int yqBtreeCheckpoint(Btree *p, int eMode, int *pnLog, int *pnCkpt){
  UNUSED_PARAMETER2(p, eMode);
  if( pnLog ) *pnLog = -1;
  if( pnCkpt ) *pnCkpt = -1;
  return SQLITE_OK;
}

/*
** ---- Cursors and what moves under them
*/

/* As saveCursorPosition(): the cursor restores its position on its next use.
** The scan keeps the key. */
static int yqSave(BtCursor *pCur){
  if( pCur->curFlags & BTCF_Pinned ) return SQLITE_CONSTRAINT_PINNED;
  if( pCur->eState==CURSOR_SKIPNEXT ){
    pCur->eState = CURSOR_VALID;
  }else{
    pCur->skipNext = 0;
  }
  pCur->eState = CURSOR_REQUIRESEEK;
  return SQLITE_OK;
}

/* Saves all cursors over a tree, or over all trees (0), except one. */
static int yqSaveAll(Btree *p, Pgno iRoot, BtCursor *pExcept){
  BtCursor *pX;
  for(pX=p->pYq->pCursor; pX; pX=pX->pNext){
    if( pX==pExcept || (iRoot!=0 && pX->pgnoRoot!=iRoot) ) continue;
    if( pX->eState==CURSOR_VALID || pX->eState==CURSOR_SKIPNEXT ){
      int rc = yqSave(pX);
      if( rc ) return rc;
    }else if( pX->eState==CURSOR_REQUIRESEEK && (pX->curFlags & BTCF_Pinned) ){
      /* A native cursor would stay valid after its own write, at some
      ** position. */
      return SQLITE_CONSTRAINT_PINNED;
    }
  }
  return SQLITE_OK;
}

/* Invalidates incremental blob cursors whose row is written by other means. */
static void yqEndBlobs(Btree *p, Pgno iRoot, i64 iRow, int isClear){
  BtCursor *pX;
  if( p->hasIncrblobCur==0 ) return;
  p->hasIncrblobCur = 0;
  for(pX=p->pYq->pCursor; pX; pX=pX->pNext){
    if( (pX->curFlags & BTCF_Incrblob)!=0 ){
      p->hasIncrblobCur = 1;
      if( pX->pgnoRoot==iRoot && (isClear || pX->pYq->place.iRowid==iRow) ){
        pX->eState = CURSOR_INVALID;
      }
    }
  }
}

static int yqBtreeCursor(Btree *p, Pgno iTable, int wrFlag, struct KeyInfo *pKeyInfo, BtCursor *pCur){
  YqForm form;
  u8 aColl[64];
  u8 *aHeap = 0;
  int i;
  struct YqCursor *pYq;

  if( iTable<1 ) return SQLITE_CORRUPT_BKPT;
  memset(&form, 0, sizeof(form));
  if( pKeyInfo ){
    form.nKey = pKeyInfo->nYqKey;
    form.nAll = pKeyInfo->nAllField;
    form.enc = pKeyInfo->enc;
    form.aSort = pKeyInfo->aSortFlags;
    form.nPk = pKeyInfo->nYqPk;
    form.aPk = pKeyInfo->aYqPk;
    if( form.nKey>sizeof(aColl) ){
      aHeap = sqlite3Malloc(form.nKey);
      if( aHeap==0 ) return SQLITE_NOMEM_BKPT;
    }
    form.aColl = aHeap ? aHeap : aColl;
    for(i=0; i<form.nKey; i++){
      CollSeq *pColl = pKeyInfo->aColl[i];
      u8 eColl = YQ_COLL_OTHER;
      if( pColl==0 || sqlite3IsBinary(pColl) ){
        eColl = YQ_COLL_BINARY;
      }else if( pColl->xCmp==nocaseCollatingFunc ){
        eColl = YQ_COLL_NOCASE;
      }else if( pColl->xCmp==rtrimCollFunc ){
        eColl = YQ_COLL_RTRIM;
      }
      ((u8*)form.aColl)[i] = eColl;
    }
  }
  pYq = sqlite3MallocZero(sizeof(*pYq));
  i = pYq ? yq_cursor(yqDatabase(p), iTable, &form, pKeyInfo, &pYq->pScan) : SQLITE_NOMEM_BKPT;
  sqlite3_free(aHeap);
  if( i ){
    sqlite3_free(pYq);
    return i;
  }
  pCur->pYq = pYq;
  pCur->pgnoRoot = iTable;
  pCur->iPage = -1;
  pCur->pKeyInfo = pKeyInfo;
  pCur->curIntKey = pKeyInfo==0;
  pCur->pBtree = p;
  pCur->pBt = p->pBt;
  pCur->curFlags = wrFlag ? BTCF_WriteFlag : 0;
  pCur->eState = CURSOR_INVALID;
  pCur->pNext = p->pYq->pCursor;
  p->pYq->pCursor = pCur;
  return SQLITE_OK;
}

static int yqBtreeCloseCursor(BtCursor *pCur){
  BtCursor **ppX = &pCur->pBtree->pYq->pCursor;
  while( *ppX && *ppX!=pCur ) ppX = &(*ppX)->pNext;
  if( *ppX ) *ppX = pCur->pNext;
  yq_close_cursor(pCur->pYq->pScan);
  sqlite3_free(pCur->pYq);
  pCur->pYq = 0;
  pCur->pBtree = 0;
  return SQLITE_OK;
}

static void yqBtreeClearCursor(BtCursor *pCur){ pCur->eState = CURSOR_INVALID; }

/* Result of a move: SQLITE_OK, SQLITE_DONE if there is no row, or an error. */
static int yqArrived(BtCursor *pCur, int rc){
  pCur->eState = rc==SQLITE_OK ? CURSOR_VALID : CURSOR_INVALID;
  return rc;
}

/* As btreeRestoreCursorPosition() does. */
static int yqRestore(BtCursor *pCur){
  int rc;
  int res = 0;
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  pCur->eState = CURSOR_INVALID;
  rc = yq_restore(pCur->pYq->pScan, &pCur->pYq->place, &res);
  if( rc==SQLITE_DONE ) return SQLITE_OK;
  if( rc==SQLITE_OK ){
    pCur->eState = CURSOR_VALID;
    if( res ) pCur->skipNext = res;
    if( pCur->skipNext ) pCur->eState = CURSOR_SKIPNEXT;
  }
  return rc;
}

static int yqBtreeCursorRestore(BtCursor *pCur, int *pDifferentRow){
  int rc = pCur->eState>=CURSOR_REQUIRESEEK ? yqRestore(pCur) : SQLITE_OK;
  *pDifferentRow = rc!=SQLITE_OK || pCur->eState!=CURSOR_VALID;
  return rc;
}

static i64 yqBtreeIntegerKey(BtCursor *pCur){ return pCur->pYq->place.iRowid; }
static i64 yqBtreeOffset(BtCursor *pCur){ UNUSED_PARAMETER(pCur); return 0; }
static u32 yqBtreePayloadSize(BtCursor *pCur){ return pCur->pYq->place.nRecord; }
static sqlite3_int64 yqBtreeMaxRecordSize(BtCursor *pCur){
  UNUSED_PARAMETER(pCur);
  return 0x7fffffff;
}

static int yqBtreePayload(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  YqPlace *pPlace = &pCur->pYq->place;
  if( (u64)offset+amt > pPlace->nRecord ) return SQLITE_CORRUPT_BKPT;
  memcpy(pBuf, pPlace->aRecord+offset, amt);
  return SQLITE_OK;
}

static int yqBtreePayloadChecked(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  if( pCur->eState==CURSOR_INVALID ) return SQLITE_ABORT;
  if( pCur->eState!=CURSOR_VALID ){
    int rc = yqRestore(pCur);
    if( rc ) return rc;
    if( pCur->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  }
  return yqBtreePayload(pCur, offset, amt, pBuf);
}

/* Whether SQLite reads nothing beyond a record. It checks neither the varints
** at the end of a header nor the numbers in an index entry against the
** record's end, because something always follows a cell on a page. Nothing
** may follow a record here, and another client may have written it. */
static int yqIsBounded(const u8 *a, u32 n, int isIndex){
  u32 nHeader, i, nLeft;
  if( n<2 ) return 0;
  if( (nHeader = a[0])<0x80 ){
    i = 1;
  }else{
    if( n<YQ_PADDING ) return 0;
    i = sqlite3GetVarint32(a, &nHeader);
  }
  /* A byte below 0x80 ends every varint. */
  if( nHeader<=i || nHeader>n || a[nHeader-1]>=0x80 ) return 0;
  if( !isIndex ) return 1;
  nLeft = n-nHeader;
  while( i<nHeader ){
    u32 eType, nField;
    i += getVarint32(&a[i], eType);
    nField = sqlite3VdbeSerialTypeLen(eType);
    if( nField>nLeft ) return 0;
    nLeft -= nField;
  }
  return 1;
}

static const void *yqBtreePayloadFetch(BtCursor *pCur, u32 *pAmt){
  YqPlace *pPlace = &pCur->pYq->place;
  if( !yqIsBounded(pPlace->aRecord, pPlace->nRecord, pCur->pKeyInfo!=0) ){
    yq_pad(pCur->pYq->pScan, pPlace);
  }
  *pAmt = pPlace->nRecord;
  return pPlace->aRecord;
}

static int yqBtreeFirst(BtCursor *pCur, int *pRes){
  int rc;
  if( pCur->hints & OPFLAG_YQGUARD ){
    rc = yq_guard_all(pCur->pYq->pScan);
    if( rc ) return rc;
  }
  rc = yqArrived(pCur, yq_first(pCur->pYq->pScan, &pCur->pYq->place));
  *pRes = rc==SQLITE_DONE;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

static int yqBtreeIsEmpty(BtCursor *pCur, int *pRes){ return yqBtreeFirst(pCur, pRes); }

static int yqBtreeLast(BtCursor *pCur, int *pRes){
  int rc = yqArrived(pCur, yq_last(pCur->pYq->pScan, &pCur->pYq->place));
  *pRes = rc==SQLITE_DONE;
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* As the start of btreeNext() and btreePrevious(): whether to step from the
** cursor's position. If not, *pRc is the result of the step. If the cursor's
** row is gone, the restored cursor may already be at the step's target,
** above (1) or below (-1). */
static int yqStep(BtCursor *pCur, int direction, int *pRc){
  *pRc = SQLITE_OK;
  if( pCur->eState>=CURSOR_REQUIRESEEK ) *pRc = yqRestore(pCur);
  if( *pRc ) return 0;
  if( pCur->eState==CURSOR_INVALID ){
    *pRc = SQLITE_DONE;
    return 0;
  }
  if( pCur->eState==CURSOR_VALID ) return 1;
  pCur->eState = CURSOR_VALID;
  return direction>0 ? pCur->skipNext<=0 : pCur->skipNext>=0;
}

static int yqBtreeNext(BtCursor *pCur, int flags){
  int rc;
  UNUSED_PARAMETER(flags);
  if( !yqStep(pCur, 1, &rc) ) return rc;
  return yqArrived(pCur, yq_next(pCur->pYq->pScan, &pCur->pYq->place));
}

static int yqBtreePrevious(BtCursor *pCur, int flags){
  int rc;
  UNUSED_PARAMETER(flags);
  if( !yqStep(pCur, -1, &rc) ) return rc;
  return yqArrived(pCur, yq_previous(pCur->pYq->pScan, &pCur->pYq->place));
}

static int yqMoveToRow(BtCursor *pCur, i64 iRow, int eSeek, int *pRes){
  int rc;
  if( pCur->hints & OPFLAG_YQGUARD ){
    YqScan *pScan = pCur->pYq->pScan;
    rc = eSeek==YQ_SEEK_EXACT ? yq_guard_row(pScan, iRow) : yq_guard_all(pScan);
    if( rc ) return rc;
  }
  if( pCur->eState==CURSOR_VALID && eSeek==YQ_SEEK_EXACT && pCur->pYq->place.iRowid==iRow ){
    *pRes = 0;
    return SQLITE_OK;
  }
  *pRes = -1;
  rc = yqArrived(pCur, yq_seek_row(pCur->pYq->pScan, iRow, eSeek, &pCur->pYq->place, pRes));
  if( rc==SQLITE_DONE ) return SQLITE_OK;
  /* OP_NotExists reads this first. */
  if( rc ) *pRes = 0;
  return rc;
}

static int yqBtreeTableMoveto(BtCursor *pCur, i64 intKey, int biasRight, int *pRes){
  UNUSED_PARAMETER(biasRight);
  return yqMoveToRow(pCur, intKey, YQ_SEEK_EXACT, pRes);
}

static int yqMoveToEntry(BtCursor *pCur, UnpackedRecord *pIdxKey, int eSeek, int *pRes){
  YqField aField[16];
  YqField *a = aField;
  int i, rc;
  int n = MIN(pIdxKey->nField, pCur->pKeyInfo->nAllField);

  if( n>ArraySize(aField) ){
    a = sqlite3Malloc(sizeof(YqField)*n);
    if( a==0 ) return SQLITE_NOMEM_BKPT;
  }
  for(i=0; i<n; i++){
    const Mem *pMem = &pIdxKey->aMem[i];
    YqField *pField = &a[i];
    pField->nZero = 0;
    pField->n = 0;
    if( pMem->flags & MEM_Null ){
      pField->eType = SQLITE_NULL;
    }else if( pMem->flags & (MEM_Int|MEM_IntReal) ){
      /* MEM_IntReal is a real with an integral value. */
      pField->eType = SQLITE_INTEGER;
      pField->i = pMem->u.i;
    }else if( pMem->flags & MEM_Real ){
      pField->eType = SQLITE_FLOAT;
      pField->r = pMem->u.r;
    }else{
      pField->eType = (pMem->flags & MEM_Str) ? SQLITE_TEXT : SQLITE_BLOB;
      pField->a = (const u8*)pMem->z;
      pField->n = pMem->n;
      if( pMem->flags & MEM_Zero ) pField->nZero = pMem->u.nZero;
    }
  }
  *pRes = -1;
  rc = yq_seek_fields(pCur->pYq->pScan, a, n, pIdxKey, eSeek, &pCur->pYq->place, pRes, &pIdxKey->eqSeen);
  if( a!=aField ) sqlite3_free(a);
  if( (rc==SQLITE_OK || rc==SQLITE_DONE) && (pCur->hints & OPFLAG_YQGUARD) ){
    int rc2 = yq_guard_sought(pCur->pYq->pScan);
    if( rc2 ) rc = rc2;
  }
  rc = yqArrived(pCur, rc);
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

static int yqBtreeIndexMoveto(BtCursor *pCur, UnpackedRecord *pIdxKey, int *pRes){
  int eSeek = YQ_SEEK_EXACT;
  pIdxKey->errCode = 0;
  if( pIdxKey->default_rc>0 ){
    eSeek = YQ_SEEK_GE;
  }else if( pIdxKey->default_rc<0 ){
    eSeek = YQ_SEEK_LE;
  }
  return yqMoveToEntry(pCur, pIdxKey, eSeek, pRes);
}

static int yqDirection(int oc){
  switch( oc ){
    case OP_SeekLT: return YQ_SEEK_LT;
    case OP_SeekLE: return YQ_SEEK_LE;
    case OP_SeekGE: return YQ_SEEK_GE;
    default:        return YQ_SEEK_GT;
  }
}

/* For OP_SeekGE and its kin, which give the target of the seek. */
SQLITE_PRIVATE int yqSeekRow(BtCursor *pCur, i64 iRow, int oc, int *pRes){
  if( pCur->pYq ) return yqMoveToRow(pCur, iRow, yqDirection(oc), pRes);
  return nativeBtreeTableMoveto(pCur, iRow, 0, pRes);
}

SQLITE_PRIVATE int yqSeekEntry(BtCursor *pCur, UnpackedRecord *pIdxKey, int oc, int *pRes){
  if( pCur->pYq ) return yqMoveToEntry(pCur, pIdxKey, yqDirection(oc), pRes);
  return nativeBtreeIndexMoveto(pCur, pIdxKey, pRes);
}

/* Records which fields of the entries of an index of a WITHOUT ROWID table
** form the row's key; omitted if there are too many. */
SQLITE_PRIVATE void yqRefers(KeyInfo *pKey, Index *pIdx){
  const Index *pPk;
  int i, j;
  if( HasRowid(pIdx->pTable) || IsPrimaryKeyIndex(pIdx) ) return;
  pPk = sqlite3PrimaryKeyIndex(pIdx->pTable);
  if( pPk==0 || pPk->nKeyCol>ArraySize(pKey->aYqPk) ) return;
  for(i=0; i<pPk->nKeyCol; i++){
    for(j=0; j<pIdx->nColumn; j++){
      if( pIdx->aiColumn[j]==pPk->aiColumn[i] && sqlite3StrICmp(pIdx->azColl[j], pPk->azColl[i])==0 ) break;
    }
    if( j==pIdx->nColumn || j>=YQ_PK_DESC ) return;
    pKey->aYqPk[i] = (u8)(j | (pPk->aSortOrder[i] ? YQ_PK_DESC : 0));
  }
  pKey->nYqPk = (u8)pPk->nKeyCol;
}

/* Whether an instruction seeks, in a WITHOUT ROWID table, the row of an
** index entry whose fields were read just before. */
static int yqLooksForRow(const Op *aOp, int i, int iIndex, int nPk){
  int j;
  if( aOp[i].opcode!=OP_NotFound || aOp[i].p4type!=P4_INT32 || aOp[i].p4.i!=nPk || i<nPk ) return 0;
  for(j=0; j<nPk; j++){
    const Op *pOp = &aOp[i-nPk+j];
    if( pOp->opcode!=OP_Column || pOp->p1!=iIndex || pOp->p3!=aOp[i].p3+j ) return 0;
  }
  return 1;
}

/* Called after OP_OpenRead or OP_OpenWrite has opened a cursor. If it is
** over an index and the program seeks the rows of its entries, entries and
** rows are read together. */
SQLITE_PRIVATE void yqOpened(Vdbe *v, const Op *pOp, BtCursor *pCur){
  const Op *aOp = v->aOp;
  int i, j, iTable;
  int nPk;
  if( pCur->pYq==0 ) return;
  if( pCur->pKeyInfo==0 ){
    const Schema *pSchema = v->db->aDb[pOp->p3].pSchema;
    if( pSchema->pSeqTab && pSchema->pSeqTab->tnum==pCur->pgnoRoot && (pOp->p5 & OPFLAG_YQSEQ)==0 ){
      yq_show_sequence(pCur->pYq->pScan);
    }
    return;
  }
  nPk = pCur->pKeyInfo->nYqPk;
  for(i=(int)(pOp-aOp)+1; i<v->nOp; i++){
    if( aOp[i].opcode==OP_DeferredSeek && aOp[i].p1==pOp->p1 ) break;
    if( nPk>0 && yqLooksForRow(aOp, i, pOp->p1, nPk) ) break;
  }
  if( i==v->nOp ) return;
  iTable = aOp[i].opcode==OP_DeferredSeek ? aOp[i].p3 : aOp[i].p1;
  for(j=0; j<v->nOp; j++){
    if( (aOp[j].opcode==OP_OpenRead || aOp[j].opcode==OP_OpenWrite)
     && aOp[j].p1==iTable && aOp[j].p3==pOp->p3 && (aOp[j].p5 & OPFLAG_P2ISREG)==0
    ){
      yq_follow(pCur->pYq->pScan, yqDatabase(pCur->pBtree), (u32)aOp[j].p2);
      return;
    }
  }
}

/* OP_NoConflict has found no entry, which must still hold at the commit. In
** a WITHOUT ROWID table the key itself causes the conflict. */
SQLITE_PRIVATE int yqGuardSought(BtCursor *pCur){
  if( pCur->pYq==0 || pCur->pKeyInfo->nYqKey<pCur->pKeyInfo->nAllField ) return SQLITE_OK;
  return yq_guard_sought(pCur->pYq->pScan);
}

/* The cursors that these instructions open guard their searches. */
SQLITE_PRIVATE void yqGuardCursors(Vdbe *v, int iFirst){
  int i;
  if( v->db->mallocFailed ) return;
  for(i=iFirst; i<v->nOp; i++){
    if( v->aOp[i].opcode==OP_OpenRead || v->aOp[i].opcode==OP_ReopenIdx ){
      v->aOp[i].p5 |= OPFLAG_YQGUARD;
    }
  }
}

/* Allocates the id of a new row: *pv is the id and *pRes is -1. For a native
** cursor, or if no id is left, the cursor moves to the last row as in SQLite. */
SQLITE_PRIVATE int yqNewRowid(BtCursor *pCur, i64 *pv, int *pRes){
  int rc;
  if( pCur->pYq==0 ) return nativeBtreeLast(pCur, pRes);
  pCur->eState = CURSOR_INVALID;
  rc = yq_new_row(pCur->pYq->pScan, SMALLEST_INT64, pv);
  if( rc==SQLITE_DONE ) return yqBtreeLast(pCur, pRes);
  *pRes = -1;
  return rc;
}

SQLITE_PRIVATE int yqIsOurs(BtCursor *pCur){ return pCur->pYq!=0; }

/* The schema of a cursor's database. */
static Schema *yqSchemaOf(sqlite3 *db, BtCursor *pCur){
  int i;
  for(i=0; i<db->nDb; i++){
    if( db->aDb[i].pBt==pCur->pBtree ) return db->aDb[i].pSchema;
  }
  return 0;
}

/* OP_Rewind of sqlite_sequence, for inserts into a table with AUTOINCREMENT:
** prefetches the next number. */
SQLITE_PRIVATE void yqExpectSequence(BtCursor *pCur, u32 iRoot){
  if( yqIsOurs(pCur) ) yq_expect_sequence(pCur->pYq->pScan, iRoot);
}

/* OP_NewRowid of a table with AUTOINCREMENT. aMem[0] is the greatest number
** so far, aMem[1] that of the table's row in sqlite_sequence, or NULL. The
** row is searched by its name only if there is none yet. */
SQLITE_PRIVATE int yqNewSequence(sqlite3 *db, BtCursor *pCur, const Mem *aMem, i64 *pv){
  Schema *pSchema = yqSchemaOf(db, pCur);
  int hasRow = (aMem[1].flags & MEM_Int)!=0;
  i64 iRow = hasRow ? aMem[1].u.i : 0;
  u32 iRoot;
  HashElem *p;
  int rc;
  if( pSchema==0 || pSchema->pSeqTab==0 ) return SQLITE_CORRUPT_BKPT;
  iRoot = pSchema->pSeqTab->tnum;
  pCur->eState = CURSOR_INVALID;
  rc = yq_new_sequence(pCur->pYq->pScan, yqDatabase(pCur->pBtree), iRoot, hasRow, iRow, aMem[0].u.i, 0, pv);
  if( rc!=SQLITE_NOTFOUND ) return rc;
  for(p=sqliteHashFirst(&pSchema->tblHash); p; p=sqliteHashNext(p)){
    const Table *pTab = (const Table*)sqliteHashData(p);
    if( pTab->tnum==pCur->pgnoRoot ){
      return yq_new_sequence(pCur->pYq->pScan, yqDatabase(pCur->pBtree), iRoot, hasRow, iRow, aMem[0].u.i,
                             pTab->zName, pv);
    }
  }
  return SQLITE_CORRUPT_BKPT;
}

/* AUTOINCREMENT writes the greatest number. */
SQLITE_PRIVATE int yqPutSequence(BtCursor *pCur, const BtreePayload *pX){
  int rc = yqSaveAll(pCur->pBtree, pCur->pgnoRoot, pCur);
  if( rc ) return rc;
  pCur->eState = CURSOR_INVALID;
  return yq_put_sequence(pCur->pYq->pScan, pX->nKey, pX->pData, (u32)pX->nData);
}

static i64 yqBtreeRowCountEst(BtCursor *pCur){
  return pCur->eState==CURSOR_VALID ? 1000 : 0;
}

static int yqBtreeCount(sqlite3 *db, BtCursor *pCur, i64 *pnEntry){
  UNUSED_PARAMETER(db);
  pCur->eState = CURSOR_INVALID;
  return yq_count(pCur->pYq->pScan, pnEntry);
}

/*
** ---- Writing
*/

static void yqDropRow(Btree *p){
  if( p->pYqRow ) sqlite3_free(p->pYqRow->a);
  sqlite3_free(p->pYqRow);
  p->pYqRow = 0;
}

static int yqBtreeInsert(BtCursor *pCur, const BtreePayload *pX, int flags, int seekResult){
  struct YqRow *pRow = (flags & BTREE_PREFORMAT) ? pCur->pBtree->pYqRow : 0;
  int rc;

  if( pCur->pYq==0 ){
    BtreePayload x;
    if( pRow==0 ) return nativeBtreeInsert(pCur, pX, flags, seekResult);
    /* The row is a record from a Yesquel cursor. */
    memset(&x, 0, sizeof(x));
    if( pCur->pKeyInfo ){
      x.pKey = pRow->a;
      x.nKey = pRow->n;
    }else{
      x.nKey = pX->nKey;
      x.pData = pRow->a;
      x.nData = (int)pRow->n;
    }
    rc = nativeBtreeInsert(pCur, &x, flags & ~BTREE_PREFORMAT, 0);
    yqDropRow(pCur->pBtree);
    return rc;
  }
  rc = yqSaveAll(pCur->pBtree, pCur->pgnoRoot, pCur);
  if( rc ) return rc;
  if( pCur->pKeyInfo==0 ){
    const u8 *a = pRow ? pRow->a : pX->pData;
    u32 n = pRow ? pRow->n : (u32)pX->nData;
    yqEndBlobs(pCur->pBtree, pCur->pgnoRoot, pX->nKey, 0);
    rc = yq_put_row(pCur->pYq->pScan, pX->nKey, a, n, pRow ? 0 : (u32)pX->nZero);
  }else if( pRow ){
    rc = yq_put_entry(pCur->pYq->pScan, pRow->a, pRow->n);
  }else{
    rc = yq_put_entry(pCur->pYq->pScan, pX->pKey, (u32)pX->nKey);
  }
  if( pRow ) yqDropRow(pCur->pBtree);
  /* The scan moves to the written row on its next use. */
  pCur->skipNext = 0;
  pCur->eState = CURSOR_REQUIRESEEK;
  return rc;
}

static int yqBtreeTransferRow(BtCursor *pDest, BtCursor *pSrc, i64 iKey){
  struct YqRow *pRow;
  u32 n;
  int rc;
  if( pDest->pYq==0 && pSrc->pYq==0 ) return nativeBtreeTransferRow(pDest, pSrc, iKey);
  pRow = pDest->pBtree->pYqRow;
  if( pRow==0 ){
    pRow = pDest->pBtree->pYqRow = sqlite3MallocZero(sizeof(*pRow));
    if( pRow==0 ) return SQLITE_NOMEM_BKPT;
  }
  n = pSrc->pYq ? yqBtreePayloadSize(pSrc) : nativeBtreePayloadSize(pSrc);
  sqlite3_free(pRow->a);
  pRow->a = sqlite3Malloc((u64)n+YQ_PADDING);
  if( pRow->a==0 ){
    yqDropRow(pDest->pBtree);
    return SQLITE_NOMEM_BKPT;
  }
  pRow->n = n;
  memset(&pRow->a[n], 0, YQ_PADDING);
  rc = pSrc->pYq ? yqBtreePayload(pSrc, 0, n, pRow->a) : nativeBtreePayload(pSrc, 0, n, pRow->a);
  if( rc ) yqDropRow(pDest->pBtree);
  return rc;
}

static int yqBtreeDelete(BtCursor *pCur, u8 flags){
  int rc;
  UNUSED_PARAMETER(flags);
  if( pCur->eState!=CURSOR_VALID ){
    if( pCur->eState<CURSOR_REQUIRESEEK ) return SQLITE_CORRUPT_BKPT;
    rc = yqRestore(pCur);
    if( rc || pCur->eState!=CURSOR_VALID ) return rc;
  }
  rc = yqSaveAll(pCur->pBtree, pCur->pgnoRoot, pCur);
  if( rc ) return rc;
  if( pCur->pKeyInfo==0 ) yqEndBlobs(pCur->pBtree, pCur->pgnoRoot, pCur->pYq->place.iRowid, 0);
  rc = yq_delete(pCur->pYq->pScan);
  /* The next step continues from the old position. */
  pCur->skipNext = 0;
  pCur->eState = CURSOR_REQUIRESEEK;
  return rc;
}

static int yqBtreePutData(BtCursor *pCsr, u32 offset, u32 amt, void *z){
  YqPlace *pPlace = &pCsr->pYq->place;
  u8 *a;
  u32 n;
  int rc;
  if( pCsr->eState>=CURSOR_REQUIRESEEK ){
    rc = yqRestore(pCsr);
    if( rc ) return rc;
  }
  if( pCsr->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  rc = yqSaveAll(pCsr->pBtree, pCsr->pgnoRoot, pCsr);
  if( rc ) return rc;
  if( (pCsr->curFlags & BTCF_WriteFlag)==0 ) return SQLITE_READONLY;
  if( (u64)offset+amt > pPlace->nRecord ) return SQLITE_CORRUPT_BKPT;
  n = pPlace->nRecord;
  a = sqlite3Malloc(n+1);
  if( a==0 ) return SQLITE_NOMEM_BKPT;
  memcpy(a, pPlace->aRecord, n);
  memcpy(&a[offset], z, amt);
  rc = yq_put_row(pCsr->pYq->pScan, pPlace->iRowid, a, n, 0);
  sqlite3_free(a);
  pCsr->skipNext = 0;
  pCsr->eState = CURSOR_REQUIRESEEK;
  return rc;
}

static int yqBtreeCreateTable(Btree *p, Pgno *piTable, int flags){
  UNUSED_PARAMETER(flags);
  return yq_create(yqDatabase(p), 0, piTable);
}

/* OP_CreateBtree. iBeside is the root of the table of an index, YQ_LAST_TABLE
** for the table that was created last, or 0: an index is at the group of its
** table, so that a write to both is at one group. */
SQLITE_PRIVATE int yqCreateTree(Btree *p, Pgno *piRoot, int flags, int iBeside){
  if( p->pYq==0 ) return nativeBtreeCreateTable(p, piRoot, flags);
  return yq_create(yqDatabase(p), iBeside, piRoot);
}

static int yqBtreeClearTable(Btree *p, int iTable, i64 *pnChange){
  i64 n = 0;
  int rc;
  /* A table without a root, a virtual one, as btree.c says of page 0. */
  if( iTable<1 ) return SQLITE_CORRUPT_BKPT;
  rc = yqSaveAll(p, (Pgno)iTable, 0);
  if( rc ) return rc;
  yqEndBlobs(p, (Pgno)iTable, 0, 1);
  rc = yq_clear(yqDatabase(p), (u32)iTable, pnChange ? &n : 0);
  if( pnChange ) *pnChange += n;
  return rc;
}

static int yqBtreeClearTableOfCursor(BtCursor *pCur){
  return yqBtreeClearTable(pCur->pBtree, (int)pCur->pgnoRoot, 0);
}

static int yqBtreeDropTable(Btree *p, int iTable, int *piMoved){
  *piMoved = 0;
  return yq_drop(yqDatabase(p), (u32)iTable);
}

/* Callers without error reporting get 0 if it is unknown. */
static void yqBtreeGetMeta(Btree *p, int idx, u32 *pMeta){
  *pMeta = 0;
  (void)yq_meta(yqDatabase(p), idx, pMeta);
}

/* As OP_ReadCookie reads one. */
SQLITE_PRIVATE int yqReadMeta(Btree *p, int idx, u32 *pMeta){
  if( p->pYq ) return yq_meta(yqDatabase(p), idx, pMeta);
  nativeBtreeGetMeta(p, idx, pMeta);
  return SQLITE_OK;
}

static int yqBtreeUpdateMeta(Btree *p, int idx, u32 iMeta){ return yq_set_meta(yqDatabase(p), idx, iMeta); }

/*
** ---- Transactions
*/

static int yqBtreeBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  u32 iCookie = 0;
  int onlyReads = !wrflag && p->db->autoCommit;
  int rc;
  if( wrflag && yq_is_readonly(yqDatabase(p)) ) return SQLITE_READONLY;
  rc = yq_begin(yqDatabase(p), onlyReads, &iCookie);
  /* A caller that does not check the cookie cannot handle a change of it,
  ** nor can one that copies a database over this one. */
  if( rc==SQLITE_OK && (pSchemaVersion==0 || wrflag>1) ){
    rc = yq_prove(yqDatabase(p));
    if( rc==SQLITE_OK ) rc = yq_begin(yqDatabase(p), onlyReads, &iCookie);
  }
  if( rc ){
    if( p->inTrans==TRANS_NONE ) yq_end(yqDatabase(p), 0);
    return rc;
  }
  if( wrflag ){
    p->inTrans = TRANS_WRITE;
    /* Savepoints opened before the first write. */
    rc = yq_open_savepoints(yqDatabase(p), p->db->nSavepoint);
  }else if( p->inTrans==TRANS_NONE ){
    p->inTrans = TRANS_READ;
  }
  if( pSchemaVersion ) *pSchemaVersion = (int)iCookie;
  return rc;
}

/* Whether a program opens no tree of a database, like PRAGMA table_info,
** which needs the schema only. PRAGMA page_count needs not even that. */
static int yqReadsNothing(const Vdbe *v, int iDb){
  int i;
  for(i=0; i<v->nOp; i++){
    const Op *pOp = &v->aOp[i];
    if( pOp->opcode==OP_Pagecount && pOp->p1==iDb ) return 0;
    if( (pOp->opcode==OP_OpenRead || pOp->opcode==OP_OpenWrite || pOp->opcode==OP_ReopenIdx)
     && pOp->p3==iDb
    ){
      return 0;
    }
  }
  return 1;
}

/* Whether a program changes the schema of a database. */
static int yqChangesSchema(const Vdbe *v, int iDb){
  int i;
  for(i=0; i<v->nOp; i++){
    const Op *pOp = &v->aOp[i];
    if( pOp->opcode==OP_SetCookie && pOp->p1==iDb && pOp->p2==BTREE_SCHEMA_VERSION ) return 1;
  }
  return 0;
}

/* Waits for other writers of all databases at the store of this one, and locks
** them out. */
static int yqLease(Btree *p){
  sqlite3 *db = p->db;
  YqDatabase *apAll[SQLITE_MAX_ATTACHED+2];
  int i, nAll = 0;
  int rc;
  for(i=0; i<db->nDb && nAll<ArraySize(apAll); i++){
    Btree *pOther = db->aDb[i].pBt;
    if( pOther && pOther->pYq && !yq_is_readonly(yqDatabase(pOther)) ) apAll[nAll++] = yqDatabase(pOther);
  }
  db->busyHandler.nBusy = 0;
  do{
    rc = yq_lease(yqDatabase(p), apAll, nAll, yqMsWait(db));
  }while( yqWaits(db, &rc) );
  if( rc!=SQLITE_OK ) yq_stop_waiting(yqDatabase(p));
  return rc;
}

/* Begins a transaction for OP_Transaction. BEGIN IMMEDIATE waits for other
** writers, locks them out, and takes its snapshot after that. */
SQLITE_PRIVATE int yqBeginTrans(
  const Vdbe *v,
  const Op *pOp,
  Btree *p,
  int wrflag,
  int isImmediate,
  int *pSchemaVersion
){
  int rc;
  if( p->pYq==0 ) return nativeBtreeBeginTrans(p, wrflag, pSchemaVersion);
  if( isImmediate && wrflag && p->inTrans!=TRANS_WRITE && !yq_is_readonly(yqDatabase(p)) ){
    rc = yqSaveAll(p, 0, 0);
    if( rc==SQLITE_OK ) rc = yqLease(p);
    if( rc ) return rc;
  }
  rc = yqBtreeBeginTrans(p, wrflag, pSchemaVersion);
  if( rc==SQLITE_OK && pOp->p5
   && (yqReadsNothing(v, pOp->p1) || (p->db->autoCommit==0 && yqChangesSchema(v, pOp->p1)))
  ){
    /* No later request would detect a changed cookie, or only one that follows
    ** the first write: a transaction of the application cannot run it again. */
    rc = yq_prove(yqDatabase(p));
    if( rc==SQLITE_OK ) rc = yqBtreeBeginTrans(p, wrflag, pSchemaVersion);
  }
  return rc;
}

/* A program that fails before its first request, as for a NOT NULL, has not
** verified its schema. The error counts only if the schema is current. */
static void yqVerifySchemaOfError(Vdbe *v){
  sqlite3 *db = v->db;
  int i;
  switch( v->rc & 0xff ){
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
      break;
    default:
      return;
  }
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    u32 iCookie = 0;
    int rc = SQLITE_OK;
    if( p && p->pYq && p->inTrans!=TRANS_NONE && DbMaskTest(v->btreeMask, i) ){
      rc = yq_meta(yqDatabase(p), BTREE_SCHEMA_VERSION, &iCookie);
    }
    if( rc ){
      sqlite3VdbeError(v, "%s", yqErrStr(rc));
      v->rc = rc;
      v->errorAction = OE_Abort;
      return;
    }
  }
}

/* Another connection may hold a lease: wait up to the busy timeout. */
static int yqBtreeCommitPhaseOne(Btree *p, const char *zSuperJrnl){
  int rc;
  UNUSED_PARAMETER(zSuperJrnl);
  if( p->inTrans!=TRANS_WRITE ) return SQLITE_OK;
  p->db->busyHandler.nBusy = 0;
  do{
    rc = yq_commit(yqDatabase(p), yqMsWait(p->db));
  }while( yqWaits(p->db, &rc) );
  if( rc!=SQLITE_OK ) yq_stop_waiting(yqDatabase(p));
  return rc;
}

/*
** ---- A statement that has lost a race
*/

/* State to restore before a statement runs again. */
typedef struct YqAgain {
  u8 mayRun;
  int nRun;
  int nBusy;
  u32 nCall;
  i64 nChange;
  i64 nTotalChange;
  i64 lastRowid;
} YqAgain;

/* Number of immediate retries, whatever the busy timeout. */
#define YQ_RUNS 10

static void yqRemember(Vdbe *v, YqAgain *p){
  sqlite3 *db = v->db;
  p->mayRun = db->autoCommit && v->eVdbeState!=VDBE_RUN_STATE && db->nVdbeExec==0;
  p->nRun = p->nBusy = 0;
  p->nCall = db->nYqCall;
  p->nChange = db->nChange;
  p->nTotalChange = db->nTotalChange;
  p->lastRowid = db->lastRowid;
}

/* Whether to run the statement again: it was a transaction of its own
** without visible effects. It was interrupted if the busy handler gives up. */
static int yqRunAgain(Vdbe *v, YqAgain *p, int *pRc){
  sqlite3 *db = v->db;
  int i;
  if( v->rc!=SQLITE_BUSY_SNAPSHOT || !p->mayRun || db->mallocFailed ) return 0;
  if( db->nYqCall!=p->nCall || db->xCommitCallback || db->xRollbackCallback
   || db->xUpdateCallback || db->xPreUpdateCallback
  ){
    return 0;
  }
  if( p->nRun++>=YQ_RUNS ){
    int again;
    db->busyHandler.nBusy = p->nBusy;
    again = sqlite3InvokeBusyHandler(&db->busyHandler);
    p->nBusy = db->busyHandler.nBusy;
    if( !again ) return 0;
  }
  if( p->nRun>YQ_RUNS ? yq_is_cancelled(db) : AtomicLoad(&db->u1.isInterrupted) ){
    *pRc = v->rc = SQLITE_INTERRUPT;
    sqlite3VdbeError(v, "%s", sqlite3ErrStr(SQLITE_INTERRUPT));
    sqlite3VdbeTransferError(v);
    return 0;
  }
  db->nChange = p->nChange;
  db->nTotalChange = p->nTotalChange;
  db->lastRowid = p->lastRowid;
  for(i=0; i<db->nDb; i++){
    Btree *pBt = db->aDb[i].pBt;
    if( pBt && pBt->pYq ) yq_wants_turn(yqDatabase(pBt));
  }
  return 1;
}

/* The schema has changed: schemas with an outdated cookie are read again, as
** OP_Transaction does on a mismatch. */
static void yqForgetSchemas(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    u32 iCookie = 0;
    if( p && p->pYq && yq_known_cookie(yqDatabase(p), &iCookie)==SQLITE_OK
     && db->aDb[i].pSchema->schema_cookie!=(int)iCookie
    ){
      sqlite3ResetOneSchema(db, i);
    }
  }
}

/* A statement was prepared again, in the transaction that found the schema
** changed. This transaction is over now, or continues by itself. */
static void yqLetGo(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    if( p && p->pYq ) yq_end_kept_transaction(yqDatabase(p));
  }
}

static int yqBtreeCommitPhaseTwo(Btree *p, int bCleanup){
  UNUSED_PARAMETER(bCleanup);
  if( p->inTrans==TRANS_NONE ) return SQLITE_OK;
  if( p->db->nVdbeRead>1 ){
    /* Other statements of this connection still read. */
    p->inTrans = TRANS_READ;
    yq_end(yqDatabase(p), 1);
    return yqSaveAll(p, 0, 0);
  }
  p->inTrans = TRANS_NONE;
  yq_end(yqDatabase(p), 0);
  return SQLITE_OK;
}

static int yqBtreeCommit(Btree *p){
  int rc = yqBtreeCommitPhaseOne(p, 0);
  return rc ? rc : yqBtreeCommitPhaseTwo(p, 0);
}

static int yqBtreeTripAllCursors(Btree *pBtree, int errCode, int writeOnly){
  BtCursor *p;
  int rc = SQLITE_OK;
  for(p=pBtree->pYq->pCursor; p; p=p->pNext){
    if( writeOnly && (p->curFlags & BTCF_WriteFlag)==0 ){
      if( p->eState==CURSOR_VALID || p->eState==CURSOR_SKIPNEXT ){
        rc = yqSave(p);
        if( rc ) return yqBtreeTripAllCursors(pBtree, rc, 0);
      }
    }else{
      p->eState = CURSOR_FAULT;
      p->skipNext = errCode;
    }
  }
  return rc;
}

static int yqBtreeRollback(Btree *p, int tripCode, int writeOnly){
  int rc = SQLITE_OK;
  if( tripCode==SQLITE_OK ){
    rc = tripCode = yqSaveAll(p, 0, 0);
    if( rc ) writeOnly = 0;
  }
  if( tripCode ){
    int rc2 = yqBtreeTripAllCursors(p, tripCode, writeOnly);
    if( rc2 ) rc = rc2;
  }
  if( p->inTrans==TRANS_WRITE ) yq_rollback(yqDatabase(p));
  if( p->inTrans!=TRANS_NONE ){
    int goesOn = p->db->nVdbeRead>1;
    p->inTrans = goesOn ? TRANS_READ : TRANS_NONE;
    yq_end(yqDatabase(p), goesOn);
  }
  return rc;
}

static int yqBtreeBeginStmt(Btree *p, int iStatement){
  return yq_open_savepoints(yqDatabase(p), iStatement);
}

static int yqBtreeSavepoint(Btree *p, int op, int iSavepoint){
  int rc = SQLITE_OK;
  if( p->inTrans!=TRANS_WRITE ) return SQLITE_OK;
  if( op==SAVEPOINT_ROLLBACK ) rc = yqSaveAll(p, 0, 0);
  if( rc==SQLITE_OK ) rc = yq_savepoint(yqDatabase(p), op==SAVEPOINT_ROLLBACK, iSavepoint);
  return rc;
}

/*
** ---- Looking after it
*/

static int yqBtreeIntegrityCheck(
  sqlite3 *db,
  Btree *p,
  Pgno *aRoot,
  Mem *aCnt,
  int nRoot,
  int mxErr,
  int *pnErr,
  char **pzOut
){
  int i;
  StrAccum out;
  sqlite3StrAccumInit(&out, 0, 0, 0, SQLITE_MAX_LENGTH);
  *pnErr = 0;
  for(i=0; i<nRoot && *pnErr<mxErr; i++){
    i64 n = 0;
    int rc;
    if( aRoot[i]==0 ) continue;
    rc = yq_check(yqDatabase(p), aRoot[i], &n);
    sqlite3MemSetArrayInt64(aCnt, i, n);
    if( rc && (rc & 0xff)!=SQLITE_CORRUPT ){
      /* Unknown: not an error of the database. */
      sqlite3_str_reset(&out);
      *pnErr = 1;
      *pzOut = 0;
      return rc;
    }
    if( rc ){
      if( *pnErr ) sqlite3_str_append(&out, "\n", 1);
      sqlite3_str_appendf(&out, "Tree %u: %s", aRoot[i], sqlite3ErrStr(rc));
      (*pnErr)++;
    }
    if( AtomicLoad(&db->u1.isInterrupted) ) break;
  }
  *pzOut = sqlite3StrAccumFinish(&out);
  return SQLITE_OK;
}
