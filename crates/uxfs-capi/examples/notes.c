/* Makes a volume, writes to it from two threads, reads it back, and tries what must fail.
 *
 * usage: notes IMAGE        (IMAGE must not exist)
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "uxfs.h"

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, uxfs_last_error());         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct job {
    const uxfs_volume *volume;
    int number;
};

static void *work(void *argument)
{
    const struct job *job = argument;
    for (int at = 0; at < 100; at++) {
        char name[64];
        uxfs_file *file;
        snprintf(name, sizeof name, "/notes/%d-%d", job->number, at);
        REQUIRE(uxfs_open_file(job->volume, name, UXFS_WRITE | UXFS_EXCL, 0644, &file) == 0);
        REQUIRE(uxfs_pwrite(file, (const uint8_t *)name, strlen(name), 0) == (int64_t)strlen(name));
        uxfs_close_file(file);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uxfs_volume *volume, *second;
    uxfs_ticket *ticket;
    uxfs_file *file;
    uxfs_dir *dir;
    struct uxfs_dirent entry;
    struct uxfs_stat_t stat;
    struct uxfs_totals totals;
    uint8_t buffer[64];
    int entries = 0, result;

    if (argc != 2) {
        fprintf(stderr, "usage: %s IMAGE\n", argv[0]);
        return 2;
    }
    REQUIRE(uxfs_mkfs(argv[1], (uint64_t)300 << 20, 0, &volume) == 0);
    REQUIRE(uxfs_open(argv[1], 0, &second) == -EBUSY);
    REQUIRE(uxfs_mkdir(volume, "/notes", 0755) == 0);
    REQUIRE(uxfs_mkdir(volume, "/notes", 0755) == -EEXIST);
    REQUIRE(strstr(uxfs_last_error(), "/notes") != NULL);

    pthread_t threads[2];
    struct job jobs[2];
    for (int number = 0; number < 2; number++) {
        jobs[number] = (struct job){volume, number};
        REQUIRE(pthread_create(&threads[number], NULL, work, &jobs[number]) == 0);
    }
    for (int number = 0; number < 2; number++)
        REQUIRE(pthread_join(threads[number], NULL) == 0);

    REQUIRE(uxfs_ticket_new(volume, &ticket) == 0);
    REQUIRE(uxfs_ticket_wait(volume, ticket) == 0);
    REQUIRE(uxfs_ticket_durable(volume, ticket) == 1);
    uxfs_ticket_free(ticket);

    REQUIRE(uxfs_open_dir(volume, "/notes", &dir) == 0);
    while ((result = uxfs_read_dir(dir, &entry)) == 1)
        entries++;
    REQUIRE(result == 0 && entries == 200);
    uxfs_close_dir(dir);

    REQUIRE(uxfs_open_file(volume, "/notes/1-7", UXFS_READ, 0, &file) == 0);
    REQUIRE(uxfs_pread(file, buffer, sizeof buffer, 0) == 10);
    REQUIRE(memcmp(buffer, "/notes/1-7", 10) == 0);
    REQUIRE(uxfs_pread(file, buffer, sizeof buffer, 10) == 0);
    REQUIRE(uxfs_pwrite(file, buffer, 1, 0) == -EBADF);
    REQUIRE(uxfs_fstat(file, &stat) == 0 && stat.size == 10 && stat.mode == 0100644);

    /* The file outlives its name. */
    REQUIRE(uxfs_unlink(volume, "/notes/1-7") == 0);
    REQUIRE(uxfs_stat(volume, "/notes/1-7", &stat) == -ENOENT);
    REQUIRE(uxfs_pread(file, buffer, 10, 0) == 10);

    REQUIRE(uxfs_symlink(volume, "notes", "/link") == 0);
    REQUIRE(uxfs_readlink(volume, "/link", NULL, 0) == 5);
    REQUIRE(uxfs_readlink(volume, "/link", buffer, 3) == -ERANGE);
    REQUIRE(uxfs_readlink(volume, "/link", buffer, sizeof buffer) == 5);
    REQUIRE(uxfs_setxattr(volume, "/link", "user.color", (const uint8_t *)"blue", 4) == 0);
    REQUIRE(uxfs_getxattr(volume, "/notes", "user.color", buffer, sizeof buffer) == 4);
    REQUIRE(uxfs_listxattr(volume, "/notes", buffer, sizeof buffer) == sizeof "user.color");
    REQUIRE(uxfs_removexattr(volume, "/notes", "user.color") == 0);
    REQUIRE(uxfs_rename(volume, "/notes/0-0", "/first") == 0);
    REQUIRE(uxfs_link(volume, "/first", "/second") == 0);
    REQUIRE(uxfs_chmod(volume, "/first", 0600) == 0 && uxfs_chown(volume, "/first", 7, UINT32_MAX) == 0);
    REQUIRE(uxfs_lstat(volume, "/second", &stat) == 0);
    REQUIRE(stat.nlink == 2 && stat.mode == 0100600 && stat.uid == 7 && stat.gid == 0);
    struct uxfs_time time = {-1, 5}, wrong = {0, 1000000000};
    REQUIRE(uxfs_utimes(volume, "/first", time, time) == 0);
    REQUIRE(uxfs_utimes(volume, "/first", wrong, time) == -EINVAL);
    REQUIRE(uxfs_stat(volume, "/first", &stat) == 0 && stat.mtime.sec == -1 && stat.mtime.nsec == 5);
    REQUIRE(uxfs_mkdirs(volume, "/a/b/c") == 0 && uxfs_rmdir(volume, "/a") == -ENOTEMPTY);
    REQUIRE(uxfs_remove_tree(volume, "/a") == 0);
    REQUIRE(uxfs_statfs(volume, &totals) == 0 && totals.block_size == 4096);

    /* Null pointers are errors. */
    REQUIRE(uxfs_stat(NULL, "/", &stat) == -EFAULT && uxfs_stat(volume, NULL, &stat) == -EFAULT);
    REQUIRE(uxfs_stat(volume, "/", NULL) == -EFAULT && uxfs_open(argv[1], 0, NULL) == -EFAULT);
    REQUIRE(uxfs_pread(file, NULL, 1, 0) == -EFAULT && uxfs_pread(file, NULL, 0, 0) == 0);
    REQUIRE(uxfs_open(argv[1], 1u << 30, &second) == -EINVAL);

    REQUIRE(uxfs_close(volume) == 0);
    REQUIRE(uxfs_fsync(file) == -EBADF);
    uxfs_close_file(file);
    uxfs_close_file(NULL);
    REQUIRE(uxfs_close(NULL) == 0);

    REQUIRE(uxfs_open(argv[1], UXFS_RDONLY, &volume) == 0);
    REQUIRE(uxfs_unlink(volume, "/first") == -EROFS);
    REQUIRE(uxfs_close(volume) == 0);
    printf("%d notes\n", entries);
    return 0;
}
