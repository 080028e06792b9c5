/* PCIe, clocks, temperature, power, utilization, processes. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U32_CALL(symbol, call, key) \
    EXPORT int symbol(sim_device device, unsigned *value) { return sim_answer_u32(device, call, key, value); }

U32_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "GetCurrPcieLinkGeneration", "pcie.generation")
U32_CALL(nvmlDeviceGetMaxPcieLinkGeneration, "GetMaxPcieLinkGeneration", "pcie.max_generation")
U32_CALL(nvmlDeviceGetGpuMaxPcieLinkGeneration, "GetGpuMaxPcieLinkGeneration", "pcie.gpu_max_generation")
U32_CALL(nvmlDeviceGetCurrPcieLinkWidth, "GetCurrPcieLinkWidth", "pcie.width")
U32_CALL(nvmlDeviceGetMaxPcieLinkWidth, "GetMaxPcieLinkWidth", "pcie.max_width")
U32_CALL(nvmlDeviceGetPcieReplayCounter, "GetPcieReplayCounter", "pcie.replays")
U32_CALL(nvmlDeviceGetPowerUsage, "GetPowerUsage", "power.usage_mw")
U32_CALL(nvmlDeviceGetEnforcedPowerLimit, "GetEnforcedPowerLimit", "power.limit_mw")
U32_CALL(nvmlDeviceGetPowerManagementLimit, "GetPowerManagementLimit", "power.limit_mw")
U32_CALL(nvmlDeviceGetPowerManagementDefaultLimit, "GetPowerManagementDefaultLimit", "power.default_limit_mw")
U32_CALL(nvmlDeviceGetPerformanceState, "GetPerformanceState", "performance_state")

EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(sim_device device, unsigned *lowest, unsigned *highest) {
    unsigned pair[2];
    int code = sim_answer_numbers(device, "GetPowerManagementLimitConstraints", "power.limits_mw", pair, 2);
    if (code != SIM_OK) return code;
    if (lowest == NULL || highest == NULL) return SIM_INVALID_ARGUMENT;
    *lowest = pair[0];
    *highest = pair[1];
    return SIM_OK;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(sim_device device, uint64_t *energy_mj) {
    return sim_answer_u64(device, "GetTotalEnergyConsumption", "energy_mj", energy_mj);
}

static const char *clock_key(int clock, int highest) {
    static const char *const now[] = {"clock.graphics", "clock.sm", "clock.memory", "clock.video"};
    static const char *const most[] = {"clock.max.graphics", "clock.max.sm", "clock.max.memory", "clock.max.video"};
    if (clock < 0 || clock > 3) return NULL;
    return highest ? most[clock] : now[clock];
}

EXPORT int nvmlDeviceGetClockInfo(sim_device device, int clock, unsigned *mhz) {
    const char *key = clock_key(clock, 0);
    return key == NULL ? SIM_INVALID_ARGUMENT : sim_answer_u32(device, "GetClockInfo", key, mhz);
}

EXPORT int nvmlDeviceGetMaxClockInfo(sim_device device, int clock, unsigned *mhz) {
    const char *key = clock_key(clock, 1);
    return key == NULL ? SIM_INVALID_ARGUMENT : sim_answer_u32(device, "GetMaxClockInfo", key, mhz);
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(sim_device device, uint64_t *reasons) {
    return sim_answer_u64(device, "GetCurrentClocksEventReasons", "clock.event_reasons", reasons);
}

EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(sim_device device, uint64_t *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

EXPORT int nvmlDeviceGetTemperature(sim_device device, int sensor, unsigned *celsius) {
    if (sensor != 0) return SIM_INVALID_ARGUMENT;
    return sim_answer_u32(device, "GetTemperature", "temperature.gpu", celsius);
}

struct temperature_v1 {
    unsigned version;
    int sensor, celsius;
};

EXPORT int nvmlDeviceGetTemperatureV(sim_device device, struct temperature_v1 *reading) {
    unsigned celsius;
    if (reading == NULL) return SIM_INVALID_ARGUMENT;
    if (reading->version != 0x100000C) return SIM_VERSION_MISMATCH;
    int code = nvmlDeviceGetTemperature(device, reading->sensor, &celsius);
    if (code == SIM_OK) reading->celsius = (int)celsius;
    return code;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(sim_device device, int threshold, unsigned *celsius) {
    static const char *const keys[] = {"temperature.shutdown", "temperature.slowdown", "temperature.memory_max",
                                       "temperature.gpu_max"};
    if (threshold < 0 || threshold > 3) return SIM_INVALID_ARGUMENT;
    return sim_answer_u32(device, "GetTemperatureThreshold", keys[threshold], celsius);
}

struct margin_v1 {
    unsigned version;
    int celsius;
};

EXPORT int nvmlDeviceGetMarginTemperature(sim_device device, struct margin_v1 *margin) {
    if (margin == NULL) return SIM_INVALID_ARGUMENT;
    if (margin->version != 0x1000008) return SIM_VERSION_MISMATCH;
    return sim_answer_u32(device, "GetMarginTemperature", "temperature.margin", (unsigned *)&margin->celsius);
}

struct violation_time {
    uint64_t reference_us, violation_ns;
};

EXPORT int nvmlDeviceGetViolationStatus(sim_device device, int policy, struct violation_time *time) {
    char key[SIM_KEY_BYTES];
    struct violation_time found;
    unsigned slot;
    int code = sim_enter(device, "GetViolationStatus", &slot);
    if (code != SIM_OK) return code;
    if (time == NULL || policy < 0) return SIM_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "violation.%d.ns", policy);
    code = sim_state_number(slot, key, &found.violation_ns);
    if (code != SIM_OK) return code;
    code = sim_state_number(slot, "violation.reference_us", &found.reference_us);
    if (code == SIM_OK) *time = found;
    return code;
}

EXPORT int nvmlDeviceGetUtilizationRates(sim_device device, unsigned percent[2]) {
    return sim_answer_numbers(device, "GetUtilizationRates", "utilization", percent, 2);
}

struct process {
    unsigned pid;
    uint64_t memory_bytes;
    unsigned gpu_instance, compute_instance;
};

/* `processes = PID:BYTES PID:BYTES ...`; returns how many there are, filling at most `room`. */
static unsigned read_processes(unsigned slot, struct process *processes, unsigned room) {
    char text[SIM_TEXT_BYTES], *rest = text, *word;
    unsigned count = 0;
    if (sim_state_text(slot, "processes", text, sizeof text) != SIM_OK) return 0;
    while ((word = strsep(&rest, " ")) != NULL) {
        char *colon = strchr(word, ':');
        if (colon == NULL) continue;
        if (count < room)
            processes[count] = (struct process){(unsigned)strtoul(word, NULL, 10), strtoull(colon + 1, NULL, 0),
                                                0xFFFFFFFF, 0xFFFFFFFF};
        count++;
    }
    return count;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(sim_device device, unsigned *count, struct process *processes) {
    unsigned slot;
    int code = sim_enter(device, "GetComputeRunningProcesses", &slot);
    if (code != SIM_OK) return code;
    if (count == NULL) return SIM_INVALID_ARGUMENT;
    unsigned room = processes == NULL ? 0 : *count;
    *count = read_processes(slot, processes, room);
    return *count <= room ? SIM_OK : SIM_INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(sim_device device, unsigned *count, struct process *processes) {
    unsigned slot;
    (void)processes;
    int code = sim_enter(device, "GetGraphicsRunningProcesses", &slot);
    if (code != SIM_OK) return code;
    if (count == NULL) return SIM_INVALID_ARGUMENT;
    *count = 0;
    return SIM_OK;
}
