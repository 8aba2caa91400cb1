/* Calls that the example does not make: flags, tickets, a thread that ends, a child process. */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uxfs.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, uxfs_last_error());         \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct flags {
    uint32_t flags;
    int result;
};

static const struct flags FLAGS[] = {
    {0, -EINVAL},
    {UXFS_CREATE, -EINVAL},
    {UXFS_READ | UXFS_CREATE, -EINVAL},
    {UXFS_READ | UXFS_EXCL, -EINVAL},
    {UXFS_READ | UXFS_TRUNC, -EINVAL},
    {UXFS_APPEND | UXFS_TRUNC, -EINVAL},
    {UXFS_READ, 0},
    {UXFS_READ | UXFS_WRITE | UXFS_CREATE | UXFS_TRUNC, 0},
    {UXFS_APPEND | UXFS_CREATE, 0},
    {UXFS_WRITE | UXFS_EXCL, -EEXIST},
};

static void check_flags(struct uxfs_volume *volume) {
    for (size_t at = 0; at < sizeof FLAGS / sizeof FLAGS[0]; at++) {
        struct uxfs_file *file = NULL;
        int result = uxfs_open_file(volume, "/f", FLAGS[at].flags, 0644, &file);
        if (result != FLAGS[at].result) {
            fprintf(stderr, "flags %u: %d\n", (unsigned)FLAGS[at].flags, result);
            _exit(1);
        }
        uxfs_close_file(file);
    }
}

static void check_tickets(struct uxfs_volume *volume, const char *image) {
    char name[4096];
    struct uxfs_volume *other;
    struct uxfs_ticket *ticket;
    snprintf(name, sizeof name, "%s.other", image);
    REQUIRE(uxfs_mkfs(name, 300u << 20, 0, &other) == 0);
    REQUIRE(uxfs_ticket_new(other, &ticket) == 0);
    REQUIRE(uxfs_ticket_wait(other, ticket) == 0);
    REQUIRE(uxfs_ticket_durable(other, ticket) == 1);
    REQUIRE(uxfs_ticket_wait(volume, ticket) == -EINVAL);
    REQUIRE(uxfs_ticket_durable(volume, ticket) == -EINVAL);
    uxfs_ticket_free(ticket);
    REQUIRE(uxfs_close(other) == 0);
}

/* The thread's text is gone when this runs. */
static void destructor(void *nothing) {
    struct uxfs_volume *volume;
    (void)nothing;
    REQUIRE(uxfs_close(NULL) == 0);
    REQUIRE(uxfs_open("/none", 0, &volume) == -ENOENT);
    REQUIRE(strcmp(uxfs_last_error(), "") == 0);
}

static void *fail(void *key) {
    struct uxfs_volume *volume;
    REQUIRE(pthread_setspecific(*(pthread_key_t *)key, key) == 0);
    REQUIRE(uxfs_open("/none", 0, &volume) == -ENOENT);
    REQUIRE(strstr(uxfs_last_error(), "/none") != NULL);
    return NULL;
}

static void check_thread(void) {
    pthread_key_t key;
    pthread_t thread;
    REQUIRE(pthread_key_create(&key, destructor) == 0);
    REQUIRE(pthread_create(&thread, NULL, fail, &key) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

static void check_child(struct uxfs_volume *volume, struct uxfs_file *file) {
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(uxfs_pwrite(file, (const uint8_t *)"child", 5, 0) == -EBADF);
        REQUIRE(uxfs_sync(volume) == -EBADF);
        uxfs_close_file(file);
        REQUIRE(uxfs_close(volume) == -EBADF);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
    struct uxfs_volume *volume;
    struct uxfs_file *file;
    uint8_t data[8];
    if (argc != 2) {
        return 2;
    }
    REQUIRE(uxfs_mkfs(argv[1], 300u << 20, UXFS_BACKGROUND, &volume) == 0);
    REQUIRE(uxfs_open_file(volume, "/f", UXFS_READ | UXFS_WRITE | UXFS_CREATE, 0644, &file) == 0);
    REQUIRE(uxfs_pwrite(file, (const uint8_t *)"parent", 6, 0) == 6);
    check_child(volume, file);
    REQUIRE(uxfs_pwrite(file, (const uint8_t *)"P", 1, 0) == 1);
    memset(data, 0, sizeof data);
    REQUIRE(uxfs_pread(file, data, sizeof data, 0) == 6);
    REQUIRE(memcmp(data, "Parent", 6) == 0);
    uxfs_close_file(file);
    check_flags(volume);
    check_tickets(volume, argv[1]);
    check_thread();
    REQUIRE(uxfs_close(volume) == 0);
    return 0;
}
