#include "advise/rightsize.h"

#include <algorithm>
#include <cmath>

#include "advise/pricing.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr double headroom = 1.10,
                 headroom_mib = 512;  // allocators round up, and the next run may differ
constexpr double slowdown_max = 1.10;
constexpr double slowdown_listed_max = 20;  // slower options are not worth listing
constexpr int samples_min = 5;

// The speed of `to` relative to `from`: by the scarcer of arithmetic and bandwidth. Empty if either
// is unknown.
std::optional<double> speed_ratio(const GpuSpec& from, const GpuSpec& to) {
  auto rate = [](const GpuSpec& g) {
    return g.bf16_tflops ? g.bf16_tflops : g.fp16_tflops;
  };
  if (!rate(from) || !rate(to) || !from.bandwidth_gb_s || !to.bandwidth_gb_s)
    return std::nullopt;
  return std::min(*rate(to) / *rate(from), *to.bandwidth_gb_s / *from.bandwidth_gb_s);
}

}  // namespace

std::vector<FleetGpu::Mig> mig_shapes(const GpuSpec& gpu) {
  if (gpu.mig_max == 0 || !gpu.memory_mib)
    return {};
  // Memory comes in eighths, compute in sevenths. Drivers show a little less than the name says.
  double eighth = (static_cast<double>(*gpu.memory_mib) / 1024 + 0.6) / 8;
  std::vector<FleetGpu::Mig> out;
  struct Cut {
    int sevenths, eighths;
  };
  for (auto [sevenths, eighths] : {Cut{1, 1}, Cut{1, 2}, Cut{2, 2}, Cut{3, 4}, Cut{4, 4}}) {
    double named = std::round(eighth * eighths + 0.1),
           usable_mib = static_cast<double>(*gpu.memory_mib) * eighths / 8 * 0.97;
    out.push_back(
        {fmt::format("{}g.{:.0f}gb", sevenths, named), usable_mib * 1048576 / 1e9, sevenths});
  }
  return out;
}

namespace {

// Collects the GPUs, slices and MIG instances that hold a measured run.
class Options {
 public:
  Options(const GpuSpec& from, RightSize& size) : from_(from), size_(size) {}

  struct Source {
    std::string what, ask;
    bool ours = false;
    std::optional<double> usd_h;
    std::string price_from;
  };
  void add(const GpuSpec& gpu, double share, double memory_mib, Source source) {
    const auto ratio = speed_ratio(from_, gpu);
    if (!ratio || memory_mib < size_.mem_needed_mib)
      return;
    SizeOption o;
    o.memory_mib = memory_mib;
    // Work that kept a share `activity` of the old GPU busy needs that much of it; if the new one
    // has less, it runs longer.
    o.slowdown = std::max(1.0, size_.activity / (*ratio * share));
    if (o.slowdown > slowdown_listed_max)
      return;
    o.what = std::move(source.what);
    o.ask = std::move(source.ask);
    o.ours = source.ours;
    o.usd_h = source.usd_h;
    o.price_from = std::move(source.price_from);
    size_.options.push_back(std::move(o));
  }

  // One GPU type of this Billow: its slices, its MIG instances, and whole.
  void add_own(const FleetGpu& f, const GpuSpec& gpu) {
    const double memory = static_cast<double>(*gpu.memory_mib);
    const auto source = [&](double part, std::string what, std::string ask) {
      return Source{std::move(what), std::move(ask), true,
                    f.usd_per_gpu_h > 0 ? std::optional(f.usd_per_gpu_h * part) : std::nullopt,
                    "this Billow"};
    };
    if (f.slices)
      for (double part : {0.125, 0.25, 0.5, 0.75})
        add(gpu, part, memory * part,
            source(part, fmt::format("{} of one {}", part, gpu.name),
                   fmt::format("--gpus {} --gpu-type {}", part, f.gpu)));
    // Jobs get MIG instances only of cards that are partitioned, and nothing else of those.
    if (f.whole) {
      add(gpu, 1, memory,
          source(1, fmt::format("1 × {}", gpu.name), fmt::format("--gpus 1 --gpu-type {}", f.gpu)));
      return;
    }
    for (auto& m : f.mig) {
      const double part = std::max(1, m.sevenths) / 7.0;
      add(gpu, part, m.memory_gb * 1e9 / 1048576,
          source(part, fmt::format("MIG {} of one {}", m.name, gpu.name),
                 fmt::format("--mig {} --gpu-type {}", m.name, f.gpu)));
    }
  }

  void add_rented(const GpuSpec& gpu, const Catalogue& catalogue, WallTime now) {
    if (!gpu.is_gpu || !gpu.memory_mib)
      return;
    const auto cheapest = cheapest_rent(gpu, {}, catalogue, now);
    if (!cheapest)
      return;
    const Offer& offer = cheapest->offer;
    add(gpu, 1, static_cast<double>(*gpu.memory_mib),
        {fmt::format("1 × {}", gpu.name), "", false, cheapest->usd_h,
         fmt::format("{} {} in {}, price of {}", offer.instance->provider, offer.instance->name,
                     offer.region, offer.price->date)});
  }

 private:
  const GpuSpec& from_;
  RightSize& size_;
};

// How busy the run kept the GPU, and how far that can be trusted.
void read_activity(const RunMeasured& run, RightSize& s) {
  if (run.sm_p95_pct || run.dram_p95_pct) {
    s.activity = std::max(run.sm_p95_pct.value_or(0), run.dram_p95_pct.value_or(0)) / 100;
    s.activity_from = "SM and DRAM activity";
  } else if (run.util_p95_pct) {
    s.activity = *run.util_p95_pct / 100;
    s.activity_from = "utilisation, an upper bound";
    s.notes.push_back(
        "this GPU reports no SM or DRAM activity, only utilisation, which reads 100 % whenever any "
        "kernel runs: the job may need less than stated here");
  } else {
    s.activity_from = "unknown";
    s.notes.push_back("the GPU's load is unknown: taken as fully used");
  }
  s.activity = std::clamp(s.activity, 0.01, 1.0);
  if (run.samples < samples_min) {
    s.trusted = false;
    s.notes.push_back(
        fmt::format("only {} samples in {:.1f} s: run it longer before relying on this",
                    run.samples, run.seconds));
  }
  if (run.shared) {
    s.trusted = false;
    s.notes.push_back("other jobs used the same GPU: memory and activity include theirs");
  }
  if (run.gpus > 1)
    s.notes.push_back(
        fmt::format("the run used {} GPUs; the advice applies to each of them", run.gpus));
}

// Own hardware first, then by price, or by size if there is no price.
void sort_options(std::vector<SizeOption>& options) {
  std::stable_sort(options.begin(), options.end(), [](auto& a, auto& b) {
    if (a.ours != b.ours)
      return a.ours;
    if (a.usd_h && b.usd_h && *a.usd_h != *b.usd_h)
      return *a.usd_h < *b.usd_h;
    return a.memory_mib < b.memory_mib;
  });
}

std::string verdict_of(const RightSize& s, double held_mib) {
  if (!s.best)
    return "no smaller GPU of this installation holds it without slowing it down; keep what it ran "
           "on";
  if (s.best->memory_mib >= held_mib * 0.99 && s.best->ours)
    return fmt::format("{} is the right size: less would be too small or slower", s.best->what);
  return fmt::format("{} is enough: it holds the peak with headroom and should be as fast",
                     s.best->what);
}

}  // namespace

RightSize right_size(const RunMeasured& run,
                     const std::vector<FleetGpu>& fleet,
                     const Catalogue& catalogue,
                     WallTime now) {
  RightSize s;
  s.mem_needed_mib = run.mem_peak_mib * headroom + headroom_mib;
  read_activity(run, s);
  const auto found = catalogue.gpu(run.gpu);
  if (!found) {
    s.verdict = fmt::format(
        "the catalogue does not contain {}, so it cannot be compared with other GPUs", run.gpu);
    return s;
  }
  const GpuSpec& from = **found;
  Options options(from, s);
  for (auto& f : fleet)
    if (auto gpu = catalogue.gpu(f.gpu); gpu && (*gpu)->memory_mib)
      options.add_own(f, **gpu);
  for (auto& gpu : catalogue.gpus())
    options.add_rented(gpu, catalogue, now);
  sort_options(s.options);
  const auto best = std::find_if(s.options.begin(), s.options.end(), [&](auto& o) {
    return o.slowdown <= slowdown_max && (o.ours || fleet.empty());
  });
  if (best != s.options.end())
    s.best = *best;
  s.verdict =
      verdict_of(s, from.memory_mib ? static_cast<double>(*from.memory_mib) * run.share : 0);
  return s;
}

Json right_size_json(const RunMeasured& run, const RightSize& s) {
  auto known = [](const std::optional<double>& v) {
    return v ? Json(*v) : Json();
  };
  auto option = [&](const SizeOption& o) {
    return Json::object({{"what", o.what},
                         {"ask", o.ask},
                         {"ours", o.ours},
                         {"memory_mib", std::round(o.memory_mib)},
                         {"slowdown", std::round(o.slowdown * 100) / 100},
                         {"usd_h", known(o.usd_h)},
                         {"price_from", o.price_from}});
  };
  Json options = Json::array(), notes = Json::array();
  for (std::size_t i = 0; i < s.options.size() && i < 20; ++i)
    options.push(option(s.options[i]));
  for (auto& n : s.notes)
    notes.push(n);
  return Json::object({{"measured", Json::object({{"gpu", run.gpu},
                                                  {"gpus", run.gpus},
                                                  {"share", run.share},
                                                  {"mem_peak_mib", run.mem_peak_mib},
                                                  {"sm_p95_pct", known(run.sm_p95_pct)},
                                                  {"dram_p95_pct", known(run.dram_p95_pct)},
                                                  {"util_p95_pct", known(run.util_p95_pct)},
                                                  {"power_mean_w", known(run.power_mean_w)},
                                                  {"seconds", run.seconds},
                                                  {"samples", run.samples},
                                                  {"step_s", known(run.step_s)},
                                                  {"steps", run.steps}})},
                       {"mem_needed_mib", std::round(s.mem_needed_mib)},
                       {"activity", std::round(s.activity * 1000) / 1000},
                       {"activity_from", s.activity_from},
                       {"trusted", s.trusted},
                       {"verdict", s.verdict},
                       {"best", s.best ? option(*s.best) : Json()},
                       {"options", options},
                       {"notes", notes}});
}

std::string right_size_text(const RunMeasured& run, const RightSize& s) {
  auto pct = [](const std::optional<double>& v) {
    return v ? fmt::format("{:.0f} %", *v) : std::string("unknown");
  };
  std::string out = fmt::format("measured on {} × {}{} for {:.1f} s ({} samples)\n", run.gpus,
                                run.gpu, run.share < 1 ? fmt::format(" ({} of it)", run.share) : "",
                                run.seconds, run.samples);
  out += fmt::format(
      "  memory peak {:.1f} GiB; p95 of SM activity {}, DRAM activity {}, utilisation {}",
      run.mem_peak_mib / 1024, pct(run.sm_p95_pct), pct(run.dram_p95_pct), pct(run.util_p95_pct));
  if (run.power_mean_w)
    out += fmt::format("; {:.0f} W on average", *run.power_mean_w);
  out += "\n";
  if (run.step_s)
    out += fmt::format("  {:.3f} s per step ({} steps)\n", *run.step_s, run.steps);
  out += fmt::format("  needs {:.1f} GiB (peak + 10 % + 0.5) and {:.0f} % of the GPU ({})\n",
                     s.mem_needed_mib / 1024, 100 * s.activity, s.activity_from);
  out += s.verdict + "\n";
  if (s.best && !s.best->ask.empty())
    out += fmt::format("  to use it: billow run {} -- …\n", s.best->ask);
  int shown = 0;
  for (auto& o : s.options) {
    if (shown == 8)
      break;
    if (s.best && o.what == s.best->what && o.ours == s.best->ours)
      continue;
    out += fmt::format("  {} {:<34} {:>6.1f} GiB  {:<22} {}\n", o.ours ? "here" : "rent", o.what,
                       o.memory_mib / 1024,
                       o.slowdown > 1.005 ? fmt::format("{:.1f} × as long", o.slowdown) : "as fast",
                       o.usd_h ? fmt::format("${:.2f}/h ({})", *o.usd_h, o.price_from) : "");
    ++shown;
  }
  for (auto& n : s.notes)
    out += "note: " + n + "\n";
  return out;
}

}  // namespace billow::advise
