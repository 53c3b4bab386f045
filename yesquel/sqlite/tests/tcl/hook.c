/*
** A hook that only the build for SQLite's own tests contains: it maps plain
** file names to Yesquel databases.
**
** The tests create, remove, rename and copy "test.db".  So the file remains, and
** contains the name of a database's folder.  All these folders are in the folder
** that YESQUEL_TEST_FOLDERS names.  Without that variable the hook does nothing,
** and the program tests SQLite unchanged.
**
** With YESQUEL_TEST_SERVERS, addresses of servers, the databases are there, under
** the names of their folders behind YESQUEL_TEST_PREFIX, and the folders are
** empty.  YESQUEL_TEST_PROGRAM copies them.
**
** SQLite opens any other file itself.
*/
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>

#define MAGIC "yesquel test database "

static int yqWrite(const char *zFile, ino_t iNode, const char *zFolder){
  FILE *p = fopen(zFile, "w");
  if( p==0 ) return 0;
  fprintf(p, MAGIC "%llu %s\n", (unsigned long long)iNode, zFolder);
  return fclose(p)==0;
}

/* Returns the name of a folder that does not exist yet. */
static void yqNewFolder(const char *zIn, char *zOut, size_t n){
  static int iNext = 0;
  do{
    snprintf(zOut, n, "%s/%d-%d", zIn, (int)getpid(), iNext++);
  }while( access(zOut, F_OK)==0 );
}

/* Returns whether a name is one that yqNewFolder() makes.  Scripts damage these
** files too, and a damaged name must not lead to another folder. */
static int yqIsFolder(const char *zIn, const char *zFolder){
  size_t n = strlen(zIn);
  if( strncmp(zFolder, zIn, n)!=0 || zFolder[n]!='/' || zFolder[n+1]==0 ) return 0;
  n++;
  return zFolder[n + strspn(&zFolder[n], "0123456789-copy")]==0;
}

/* Writes the address of a folder's database. Returns its length. */
static int yqAddressOf(const char *zFolder, char *zOut, size_t n){
  const char *zServers = getenv("YESQUEL_TEST_SERVERS");
  const char *zPrefix = getenv("YESQUEL_TEST_PREFIX");
  const char *zName = strrchr(zFolder, '/');
  if( zServers==0 || zPrefix==0 || zName==0 ) return snprintf(zOut, n, "yesquel:%s", zFolder);
  return snprintf(zOut, n, "yesquel://%s/%s%s", zServers, zPrefix, zName+1);
}

/* Copies a database. */
static int yqCopy(const char *zFrom, const char *zTo){
  const char *zProgram = getenv("YESQUEL_TEST_PROGRAM");
  char aFrom[3000], aTo[3000], aCommand[8000];
  if( zProgram==0 ){
    snprintf(aCommand, sizeof(aCommand), "cp -r '%s' '%s' 2>/dev/null", zFrom, zTo);
  }else{
    yqAddressOf(zFrom, aFrom, sizeof(aFrom));
    yqAddressOf(zTo, aTo, sizeof(aTo));
    snprintf(aCommand, sizeof(aCommand), "mkdir '%s' && '%s' shell '%s' '.backup %s?placement=tables' >/dev/null 2>&1",
             zTo, zProgram, aFrom, aTo);
  }
  return system(aCommand)>=0;
}

/*
** Replaces the name of a file by the address of its database, with parameters,
** and sets *pzShown to the file's full name.  Both are valid until this thread's
** next call.  Changes nothing if SQLite must open the file itself.
*/
void yqTestAddress(sqlite3_vfs *pVfs, int flags, const char **pzName, const char **pzShown){
  static __thread char aShown[4096];
  static __thread char aAddress[4096];
  /* The scripts copy files of open databases, so commits must be in the files.
  ** A sync is cheap, as the folders are in memory. */
  static const char zFolderParameters[] = "\0durability\0sync\0\0\0\0";
  /* Scripts with several clients tell one what another has committed. */
  static const char zServerParameters[] = "\0placement\0tables\0consistency\0strict\0\0\0\0";
  const int isTemp = SQLITE_OPEN_MEMORY|SQLITE_OPEN_TEMP_DB|SQLITE_OPEN_TRANSIENT_DB;
  const char *zFolders = getenv("YESQUEL_TEST_FOLDERS");
  const char *zName = *pzName;
  struct stat st;
  char aText[4096], aFolder[2048];
  unsigned long long iNode = 0;
  FILE *p;
  int n;

  if( zFolders==0 || zName==0 || (flags & isTemp)!=0 ) return;
  if( zName[0]==0 || strcmp(zName, ":memory:")==0 || strncmp(zName, "yesquel:", 8)==0 ) return;
  if( stat(zName, &st) ){
    if( (flags & SQLITE_OPEN_CREATE)==0 ) return;
    st.st_size = 0;
  }else if( !S_ISREG(st.st_mode) ){
    return;
  }
  if( st.st_size==0 ){
    /* A file of another VFS belongs to that VFS. */
    if( (flags & SQLITE_OPEN_READONLY)!=0 || strncmp(pVfs->zName, "unix", 4)!=0 ) return;
    yqNewFolder(zFolders, aFolder, sizeof(aFolder));
    if( (p = fopen(zName, "a"))==0 ) return;
    fclose(p);
    if( stat(zName, &st) || !yqWrite(zName, st.st_ino, aFolder) ) return;
    if( getenv("YESQUEL_TEST_SERVERS")!=0 && mkdir(aFolder, 0777) ) return;
  }else{
    if( (p = fopen(zName, "r"))==0 ) return;
    n = (int)fread(aText, 1, sizeof(aText)-1, p);
    fclose(p);
    aText[n] = 0;
    if( sscanf(aText, MAGIC "%llu %2047[^\n]", &iNode, aFolder)!=2 || !yqIsFolder(zFolders, aFolder) ) return;
    if( iNode!=(unsigned long long)st.st_ino ){
      /* The file is a copy of another file, so the database is copied too. */
      char aCopy[2048];
      yqNewFolder(zFolders, aCopy, sizeof(aCopy));
      if( !yqCopy(aFolder, aCopy) ) return;
      if( !yqWrite(zName, st.st_ino, aCopy) ) return;
      strcpy(aFolder, aCopy);
    }
  }
  if( pVfs->xFullPathname(pVfs, zName, sizeof(aShown), aShown)!=SQLITE_OK ) return;
  /* Like sqlite3_create_filename(), whose allocation the tests would count. */
  memset(aAddress, 0, 4);
  n = yqAddressOf(aFolder, &aAddress[4], sizeof(aAddress)-64);
  if( getenv("YESQUEL_TEST_SERVERS")==0 ){
    memcpy(&aAddress[4+n], zFolderParameters, sizeof(zFolderParameters));
  }else{
    memcpy(&aAddress[4+n], zServerParameters, sizeof(zServerParameters));
  }
  *pzName = &aAddress[4];
  *pzShown = aShown;
}
