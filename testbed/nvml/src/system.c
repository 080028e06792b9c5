/* The node: versions, error texts, and how a caller comes to a handle. */
#include "sim.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int node_text(const char *call, const char *key, char *text, unsigned size) {
    char found[SIM_TEXT_BYTES];
    int code = sim_enter_node(call);
    if (code != SIM_OK) return code;
    if (text == NULL) return SIM_INVALID_ARGUMENT;
    code = sim_state_text(SIM_NODE, key, found, sizeof found);
    return code == SIM_OK ? sim_copy_text(found, text, size) : code;
}

EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    return node_text("SystemGetDriverVersion", "driver.version", text, size);
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    return node_text("SystemGetNVMLVersion", "nvml.version", text, size);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    int code = sim_enter_node("SystemGetCudaDriverVersion");
    if (code != SIM_OK) return code;
    return version == NULL ? SIM_INVALID_ARGUMENT : sim_read_u32(SIM_NODE, "cuda.version", (unsigned *)version);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "Operating system blocks the call", "Driver/library version mismatch", "In use by another client",
        "Out of memory", "No data", "ECC unavailable on vGPU", "Out of critical resources",
        "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready", "No GPU found",
        "Invalid state",
    };
    if (code >= 0 && (size_t)code < sizeof texts / sizeof *texts) return texts[code];
    return "Unknown Error";
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    const unsigned *listed;
    int code = sim_enter_node("GetCount");
    if (code != SIM_OK) return code;
    if (count == NULL) return SIM_INVALID_ARGUMENT;
    *count = sim_listed(&listed);
    return SIM_OK;
}

static int give_handle(unsigned slot, const char *call, sim_device *device) {
    int code = sim_enter_slot(slot, call);
    if (code == SIM_OK) *device = sim_handle(slot);
    return code;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, sim_device *device) {
    const unsigned *listed;
    int code = sim_enter_node("GetHandleByIndex");
    if (code != SIM_OK) return code;
    if (device == NULL || index >= sim_listed(&listed)) return SIM_INVALID_ARGUMENT;
    return give_handle(listed[index], "GetHandleByIndex", device);
}

static int same_text(const char *have, const char *wanted) { return strcmp(have, wanted) == 0; }

/* Bus ids compare by value: four- and eight-digit domains and either case name the same place. */
static int same_bus_id(const char *have, const char *wanted) {
    unsigned long domain[2], bus[2], device[2];
    char rest[2][8];
    if (sscanf(have, "%lx:%lx:%lx.%7s", &domain[0], &bus[0], &device[0], rest[0]) != 4) return 0;
    if (sscanf(wanted, "%lx:%lx:%lx.%7s", &domain[1], &bus[1], &device[1], rest[1]) != 4) return 0;
    return domain[0] == domain[1] && bus[0] == bus[1] && device[0] == device[1] && same_text(rest[0], rest[1]);
}

static int find_handle(const char *call, const char *key, const char *wanted,
                       int (*same)(const char *, const char *), sim_device *device) {
    const unsigned *listed;
    char have[SIM_TEXT_BYTES];
    int code = sim_enter_node(call);
    if (code != SIM_OK) return code;
    if (wanted == NULL || device == NULL) return SIM_INVALID_ARGUMENT;
    unsigned count = sim_listed(&listed);
    for (unsigned i = 0; i < count; i++)
        if (sim_state_text(listed[i], key, have, sizeof have) == SIM_OK && same(have, wanted))
            return give_handle(listed[i], call, device);
    return SIM_NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, sim_device *device) {
    return find_handle("GetHandleByUUID", "uuid", uuid, same_text, device);
}

EXPORT int nvmlDeviceGetHandleBySerial(const char *serial, sim_device *device) {
    return find_handle("GetHandleBySerial", "serial", serial, same_text, device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, sim_device *device) {
    return find_handle("GetHandleByPciBusId", "pci.bus_id", bus_id, same_bus_id, device);
}
