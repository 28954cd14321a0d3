// Reads signal traces back into samples: those that tools/idle/make_traces.py makes up (*.trace,
// one shape a file; the format is told there), and those that tests/gpu/record.py wrote down on a
// real card (*.signals, all shapes in one file).
//
// A recording holds a few samples of each phase of a shape. Its `script` says for how long each
// phase is played, over and over; `before` is played once first, and idleness begins where it ends.
// "shape/phase" names a phase of another shape of the file.
#pragma once

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "core/agent/idle.h"

namespace billow::agent {

struct IdleTrace {
  std::string shape, expect, file;
  Duration onset;  // of idleness; 0 for active ones
  std::vector<IdleSample> samples;
};

using TraceRow = std::map<std::string, std::string>;

// The sample after `total` (whose counters it goes on from), out of one row. "-" is unknown;
// counters are per step.
inline IdleSample next_sample(const IdleSample& total,
                              const TraceRow& row,
                              double idle_w,
                              double limit_w) {
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto at = row.find(name);
    return at == row.end() || at->second == "-" || at->second.empty()
               ? std::nullopt
               : std::optional<double>(std::stod(at->second));
  };
  const auto whole = [&](const char* name) {
    return static_cast<std::int64_t>(number(name).value_or(0));
  };
  IdleSample s = total;
  GpuSignal gpu;
  gpu.sm_active_pct = number("sm");
  gpu.dram_active_pct = number("dram");
  gpu.tensor_active_pct = number("tensor");
  gpu.util_pct = number("util");
  gpu.mem_util_pct = number("memutil");
  gpu.power_w = number("power");
  gpu.power_idle_w = idle_w;
  gpu.power_limit_w = limit_w;
  if (const auto pcie = number("pcie_kib_s"))
    gpu.pcie_bytes_s = *pcie * 1024;
  gpu.mem_used_mib = whole("mem_mib");
  s.gpus = {gpu};
  *s.cpu_ns += whole("cpu_ms") * 1'000'000;
  *s.io_bytes += whole("io_kib") * 1024;
  *s.net_rx_bytes += whole("rx_bytes");
  *s.net_tx_bytes += whole("tx_bytes");
  *s.page_faults += whole("faults");
  *s.output_bytes += whole("out_bytes");
  s.rss_mib = whole("rss_mib");
  s.last_input.reset();
  if (const auto age = number("input_age_s"))
    s.last_input = s.at - seconds(static_cast<std::int64_t>(*age));
  s.processes = static_cast<std::int32_t>(whole("procs"));
  s.connections = static_cast<std::int32_t>(whole("conns"));
  s.traced = static_cast<std::int32_t>(whole("traced"));
  s.stopped = static_cast<std::int32_t>(whole("stopped"));
  s.zombies = static_cast<std::int32_t>(whole("zombies"));
  s.blocked = static_cast<std::int32_t>(whole("blocked"));
  return s;
}

// Adds row after row, one step apart.
class TraceSamples {
 public:
  TraceSamples(Duration step, double idle_w, double limit_w)
      : step_(step), idle_w_(idle_w), limit_w_(limit_w) {
    last_.at = SteadyTime{} + seconds(1000) - step;
    last_.cpu_ns = last_.io_bytes = last_.net_rx_bytes = last_.net_tx_bytes = last_.page_faults =
        last_.output_bytes = 0;
  }
  void add(const TraceRow& row, std::vector<IdleSample>& to) {
    last_.at = last_.at + step_;
    last_ = next_sample(last_, row, idle_w_, limit_w_);
    to.push_back(last_);
  }

 private:
  Duration step_;
  double idle_w_, limit_w_;
  IdleSample last_;
};

inline Result<IdleTrace> read_trace(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path));
  IdleTrace trace;
  trace.file = path;
  std::map<std::string, double> header;
  std::vector<std::string> columns;
  TraceRow row;
  std::optional<TraceSamples> samples;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty())
      continue;
    if (line[0] == '*') {
      for (int n = std::stoi(line.substr(1)); n > 0; --n)
        samples->add(row, trace.samples);
      continue;
    }
    std::istringstream in(line);
    std::string word;
    if (columns.empty()) {
      in >> word;
      if (word == "shape")
        in >> trace.shape;
      else if (word == "expect")
        in >> trace.expect;
      else if (word == "columns")
        while (in >> word)
          columns.push_back(word);
      else if (word != "card")
        in >> header[word];
      continue;
    }
    if (!samples)
      samples.emplace(seconds(static_cast<std::int64_t>(header["step_s"])), header["idle_w"],
                      header["limit_w"]);
    for (const std::string& column : columns) {
      if (!(in >> word))
        return fail(Code::invalid, path + ": a line is short: " + line);
      if (word != ".")
        row[column] = word;
    }
    samples->add(row, trace.samples);
  }
  trace.onset = seconds(static_cast<std::int64_t>(header["onset_s"]));
  return trace;
}

struct Recording {
  struct Part {
    std::string phase;
    Duration lasts;
  };
  struct Shape {
    std::string name, expect;
    std::vector<Part> before, script;
    std::map<std::string, std::vector<TraceRow>> phases;
  };
  double idle_w = 0, limit_w = 0;
  Duration step;
  std::vector<Shape> shapes;

  Result<const std::vector<TraceRow>*> rows(const Shape& shape, const std::string& phase) const {
    const auto slash = phase.find('/');
    for (const Shape& other : shapes) {
      if (other.name != (slash == std::string::npos ? shape.name : phase.substr(0, slash)))
        continue;
      const auto found =
          other.phases.find(slash == std::string::npos ? phase : phase.substr(slash + 1));
      if (found != other.phases.end() && !found->second.empty())
        return &found->second;
    }
    return fail(Code::invalid, shape.name + " has no samples of its phase " + phase);
  }
};

inline Result<Recording> read_recording(const std::string& path) {
  Recording out;
  std::vector<std::string> columns;
  std::vector<TraceRow>* rows = nullptr;
  for (const std::string& line : split(BILLOW_TRY(read_file(path)), '\n')) {
    std::istringstream in(line);
    std::string word;
    if (!(in >> word))
      continue;
    const auto parts = [&](std::vector<Recording::Part>& to) {
      std::int64_t lasts = 0;
      while (in >> word >> lasts)
        to.push_back({word, seconds(lasts)});
    };
    std::int64_t step_ms = 0;
    if (word == "idle_w")
      in >> out.idle_w;
    else if (word == "limit_w")
      in >> out.limit_w;
    else if (word == "step_ms") {
      in >> step_ms;
      out.step = milliseconds(step_ms);
    } else if (word == "card" || word == "driver" || word == "recorded")
      continue;
    else if (word == "columns")
      while (in >> word)
        columns.push_back(word);
    else if (word == "shape")
      in >> out.shapes.emplace_back().name;
    else if (out.shapes.empty())
      return fail(Code::invalid, path + ": not understood: " + line);
    else if (word == "expect")
      in >> out.shapes.back().expect;
    else if (word == "before")
      parts(out.shapes.back().before);
    else if (word == "script")
      parts(out.shapes.back().script);
    else if (word == "phase" && in >> word)
      rows = &out.shapes.back().phases[word];
    else {
      if (!rows)
        return fail(Code::invalid, path + ": a sample before its phase: " + line);
      TraceRow row;
      for (const std::string& column : columns) {
        row[column] = word;
        if (&column != &columns.back() && !(in >> word))
          return fail(Code::invalid, path + ": a line is short: " + line);
      }
      rows->push_back(std::move(row));
    }
  }
  return out;
}

// Every shape of a recording, played: an active one for three quarters of an hour, another for
// twenty minutes after it came to rest.
inline Result<std::vector<IdleTrace>> play_recording(const std::string& path) {
  const Recording recording = BILLOW_TRY(read_recording(path));
  std::vector<IdleTrace> out;
  for (const Recording::Shape& shape : recording.shapes) {
    IdleTrace trace{shape.name, shape.expect, path + ": " + shape.name, {}, {}};
    TraceSamples samples(recording.step, recording.idle_w, recording.limit_w);
    const auto play = [&](const Recording::Part& part) -> Status {
      const std::vector<TraceRow>* rows = BILLOW_TRY(recording.rows(shape, part.phase));
      const std::int64_t count = part.lasts.ns / recording.step.ns;
      for (std::int64_t i = 0; i < count; ++i)
        samples.add((*rows)[static_cast<std::size_t>(i) % rows->size()], trace.samples);
      return {};
    };
    for (const Recording::Part& part : shape.before) {
      BILLOW_TRY_VOID(play(part));
      trace.onset = trace.onset + part.lasts;
    }
    const auto until = static_cast<std::size_t>(
        (trace.onset + (shape.expect == "active" ? minutes(45) : minutes(20))).ns /
        recording.step.ns);
    while (trace.samples.size() < until)
      for (const Recording::Part& part : shape.script)
        BILLOW_TRY_VOID(play(part));
    out.push_back(std::move(trace));
  }
  return out;
}

}  // namespace billow::agent
