/* Field values: each entry is answered by itself, with its own return code.
 *
 * A line `field.ID` or `field.ID.SCOPE` (value) and `.error`, `.type` after it decide first; else the id is
 * read from the value that the plain call would answer.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { UINT = 1, ULONGLONG = 3, INT = 5 };

struct field_value {
    unsigned field, scope;
    int64_t timestamp_us, latency_us;
    int value_type, code;
    uint64_t value;
};

struct field {
    unsigned id;
    int type;
    const char *key;
};

static const struct field board_fields[] = {
    {3, ULONGLONG, "ecc.volatile.corrected"},
    {4, ULONGLONG, "ecc.volatile.uncorrected"},
    {5, ULONGLONG, "ecc.aggregate.corrected"},
    {6, ULONGLONG, "ecc.aggregate.uncorrected"},
    {74, ULONGLONG, "violation.0.ns"},
    {75, ULONGLONG, "violation.1.ns"},
    {82, UINT, "temperature.memory"},
    {83, ULONGLONG, "energy_mj"},
    {91, UINT, "nvlink.count"},
    {94, UINT, "pcie.replays"},
    {142, UINT, "remap.corrected"},
    {143, UINT, "remap.uncorrected"},
    {144, UINT, "remap.pending"},
    {145, UINT, "remap.failure"},
    {147, UINT, "nvlink.switch_connected"},
    {170, UINT, "c2c.count"},
    {171, UINT, "c2c.status"},
    {173, UINT, "pcie.correctable"},
    {174, UINT, "pcie.naks_received"},
    {175, UINT, "pcie.receiver_errors"},
    {176, UINT, "pcie.bad_tlp"},
    {177, UINT, "pcie.naks_sent"},
    {178, UINT, "pcie.bad_dllp"},
    {179, UINT, "pcie.non_fatal"},
    {180, UINT, "pcie.fatal"},
    {181, UINT, "pcie.unsupported_requests"},
    {182, UINT, "pcie.lcrc"},
    {183, UINT, "pcie.lane_errors"},
    {185, UINT, "power.usage_mw"},
    {186, UINT, "power.usage_mw"},
    {193, INT, "temperature.tlimit.shutdown"},
    {194, INT, "temperature.tlimit.slowdown"},
    {195, INT, "temperature.tlimit.memory_max"},
    {196, INT, "temperature.tlimit.gpu_max"},
    {230, UINT, "recovery.action"},
};

static const struct field link_fields[] = { /* scope = link */
    {161, ULONGLONG, "replay"},
    {162, ULONGLONG, "recovery"},
    {163, ULONGLONG, "crc_flit"},
    {164, UINT, "speed_mbps"},
    {165, UINT, "state"},
    {166, UINT, "version"},
    {206, ULONGLONG, "malformed_packets"},
    {207, ULONGLONG, "buffer_overruns"},
    {208, ULONGLONG, "receive_errors"},
    {209, ULONGLONG, "receive_remote_errors"},
    {211, ULONGLONG, "integrity_errors"},
    {212, ULONGLONG, "transmit_discards"},
    {213, ULONGLONG, "recoveries_successful"},
    {214, ULONGLONG, "recoveries_failed"},
    {215, ULONGLONG, "recovery_events"},
    {219, ULONGLONG, "effective_errors"},
    {220, ULONGLONG, "effective_ber"},
    {221, ULONGLONG, "symbol_errors"},
    {222, ULONGLONG, "symbol_ber"},
};

struct counter_block { /* ids of one counter for links 0-5, their total, and links 6-11 */
    unsigned first, total, second;
    const char *name;
};
static const struct counter_block counter_blocks[] = {
    {32, 38, 96, "crc_flit"},
    {39, 45, 102, "crc_data"},
    {46, 52, 108, "replay"},
    {53, 59, 114, "recovery"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct field *find_field(const struct field *fields, size_t count, unsigned id) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].id == id) return &fields[i];
    return NULL;
}

static int link_total(unsigned slot, const char *name, uint64_t *total) {
    unsigned count;
    uint64_t one;
    int code = sim_read_u32(slot, "nvlink.count", &count);
    *total = 0;
    for (unsigned link = 0; code == SIM_OK && link < count; link++) {
        code = sim_link_number(slot, link, name, &one);
        if (code == SIM_OK) *total += one;
    }
    return code;
}

static int read_counter_block(unsigned slot, struct field_value *entry) {
    for (size_t i = 0; i < COUNT(counter_blocks); i++) {
        const struct counter_block *block = &counter_blocks[i];
        unsigned id = entry->field;
        if (id == block->total) return link_total(slot, block->name, &entry->value);
        if (id >= block->first && id < block->total)
            return sim_link_number(slot, id - block->first, block->name, &entry->value);
        if (id >= block->second && id < block->second + 6)
            return sim_link_number(slot, id - block->second + 6, block->name, &entry->value);
    }
    return SIM_NOT_SUPPORTED;
}

static int read_link_field(unsigned slot, const struct field *field, struct field_value *entry) {
    unsigned count;
    int code = sim_read_u32(slot, "nvlink.count", &count);
    if (code != SIM_OK) return code;
    if (entry->scope >= count) return SIM_INVALID_ARGUMENT;
    entry->value_type = field->type;
    return sim_link_number(slot, entry->scope, field->key, &entry->value);
}

static int read_known(unsigned slot, struct field_value *entry) {
    const struct field *field = find_field(board_fields, COUNT(board_fields), entry->field);
    if (field != NULL) {
        entry->value_type = field->type;
        return sim_state_number(slot, field->key, &entry->value);
    }
    field = find_field(link_fields, COUNT(link_fields), entry->field);
    return field != NULL ? read_link_field(slot, field, entry) : read_counter_block(slot, entry);
}

/* What the state says of this very id: its error, else its value; 0 where it says nothing. */
static int read_override(unsigned slot, const char *key, struct field_value *entry) {
    char whole[SIM_KEY_BYTES];
    unsigned number;
    snprintf(whole, sizeof whole, "%s.error", key);
    if (sim_read_u32(slot, whole, &number) == SIM_OK && number != 0) {
        entry->code = (int)number;
        return 1;
    }
    if (sim_state_number(slot, key, &entry->value) != SIM_OK) return 0;
    entry->code = SIM_OK;
    snprintf(whole, sizeof whole, "%s.type", key);
    if (sim_read_u32(slot, whole, &number) == SIM_OK) entry->value_type = (int)number;
    return 1;
}

/* The library fills only the member that the type names; the other bytes of the union are whatever was there. */
static void spoil_unused_bytes(struct field_value *entry) {
    if (entry->value_type == UINT || entry->value_type == INT)
        entry->value = (entry->value & 0xFFFFFFFFu) | 0xA5A5A5A500000000u;
}

static void answer_entry(unsigned slot, struct field_value *entry) {
    char key[64], scoped[64];
    entry->value_type = ULONGLONG;
    entry->code = read_known(slot, entry);
    snprintf(key, sizeof key, "field.%u", entry->field);
    snprintf(scoped, sizeof scoped, "field.%u.%u", entry->field, entry->scope);
    if (!read_override(slot, scoped, entry)) read_override(slot, key, entry);
    spoil_unused_bytes(entry);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

EXPORT int nvmlDeviceGetFieldValues(sim_device device, int count, struct field_value *entries) {
    unsigned slot;
    int code = sim_enter(device, "GetFieldValues", &slot);
    if (code != SIM_OK) return code;
    if (entries == NULL || count <= 0) return SIM_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        entries[i].timestamp_us = now_us();
        entries[i].latency_us = 0;
        answer_entry(slot, &entries[i]);
    }
    return SIM_OK;
}
