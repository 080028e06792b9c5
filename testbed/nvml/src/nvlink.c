/* NVLinks and the NVSwitch fabric. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sim_link_number(unsigned slot, unsigned link, const char *name, uint64_t *value) {
    char key[SIM_KEY_BYTES];
    snprintf(key, sizeof key, "nvlink.%u.%s", link, name);
    int code = sim_state_number(slot, key, value);
    if (code != SIM_NOT_SUPPORTED) return code;
    snprintf(key, sizeof key, "nvlink.%s", name);
    return sim_state_number(slot, key, value);
}

/* A link beyond the board's count is an invalid argument; a board without links does not support the call. */
static int enter_link(sim_device device, const char *call, unsigned link, unsigned *slot) {
    unsigned count;
    int code = sim_enter(device, call, slot);
    if (code != SIM_OK) return code;
    code = sim_read_u32(*slot, "nvlink.count", &count);
    if (code != SIM_OK) return code;
    return link < count ? SIM_OK : SIM_INVALID_ARGUMENT;
}

static int answer_link(sim_device device, const char *call, unsigned link, const char *name, unsigned *value) {
    uint64_t number;
    unsigned slot;
    int code = enter_link(device, call, link, &slot);
    if (code != SIM_OK) return code;
    if (value == NULL) return SIM_INVALID_ARGUMENT;
    code = sim_link_number(slot, link, name, &number);
    if (code == SIM_OK) *value = (unsigned)number;
    return code;
}

EXPORT int nvmlDeviceGetNvLinkState(sim_device device, unsigned link, unsigned *state) {
    return answer_link(device, "GetNvLinkState", link, "state", state);
}

EXPORT int nvmlDeviceGetNvLinkVersion(sim_device device, unsigned link, unsigned *version) {
    unsigned state;
    int code = answer_link(device, "GetNvLinkVersion", link, "version", version);
    if (code == SIM_OK && answer_link(device, "GetNvLinkVersion", link, "state", &state) == SIM_OK && state == 0)
        *version = 0; /* an inactive link has no version */
    return code;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(sim_device device, unsigned link, unsigned *type) {
    return answer_link(device, "GetNvLinkRemoteDeviceType", link, "remote_type", type);
}

EXPORT int nvmlDeviceGetNvLinkErrorCounter(sim_device device, unsigned link, int counter, uint64_t *count) {
    static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data", "ecc"};
    unsigned slot;
    int code = enter_link(device, "GetNvLinkErrorCounter", link, &slot);
    if (code != SIM_OK) return code;
    if (count == NULL || counter < 0 || counter > 4) return SIM_INVALID_ARGUMENT;
    return sim_link_number(slot, link, names[counter], count);
}

struct remote_pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

/* The far side here is always a switch, which names itself by all ones. */
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(sim_device device, unsigned link, struct remote_pci_info *info) {
    unsigned slot;
    int code = enter_link(device, "GetNvLinkRemotePciInfo", link, &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    *info = (struct remote_pci_info){
        .bus_id_legacy = "FFFF:FF:FF.0",
        .domain = 0xFFFFFFFF,
        .bus = 0xFF,
        .device = 0xFF,
        .device_id = 0xFFFFFFFF,
        .subsystem_id = 0xFFFFFFFF,
        .bus_id = "FFFFFFFF:FF:FF.0",
    };
    return SIM_OK;
}

struct fabric_info { /* the part that all versions share, without their leading version */
    unsigned char cluster[16];
    unsigned status, clique, state, health_mask, health_summary;
};

static void read_cluster(unsigned slot, unsigned char cluster[16]) {
    char text[SIM_TEXT_BYTES];
    int digits = 0;
    memset(cluster, 0, 16);
    if (sim_state_text(slot, "fabric.cluster", text, sizeof text) != SIM_OK) return;
    for (const char *at = text; *at != '\0' && digits < 32; at++) {
        const char digit[2] = {*at, '\0'};
        if (*at != '-') cluster[digits / 2] |= (unsigned char)(strtoul(digit, NULL, 16) << (digits % 2 ? 0 : 4));
        digits += *at != '-';
    }
}

static int read_fabric(unsigned slot, struct fabric_info *info) {
    memset(info, 0, sizeof *info);
    int code = sim_read_u32(slot, "fabric.state", &info->state);
    if (code != SIM_OK) return code;
    sim_read_u32(slot, "fabric.status", &info->status);
    sim_read_u32(slot, "fabric.clique", &info->clique);
    sim_read_u32(slot, "fabric.health_mask", &info->health_mask);
    sim_read_u32(slot, "fabric.health_summary", &info->health_summary);
    read_cluster(slot, info->cluster);
    return SIM_OK;
}

struct fabric_v1 {
    unsigned char cluster[16];
    unsigned status, clique, state;
};
struct fabric_v3 { /* v2 ends before health_summary */
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique, state, health_mask, health_summary;
};

EXPORT int nvmlDeviceGetGpuFabricInfo(sim_device device, struct fabric_v1 *info) {
    struct fabric_info found;
    unsigned slot;
    int code = sim_enter(device, "GetGpuFabricInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    code = read_fabric(slot, &found);
    if (code == SIM_OK) memcpy(info, &found, sizeof *info);
    return code;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(sim_device device, struct fabric_v3 *info) {
    struct fabric_info found;
    unsigned slot;
    int code = sim_enter(device, "GetGpuFabricInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    if (info->version != 0x2000024 && info->version != 0x3000028) return SIM_VERSION_MISMATCH;
    code = read_fabric(slot, &found);
    if (code != SIM_OK) return code;
    size_t size = info->version == 0x2000024 ? 32 : 36; /* bytes after the version */
    memcpy((char *)info + sizeof info->version, &found, size);
    return SIM_OK;
}
