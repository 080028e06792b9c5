/* The state file: one `key = value` a line, `#` starts a comment line.
 *
 * Keys of one GPU: `gpu.SLOT.KEY`, where absent `gpu.KEY`, which stands for all GPUs. Other keys are the node's.
 * Events: `event.SEQUENCE = SLOT TYPE DATA`. Writers replace the file by rename; a change is noticed by inode,
 * size and time. The file last read stays open, so that the kernel cannot give its inode number to a later one.
 */
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS = 4096 };

struct entry {
    const char *key;
    const char *value;
    struct entry *next;
};

struct table {
    char *text;
    struct entry *entries;
    struct entry *buckets[BUCKETS];
    struct sim_event events[SIM_MAX_EVENTS];
    int event_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table *current;
static struct stat current_stat;
static int current_file = -1;

const char *sim_state_path(void) {
    static char path[PATH_MAX];
    const char *given = getenv("SIM_NVML_STATE");
    if (given != NULL) return given;
    Dl_info info;
    if (path[0] == '\0' && dladdr((const void *)&sim_state_path, &info) != 0 && info.dli_fname != NULL) {
        const char *slash = strrchr(info.dli_fname, '/');
        int folder = slash == NULL ? 0 : (int)(slash - info.dli_fname + 1);
        snprintf(path, sizeof path, "%.*snvml.state", folder, info.dli_fname);
    }
    return path;
}

static unsigned hash_of(const char *key) {
    unsigned hash = 2166136261u; /* FNV-1a */
    for (; *key != '\0'; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % BUCKETS;
}

static char *trimmed(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
    *end = '\0';
    return text;
}

static void add_event(struct table *table, const char *key, const char *value) {
    struct sim_event event;
    char *end;
    event.sequence = strtoull(key + strlen("event."), &end, 10);
    if (*end != '\0' || table->event_count == SIM_MAX_EVENTS) return;
    long long slot, type, data;
    if (sscanf(value, "%lli %lli %lli", &slot, &type, &data) != 3 || slot < 0 || slot >= SIM_MAX_GPUS) return;
    event.slot = (unsigned)slot;
    event.type = (uint64_t)type;
    event.data = (uint64_t)data;
    table->events[table->event_count++] = event;
}

static void add_line(struct table *table, struct entry *entry, char *line) {
    char *equals = strchr(line, '=');
    entry->key = "";
    if (*line == '#' || equals == NULL) return;
    *equals = '\0';
    entry->key = trimmed(line);
    entry->value = trimmed(equals + 1);
    struct entry **bucket = &table->buckets[hash_of(entry->key)];
    entry->next = *bucket; /* a later line of the same key is met first: it wins */
    *bucket = entry;
    if (strncmp(entry->key, "event.", 6) == 0) add_event(table, entry->key, entry->value);
}

static struct table *parse(char *text) {
    size_t lines = 1;
    for (const char *at = text; *at != '\0'; at++) lines += *at == '\n';
    struct table *table = calloc(1, sizeof *table);
    struct entry *entries = calloc(lines, sizeof *entries);
    if (table == NULL || entries == NULL) {
        free(table);
        free(entries);
        return NULL;
    }
    table->text = text;
    table->entries = entries;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) add_line(table, entries++, line);
    return table;
}

static char *read_whole(int file, size_t size) {
    char *text = malloc(size + 1);
    size_t have = 0;
    while (text != NULL && have < size) {
        ssize_t got = read(file, text + have, size - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        have += (size_t)got;
    }
    if (text != NULL) text[have] = '\0';
    return text;
}

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void replace_table(struct table *table, int file, const struct stat *stat_now) {
    if (current != NULL) {
        free(current->text);
        free(current->entries);
        free(current);
    }
    if (current_file >= 0) close(current_file);
    current = table;
    current_file = file;
    current_stat = *stat_now;
}

static void reload(void) {
    int file = open(sim_state_path(), O_RDONLY | O_CLOEXEC);
    struct stat now;
    if (file < 0) return;
    char *text = fstat(file, &now) == 0 ? read_whole(file, (size_t)now.st_size) : NULL;
    struct table *table = text == NULL ? NULL : parse(text);
    if (table == NULL) {
        free(text);
        close(file);
        return;
    }
    replace_table(table, file, &now);
}

/* Rereads the file if it changed. A file that is gone means no driver; the last content stays readable. */
int sim_state_refresh(void) {
    struct stat now;
    int present = stat(sim_state_path(), &now) == 0;
    pthread_mutex_lock(&lock);
    if (present && (current == NULL || !same_file(&now, &current_stat))) reload();
    int usable = present && current != NULL;
    pthread_mutex_unlock(&lock);
    return usable ? SIM_OK : SIM_DRIVER_NOT_LOADED;
}

static const char *find(const char *key) {
    if (current == NULL) return NULL;
    for (struct entry *entry = current->buckets[hash_of(key)]; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, key) == 0) return entry->value;
    return NULL;
}

static const char *find_for(unsigned slot, const char *key) {
    char full[SIM_KEY_BYTES];
    if (slot == SIM_NODE) return find(key);
    snprintf(full, sizeof full, "gpu.%u.%s", slot, key);
    const char *value = find(full);
    if (value != NULL) return value;
    snprintf(full, sizeof full, "gpu.%s", key);
    return find(full);
}

int sim_state_text(unsigned slot, const char *key, char *text, size_t size) {
    pthread_mutex_lock(&lock);
    const char *value = find_for(slot, key);
    if (value != NULL) snprintf(text, size, "%s", value);
    pthread_mutex_unlock(&lock);
    return value == NULL ? SIM_NOT_SUPPORTED : SIM_OK;
}

/* Decimal, hexadecimal with 0x, or negative; a text that is no number is an unknown error, not a zero. */
int sim_state_number(unsigned slot, const char *key, uint64_t *value) {
    char text[64], *end;
    int code = sim_state_text(slot, key, text, sizeof text);
    if (code != SIM_OK) return code;
    uint64_t number = text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    if (end == text || *end != '\0') return SIM_UNKNOWN;
    *value = number;
    return SIM_OK;
}

int sim_state_events(struct sim_event *events, int room) {
    pthread_mutex_lock(&lock);
    int count = current == NULL ? 0 : current->event_count;
    if (count > room) count = room;
    if (count > 0) memcpy(events, current->events, (size_t)count * sizeof *events);
    pthread_mutex_unlock(&lock);
    return count;
}
