/*
** A whole database copied from one b-tree to another of any kind, for the
** backup interface.  What is native to both sides is not here: there pages are
** copied.
**
** This stands behind the dispatchers: sqlite3BtreeX() is for both kinds.
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

/* The record that a cursor stands on, in memory that is reused. */
static int yqRecord(BtCursor *pCur, u8 **pa, u32 *pnAlloc, u32 *pn){
  u32 n = sqlite3BtreePayloadSize(pCur);
  if( n+9>*pnAlloc ){
    u8 *a = sqlite3Realloc(*pa, (u64)n+9);
    if( a==0 ) return SQLITE_NOMEM_BKPT;
    *pa = a;
    *pnAlloc = n+9;
  }
  memset(*pa+n, 0, 9);
  *pn = n;
  return sqlite3BtreePayload(pCur, 0, n, *pa);
}

/* The index whose entries are below a root; null for a table of rows. */
static Index *yqIndexAt(Schema *pSchema, Pgno iRoot){
  HashElem *k;
  for(k=sqliteHashFirst(&pSchema->idxHash); k; k=sqliteHashNext(k)){
    Index *pIdx = sqliteHashData(k);
    if( pIdx->tnum==iRoot ) return pIdx;
  }
  return 0;
}

/* Copies all of one tree. */
static int yqCopyTree(Btree *pFrom, Pgno iFrom, Btree *pTo, Pgno iTo, KeyInfo *pKeyInfo){
  BtCursor *pIn = 0;
  BtCursor *pOut = 0;
  u8 *a = 0;
  u32 nAlloc = 0;
  int isEmpty = 0;
  int rc = yqOpen(pFrom, iFrom, 0, pKeyInfo, &pIn);
  if( rc==SQLITE_OK ) rc = yqOpen(pTo, iTo, BTREE_WRCSR, pKeyInfo, &pOut);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeFirst(pIn, &isEmpty);
  if( rc==SQLITE_OK && isEmpty ) rc = SQLITE_DONE;
  while( rc==SQLITE_OK ){
    BtreePayload x;
    u32 n;
    rc = yqRecord(pIn, &a, &nAlloc, &n);
    if( rc ) break;
    memset(&x, 0, sizeof(x));
    if( pKeyInfo ){
      x.pKey = a;
      x.nKey = n;
    }else{
      x.nKey = sqlite3BtreeIntegerKey(pIn);
      x.pData = a;
      x.nData = (int)n;
    }
    rc = sqlite3BtreeInsert(pOut, &x, BTREE_APPEND, 0);
    if( rc==SQLITE_OK ) rc = sqlite3BtreeNext(pIn, 0);
  }
  yqShut(pIn);
  yqShut(pOut);
  sqlite3_free(a);
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* A row of the schema table: its root, and the same row with another one. */
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

/* Makes the destination empty. */
static int yqEmpty(Btree *p){
  BtCursor *pCur = 0;
  u8 *a = 0;
  u32 nAlloc = 0;
  int isEmpty = 0;
  int rc;
  if( p->pYq==0 ){
    /* Of the pages of a file the first is made anew, and the others go. */
    rc = sqlite3BtreeNewDb(p);
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

/* Copies what is below one row of the schema table, and writes the row. */
static int yqCopyRow(sqlite3 *pFromDb, Schema *pSchema, Btree *pFrom, Btree *pTo, BtCursor *pOut,
                     i64 iRow, u8 *a, u32 n){
  i64 iRoot;
  Pgno iNew = 0;
  u32 iType, iValue, nValue;
  BtreePayload x;
  u8 *aRow;
  int rc = yqRootOf(a, n, &iRoot, &iType, &iValue, &nValue);
  if( rc ) return rc;
  memset(&x, 0, sizeof(x));
  x.nKey = iRow;
  if( iRoot<=SCHEMA_ROOT ){
    x.pData = a;
    x.nData = (int)n;
    return sqlite3BtreeInsert(pOut, &x, BTREE_APPEND, 0);
  }
  {
    Index *pIdx = yqIndexAt(pSchema, (Pgno)iRoot);
    KeyInfo *pKeyInfo = 0;
    if( pIdx ){
      Parse sParse;
      sqlite3ParseObjectInit(&sParse, pFromDb);
      pKeyInfo = sqlite3KeyInfoOfIndex(&sParse, pIdx);
      rc = sParse.rc;
      sqlite3ParseObjectReset(&sParse);
      if( pKeyInfo==0 && rc==SQLITE_OK ) rc = SQLITE_ERROR;
    }
    if( rc==SQLITE_OK ) rc = sqlite3BtreeCreateTable(pTo, &iNew, pIdx ? BTREE_BLOBKEY : BTREE_INTKEY);
    if( rc==SQLITE_OK ) rc = yqCopyTree(pFrom, (Pgno)iRoot, pTo, iNew, pKeyInfo);
    sqlite3KeyInfoUnref(pKeyInfo);
  }
  if( rc ) return rc;
  /* The root as an integer of four bytes, whatever it was. */
  aRow = sqlite3Malloc((u64)n+4+9);
  if( aRow==0 ) return SQLITE_NOMEM_BKPT;
  memcpy(aRow, a, iValue);
  aRow[iType] = 4;
  sqlite3Put4byte(&aRow[iValue], iNew);
  memcpy(&aRow[iValue+4], &a[iValue+nValue], n-iValue-nValue);
  x.pData = aRow;
  x.nData = (int)(n-nValue+4);
  rc = sqlite3BtreeInsert(pOut, &x, BTREE_APPEND, 0);
  sqlite3_free(aRow);
  return rc;
}

/* Copies all of a database, in one transaction. Returns SQLITE_DONE. */
static int yqBackup(sqlite3 *pFromDb, Btree *pFrom, sqlite3 *pToDb, Btree *pTo){
  static const u8 aMeta[] = {
    BTREE_FILE_FORMAT, BTREE_DEFAULT_CACHE_SIZE, BTREE_TEXT_ENCODING, BTREE_USER_VERSION, BTREE_APPLICATION_ID,
  };
  BtCursor *pIn = 0;
  BtCursor *pOut = 0;
  char *zErr = 0;
  u8 *a = 0;
  u32 nAlloc = 0;
  int i, iCookie = 0, isEmpty = 0;
  int rc = sqlite3Init(pFromDb, &zErr);
  sqlite3DbFree(pFromDb, zErr);
  for(i=0; i<pFromDb->nDb && pFromDb->aDb[i].pBt!=pFrom; i++){}
  if( rc==SQLITE_OK && i==pFromDb->nDb ) rc = SQLITE_ERROR;
  /* Reading the schema may have ended the transaction; whoever called ends it
  ** in any case. */
  if( rc==SQLITE_OK && sqlite3BtreeTxnState(pFrom)==SQLITE_TXN_NONE ) rc = sqlite3BtreeBeginTrans(pFrom, 0, 0);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeBeginTrans(pTo, 2, &iCookie);
  if( rc==SQLITE_OK ) rc = yqEmpty(pTo);
  if( rc==SQLITE_OK ) rc = yqOpen(pFrom, SCHEMA_ROOT, 0, 0, &pIn);
  if( rc==SQLITE_OK ) rc = yqOpen(pTo, SCHEMA_ROOT, BTREE_WRCSR, 0, &pOut);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeFirst(pIn, &isEmpty);
  while( rc==SQLITE_OK && !isEmpty ){
    u32 n;
    rc = yqRecord(pIn, &a, &nAlloc, &n);
    if( rc==SQLITE_OK ){
      i64 iRow = sqlite3BtreeIntegerKey(pIn);
      rc = yqCopyRow(pFromDb, pFromDb->aDb[i].pSchema, pFrom, pTo, pOut, iRow, a, n);
    }
    if( rc==SQLITE_OK ) rc = sqlite3BtreeNext(pIn, 0);
  }
  if( rc==SQLITE_DONE ) rc = SQLITE_OK;
  yqShut(pIn);
  yqShut(pOut);
  sqlite3_free(a);
  for(i=0; i<ArraySize(aMeta) && rc==SQLITE_OK; i++){
    u32 value;
    sqlite3BtreeGetMeta(pFrom, aMeta[i], &value);
    rc = sqlite3BtreeUpdateMeta(pTo, aMeta[i], value);
  }
  if( rc==SQLITE_OK ) rc = sqlite3BtreeUpdateMeta(pTo, BTREE_SCHEMA_VERSION, (u32)iCookie+1);
  if( rc==SQLITE_OK ) rc = sqlite3BtreeCommit(pTo);
  if( rc==SQLITE_OK && pToDb ){
    sqlite3ResetAllSchemasOfConnection(pToDb);
  }
  if( rc!=SQLITE_OK ) sqlite3BtreeRollback(pTo, SQLITE_OK, 0);
  return rc==SQLITE_OK ? SQLITE_DONE : rc;
}
