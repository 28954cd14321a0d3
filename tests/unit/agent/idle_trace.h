// Reads the traces that tools/idle/make_traces.py writes (the format is told there) back into samples.
#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "agent/idle.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::agent {

struct IdleTrace {
  std::string shape, expect, file;
  Duration onset;                    // of idleness; 0 for active ones
  std::vector<IdleSample> samples;
};

inline Result<IdleTrace> read_trace(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path));
  IdleTrace trace;
  trace.file = path;
  std::map<std::string, double> header;
  std::vector<std::string> columns;
  std::map<std::string, std::string> row;
  IdleSample total;
  total.cpu_ns = total.io_bytes = total.net_rx_bytes = total.net_tx_bytes = total.page_faults = total.output_bytes = 0;
  std::int64_t index = 0;
  const auto emit = [&] {
    const auto number = [&](const char* name) -> std::optional<double> {
      const std::string& value = row[name];
      return value == "-" || value.empty() ? std::nullopt : std::optional<double>(std::stod(value));
    };
    const auto whole = [&](const char* name) { return static_cast<std::int64_t>(number(name).value_or(0)); };
    IdleSample s = total;
    s.at = SteadyTime{} + seconds(1000) + seconds(static_cast<std::int64_t>(header["step_s"])) * index++;
    GpuSignal gpu;
    gpu.sm_active_pct = number("sm"); gpu.dram_active_pct = number("dram"); gpu.tensor_active_pct = number("tensor");
    gpu.util_pct = number("util"); gpu.mem_util_pct = number("memutil"); gpu.power_w = number("power");
    gpu.power_idle_w = header["idle_w"]; gpu.power_limit_w = header["limit_w"];
    gpu.pcie_bytes_s = number("pcie_kib_s").value_or(0) * 1024;
    gpu.mem_used_mib = whole("mem_mib");
    s.gpus = {gpu};
    *s.cpu_ns += whole("cpu_ms") * 1'000'000; *s.io_bytes += whole("io_kib") * 1024; *s.net_rx_bytes += whole("rx_bytes");
    *s.net_tx_bytes += whole("tx_bytes"); *s.page_faults += whole("faults"); *s.output_bytes += whole("out_bytes");
    s.rss_mib = whole("rss_mib");
    s.last_input.reset();
    if (const auto age = number("input_age_s")) s.last_input = s.at - seconds(static_cast<std::int64_t>(*age));
    s.processes = static_cast<std::int32_t>(whole("procs")); s.connections = static_cast<std::int32_t>(whole("conns"));
    s.traced = static_cast<std::int32_t>(whole("traced")); s.stopped = static_cast<std::int32_t>(whole("stopped"));
    s.zombies = static_cast<std::int32_t>(whole("zombies")); s.blocked = static_cast<std::int32_t>(whole("blocked"));
    trace.samples.push_back(s);
    total = s;
  };
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    if (line[0] == '*') {
      for (int n = std::stoi(line.substr(1)); n > 0; --n) emit();
      continue;
    }
    std::istringstream in(line);
    std::string word;
    if (columns.empty()) {
      in >> word;
      if (word == "shape") in >> trace.shape;
      else if (word == "expect") in >> trace.expect;
      else if (word == "columns") while (in >> word) columns.push_back(word);
      else if (word != "card") in >> header[word];
      continue;
    }
    for (const std::string& column : columns) {
      if (!(in >> word)) return fail(Code::invalid, path + ": a line is short: " + line);
      if (word != ".") row[column] = word;
    }
    emit();
  }
  trace.onset = seconds(static_cast<std::int64_t>(header["onset_s"]));
  return trace;
}

}  // namespace billow::agent
