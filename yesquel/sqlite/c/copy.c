/*
** Copies a whole database from one b-tree to another of any kind, for the
** backup interface.  Copies between two native b-trees are not here: SQLite
** copies their pages.  A copy goes tree by tree, in steps of as many bytes as
** the pages have; the transactions of both sides last from the first step to
** the last.
**
** Compiled after the dispatchers: sqlite3BtreeX() is for both kinds.
*/

/* A cursor of its own. */
static int yqOpen(Btree *p, Pgno iRoot, int wrFlag, KeyInfo *pKeyInfo, BtCursor **ppCur){
  BtCursor *pCur = sqlite3Malloc(sqlite3BtreeCursorSize());
  int rc;
  *ppCur = 0;
  if( pCur==0 ) return SQLITE_NOMEM_BKPT;
  memset(pCur, 0, sqlite3BtreeCursorSize());
  sqlite3BtreeCursorZero(pCur);
  rc = sqlite3BtreeCursor(p, iRoot, wrFlag, pKeyInfo, pCur);
  if( rc ) sqlite3_free(pCur);
  else *ppCur = pCur;
  return rc;
}

static void yqShut(BtCursor *pCur){
  if( pCur ) sqlite3BtreeCloseCursor(pCur);
  sqlite3_free(pCur);
}

/* Reads the record at a cursor into a reused buffer. */
static int yqRecord(BtCursor *pCur, u8 **pa, u32 *pnAlloc, u32 *pn){
  u32 n = sqlite3BtreePayloadSize(pCur);
  if( n+YQ_PADDING>*pnAlloc ){
    u8 *a = sqlite3Realloc(*pa, (u64)n+YQ_PADDING);
    if( a==0 ) return SQLITE_NOMEM_BKPT;
    *pa = a;
    *pnAlloc = n+YQ_PADDING;
  }
  memset(*pa+n, 0, YQ_PADDING);
  *pn = n;
  return sqlite3BtreePayload(pCur, 0, n, *pa);
}

/* The index with this root; null for a table. */
static Index *yqIndexAt(Schema *pSchema, Pgno iRoot){
  HashElem *k;
  for(k=sqliteHashFirst(&pSchema->idxHash); k; k=sqliteHashNext(k)){
    Index *pIdx = sqliteHashData(k);
    if( pIdx->tnum==iRoot ) return pIdx;
  }
  return 0;
}

/* A row of the schema table: reads its root, and writes the row with another
** one. */
static int yqRootOf(const u8 *a, u32 n, i64 *piRoot, u32 *piType, u32 *piValue, u32 *pnValue){
  u32 nHeader, iType, i, serial = 0;
  u32 iValue;
  iType = getVarint32(a, nHeader);
  iValue = nHeader;
  *piRoot = 0;
  for(i=0; i<4; i++){
    if( iType>=nHeader || nHeader>n ) return SQLITE_CORRUPT_BKPT;
    if( i ) iValue += sqlite3VdbeSerialTypeLen(serial);
    *piType = iType;
    iType += getVarint32(&a[iType], serial);
  }
  *piValue = iValue;
  *pnValue = sqlite3VdbeSerialTypeLen(serial);
  if( (u64)iValue+*pnValue>n || iType-*piType!=1 ) return SQLITE_CORRUPT_BKPT;
  if( serial>0 && serial<10 && serial!=7 ){
    Mem mem;
    memset(&mem, 0, sizeof(mem));
    sqlite3VdbeSerialGet(&a[iValue], serial, &mem);
    *piRoot = mem.u.i;
  }
  return SQLITE_OK;
}

/* Empties the destination. */
static int yqEmpty(Btree *p){
  BtCursor *pCur = 0;
  u8 *a = 0;
  u32 nAlloc = 0;
  int isEmpty = 0;
  int rc;
  if( p->pYq==0 ){
    /* Of the pages of a file the first is made anew, and the others go. They are
    ** kept for a rollback first: those that are written again once the file is
    ** short would be taken for new ones, and not be read before. */
    Pager *pPager = sqlite3BtreePager(p);
    Pgno iPg;
    int nPage = 0;
    rc = SQLITE_OK;
    sqlite3PagerPagecount(pPager, &nPage);
    for(iPg=2; iPg<=(Pgno)nPage && rc==SQLITE_OK; iPg++){
      DbPage *pPg;
      if( iPg==PENDING_BYTE_PAGE(p->pBt) ) continue;
      rc = sqlite3PagerGet(pPager, iPg, &pPg, 0);
      if( rc==SQLITE_OK ){
        rc = sqlite3PagerWrite(pPg);
        sqlite3PagerUnref(pPg);
      }
    }
    if( rc==SQLITE_OK ) rc = sqlite3BtreeNewDb(p);
    if( rc==SQLITE_OK ) sqlite3PagerTruncateImage(sqlite3BtreePager(p), 1);
    return rc;
  }
  rc = yqOpen(p, SCHEMA_ROOT, 0, 0, &pCur);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeFirst(pCur, &isEmpty);
  while( rc==SQLITE_OK && !isEmpty ){
    i64 iRoot;
    int iMoved;
    u32 n, iType, iValue, nValue;
    rc = yqRecord(pCur, &a, &nAlloc, &n);
    if( rc==SQLITE_OK ) rc = yqRootOf(a, n, &iRoot, &iType, &iValue, &nValue);
    if( rc==SQLITE_OK && iRoot>SCHEMA_ROOT ) rc = sqlite3BtreeDropTable(p, (int)iRoot, &iMoved);
    if( rc==SQLITE_OK ) rc = sqlite3BtreeNext(pCur, 0);
  }
  yqShut(pCur);
  sqlite3_free(a);
  if( rc==SQLITE_DONE ) rc = SQLITE_OK;
  if( rc==SQLITE_OK ) rc = sqlite3BtreeClearTable(p, SCHEMA_ROOT, 0);
  return rc;
}

/* A table of rows has its rows below a root. */
static int yqIsTable(Schema *pSchema, Pgno iRoot){
  HashElem *k;
  for(k=sqliteHashFirst(&pSchema->tblHash); k; k=sqliteHashNext(k)){
    Table *pTab = sqliteHashData(k);
    if( pTab->tnum==iRoot ) return HasRowid(pTab);
  }
  return 0;
}

/* State of a copy between two steps. */
typedef struct YqCopy YqCopy;
struct YqCopy {
  sqlite3 *pFromDb;
  Btree *pFrom;
  Btree *pTo;
  int iDb;                          /* The source among those of its connection */
  u8 isReading;                     /* Counts as a reading statement of the source */
  u8 endsFrom;                      /* The copy began the source's transaction */
  u8 isCopied;                      /* Only the commit is left */
  int iCookie;                      /* The destination's former cookie */
  u32 iVersion;                     /* Detects a change of the source */
  i64 nChange;
  BtCursor *pIn;                    /* The schema tables */
  BtCursor *pOut;
  u8 *aRow;                         /* The current row of the schema table */
  u32 nRow, nRowAlloc;
  BtCursor *pTreeIn;                /* The current tree, if any */
  BtCursor *pTreeOut;
  KeyInfo *pKeyInfo;
  Pgno iNew;
  Pgno *aRoot;                      /* Roots of the copied tables: old, new, ... */
  u32 nRoot, nRootAlloc;
  u8 *a;                            /* A record of it */
  u32 nAlloc;
  i64 nByte;                        /* Copied so far */
  i64 szPage;                       /* Bytes that count as a page */
  i64 nPage;                        /* Pages of the source, estimated */
};

/* Closes the cursors of the current tree. */
static void yqShutTree(YqCopy *p){
  yqShut(p->pTreeIn);
  yqShut(p->pTreeOut);
  p->pTreeIn = p->pTreeOut = 0;
  sqlite3KeyInfoUnref(p->pKeyInfo);
  p->pKeyInfo = 0;
}

static void yqShutAll(YqCopy *p){
  yqShutTree(p);
  yqShut(p->pIn);
  yqShut(p->pOut);
  p->pIn = p->pOut = 0;
}

/* Ends reading the source. */
static void yqLeave(YqCopy *p){
  yqShutAll(p);
  if( p->isReading ){
    p->isReading = 0;
    p->pFromDb->nVdbeRead--;
    p->pFromDb->nVdbeActive--;
  }
  if( p->endsFrom ){
    p->endsFrom = 0;
    sqlite3BtreeCommit(p->pFrom);
  }
}

/* Ends a copy. Without a commit, the destination is unchanged. */
static void yqEndCopy(YqCopy *p){
  yqLeave(p);
  sqlite3_free(p->aRow);
  sqlite3_free(p->aRoot);
  sqlite3_free(p->a);
  sqlite3_free(p);
}

/* Number of pages to copy; for trees, the number that the nodes' bytes would
** fill. Not needed when everything is copied at once. */
static void yqMeasure(YqCopy *p, int nPage){
  p->szPage = 4096;
  p->nPage = 1;
  if( nPage<0 ) return;
  if( p->pFrom->pYq ){
    u32 nPage = 0;
    yq_pages(yqDatabase(p->pFrom), (u32)p->szPage, &nPage);
    p->nPage = (i64)nPage + 1;
  }else{
    p->szPage = sqlite3BtreeGetPageSize(p->pFrom);
    p->nPage = sqlite3BtreeLastPage(p->pFrom);
    if( p->nPage==0 ) p->nPage = 1;
  }
}

/* Begins the source's transaction, which lasts until the end of the copy,
** the destination's transaction, and the scan of the schema table. */
static int yqBeginCopy(YqCopy *p, int nPage, int bCloseTrans){
  char *zErr = 0;
  int isEmpty = 0;
  int rc = sqlite3Init(p->pFromDb, &zErr);
  sqlite3DbFree(p->pFromDb, zErr);
  p->endsFrom = bCloseTrans!=0;
  for(p->iDb=0; p->iDb<p->pFromDb->nDb && p->pFromDb->aDb[p->iDb].pBt!=p->pFrom; p->iDb++){}
  if( rc==SQLITE_OK && p->iDb==p->pFromDb->nDb ) rc = SQLITE_ERROR;
  /* Reading the schema may have ended the transaction. */
  if( rc==SQLITE_OK && sqlite3BtreeTxnState(p->pFrom)==SQLITE_TXN_NONE ){
    p->endsFrom = 1;
    rc = sqlite3BtreeBeginTrans(p->pFrom, 0, 0);
  }
  if( rc==SQLITE_OK ){
    /* Keeps the transaction open when other statements of its connection
    ** end. */
    p->isReading = 1;
    p->pFromDb->nVdbeRead++;
    p->pFromDb->nVdbeActive++;
    sqlite3BtreeGetMeta(p->pFrom, BTREE_DATA_VERSION, &p->iVersion);
    p->nChange = p->pFromDb->nTotalChange;
    yqMeasure(p, nPage);
    rc = sqlite3BtreeBeginTrans(p->pTo, 2, &p->iCookie);
  }
  if( rc==SQLITE_OK ) rc = yqEmpty(p->pTo);
  if( rc==SQLITE_OK ) rc = yqOpen(p->pFrom, SCHEMA_ROOT, 0, 0, &p->pIn);
  if( rc==SQLITE_OK ) rc = yqOpen(p->pTo, SCHEMA_ROOT, BTREE_WRCSR, 0, &p->pOut);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeFirst(p->pIn, &isEmpty);
  if( rc==SQLITE_OK && isEmpty ) rc = SQLITE_DONE;
  return rc;
}

/* Whether the source has changed since the copy began: its own connection
** has written. */
static int yqHasChanged(YqCopy *p){
  u32 iVersion = 0;
  if( p->isCopied ) return 0;
  if( sqlite3BtreeTxnState(p->pFrom)==SQLITE_TXN_NONE ) return 1;
  sqlite3BtreeGetMeta(p->pFrom, BTREE_DATA_VERSION, &iVersion);
  return iVersion!=p->iVersion || p->nChange!=p->pFromDb->nTotalChange;
}

/* Writes the current row of the schema table, with its new root if it has
** one. */
static int yqCopySchemaRow(YqCopy *p, int hasRoot){
  i64 iRoot;
  u32 iType, iValue, nValue;
  BtreePayload x;
  u8 *aRow;
  int rc;
  memset(&x, 0, sizeof(x));
  x.nKey = sqlite3BtreeIntegerKey(p->pIn);
  if( !hasRoot ){
    x.pData = p->aRow;
    x.nData = (int)p->nRow;
    return sqlite3BtreeInsert(p->pOut, &x, BTREE_APPEND, 0);
  }
  rc = yqRootOf(p->aRow, p->nRow, &iRoot, &iType, &iValue, &nValue);
  if( rc ) return rc;
  /* The root as an integer of four bytes, whatever it was. */
  aRow = sqlite3Malloc((u64)p->nRow+4+9);
  if( aRow==0 ) return SQLITE_NOMEM_BKPT;
  memcpy(aRow, p->aRow, iValue);
  aRow[iType] = 4;
  sqlite3Put4byte(&aRow[iValue], p->iNew);
  memcpy(&aRow[iValue+4], &p->aRow[iValue+nValue], p->nRow-iValue-nValue);
  x.pData = aRow;
  x.nData = (int)(p->nRow-nValue+4);
  rc = sqlite3BtreeInsert(p->pOut, &x, BTREE_APPEND, 0);
  sqlite3_free(aRow);
  return rc;
}

/* Notes the roots of a table and of its copy, for the table's indexes. */
static int yqNoteTable(YqCopy *p, Pgno iRoot){
  if( p->nRoot+2>p->nRootAlloc ){
    u32 n = p->nRootAlloc*2 + 16;
    Pgno *a = sqlite3Realloc(p->aRoot, (u64)n*sizeof(*a));
    if( a==0 ) return SQLITE_NOMEM_BKPT;
    p->aRoot = a;
    p->nRootAlloc = n;
  }
  p->aRoot[p->nRoot++] = iRoot;
  p->aRoot[p->nRoot++] = p->iNew;
  return SQLITE_OK;
}

/* The copy of the table with this root; 0 if it has not been copied. */
static Pgno yqCopyOf(const YqCopy *p, Pgno iRoot){
  u32 i;
  for(i=0; i<p->nRoot; i+=2){
    if( p->aRoot[i]==iRoot ) return p->aRoot[i+1];
  }
  return 0;
}

/* Reads the schema table's row at the cursor, and opens its tree. */
static int yqTakeRow(YqCopy *p){
  Schema *pSchema = p->pFromDb->aDb[p->iDb].pSchema;
  i64 iRoot;
  u32 iType, iValue, nValue;
  Index *pIdx;
  int isEmpty = 0;
  int rc = yqRecord(p->pIn, &p->aRow, &p->nRowAlloc, &p->nRow);
  if( rc==SQLITE_OK ) rc = yqRootOf(p->aRow, p->nRow, &iRoot, &iType, &iValue, &nValue);
  if( rc ) return rc;
  p->nByte += p->nRow;
  if( iRoot<=SCHEMA_ROOT ) return yqCopySchemaRow(p, 0);
  pIdx = yqIndexAt(pSchema, (Pgno)iRoot);
  if( pIdx ){
    Parse sParse;
    sqlite3ParseObjectInit(&sParse, p->pFromDb);
    p->pKeyInfo = sqlite3KeyInfoOfIndex(&sParse, pIdx);
    rc = sParse.rc;
    sqlite3ParseObjectReset(&sParse);
    if( p->pKeyInfo==0 && rc==SQLITE_OK ) rc = SQLITE_ERROR;
  }else if( !yqIsTable(pSchema, (Pgno)iRoot) ){
    rc = SQLITE_CORRUPT_BKPT;
  }
  if( rc==SQLITE_OK && pIdx ){
    rc = yqCreateTree(p->pTo, &p->iNew, BTREE_BLOBKEY, (int)yqCopyOf(p, pIdx->pTable->tnum));
    /* A table WITHOUT ROWID is the tree of its primary key. */
    if( rc==SQLITE_OK && pIdx->tnum==pIdx->pTable->tnum ) rc = yqNoteTable(p, (Pgno)iRoot);
  }else if( rc==SQLITE_OK ){
    rc = sqlite3BtreeCreateTable(p->pTo, &p->iNew, BTREE_INTKEY);
    if( rc==SQLITE_OK ) rc = yqNoteTable(p, (Pgno)iRoot);
  }
  if( rc==SQLITE_OK ) rc = yqOpen(p->pFrom, (Pgno)iRoot, 0, p->pKeyInfo, &p->pTreeIn);
  if( rc==SQLITE_OK && p->pTreeIn->pYq && pSchema->pSeqTab && pSchema->pSeqTab->tnum==(Pgno)iRoot ){
    yq_show_sequence(p->pTreeIn->pYq->pScan);
  }
  if( rc==SQLITE_OK ) rc = yqOpen(p->pTo, p->iNew, BTREE_WRCSR, p->pKeyInfo, &p->pTreeOut);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeFirst(p->pTreeIn, &isEmpty);
  if( rc==SQLITE_OK && isEmpty ){
    yqShutTree(p);
    rc = yqCopySchemaRow(p, 1);
  }
  return rc;
}

/* Copies one entry of the current tree. */
static int yqCopyEntry(YqCopy *p){
  BtreePayload x;
  u32 n;
  int rc = yqRecord(p->pTreeIn, &p->a, &p->nAlloc, &n);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  if( p->pKeyInfo ){
    x.pKey = p->a;
    x.nKey = n;
  }else{
    x.nKey = sqlite3BtreeIntegerKey(p->pTreeIn);
    x.pData = p->a;
    x.nData = (int)n;
  }
  rc = sqlite3BtreeInsert(p->pTreeOut, &x, BTREE_APPEND, 0);
  p->nByte += n + 8;
  if( rc==SQLITE_OK ) rc = sqlite3BtreeNext(p->pTreeIn, 0);
  if( rc==SQLITE_DONE ){
    yqShutTree(p);
    rc = yqCopySchemaRow(p, 1);
  }
  return rc;
}

/* Copies the database's meta values, which are in no tree. */
static int yqCopyMeta(YqCopy *p){
  static const u8 aMeta[] = {
    BTREE_FILE_FORMAT, BTREE_DEFAULT_CACHE_SIZE, BTREE_TEXT_ENCODING, BTREE_USER_VERSION, BTREE_APPLICATION_ID,
  };
  int i, rc = SQLITE_OK;
  for(i=0; i<ArraySize(aMeta) && rc==SQLITE_OK; i++){
    u32 value;
    sqlite3BtreeGetMeta(p->pFrom, aMeta[i], &value);
    rc = sqlite3BtreeUpdateMeta(p->pTo, aMeta[i], value);
  }
  if( rc==SQLITE_OK ) rc = sqlite3BtreeUpdateMeta(p->pTo, BTREE_SCHEMA_VERSION, (u32)p->iCookie+1);
  return rc;
}

/* This connection is out of memory, and the step returns it. Clears the
** state, so that the connection's next statement starts clean. */
static int yqForgetOom(sqlite3 *db, int rc){
  if( db==0 || db->mallocFailed==0 ) return rc;
  sqlite3OomClear(db);
  return rc==SQLITE_OK ? SQLITE_NOMEM_BKPT : rc;
}

/* Copies this number of pages, or the rest. The copy reads one snapshot of
** the source, and changes the destination in one transaction at the end.
** Returns SQLITE_DONE after the commit and SQLITE_OK before. */
static int yqBackup(YqCopy **pp, sqlite3 *pFromDb, Btree *pFrom, sqlite3 *pToDb, Btree *pTo, int nPage,
                    int *pbCloseTrans, Pgno *pnRemaining, Pgno *pnPage){
  YqCopy *p = *pp;
  i64 nEnd;
  int rc = SQLITE_OK;
  if( p && yqHasChanged(p) ){
    /* Restart, as with pages. */
    yqEndCopy(p);
    *pp = p = 0;
    sqlite3BtreeRollback(pTo, SQLITE_OK, 0);
  }
  if( p==0 ){
    p = *pp = sqlite3MallocZero(sizeof(*p));
    if( p==0 ) return SQLITE_NOMEM_BKPT;
    p->pFromDb = pFromDb;
    p->pFrom = pFrom;
    p->pTo = pTo;
    rc = yqBeginCopy(p, nPage, *pbCloseTrans);
  }else if( !p->isCopied ){
    /* The schema may have been discarded since. */
    char *zErr = 0;
    rc = sqlite3Init(pFromDb, &zErr);
    sqlite3DbFree(pFromDb, zErr);
  }
  /* The copy ends this transaction. */
  *pbCloseTrans = 0;
  /* An earlier interrupt no longer applies. */
  if( pFromDb->nVdbeActive==0 ) AtomicStore(&pFromDb->u1.isInterrupted, 0);
  if( pToDb && pToDb->nVdbeActive==0 ) AtomicStore(&pToDb->u1.isInterrupted, 0);
  nEnd = nPage<0 ? LARGEST_INT64 : p->nByte + nPage*p->szPage;
  while( rc==SQLITE_OK && !p->isCopied && p->nByte<nEnd ){
    rc = p->pTreeIn ? yqCopyEntry(p) : yqTakeRow(p);
    if( rc==SQLITE_OK && p->pTreeIn==0 ) rc = sqlite3BtreeNext(p->pIn, 0);
  }
  if( rc==SQLITE_DONE ){
    yqShutAll(p);
    rc = yqCopyMeta(p);
    if( rc==SQLITE_OK ){
      yqLeave(p);
      p->isCopied = 1;
    }
  }
  if( rc==SQLITE_OK && p->isCopied ){
    rc = sqlite3BtreeCommit(pTo);
    if( rc==SQLITE_OK ){
      if( pToDb ) sqlite3ResetAllSchemasOfConnection(pToDb);
      rc = SQLITE_DONE;
    }
  }
  if( rc!=SQLITE_DONE ) rc = yqForgetOom(pToDb, yqForgetOom(pFromDb, rc));
  *pnPage = (Pgno)MIN(p->nPage, 0x7fffffff);
  *pnRemaining = 0;
  if( rc==SQLITE_OK ){
    i64 nDone = p->nByte/p->szPage;
    *pnRemaining = nDone<p->nPage ? (Pgno)MIN(p->nPage-nDone, 0x7fffffff) : 1;
    return rc;
  }
  /* Another connection holds the destination: a later step commits. */
  if( rc==SQLITE_BUSY && p->isCopied ) return rc;
  if( pToDb && yq_message(rc) ) sqlite3ErrorWithMsg(pToDb, rc, "%s", yqErrStr(rc));
  yqEndCopy(p);
  *pp = 0;
  if( rc!=SQLITE_DONE ) sqlite3BtreeRollback(pTo, SQLITE_OK, 0);
  return rc;
}
