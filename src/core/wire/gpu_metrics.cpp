#include "core/wire/gpu_metrics.h"

#include <fmt/format.h>

namespace billow::wire {

std::string gpu_labels(const NodeGpu& gpu, std::string_view node) {
  return fmt::format("gpu=\"{0}\",{1},device=\"nvidia{0}\",{2},{3}", gpu.index,
                     metric_label("UUID", gpu.uuid), metric_label("modelName", gpu.model),
                     metric_label("Hostname", node));
}

void add_gpus(Exposition& out,
              std::string_view node,
              const std::vector<NodeGpu>& gpus,
              const wire::agent_v1::Heartbeat& beat) {
  for (const auto& r : beat.gpus) {
    const auto index = static_cast<std::size_t>(r.gpu);
    if (index >= gpus.size())
      continue;
    const std::string labels = gpu_labels(gpus[index], node);
    const auto known = [&](const char* name, const char* type, const char* help, std::int64_t value,
                           double factor = 1) {
      if (value >= 0)
        out.add(name, type, help, labels, static_cast<double>(value) * factor);
    };
    known("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", r.util_pct);
    known("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", r.mem_util_pct);
    out.add("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", labels,
            static_cast<double>(r.mem_used_mib));
    out.add("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", labels,
            static_cast<double>(gpus[index].mem_mib - r.mem_used_mib));
    out.add("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", labels,
            static_cast<double>(r.power_mw) / 1000);
    out.add("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", labels, r.temperature_c);
    known("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", r.sm_clock_mhz);
    known("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter",
          "Total energy consumption since boot (in mJ).", r.energy_mj);
    known("DCGM_FI_PROF_SM_ACTIVE", "gauge",
          "Ratio of cycles an SM has at least one warp assigned.", r.sm_active_permille, 0.001);
    known("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Rate of data sent over PCIe (in B/s).",
          r.pcie_tx_kib_s, 1024);
    known("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Rate of data received over PCIe (in B/s).",
          r.pcie_rx_kib_s, 1024);
    known("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "Rate of data sent over NVLink (in B/s).",
          r.nvlink_tx_kib_s, 1024);
    known("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "Rate of data received over NVLink (in B/s).",
          r.nvlink_rx_kib_s, 1024);
    known("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter",
          "Total number of single-bit volatile ECC errors.", r.ecc_corrected);
    known("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter",
          "Total number of double-bit volatile ECC errors.", r.ecc_uncorrected);
    known("billow_gpu_link_errors_total", "counter", "NVLink errors over all links.",
          r.link_errors);
    out.add("billow_gpu_xid_errors_total", "counter", "XID errors since the agent started.", labels,
            static_cast<double>(r.xids));
    out.add("billow_gpu_health_score", "gauge",
            "Health of the GPU, 0 to 100; a GPU below 50 is drained.", labels, r.score);
  }
}

}  // namespace billow::wire
