/* How GPUs lie to each other and to CPUs. PCIe only: NVLink does not show in these calls. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVEL_SAME = 0, LEVEL_NODE = 40, LEVEL_SYSTEM = 50 };

static unsigned level_between(unsigned a, unsigned b) {
    unsigned node_a = 0, node_b = 0;
    if (a == b) return LEVEL_SAME;
    sim_read_u32(a, "numa.cpu_node", &node_a);
    sim_read_u32(b, "numa.cpu_node", &node_b);
    return node_a == node_b ? LEVEL_NODE : LEVEL_SYSTEM;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(sim_device device, sim_device other, unsigned *level) {
    unsigned slot, other_slot;
    int code = sim_enter(device, "GetTopologyCommonAncestor", &slot);
    if (code == SIM_OK) code = sim_enter(other, "GetTopologyCommonAncestor", &other_slot);
    if (code != SIM_OK) return code;
    if (level == NULL) return SIM_INVALID_ARGUMENT;
    *level = level_between(slot, other_slot);
    return SIM_OK;
}

EXPORT int nvmlDeviceGetTopologyNearestGpus(sim_device device, unsigned level, unsigned *count,
                                            sim_device *devices) {
    const unsigned *listed;
    unsigned slot, found = 0;
    int code = sim_enter(device, "GetTopologyNearestGpus", &slot);
    if (code != SIM_OK) return code;
    if (count == NULL) return SIM_INVALID_ARGUMENT;
    unsigned total = sim_listed(&listed);
    for (unsigned i = 0; i < total; i++) {
        if (listed[i] == slot || level_between(slot, listed[i]) != level) continue;
        if (devices != NULL && found < *count) devices[found] = sim_handle(listed[i]);
        found++;
    }
    if (devices == NULL || found < *count) *count = found;
    return SIM_OK;
}

EXPORT int nvmlDeviceGetP2PStatus(sim_device device, sim_device other, int index, unsigned *status) {
    char key[SIM_KEY_BYTES];
    unsigned slot, other_slot;
    int code = sim_enter(device, "GetP2PStatus", &slot);
    if (code == SIM_OK) code = sim_enter(other, "GetP2PStatus", &other_slot);
    if (code != SIM_OK) return code;
    if (status == NULL || index < 0 || index > 5) return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "p2p.%u", other_slot);
    code = sim_read_u32(slot, key, status);
    return code == SIM_NOT_SUPPORTED ? sim_read_u32(slot, "p2p", status) : code;
}

/* `numa.cpus = WORD WORD ...`: 64-bit words, lowest CPUs first. */
EXPORT int nvmlDeviceGetCpuAffinity(sim_device device, unsigned words, unsigned long *mask) {
    char text[SIM_TEXT_BYTES];
    unsigned slot;
    int code = sim_enter(device, "GetCpuAffinity", &slot);
    if (code != SIM_OK) return code;
    if (mask == NULL || words == 0) return SIM_INVALID_ARGUMENT;
    code = sim_state_text(slot, "numa.cpus", text, sizeof text);
    if (code != SIM_OK) return code;
    char *at = text;
    for (unsigned i = 0; i < words; i++) mask[i] = strtoul(at, &at, 0);
    return SIM_OK;
}

EXPORT int nvmlDeviceGetNumaNodeId(sim_device device, int *node) {
    return sim_answer_u32(device, "GetNumaNodeId", "numa.gpu_node", (unsigned *)node);
}
