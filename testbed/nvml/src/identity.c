/* What a board is: names, numbers, places, modes. */
#include "sim.h"

#include <stdio.h>
#include <string.h>

#define TEXT_CALL(symbol, call, key) \
    EXPORT int symbol(sim_device device, char *text, unsigned size) { \
        return sim_answer_text(device, call, key, text, size); \
    }
#define U32_CALL(symbol, call, key) \
    EXPORT int symbol(sim_device device, unsigned *value) { return sim_answer_u32(device, call, key, value); }

TEXT_CALL(nvmlDeviceGetName, "GetName", "name")
TEXT_CALL(nvmlDeviceGetUUID, "GetUUID", "uuid")
TEXT_CALL(nvmlDeviceGetSerial, "GetSerial", "serial")
TEXT_CALL(nvmlDeviceGetBoardPartNumber, "GetBoardPartNumber", "board.part_number")
TEXT_CALL(nvmlDeviceGetInforomImageVersion, "GetInforomImageVersion", "inforom.image")
TEXT_CALL(nvmlDeviceGetVbiosVersion, "GetVbiosVersion", "vbios")
U32_CALL(nvmlDeviceGetMinorNumber, "GetMinorNumber", "minor")
U32_CALL(nvmlDeviceGetBoardId, "GetBoardId", "board.id")
U32_CALL(nvmlDeviceGetModuleId, "GetModuleId", "module")
U32_CALL(nvmlDeviceGetArchitecture, "GetArchitecture", "architecture")
U32_CALL(nvmlDeviceGetBrand, "GetBrand", "brand")
U32_CALL(nvmlDeviceGetPersistenceMode, "GetPersistenceMode", "persistence_mode")
U32_CALL(nvmlDeviceGetComputeMode, "GetComputeMode", "compute_mode")
U32_CALL(nvmlDeviceGetMaxMigDeviceCount, "GetMaxMigDeviceCount", "mig.max_devices")

EXPORT int nvmlDeviceGetInforomVersion(sim_device device, int object, char *text, unsigned size) {
    static const char *const keys[] = {"inforom.oem", "inforom.ecc", "inforom.power"};
    if (object < 0 || object > 2) return SIM_INVALID_ARGUMENT;
    return sim_answer_text(device, "GetInforomVersion", keys[object], text, size);
}

EXPORT int nvmlDeviceGetIndex(sim_device device, unsigned *index) {
    const unsigned *listed;
    unsigned slot;
    int code = sim_enter(device, "GetIndex", &slot);
    if (code != SIM_OK) return code;
    unsigned count = sim_listed(&listed);
    for (unsigned i = 0; i < count && index != NULL; i++) {
        if (listed[i] != slot) continue;
        *index = i;
        return SIM_OK;
    }
    return SIM_INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(sim_device device, int *major, int *minor) {
    unsigned pair[2];
    int code = sim_answer_numbers(device, "GetCudaComputeCapability", "compute_capability", pair, 2);
    if (code != SIM_OK) return code;
    if (major == NULL || minor == NULL) return SIM_INVALID_ARGUMENT;
    *major = (int)pair[0];
    *minor = (int)pair[1];
    return SIM_OK;
}

static int answer_pair(sim_device device, const char *call, const char *key, unsigned *current, unsigned *pending) {
    unsigned pair[2];
    int code = sim_answer_numbers(device, call, key, pair, 2);
    if (code != SIM_OK) return code;
    if (current == NULL || pending == NULL) return SIM_INVALID_ARGUMENT;
    *current = pair[0];
    *pending = pair[1];
    return SIM_OK;
}

EXPORT int nvmlDeviceGetMigMode(sim_device device, unsigned *current, unsigned *pending) {
    return answer_pair(device, "GetMigMode", "mig.mode", current, pending);
}

EXPORT int nvmlDeviceGetEccMode(sim_device device, unsigned *current, unsigned *pending) {
    return answer_pair(device, "GetEccMode", "ecc.mode", current, pending);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(sim_device device, unsigned *is_mig) {
    unsigned slot;
    int code = sim_enter(device, "IsMigDeviceHandle", &slot);
    if (code != SIM_OK) return code;
    if (is_mig == NULL) return SIM_INVALID_ARGUMENT;
    *is_mig = 0;
    return SIM_OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(sim_device device, unsigned index, sim_device *mig) {
    unsigned slot;
    (void)index;
    (void)mig;
    int code = sim_enter(device, "GetMigDeviceHandleByIndex", &slot);
    return code == SIM_OK ? SIM_NOT_FOUND : code;
}

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

EXPORT int nvmlDeviceGetPciInfo_v3(sim_device device, struct pci_info *info) {
    char text[SIM_TEXT_BYTES];
    struct pci_info found = {0};
    unsigned slot;
    int code = sim_enter(device, "GetPciInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    code = sim_state_text(slot, "pci.bus_id", text, sizeof text);
    if (code != SIM_OK) return code;
    if (sscanf(text, "%x:%x:%x", &found.domain, &found.bus, &found.device) != 3) return SIM_UNKNOWN;
    snprintf(found.bus_id, sizeof found.bus_id, "%08X:%02X:%02X.0", found.domain, found.bus & 0xFF,
             found.device & 0xFF);
    snprintf(found.bus_id_legacy, sizeof found.bus_id_legacy, "%04X:%02X:%02X.0", found.domain & 0xFFFF,
             found.bus & 0xFF, found.device & 0xFF);
    sim_read_u32(slot, "pci.device_id", &found.device_id);
    sim_read_u32(slot, "pci.subsystem_id", &found.subsystem_id);
    *info = found;
    return SIM_OK;
}

EXPORT int nvmlDeviceGetPciInfo_v2(sim_device device, struct pci_info *info) {
    return nvmlDeviceGetPciInfo_v3(device, info);
}

struct platform_info {
    unsigned version;
    char ib_guid[16], chassis_serial[16];
    unsigned char slot_number, tray_index, host_id, peer_type, module_id;
};

EXPORT int nvmlDeviceGetPlatformInfo(sim_device device, struct platform_info *info) {
    unsigned slot, places[3], module = 0;
    char serial[SIM_TEXT_BYTES];
    int code = sim_enter(device, "GetPlatformInfo", &slot);
    if (code != SIM_OK) return code;
    if (info == NULL) return SIM_INVALID_ARGUMENT;
    if (info->version != 0x200002C) return SIM_VERSION_MISMATCH;
    code = sim_read_numbers(slot, "platform.slot_tray_host", places, 3);
    if (code != SIM_OK) return code;
    struct platform_info found = {.version = info->version, .peer_type = 1};
    if (sim_state_text(slot, "platform.chassis_serial", serial, sizeof serial) == SIM_OK)
        memcpy(found.chassis_serial, serial, strnlen(serial, sizeof found.chassis_serial));
    sim_read_u32(slot, "module", &module);
    found.slot_number = (unsigned char)places[0];
    found.tray_index = (unsigned char)places[1];
    found.host_id = (unsigned char)places[2];
    found.module_id = (unsigned char)module;
    memcpy(info, &found, sizeof found);
    return SIM_OK;
}
