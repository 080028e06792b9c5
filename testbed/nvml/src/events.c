/* Event sets. An event is delivered once to each set that had its GPU registered before it appeared.
 *
 * Events come from `event.SEQUENCE` lines of the state; a set remembers the last sequence it delivered, and
 * each registration the last one that existed then. A wait sleeps until the state file is replaced, as a wait in
 * the driver sleeps until its interrupt: it costs no CPU, and an event is told within a millisecond.
 */
#include "sim.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 1000, BLIND_LOOK_MS = 10 }; /* how long a change may stay unseen, with and without inotify */

struct event_set {
    struct event_set *next;
    unsigned generation;
    uint64_t delivered;
    uint64_t mask[SIM_MAX_GPUS], since[SIM_MAX_GPUS];
};

struct event_data {
    sim_device device;
    uint64_t type, data;
    unsigned gpu_instance, compute_instance;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event_set *sets;

/* Call with the lock held. */
static int is_live(const struct event_set *wanted) {
    for (struct event_set *set = sets; set != NULL; set = set->next)
        if (set == wanted) return set->generation == sim_generation();
    return 0;
}

EXPORT int nvmlEventSetCreate(struct event_set **created) {
    int code = sim_enter_node("EventSetCreate");
    if (code != SIM_OK) return code;
    struct event_set *set = created == NULL ? NULL : calloc(1, sizeof *set);
    if (set == NULL) return SIM_INVALID_ARGUMENT;
    set->generation = sim_generation();
    pthread_mutex_lock(&lock);
    set->next = sets;
    sets = set;
    pthread_mutex_unlock(&lock);
    *created = set;
    return SIM_OK;
}

EXPORT int nvmlEventSetFree(struct event_set *freed) {
    int code = SIM_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    for (struct event_set **at = &sets; *at != NULL; at = &(*at)->next) {
        if (*at != freed) continue;
        *at = freed->next;
        free(freed);
        code = SIM_OK;
        break;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(sim_device device, uint64_t *types) {
    return sim_answer_u64(device, "GetSupportedEventTypes", "events.supported", types);
}

static uint64_t last_sequence(void) {
    struct sim_event events[SIM_MAX_EVENTS];
    int count = sim_state_events(events, SIM_MAX_EVENTS);
    uint64_t last = 0;
    for (int i = 0; i < count; i++)
        if (events[i].sequence > last) last = events[i].sequence;
    return last;
}

EXPORT int nvmlDeviceRegisterEvents(sim_device device, uint64_t types, struct event_set *set) {
    uint64_t supported;
    unsigned slot;
    int code = sim_enter(device, "RegisterEvents", &slot);
    if (code == SIM_OK) code = sim_state_number(slot, "events.supported", &supported);
    if (code != SIM_OK) return code;
    if ((types & ~supported) != 0) return SIM_NOT_SUPPORTED;
    uint64_t last = last_sequence();
    pthread_mutex_lock(&lock);
    code = is_live(set) ? SIM_OK : SIM_INVALID_ARGUMENT;
    if (code == SIM_OK && set->mask[slot] == 0) set->since[slot] = last;
    if (code == SIM_OK) set->mask[slot] |= types;
    pthread_mutex_unlock(&lock);
    return code;
}

static int is_due(const struct event_set *set, const struct sim_event *event) {
    return (set->mask[event->slot] & event->type) != 0 && event->sequence > set->delivered &&
           event->sequence > set->since[event->slot];
}

/* The oldest event that is due, or none. Call with the lock held. */
static const struct sim_event *next_event(const struct event_set *set, const struct sim_event *events, int count) {
    const struct sim_event *next = NULL;
    for (int i = 0; i < count; i++)
        if (is_due(set, &events[i]) && (next == NULL || events[i].sequence < next->sequence)) next = &events[i];
    return next;
}

static int take_event(struct event_set *set, struct event_data *data) {
    struct sim_event events[SIM_MAX_EVENTS];
    int count = sim_state_events(events, SIM_MAX_EVENTS);
    int code = SIM_INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    if (is_live(set)) {
        const struct sim_event *next = next_event(set, events, count);
        code = next == NULL ? SIM_TIMEOUT : SIM_OK;
        if (next != NULL) {
            set->delivered = next->sequence;
            *data = (struct event_data){sim_handle(next->slot), next->type, next->data, 0xFFFFFFFF, 0xFFFFFFFF};
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A descriptor that becomes readable when the state file is replaced; -1 where the system has none to give. */
static int watch_state(void) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", sim_state_path());
    char *slash = strrchr(folder, '/');
    if (slash != NULL) *slash = '\0';
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch < 0) return -1;
    const uint32_t changes = IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE;
    if (inotify_add_watch(watch, slash == NULL ? "." : folder, changes) >= 0) return watch;
    close(watch);
    return -1;
}

static void sleep_until_change(int watch, int64_t most_ms) {
    char notices[4096];
    int look_ms = watch < 0 ? BLIND_LOOK_MS : LOOK_MS;
    struct pollfd waited = {.fd = watch, .events = POLLIN}; /* poll ignores a negative descriptor: it only sleeps */
    poll(&waited, 1, most_ms < look_ms ? (int)most_ms : look_ms);
    while (watch >= 0 && read(watch, notices, sizeof notices) > 0) continue;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event_data *data, unsigned timeout_ms) {
    int64_t deadline = now_ms() + timeout_ms;
    if (data == NULL) return SIM_INVALID_ARGUMENT;
    int watch = timeout_ms > 0 ? watch_state() : -1;
    int code;
    for (;;) {
        code = sim_enter_node("EventSetWait");
        if (code == SIM_OK) code = take_event(set, data);
        int64_t left_ms = deadline - now_ms();
        if (code != SIM_TIMEOUT || left_ms <= 0) break;
        sleep_until_change(watch, left_ms);
    }
    if (watch >= 0) close(watch);
    return code;
}
