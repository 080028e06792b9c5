/* Init, shutdown, handles, and the faults a call can meet.
 *
 * Init is reference counted. The first one lists the GPUs: those whose `dropped_at_init` is not set, indices
 * closing up. The last shutdown voids all handles. A handle is an address inside `handles` that encodes the
 * generation of its init, so that a stale one is refused instead of read.
 *
 * Faults of a call NAME (symbol without `nvml`, `Device` and version), most specific key first:
 * `call.NAME.WHAT`, then `call.all.WHAT`, each for the GPU, for all GPUs, or for the node. WHAT is `hang`
 * (blocks while set), `delay_ms`, `error` (a return code; 0 exempts NAME from an error of all calls).
 */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { GENERATIONS = 4096, HANG_POLL_US = 20000 };

static char handles[GENERATIONS][SIM_MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned references, generation;
static unsigned slots[SIM_MAX_GPUS], slot_count;

static uint64_t number_or_zero(unsigned slot, const char *key) {
    uint64_t value = 0;
    return sim_state_number(slot, key, &value) == SIM_OK ? value : 0;
}

static uint64_t fault_number(unsigned slot, const char *call, const char *what) {
    char key[SIM_KEY_BYTES];
    uint64_t value;
    snprintf(key, sizeof key, "call.%s.%s", call, what);
    if (sim_state_number(slot, key, &value) == SIM_OK) return value;
    snprintf(key, sizeof key, "call.all.%s", what);
    return number_or_zero(slot, key);
}

static int meet_faults(unsigned slot, const char *call) {
    uint64_t delay_ms = fault_number(slot, call, "delay_ms");
    if (delay_ms > 0) usleep((useconds_t)(delay_ms * 1000));
    while (fault_number(slot, call, "hang") != 0) {
        usleep(HANG_POLL_US);
        sim_state_refresh();
    }
    return (int)fault_number(slot, call, "error");
}

static int is_initialized(void) {
    pthread_mutex_lock(&lock);
    int yes = references > 0;
    pthread_mutex_unlock(&lock);
    return yes;
}

int sim_enter_node(const char *call) {
    if (!is_initialized()) return SIM_UNINITIALIZED;
    sim_state_refresh();
    return meet_faults(SIM_NODE, call);
}

int sim_enter_slot(unsigned slot, const char *call) {
    int code = sim_enter_node(call);
    return code == SIM_OK ? meet_faults(slot, call) : code;
}

int sim_slot_of(sim_device device, unsigned *slot) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= sizeof handles) return SIM_INVALID_ARGUMENT;
    if (offset / SIM_MAX_GPUS != sim_generation() % GENERATIONS) return SIM_INVALID_ARGUMENT;
    *slot = (unsigned)(offset % SIM_MAX_GPUS);
    return SIM_OK;
}

int sim_enter(sim_device device, const char *call, unsigned *slot) {
    if (!is_initialized()) return SIM_UNINITIALIZED;
    int code = sim_slot_of(device, slot);
    return code == SIM_OK ? sim_enter_slot(*slot, call) : code;
}

unsigned sim_generation(void) {
    pthread_mutex_lock(&lock);
    unsigned now = generation;
    pthread_mutex_unlock(&lock);
    return now;
}

unsigned sim_listed(const unsigned **listed) {
    *listed = slots;
    return slot_count;
}

sim_device sim_handle(unsigned slot) { return &handles[sim_generation() % GENERATIONS][slot]; }

static void list_gpus(void) {
    uint64_t count = number_or_zero(SIM_NODE, "gpu.count");
    slot_count = 0;
    for (unsigned slot = 0; slot < count && slot < SIM_MAX_GPUS; slot++)
        if (number_or_zero(slot, "dropped_at_init") == 0) slots[slot_count++] = slot;
}

static int init_fault(void) {
    if (sim_state_refresh() != SIM_OK) return SIM_DRIVER_NOT_LOADED;
    uint64_t delay_ms = number_or_zero(SIM_NODE, "init.delay_ms");
    if (delay_ms > 0) usleep((useconds_t)(delay_ms * 1000));
    while (number_or_zero(SIM_NODE, "init.hang") != 0) {
        usleep(HANG_POLL_US);
        sim_state_refresh();
    }
    return (int)number_or_zero(SIM_NODE, "init.error");
}

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags; /* both published flags change only what is attached or listed lazily */
    int code = init_fault();
    if (code != SIM_OK) return code;
    pthread_mutex_lock(&lock);
    if (references++ == 0) {
        generation++;
        list_gpus();
    }
    pthread_mutex_unlock(&lock);
    return SIM_OK;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int code = references > 0 ? SIM_OK : SIM_UNINITIALIZED;
    if (references > 0) references--;
    pthread_mutex_unlock(&lock);
    return code;
}
