// `nvidia-smi` in jobs on simulated GPUs. There is no driver to ask, so the agent describes the
// job's cards in a variable (gpu/sim/smi_cards.h), and load and memory are measured from the job's
// own processes, as the simulated library measures them for the agent. Like the real program, it
// shows what the job may use: whole cards, its slice of a card, or its MIG instances.
#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "client/frame/table.h"
#include "gpu/sim/load.h"
#include "gpu/sim/smi_cards.h"

namespace billow::client {
namespace {

constexpr useconds_t load_window_us = 100'000;

struct Shown {
  SmiCards cards;
  std::vector<SimProcess> processes;
  double load = 0;            // 0–1 of a card
  std::int64_t used_mib = 0;  // of each card

  std::int64_t total_mib(const SmiCard& card) const {
    return card.limit_mib > 0 ? card.limit_mib : card.mem_mib;
  }
  std::int64_t used_on(const SmiCard& card) const { return std::min(used_mib, total_mib(card)); }
  int util_pct() const { return static_cast<int>(load * 100 + 0.5); }
  double power_w(const SmiCard& card) const {
    return card.idle_w + load * 0.95 * (card.power_w - card.idle_w);
  }
  int temperature_c() const { return static_cast<int>(32 + 43 * load); }
};

std::int64_t boottime_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// The job is the session that this program belongs to.
SimTreeLoad load_of_job() {
  SimHoldEntry job;
  job.pid = ::getsid(0);
  SimMeter meter;
  SimTreeLoad load;
  for (int look = 0; look < 2; ++look) {
    if (look > 0)
      ::usleep(load_window_us);
    meter.begin(boottime_ns());
    load = meter.look(job);
    meter.end();
  }
  std::erase_if(load.processes, [](const SimProcess& p) { return p.pid == ::getpid(); });
  return load;
}

Result<Shown> look_at_cards() {
  const char* text = std::getenv(smi_variable);
  if (!text || !*text)
    return fail(Code::unsupported, "this nvidia-smi shows simulated GPUs, and this job has none",
                "ask for some: billow run --gpus 1 -- nvidia-smi");
  Shown out;
  out.cards = BILLOW_TRY(parse_smi_cards(text));
  SimTreeLoad load = load_of_job();
  out.load = std::clamp(load.busy, 0.0, 1.0);
  for (const SimProcess& p : load.processes)
    out.used_mib += p.rss_mib;
  if (load.declared_mib >= 0)
    out.used_mib = load.declared_mib;
  out.processes = std::move(load.processes);
  return out;
}

// ---- nvidia-smi -L
std::string list(const Shown& shown) {
  std::string out;
  for (const SmiCard& card : shown.cards.cards) {
    out += fmt::format("GPU {}: {} (UUID: {})\n", card.index, card.name, card.uuid);
    for (std::size_t i = 0; i < card.mig.size(); ++i)
      out += fmt::format("  MIG {:<15} Device {:>2}: (UUID: {})\n", card.mig[i].profile, i,
                         card.mig[i].uuid);
  }
  return out;
}

// ---- nvidia-smi
constexpr std::size_t table_width = 79;

std::string row(std::string_view text) {
  const std::size_t length = display_width(text);
  return fmt::format("| {}{} |\n", text,
                     std::string(length + 4 < table_width ? table_width - 4 - length : 0, ' '));
}
std::string rule() {
  return "+" + std::string(table_width - 2, '-') + "+\n";
}

std::string plain(const Shown& shown) {
  std::string out = rule();
  out += row(fmt::format("NVIDIA-SMI (simulated by Billow)   Driver: {}   CUDA: {}",
                         shown.cards.driver, shown.cards.cuda));
  out += rule();
  out += row(fmt::format("{:<3} {:<24} {:<16} {:>4} {:>11}", "GPU", "Name", "Bus-Id", "Temp",
                         "Pwr:Use/Cap"));
  out += row(
      fmt::format("{:<3} {:<24} {:<21} {:>9} {:>8}", "", "Memory-Usage", "", "GPU-Util", "MIG"));
  out += rule();
  for (const SmiCard& card : shown.cards.cards) {
    out += row(fmt::format("{:<3} {:<24} {:<16} {:>3}C {:>4.0f}W/{:>4}W", card.index,
                           card.name.substr(0, 24), card.bus, shown.temperature_c(),
                           shown.power_w(card), card.power_w));
    out += row(fmt::format("{:<3} {:<46} {:>8}% {:>8}", "",
                           fmt::format("{}MiB / {}MiB", shown.used_on(card), shown.total_mib(card)),
                           shown.util_pct(), card.mig_on ? "Enabled" : "Disabled"));
    for (std::size_t i = 0; i < card.mig.size(); ++i)
      out += row(fmt::format("    MIG device {}: {}, GPU instance {}, {}MiB", i,
                             card.mig[i].profile, card.mig[i].instance, card.mig[i].mem_mib));
    if (card.milli < 1000 && card.mig.empty())
      out += row(fmt::format("    Slice of this job: {:.3g} GPU, {}MiB of the card's {}MiB",
                             card.milli / 1000.0, shown.total_mib(card), card.mem_mib));
    out += rule();
  }
  out += row(fmt::format("{:<5} {:>10}  {:>12}", "Processes", "PID", "GPU Memory"));
  for (const SimProcess& p : shown.processes)
    out += row(fmt::format("{:<9} {:>10}  {:>9}MiB", "", p.pid, p.rss_mib));
  return out + rule();
}

// ---- nvidia-smi --query-gpu=… --format=csv
struct Column {
  const char* name;
  const char* unit;  // "" where it has none
  std::string (*value)(const Shown&, const SmiCard&);
};

constexpr Column gpu_columns[] = {
    {"index", "",
     [](const Shown&, const SmiCard& c) {
       return fmt::format("{}", c.index);
     }},
    {"name", "",
     [](const Shown&, const SmiCard& c) {
       return c.name;
     }},
    {"gpu_name", "",
     [](const Shown&, const SmiCard& c) {
       return c.name;
     }},
    {"uuid", "",
     [](const Shown&, const SmiCard& c) {
       return c.uuid;
     }},
    {"gpu_uuid", "",
     [](const Shown&, const SmiCard& c) {
       return c.uuid;
     }},
    {"pci.bus_id", "",
     [](const Shown&, const SmiCard& c) {
       return c.bus;
     }},
    {"gpu_bus_id", "",
     [](const Shown&, const SmiCard& c) {
       return c.bus;
     }},
    {"driver_version", "",
     [](const Shown& s, const SmiCard&) {
       return s.cards.driver;
     }},
    {"count", "",
     [](const Shown& s, const SmiCard&) {
       return fmt::format("{}", s.cards.cards.size());
     }},
    {"compute_cap", "",
     [](const Shown&, const SmiCard& c) {
       return c.capability;
     }},
    {"mig.mode.current", "",
     [](const Shown&, const SmiCard& c) {
       return std::string(c.mig_on ? "Enabled" : "Disabled");
     }},
    {"pstate", "",
     [](const Shown& s, const SmiCard&) {
       return std::string(s.load > 0.01 ? "P0" : "P8");
     }},
    {"temperature.gpu", "",
     [](const Shown& s, const SmiCard&) {
       return fmt::format("{}", s.temperature_c());
     }},
    {"utilization.gpu", " %",
     [](const Shown& s, const SmiCard&) {
       return fmt::format("{}", s.util_pct());
     }},
    {"utilization.memory", " %",
     [](const Shown& s, const SmiCard&) {
       return fmt::format("{}", s.util_pct() / 2);
     }},
    {"memory.total", " MiB",
     [](const Shown& s, const SmiCard& c) {
       return fmt::format("{}", s.total_mib(c));
     }},
    {"memory.used", " MiB",
     [](const Shown& s, const SmiCard& c) {
       return fmt::format("{}", s.used_on(c));
     }},
    {"memory.free", " MiB",
     [](const Shown& s, const SmiCard& c) {
       return fmt::format("{}", s.total_mib(c) - s.used_on(c));
     }},
    {"power.draw", " W",
     [](const Shown& s, const SmiCard& c) {
       return fmt::format("{:.2f}", s.power_w(c));
     }},
    {"power.limit", " W",
     [](const Shown&, const SmiCard& c) {
       return fmt::format("{}.00", c.power_w);
     }},
};
constexpr std::string_view process_columns[] = {"pid", "gpu_uuid", "used_memory",
                                                "used_gpu_memory"};

struct Format {
  bool header = true;
  bool units = true;
};

Result<Format> parse_format(std::string_view text) {
  Format out;
  bool csv = false;
  for (const std::string& word : split(text, ',')) {
    if (trim(word) == "csv")
      csv = true;
    else if (trim(word) == "noheader")
      out.header = false;
    else if (trim(word) == "nounits")
      out.units = false;
    else
      return fail(Code::invalid, fmt::format("unknown --format \"{}\"", trim(word)),
                  "use csv, csv,noheader or csv,noheader,nounits");
  }
  if (!csv)
    return fail(Code::invalid, "a query needs --format=csv");
  return out;
}

Result<std::string> query_gpus(const Shown& shown, std::string_view names, Format format) {
  std::vector<const Column*> columns;
  for (const std::string& name : split(names, ',')) {
    const auto found =
        std::ranges::find_if(gpu_columns, [&](const Column& c) { return trim(name) == c.name; });
    if (found != std::end(gpu_columns)) {
      columns.push_back(found);
      continue;
    }
    std::vector<std::string> known;
    for (const Column& c : gpu_columns)
      known.emplace_back(c.name);
    return fail(Code::invalid, fmt::format("the field \"{}\" is not simulated", trim(name)),
                fmt::format("these are: {}", join(known, ", ")));
  }
  std::vector<std::string> lines, cells;
  for (const Column* c : columns)
    cells.push_back(format.units && *c->unit ? fmt::format("{} [{}]", c->name, trim(c->unit))
                                             : c->name);
  if (format.header)
    lines.push_back(join(cells, ", "));
  for (const SmiCard& card : shown.cards.cards) {
    cells.clear();
    for (const Column* c : columns)
      cells.push_back(c->value(shown, card) + (format.units ? c->unit : ""));
    lines.push_back(join(cells, ", "));
  }
  return join(lines, "\n") + "\n";
}

Result<std::string> query_processes(const Shown& shown, std::string_view names, Format format) {
  std::vector<std::string> columns;
  for (const std::string& name : split(names, ',')) {
    if (std::ranges::find(process_columns, trim(name)) == std::end(process_columns))
      return fail(Code::invalid, fmt::format("the field \"{}\" is not simulated", trim(name)),
                  "these are: pid, gpu_uuid, used_memory");
    columns.emplace_back(trim(name));
  }
  std::string out = format.header ? join(columns, ", ") + "\n" : "";
  for (const SmiCard& card : shown.cards.cards)
    for (const SimProcess& p : shown.processes) {
      std::vector<std::string> cells;
      for (const std::string& column : columns)
        cells.push_back(column == "pid" ? fmt::format("{}", p.pid)
                        : column == "gpu_uuid"
                            ? card.uuid
                            : fmt::format("{}{}", p.rss_mib, format.units ? " MiB" : ""));
      out += join(cells, ", ") + "\n";
    }
  return out;
}

// ---- the command line
struct Asked {
  bool list = false;
  bool help = false;
  std::string gpus;       // --query-gpu
  std::string processes;  // --query-compute-apps
  std::string format;
  std::string index;          // -i
  std::int64_t repeat_s = 0;  // -l
};

// "--name=value" or "--name value" or "-n value"; nothing where the word is another option.
bool takes(const std::vector<std::string>& args,
           std::size_t& at,
           std::initializer_list<std::string_view> names,
           std::string& value) {
  for (const std::string_view name : names) {
    if (args[at].starts_with(std::string(name) + "=")) {
      value = args[at].substr(name.size() + 1);
      return true;
    }
    if (args[at] == name && at + 1 < args.size()) {
      value = args[++at];
      return true;
    }
  }
  return false;
}

Result<Asked> parse_asked(const std::vector<std::string>& args) {
  Asked out;
  std::string seconds;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "-L" || args[i] == "--list-gpus")
      out.list = true;
    else if (args[i] == "-h" || args[i] == "--help")
      out.help = true;
    else if (takes(args, i, {"--query-gpu"}, out.gpus) ||
             takes(args, i, {"--query-compute-apps"}, out.processes) ||
             takes(args, i, {"--format"}, out.format) || takes(args, i, {"-i", "--id"}, out.index))
      continue;
    else if (takes(args, i, {"-l", "--loop"}, seconds))
      out.repeat_s = BILLOW_TRY(parse_int(seconds, 1, 86'400));
    else
      return fail(Code::unsupported,
                  fmt::format("\"{}\" is not simulated: this is Billow's nvidia-smi for "
                              "simulated GPUs",
                              args[i]),
                  "it knows: no option, -L, -i N, -l SECONDS, --query-gpu=… and "
                  "--query-compute-apps=… with --format=csv[,noheader][,nounits]");
  }
  return out;
}

Result<std::string> answer(const Asked& asked) {
  Shown shown = BILLOW_TRY(look_at_cards());
  if (!asked.index.empty()) {
    std::erase_if(shown.cards.cards, [&](const SmiCard& c) {
      return fmt::format("{}", c.index) != asked.index && c.uuid != asked.index;
    });
    if (shown.cards.cards.empty())
      return fail(Code::not_found, fmt::format("this job has no GPU {}", asked.index));
  }
  if (asked.list)
    return list(shown);
  if (!asked.gpus.empty())
    return query_gpus(shown, asked.gpus, BILLOW_TRY(parse_format(asked.format)));
  if (!asked.processes.empty())
    return query_processes(shown, asked.processes, BILLOW_TRY(parse_format(asked.format)));
  return plain(shown);
}

int cmd_smi(const std::vector<std::string>& args) {
  const auto asked = parse_asked(args);
  if (!asked)
    return report_usage(asked.error());
  if (asked->help) {
    print(
        "usage: nvidia-smi [-L] [-i N] [-l SECONDS] [--query-gpu=FIELD,… | "
        "--query-compute-apps=FIELD,…] [--format=csv[,noheader][,nounits]]\n"
        "Shows the simulated GPUs of this job (Billow, --sim).\n");
    return 0;
  }
  for (;;) {
    const auto text = answer(*asked);
    if (!text)
      return text.error().code == Code::invalid ? report_usage(text.error()) : report(text.error());
    print(*text);
    if (asked->repeat_s == 0)
      return 0;
    ::sleep(static_cast<unsigned>(asked->repeat_s));
  }
}

}  // namespace

void add_smi_commands(CommandTable& table) {
  table.push_back({.name = "nvidia-smi",
                   .summary = "show a job its simulated GPUs (jobs on simulated GPUs find it as "
                              "nvidia-smi)",
                   .example = "billow run --gpus 0.25 -- nvidia-smi\n"
                              "billow run --gpus 2 -- nvidia-smi --query-gpu=name,memory.total "
                              "--format=csv",
                   .run_args = cmd_smi,
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
