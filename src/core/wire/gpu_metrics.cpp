#include "core/wire/gpu_metrics.h"

#include <fmt/format.h>

namespace billow::wire {

namespace {

// The labels that dcgm-exporter adds to its own series.
std::string dcgm_labels(const NodeGpu& gpu,
                        std::string_view node,
                        const agent_v1::GpuReading& reading,
                        const std::string& driver) {
  std::string labels = gpu_labels(gpu, node);
  if (!reading.pci_bus_id.empty())
    labels += "," + metric_label("pci_bus_id", reading.pci_bus_id);
  if (!driver.empty())
    labels += "," + metric_label("DCGM_FI_DRIVER_VERSION", driver);
  return labels;
}

// The rest of dcgm-exporter's default set.
void add_details(Exposition& out, const std::string& labels, const agent_v1::GpuReading& r) {
  const auto known = [&](const char* name, const char* type, const char* help, std::int64_t value,
                         double factor = 1) {
    if (value >= 0)
      out.add(name, type, help, labels, static_cast<double>(value) * factor);
  };
  known("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).",
        r.reserved_mib);
  known("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", r.mem_temperature_c);
  known("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", r.mem_clock_mhz);
  known("DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", r.enc_pct);
  known("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", r.dec_pct);
  known("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.",
        r.pcie_replays);
  known("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter",
        "Number of remapped rows for correctable errors.", r.remapped_corrected);
  known("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter",
        "Number of remapped rows for uncorrectable errors.", r.remapped_uncorrected);
  known("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed.",
        r.remap_failed);
  known("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active.",
        r.engine_permille, 0.001);
  known("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.", r.tensor_permille, 0.001);
  known("DCGM_FI_PROF_DRAM_ACTIVE", "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        r.dram_permille, 0.001);
  if (r.nvlink_tx_kib_s >= 0 && r.nvlink_rx_kib_s >= 0)
    known("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge",
          "Rate of data over all NVLink lanes (in MiB/s).", r.nvlink_tx_kib_s + r.nvlink_rx_kib_s,
          1.0 / 1024);
}

}  // namespace

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
    const std::string own = gpu_labels(gpus[index], node);
    const std::string labels = dcgm_labels(gpus[index], node, r, beat.driver);
    // The usage of a card that does not answer is unknown.
    const auto measured = [&](const char* name, const char* help, double value) {
      if (!r.lost)
        out.add(name, "gauge", help, labels, value);
    };
    const auto known = [&](const char* name, const char* type, const char* help, std::int64_t value,
                           double factor = 1) {
      if (value >= 0)
        out.add(name, type, help, labels, static_cast<double>(value) * factor);
    };
    known("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", r.util_pct);
    known("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", r.mem_util_pct);
    measured("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).",
             static_cast<double>(r.mem_used_mib));
    measured("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).",
             static_cast<double>(gpus[index].mem_mib - r.mem_used_mib));
    measured("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).",
             static_cast<double>(r.power_mw) / 1000);
    measured("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", r.temperature_c);
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
    add_details(out, labels, r);
    out.add("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", labels,
            r.xid);
    if (r.link_errors >= 0)
      out.add("billow_gpu_link_errors_total", "counter", "NVLink errors over all links.", own,
              static_cast<double>(r.link_errors));
    out.add("billow_gpu_xid_errors_total", "counter", "XID errors since the agent started.", own,
            static_cast<double>(r.xids));
    out.add("billow_gpu_health_score", "gauge",
            "Health of the GPU, 0 to 100; a GPU below 50 is drained.", own, r.score);
  }
}

}  // namespace billow::wire
