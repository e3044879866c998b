/* Preloaded before the C library: the n-th system call on files below one folder fails, as on a full
   disk, or ends the process there and then, as a power cut does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char watched[PATH_MAX];
static long left; /* calls until the fault; 0 is never */
static int dying, fired;

void faults_begin(const char *folder, long nth, int die) {
    strncpy(watched, folder, sizeof watched - 1);
    left = nth, dying = die, fired = 0;
}

int faults_end(void) {
    left = 0;
    return fired;
}

static int due(void) {
    if (--left > 0) return 0;
    if (dying) _exit(9);
    left = 0, fired = 1, errno = ENOSPC;
    return 1;
}

static int fails_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!left) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, watched) ? due() : 0;
}

static int fails_at(int folder, const char *path) {
    if (!left) return 0;
    if (strstr(path, watched)) return due();
    return path[0] != '/' && folder != AT_FDCWD ? fails_fd(folder) : 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(last) va_list rest; va_start(rest, last); int mode = va_arg(rest, int); va_end(rest)
#define OPEN(name) int name(const char *path, int flags, ...) { MODE(flags); \
    return fails_at(AT_FDCWD, path) ? -1 : REAL(name)(path, flags, mode); }
#define OPENAT(name) int name(int at, const char *path, int flags, ...) { MODE(flags); \
    return fails_at(at, path) ? -1 : REAL(name)(at, path, flags, mode); }
#define BY_FD(type, name, given, passed) type name(int fd given) { \
    return fails_fd(fd) ? -1 : REAL(name)(fd passed); }
#define BY_PATH(name, given, passed) int name(const char *path given) { \
    return fails_at(AT_FDCWD, path) ? -1 : REAL(name)(path passed); }
#define BY_AT(name, given, passed) int name(int at, const char *path given) { \
    return fails_at(at, path) ? -1 : REAL(name)(at, path passed); }
#define AND ,

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
BY_FD(ssize_t, read, AND void *to AND size_t size, AND to AND size)
BY_FD(ssize_t, write, AND const void *from AND size_t size, AND from AND size)
BY_FD(ssize_t, writev, AND const struct iovec *from AND int count, AND from AND count)
BY_FD(int, flock, AND int operation, AND operation)
BY_FD(int, fchmod, AND mode_t mode, AND mode)
BY_FD(int, ftruncate64, AND off64_t size, AND size)
BY_PATH(chmod, AND mode_t mode, AND mode)
BY_PATH(rename, AND const char *to, AND to)
BY_PATH(unlink, , )
BY_PATH(rmdir, , )
BY_PATH(mkdir, AND mode_t mode, AND mode)
BY_AT(fchmodat, AND mode_t mode AND int flags, AND mode AND flags)
BY_AT(renameat, AND int other AND const char *to, AND other AND to)
BY_AT(unlinkat, AND int flags, AND flags)
BY_AT(mkdirat, AND mode_t mode, AND mode)

int fsync(int fd) { /* what reaches a disk is not tested here, and disks are slow */
    return fails_fd(fd) ? -1 : 0;
}

int close(int fd) { /* a file is closed even when the system reports a late error */
    int wrong = fails_fd(fd), result = REAL(close)(fd);
    if (wrong) errno = ENOSPC;
    return wrong ? -1 : result;
}
