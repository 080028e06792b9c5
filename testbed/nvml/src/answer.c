/* Calls that answer one value of one GPU, straight from the state. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sim_read_u32(unsigned slot, const char *key, unsigned *value) {
    uint64_t number;
    int code = sim_state_number(slot, key, &number);
    if (code == SIM_OK) *value = (unsigned)number;
    return code;
}

/* Several numbers of one line, separated by blanks; all of them or none. */
int sim_read_numbers(unsigned slot, const char *key, unsigned *values, int count) {
    char text[SIM_TEXT_BYTES];
    unsigned found[8];
    int code = sim_state_text(slot, key, text, sizeof text);
    if (code != SIM_OK) return code;
    char *at = text;
    for (int i = 0; i < count; i++) {
        char *end;
        found[i] = (unsigned)strtoul(at, &end, 0);
        if (end == at) return SIM_UNKNOWN;
        at = end;
    }
    memcpy(values, found, (size_t)count * sizeof *values);
    return SIM_OK;
}

int sim_copy_text(const char *from, char *text, unsigned size) {
    if (strlen(from) >= size) return SIM_INSUFFICIENT_SIZE;
    strcpy(text, from);
    return SIM_OK;
}

int sim_answer_u32(sim_device device, const char *call, const char *key, unsigned *value) {
    unsigned slot;
    int code = sim_enter(device, call, &slot);
    if (code != SIM_OK) return code;
    return value == NULL ? SIM_INVALID_ARGUMENT : sim_read_u32(slot, key, value);
}

int sim_answer_u64(sim_device device, const char *call, const char *key, uint64_t *value) {
    unsigned slot;
    int code = sim_enter(device, call, &slot);
    if (code != SIM_OK) return code;
    return value == NULL ? SIM_INVALID_ARGUMENT : sim_state_number(slot, key, value);
}

int sim_answer_text(sim_device device, const char *call, const char *key, char *text, unsigned size) {
    char found[SIM_TEXT_BYTES];
    unsigned slot;
    int code = sim_enter(device, call, &slot);
    if (code != SIM_OK) return code;
    if (text == NULL) return SIM_INVALID_ARGUMENT;
    code = sim_state_text(slot, key, found, sizeof found);
    return code == SIM_OK ? sim_copy_text(found, text, size) : code;
}

int sim_answer_numbers(sim_device device, const char *call, const char *key, unsigned *values, int count) {
    unsigned slot;
    int code = sim_enter(device, call, &slot);
    return code == SIM_OK ? sim_read_numbers(slot, key, values, count) : code;
}
