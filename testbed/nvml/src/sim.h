/* Simulated NVML: what the source files of this library share.
 *
 * Everything a call answers comes from the state file (see state.c for its form); the library itself knows
 * no board. A value that the file does not name is "not supported", as it is on a board without the feature.
 * Numbers and struct layouts are NVML's published ABI.
 */
#ifndef SIM_H
#define SIM_H

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SIM_MAX_GPUS = 64,
    SIM_MAX_EVENTS = 256,
    SIM_KEY_BYTES = 128,
    SIM_TEXT_BYTES = 1024,
};

/* Return codes of nvmlReturn_t that the library decides by itself; any other one can come from the state. */
enum {
    SIM_OK = 0,
    SIM_UNINITIALIZED = 1,
    SIM_INVALID_ARGUMENT = 2,
    SIM_NOT_SUPPORTED = 3,
    SIM_NOT_FOUND = 6,
    SIM_INSUFFICIENT_SIZE = 7,
    SIM_DRIVER_NOT_LOADED = 9,
    SIM_TIMEOUT = 10,
    SIM_VERSION_MISMATCH = 25,
    SIM_UNKNOWN = 999,
};

typedef const char *sim_device; /* opaque to callers: an address that encodes (init generation, GPU slot) */

struct sim_event {
    uint64_t sequence;
    unsigned slot;
    uint64_t type;
    uint64_t data;
};

/* state.c: the state file. A slot of SIM_NODE reads node-wide keys. */
#define SIM_NODE SIM_MAX_GPUS
const char *sim_state_path(void);
int sim_state_refresh(void);
int sim_state_text(unsigned slot, const char *key, char *text, size_t size);
int sim_state_number(unsigned slot, const char *key, uint64_t *value);
int sim_state_events(struct sim_event *events, int room);

/* init.c: who may call, and which fault this call meets. */
int sim_enter_node(const char *call);
int sim_enter_slot(unsigned slot, const char *call);
int sim_enter(sim_device device, const char *call, unsigned *slot);
int sim_slot_of(sim_device device, unsigned *slot);
unsigned sim_generation(void);
unsigned sim_listed(const unsigned **slots);
sim_device sim_handle(unsigned slot);

/* answer.c: calls that answer one value of one GPU. */
int sim_answer_u32(sim_device device, const char *call, const char *key, unsigned *value);
int sim_answer_u64(sim_device device, const char *call, const char *key, uint64_t *value);
int sim_answer_text(sim_device device, const char *call, const char *key, char *text, unsigned size);
int sim_answer_numbers(sim_device device, const char *call, const char *key, unsigned *values, int count);
int sim_read_u32(unsigned slot, const char *key, unsigned *value);
int sim_read_numbers(unsigned slot, const char *key, unsigned *values, int count);
int sim_copy_text(const char *from, char *text, unsigned size);

/* nvlink.c: state key of one value of one link: the link's own line if there is one, else that of all links. */
int sim_link_number(unsigned slot, unsigned link, const char *name, uint64_t *value);

#endif
