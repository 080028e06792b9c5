/* Memory: sizes, ECC counts, remapped rows, retired pages. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

struct memory_info {
    uint64_t total, free, used;
};
struct memory_info_v2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};

static int read_memory(unsigned slot, struct memory_info_v2 *info) {
    int code = sim_state_number(slot, "memory.total", &info->total);
    if (code != SIM_OK) return code;
    info->reserved = info->used = 0;
    sim_state_number(slot, "memory.reserved", &info->reserved);
    sim_state_number(slot, "memory.used", &info->used);
    info->free = info->total - info->reserved - info->used;
    return SIM_OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(sim_device device, struct memory_info *info) {
    struct memory_info_v2 found;
    unsigned slot;
    int code = sim_enter(device, "GetMemoryInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    code = read_memory(slot, &found);
    if (code == SIM_OK) *info = (struct memory_info){found.total, found.free, found.used + found.reserved};
    return code;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(sim_device device, struct memory_info_v2 *info) {
    struct memory_info_v2 found;
    unsigned slot;
    int code = sim_enter(device, "GetMemoryInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    if (info->version != 0x2000028) return SIM_VERSION_MISMATCH;
    found.version = info->version;
    code = read_memory(slot, &found);
    if (code == SIM_OK) *info = found;
    return code;
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(sim_device device, struct memory_info *info) {
    uint64_t total, used = 0;
    unsigned slot;
    int code = sim_enter(device, "GetBAR1MemoryInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    code = sim_state_number(slot, "bar1.total", &total);
    if (code != SIM_OK) return code;
    sim_state_number(slot, "bar1.used", &used);
    *info = (struct memory_info){total, total - used, used};
    return SIM_OK;
}

static const char *error_name(int type) { return type == 0 ? "corrected" : type == 1 ? "uncorrected" : NULL; }
static const char *counter_name(int counter) {
    return counter == 0 ? "volatile" : counter == 1 ? "aggregate" : NULL;
}

static int ecc_is_off(unsigned slot) {
    unsigned mode[2];
    return sim_read_numbers(slot, "ecc.mode", mode, 2) != SIM_OK || mode[0] == 0;
}

static int ecc_count(sim_device device, const char *call, const char *key, uint64_t *count) {
    unsigned slot;
    int code = sim_enter(device, call, &slot);
    if (code != SIM_OK) return code;
    if (count == NULL || key == NULL) return SIM_INVALID_ARGUMENT;
    return ecc_is_off(slot) ? SIM_NOT_SUPPORTED : sim_state_number(slot, key, count);
}

EXPORT int nvmlDeviceGetTotalEccErrors(sim_device device, int type, int counter, uint64_t *count) {
    char key[SIM_KEY_BYTES];
    int known = error_name(type) != NULL && counter_name(counter) != NULL;
    if (known) snprintf(key, sizeof key, "ecc.%s.%s", counter_name(counter), error_name(type));
    return ecc_count(device, "GetTotalEccErrors", known ? key : NULL, count);
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(sim_device device, int type, int counter, int location,
                                           uint64_t *count) {
    static const char *const places[] = {"l1", "l2", "dram", "registers", "texture", "shared", "cbu", "sram"};
    char key[SIM_KEY_BYTES];
    int known = error_name(type) != NULL && counter_name(counter) != NULL && location >= 0 && location < 8;
    if (known)
        snprintf(key, sizeof key, "ecc.%s.%s.%s", counter_name(counter), error_name(type), places[location]);
    return ecc_count(device, "GetMemoryErrorCounter", known ? key : NULL, count);
}

struct sram_errors {
    unsigned version;
    uint64_t counts[11];
    unsigned threshold_exceeded;
};

EXPORT int nvmlDeviceGetSramEccErrorStatus(sim_device device, struct sram_errors *errors) {
    static const char *const keys[] = {
        "sram.aggregate.unc_parity", "sram.aggregate.unc_secded", "sram.aggregate.cor",
        "sram.volatile.unc_parity", "sram.volatile.unc_secded", "sram.volatile.cor",
        "sram.bucket.l2", "sram.bucket.sm", "sram.bucket.pcie", "sram.bucket.mcu", "sram.bucket.other",
    };
    struct sram_errors found = {.version = 0x1000068};
    unsigned slot;
    int code = sim_enter(device, "GetSramEccErrorStatus", &slot);
    if (code != SIM_OK) return code;
    if (errors == NULL) return SIM_INVALID_ARGUMENT;
    if (errors->version != found.version) return SIM_VERSION_MISMATCH;
    code = ecc_is_off(slot) ? SIM_NOT_SUPPORTED : sim_state_number(slot, keys[0], &found.counts[0]);
    if (code != SIM_OK) return code;
    for (int i = 1; i < 11; i++) sim_state_number(slot, keys[i], &found.counts[i]);
    sim_read_u32(slot, "sram.threshold_exceeded", &found.threshold_exceeded);
    *errors = found;
    return SIM_OK;
}

EXPORT int nvmlDeviceGetRemappedRows(sim_device device, unsigned *corrected, unsigned *uncorrected,
                                     unsigned *pending, unsigned *failure) {
    unsigned slot;
    int code = sim_enter(device, "GetRemappedRows", &slot);
    if (code != SIM_OK) return code;
    if (corrected == NULL || uncorrected == NULL || pending == NULL || failure == NULL)
        return SIM_INVALID_ARGUMENT;
    *corrected = *uncorrected = *pending = *failure = 0; /* boards without the feature also answer zeros */
    sim_read_u32(slot, "remap.corrected", corrected);
    sim_read_u32(slot, "remap.uncorrected", uncorrected);
    sim_read_u32(slot, "remap.pending", pending);
    sim_read_u32(slot, "remap.failure", failure);
    return SIM_OK;
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(sim_device device, unsigned banks[5]) {
    return sim_answer_numbers(device, "GetRowRemapperHistogram", "remap.histogram", banks, 5);
}

/* `retired.pages = CORRECTED UNCORRECTABLE`: how many pages each cause has; only boards before Ampere list pages. */
EXPORT int nvmlDeviceGetRetiredPages(sim_device device, int cause, unsigned *count, uint64_t *addresses) {
    unsigned slot, pages[2];
    int code = sim_enter(device, "GetRetiredPages", &slot);
    if (code != SIM_OK) return code;
    if (count == NULL || cause < 0 || cause > 1) return SIM_INVALID_ARGUMENT;
    code = sim_read_numbers(slot, "retired.pages", pages, 2);
    if (code != SIM_OK) return code;
    unsigned room = addresses == NULL ? 0 : *count;
    *count = pages[cause];
    if (*count > room) return SIM_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++) addresses[i] = 0x10000ull * (i + 1);
    return SIM_OK;
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(sim_device device, unsigned *pending) {
    return sim_answer_u32(device, "GetRetiredPagesPendingStatus", "retired.pending", pending);
}

struct repair_status {
    unsigned version, channel_pending, tpc_pending;
};

EXPORT int nvmlDeviceGetRepairStatus(sim_device device, struct repair_status *status) {
    unsigned slot, pair[2];
    int code = sim_enter(device, "GetRepairStatus", &slot);
    if (code != SIM_OK) return code;
    if (status == NULL) return SIM_INVALID_ARGUMENT;
    if (status->version != 0x100000C) return SIM_VERSION_MISMATCH;
    code = sim_read_numbers(slot, "repair.pending", pair, 2);
    if (code != SIM_OK) return code;
    status->channel_pending = pair[0];
    status->tpc_pending = pair[1];
    return SIM_OK;
}

struct unrepairable_memory {
    unsigned version, unrepairable;
};

EXPORT int nvmlDeviceGetUnrepairableMemoryFlag_v1(sim_device device, struct unrepairable_memory *flag) {
    unsigned slot;
    int code = sim_enter(device, "GetUnrepairableMemoryFlag", &slot);
    if (code != SIM_OK) return code;
    if (flag == NULL) return SIM_INVALID_ARGUMENT;
    if (flag->version != 0x1000008) return SIM_VERSION_MISMATCH;
    return sim_read_u32(slot, "memory.unrepairable", &flag->unrepairable);
}
