#include "client/frame/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace billow::client {
namespace {

enum class Kind {
  same,     // the value is passed on
  flag,     // no value, and a switch here
  nothing,  // changes nothing here
  lost,     // has no counterpart, and leaving it out changes the job
  own,      // a function below
};
struct Row {
  std::string_view name;
  char letter;
  Kind kind;
  std::string_view ours;  // the option
  std::string_view note;
  bool value = true;  // takes one
};

constexpr std::string_view no_partition =
    "there are no partitions: one queue; --pool NAME chooses where machines come from";
constexpr std::string_view no_file =
    "`billow logs JOB` shows the output; to write a file, redirect it in the command";
constexpr std::string_view no_mail = "`billow webhook add` reports the end of jobs";
constexpr std::string_view no_meaning = "has no meaning here";
constexpr std::string_view by_label =
    "choose nodes by what they have (--gpu-type, --zone), or by a label: --node-label K=V";

constexpr Row rows[] = {
    {"account", 'A', Kind::same, "project", ""},
    {"array", 'a', Kind::same, "array", ""},
    {"begin", 'b', Kind::lost, "",
     "a job starts as soon as it can; `billow schedule add` submits one at a given time"},
    {"chdir", 'D', Kind::same, "cwd", ""},
    {"clusters", 'M', Kind::lost, "", "choose the head with --head URL"},
    {"comment", 0, Kind::own, "label", ""},
    {"constraint", 'C', Kind::own, "constraint", ""},
    {"container-image", 0, Kind::same, "image", ""},
    {"container-mounts", 0, Kind::lost, "", "mount a volume with --volume NAME:DIR"},
    {"container-workdir", 0, Kind::same, "cwd", ""},
    {"core-spec", 'S', Kind::nothing, "", no_meaning},
    {"cpu-bind", 0, Kind::nothing, "", no_meaning},
    {"cpus-per-gpu", 0, Kind::own, "cpus", "--cpus is for the node: cores per GPU × GPUs"},
    {"cpus-per-task", 'c', Kind::own, "cpus", "--cpus is for the node: cores per task × tasks"},
    {"deadline", 0, Kind::lost, "", "say when the job should have ended with --by TIME"},
    {"dependency", 'd', Kind::own, "after", ""},
    {"distribution", 'm', Kind::nothing, "", no_meaning},
    {"error", 'e', Kind::nothing, "", no_file},
    {"exclude", 'x', Kind::lost, "", by_label},
    {"exclusive", 0, Kind::flag, "exclusive", "", false},
    {"export", 0, Kind::own, "env-var", ""},
    {"get-user-env", 0, Kind::nothing, "", "the environment is copied anyway", false},
    {"gpu-bind", 0, Kind::nothing, "", no_meaning},
    {"gpus", 'G', Kind::own, "gpus", "--gpus is per node"},
    {"gpus-per-node", 0, Kind::own, "gpus", ""},
    {"gpus-per-task", 0, Kind::own, "gpus", "--gpus is for the node: GPUs per task × tasks"},
    {"gres", 0, Kind::own, "gpus", ""},
    {"hint", 0, Kind::nothing, "", no_meaning},
    {"hold", 'H', Kind::lost, "",
     "submit the job when it should run, or let it wait for another with --after JOB", false},
    {"immediate", 'I', Kind::lost, "", "`billow explain JOB` shows when a job can start", false},
    {"input", 'i', Kind::lost, "", "redirect the input in the command: sh -c './a.sh < input'"},
    {"job-name", 'J', Kind::own, "name", ""},
    {"jobid", 0, Kind::lost, "", "`billow ssh JOB` opens a shell in a running job"},
    {"kill-on-bad-exit", 'K', Kind::nothing, "", "a gang ends when one of its tasks fails", false},
    {"licenses", 'L', Kind::lost, "", "there are no licences; limit an array with --array 0-99%4"},
    {"mail-type", 0, Kind::nothing, "", no_mail},
    {"mail-user", 0, Kind::nothing, "", no_mail},
    {"mem", 0, Kind::own, "mem", ""},
    {"mem-bind", 0, Kind::nothing, "", no_meaning},
    {"mem-per-cpu", 0, Kind::own, "mem", "--mem is for the node: memory per core × cores"},
    {"mem-per-gpu", 0, Kind::own, "mem", "--mem is for the node: memory per GPU × GPUs"},
    {"mincpus", 0, Kind::same, "cpus", ""},
    {"mpi", 0, Kind::nothing, "", "mpirun finds the nodes by itself"},
    {"nice", 0, Kind::nothing, "", "use --priority (higher starts first) or --spot"},
    {"no-kill", 'k', Kind::nothing, "", "use --elastic to replace lost nodes", false},
    {"no-requeue", 0, Kind::nothing, "", "jobs are not restarted by default", false},
    {"nodefile", 'F', Kind::lost, "", by_label},
    {"nodelist", 'w', Kind::lost, "", by_label},
    {"nodes", 'N', Kind::own, "nodes", ""},
    {"ntasks", 'n', Kind::own, "procs", "--procs is per node: tasks ÷ nodes"},
    {"ntasks-per-gpu", 0, Kind::lost, "", "use --procs N, processes per node"},
    {"ntasks-per-node", 0, Kind::same, "procs", ""},
    {"ntasks-per-socket", 0, Kind::nothing, "", no_meaning},
    {"open-mode", 0, Kind::nothing, "", no_file},
    {"output", 'o', Kind::nothing, "", no_file},
    {"overcommit", 'O', Kind::nothing, "", no_meaning, false},
    {"oversubscribe", 's', Kind::nothing, "", "use --gpus 0.25 for a part of a GPU", false},
    {"parsable", 0, Kind::flag, "quiet", "", false},
    {"partition", 'p', Kind::nothing, "", no_partition},
    {"priority", 0, Kind::same, "priority", ""},
    {"propagate", 0, Kind::nothing, "", no_meaning},
    {"pty", 0, Kind::lost, "", "use `billow shell`, or `billow run -t`", false},
    {"qos", 'q', Kind::nothing, "",
     "there are no classes of service; use --priority (higher starts first) or --spot"},
    {"quiet", 'Q', Kind::flag, "quiet", "", false},
    {"requeue", 0, Kind::flag, "rerun-if-lost", "if its node is lost; --retries N if it fails",
     false},
    {"reservation", 0, Kind::same, "reservation", ""},
    {"signal", 0, Kind::lost, "",
     "use --checkpoint-signal USR1 with --checkpoint-every 30m; before its time is over a job gets "
     "SIGTERM, --stop-grace before SIGKILL"},
    {"switches", 0, Kind::nothing, "", "use --topology switch"},
    {"test-only", 0, Kind::lost, "", "`billow explain JOB` shows when a job can start", false},
    {"thread-spec", 0, Kind::nothing, "", no_meaning},
    {"threads-per-core", 0, Kind::nothing, "", no_meaning},
    {"time", 't', Kind::own, "time", ""},
    {"time-min", 0, Kind::nothing, "", "the time limit is --time"},
    {"tmp", 0, Kind::nothing, "", "disk space is not requested"},
    {"uid", 0, Kind::lost, "", "log in as that user: `billow login`"},
    {"verbose", 'v', Kind::nothing, "", no_meaning, false},
    {"wait", 'W', Kind::flag, "wait", "", false},
    {"wait-all-nodes", 0, Kind::nothing, "", "a gang starts on all its nodes at once"},
    {"wckey", 0, Kind::nothing, "", "use --label K=V"},
    {"wrap", 0, Kind::lost, "", "write the command after --: billow submit -- sh -c 'make all'"},
};

const Row* find_row(std::string_view name) {
  if (name.starts_with("--")) {
    for (const Row& row : rows)
      if (row.name == name.substr(2))
        return &row;
    return nullptr;
  }
  if (name.size() != 2 || name[0] != '-')
    return nullptr;
  for (const Row& row : rows)
    if (row.letter == name[1])
      return &row;
  return nullptr;
}

SlurmMeaning lost(std::string note) {
  return {{}, std::move(note), true};
}

// "60" (minutes), "90:30", "12:00:00", "2-12", "2-12:00:00"
std::optional<SlurmMeaning> time_of(std::string_view value) {
  if (value == "0" || lower(value) == "unlimited" || lower(value) == "infinite")
    return SlurmMeaning{{}, "without --time a job has no limit"};
  std::int64_t days = 0;
  std::vector<std::int64_t> parts;
  std::string_view rest = value;
  const auto dash = value.find('-');
  if (dash != std::string_view::npos) {
    const auto n = parse_int(value.substr(0, dash), 0, 3650);
    if (!n)
      return std::nullopt;
    days = *n;
    rest = value.substr(dash + 1);
  }
  for (const std::string& part : split(rest, ':')) {
    const auto n = parse_int(part, 0, 1'000'000);
    if (!n || parts.size() == 3)
      return std::nullopt;
    parts.push_back(*n);
  }
  const bool from_hours = dash != std::string_view::npos || parts.size() == 3;
  std::int64_t unit = from_hours ? 3600 : 60;
  std::int64_t total = days * 86400;
  for (const std::int64_t n : parts) {
    total += n * unit;
    unit = unit > 1 ? unit / 60 : 0;
  }
  std::string text = total % 3600 == 0 ? fmt::format("{}h", total / 3600)
                     : total % 60 == 0 ? fmt::format("{}m", total / 60)
                                       : fmt::format("{}s", total);
  return SlurmMeaning{{"--time", std::move(text)}, ""};
}

// "gpu:2", "gpu:h100:2", "h100:2", "2" as a type and a number.
struct Gpus {
  std::string type;
  std::int64_t count = 1;
};
std::optional<Gpus> gpus_of(std::string_view value) {
  Gpus out;
  auto parts = split(value, ':');
  if (parts.front() == "gpu" || parts.front().starts_with("gres/gpu"))
    parts.erase(parts.begin());
  if (parts.size() > 2)
    return std::nullopt;
  if (!parts.empty()) {
    const auto n = parse_int(parts.back(), 0, 100'000);
    if (n)
      out.count = *n;
    if (!n && parts.size() == 2)
      return std::nullopt;
    if (!n || parts.size() == 2)
      out.type = parts.front();
  }
  for (char& c : out.type)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

SlurmMeaning gpu_words(const Gpus& gpus) {
  SlurmMeaning out{{"--gpus", std::to_string(gpus.count)}, ""};
  if (!gpus.type.empty()) {
    out.words.insert(out.words.end(), {"--gpu-type", gpus.type});
    out.note = "`billow nodes` shows the types";
  }
  return out;
}

SlurmMeaning gres(std::string_view value) {
  if (value.starts_with("shard") || value.starts_with("mps"))
    return lost("use a part of a GPU: --gpus 0.25 or --gpu-mem 20G");
  const auto gpus = value.starts_with("gpu") ? gpus_of(value) : std::nullopt;
  if (!gpus)
    return lost("only GPUs are requested by number: --gpus N");
  return gpu_words(*gpus);
}

// Slurm counts memory in MiB if the number has no unit.
std::string memory_text(std::string_view value) {
  const bool bare = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
  return bare ? fmt::format("{}M", value) : std::string(value);
}

SlurmMeaning dependency(std::string_view value) {
  SlurmMeaning out;
  for (const std::string& part : split(value, ',')) {
    const auto words = split(part, ':');
    const std::string& kind = words.front();
    const std::string ours = kind == "afterok"      ? ""
                             : kind == "afterany"   ? "any:"
                             : kind == "afternotok" ? "failed:"
                                                    : "?";
    if (ours == "?" || words.size() < 2 || part.find_first_of("?+") != part.npos)
      return lost(
          fmt::format("\"{}\" has no counterpart: use --after JOB (succeeded), --after any:JOB "
                      "(ended) or --after failed:JOB",
                      part));
    for (std::size_t i = 1; i < words.size(); ++i)
      out.words.insert(out.words.end(), {"--after", ours + words[i]});
  }
  return out;
}

SlurmMeaning environment(std::string_view value) {
  SlurmMeaning out;
  bool all = false;
  for (const std::string& part : split(value, ',')) {
    if (part == "ALL" || part == "NONE" || part.empty())
      all = all || part == "ALL";
    else
      out.words.insert(out.words.end(), {"--env-var", part});
  }
  if (!all)
    out.words.insert(out.words.begin(), "--no-env");
  else if (out.words.empty())
    out.note = "the environment is copied anyway, except what looks like a credential";
  return out;
}

SlurmMeaning by_function(const Row& row, std::string_view value) {
  const auto as = [&](std::string text) {
    return SlurmMeaning{{fmt::format("--{}", row.ours), std::move(text)}, std::string(row.note)};
  };
  if (row.name == "comment")
    return as(fmt::format("comment={}", value));
  if (row.name == "constraint")
    return value.find('=') == value.npos
               ? lost("labels have values: --constraint zone=a (`billow nodes --json` shows them)")
               : as(std::string(value));
  if (row.name == "job-name")
    return as(std::string(value));
  if (row.name == "nodes")
    return value.find('-') == value.npos ? as(std::string(value))
                                         : lost(fmt::format("a gang has a fixed size: --nodes {}",
                                                            value.substr(value.find('-') + 1)));
  if (row.name == "time")
    return time_of(value).value_or(lost("use a form like --time 90m, 2h or 12:00:00"));
  if (row.name == "dependency")
    return dependency(value);
  if (row.name == "export")
    return environment(value);
  if (row.name == "gres")
    return gres(value);
  if (row.name.starts_with("gpus")) {
    const auto gpus = gpus_of(value);
    SlurmMeaning out = gpus ? gpu_words(*gpus) : lost("use --gpus N and --gpu-type TYPE");
    if (out.note.empty())
      out.note = row.note;
    return out;
  }
  if (row.name == "mem" && value == "0")
    return SlurmMeaning{{}, "a job gets its part of the node's memory; --exclusive gets it all"};
  if (row.name.starts_with("mem"))
    return as(memory_text(value));
  return as(std::string(value));  // cpus-per-…, ntasks
}

// ---- a whole script

struct Counts {
  std::int64_t nodes = 1;
  std::optional<std::int64_t> tasks, tasks_per_node, cpus_per_task, cpus_per_gpu, gpus_per_task;
  std::optional<std::int64_t> gpus_in_all, gpus_per_node;
  std::string gpu_type;
  std::int64_t mem_per_cpu_mib = 0, mem_per_gpu_mib = 0;

  std::int64_t procs() const {
    if (tasks_per_node)
      return *tasks_per_node;
    return tasks ? (*tasks + nodes - 1) / nodes : 1;
  }
  std::int64_t gpus() const {
    if (gpus_per_node)
      return *gpus_per_node;
    if (gpus_per_task)
      return *gpus_per_task * procs();
    return gpus_in_all ? (*gpus_in_all + nodes - 1) / nodes : 0;
  }
  std::int64_t cpus() const {
    if (cpus_per_task)
      return *cpus_per_task * procs();
    return cpus_per_gpu ? *cpus_per_gpu * gpus() : 0;
  }
};

// Takes a count that depends on others; false if the option is no such count.
bool take_count(Counts& counts, const Row& row, std::string_view value) {
  const auto number = [&](std::optional<std::int64_t>& into) {
    const auto n = parse_int(value, 1, 100'000);
    if (n)
      into = *n;
    return n.has_value();
  };
  const auto mib = [&](std::int64_t& into) {
    const auto bytes = parse_bytes(memory_text(value));
    if (bytes)
      into = static_cast<std::int64_t>(*bytes >> 20);
    return bytes.has_value();
  };
  const auto gpus = [&](std::optional<std::int64_t>& into) {
    const auto read = gpus_of(value);
    if (!read)
      return false;
    into = read->count;
    if (!read->type.empty())
      counts.gpu_type = read->type;
    return true;
  };
  if (row.name == "nodes") {
    std::optional<std::int64_t> nodes;
    if (!number(nodes))
      return false;
    counts.nodes = *nodes;
    return true;
  }
  return row.name == "ntasks"            ? number(counts.tasks)
         : row.name == "ntasks-per-node" ? number(counts.tasks_per_node)
         : row.name == "cpus-per-task"   ? number(counts.cpus_per_task)
         : row.name == "cpus-per-gpu"    ? number(counts.cpus_per_gpu)
         : row.name == "mem-per-cpu"     ? mib(counts.mem_per_cpu_mib)
         : row.name == "mem-per-gpu"     ? mib(counts.mem_per_gpu_mib)
         : row.name == "gpus"            ? gpus(counts.gpus_in_all)
         : row.name == "gpus-per-task"   ? gpus(counts.gpus_per_task)
         : row.name == "gpus-per-node" || (row.name == "gres" && value.starts_with("gpu"))
             ? gpus(counts.gpus_per_node)
             : false;
}

void add_counts(const Counts& counts, std::vector<std::string>& words) {
  const auto add = [&](const char* option, std::string value) {
    words.push_back(option);
    words.push_back(std::move(value));
  };
  if (counts.nodes > 1)
    add("--nodes", std::to_string(counts.nodes));
  if (counts.procs() > 1)
    add("--procs", std::to_string(counts.procs()));
  if (counts.gpus() > 0)
    add("--gpus", std::to_string(counts.gpus()));
  if (!counts.gpu_type.empty())
    add("--gpu-type", counts.gpu_type);
  if (counts.cpus() > 0)
    add("--cpus", std::to_string(counts.cpus()));
  const std::int64_t cores = counts.cpus() > 0 ? counts.cpus() : counts.procs();
  if (counts.mem_per_cpu_mib > 0)
    add("--mem", fmt::format("{}M", counts.mem_per_cpu_mib * cores));
  else if (counts.mem_per_gpu_mib > 0)
    add("--mem",
        fmt::format("{}M", counts.mem_per_gpu_mib * std::max<std::int64_t>(counts.gpus(), 1)));
}

struct Typed {
  std::string name, value, shown;
};

// "--gres=gpu:2", "--gres gpu:2", "-N2", "-N 2"
std::vector<Typed> typed_options(const std::vector<std::string>& words) {
  std::vector<Typed> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    Typed t{word, "", word};
    if (const auto equals = word.find('='); word.starts_with("--") && equals != word.npos) {
      t.name = word.substr(0, equals);
      t.value = word.substr(equals + 1);
    } else if (word.size() > 2 && word[0] == '-' && word[1] != '-') {
      t.name = word.substr(0, 2);
      t.value = word.substr(word[2] == '=' ? 3 : 2);
    } else if (slurm_takes_value(word) && i + 1 < words.size()) {
      t.value = words[++i];
      t.shown += " " + t.value;
    }
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace

bool slurm_takes_value(std::string_view name) {
  const Row* row = find_row(name);
  return row && row->value;
}

std::optional<SlurmMeaning> slurm_option(std::string_view name, std::string_view value) {
  const Row* row = find_row(name);
  if (!row)
    return std::nullopt;
  const std::string text(value.empty() && row->value ? "VALUE" : value);
  switch (row->kind) {
    case Kind::same:
      return SlurmMeaning{{fmt::format("--{}", row->ours), text}, std::string(row->note)};
    case Kind::flag:
      return SlurmMeaning{{fmt::format("--{}", row->ours)}, std::string(row->note)};
    case Kind::nothing:
      return SlurmMeaning{{}, std::string(row->note)};
    case Kind::lost:
      return lost(std::string(row->note));
    case Kind::own:
      if (value.empty())
        return SlurmMeaning{{fmt::format("--{}", row->ours), "VALUE"}, std::string(row->note)};
      return by_function(*row, value);
  }
  return std::nullopt;
}

Result<SlurmScript> translate_slurm(const std::vector<SlurmLine>& lines) {
  SlurmScript out;
  Counts counts;
  std::vector<std::string> problems;
  for (const SlurmLine& line : lines)
    for (const Typed& t : typed_options(line.words)) {
      const Row* row = find_row(t.name);
      if (!row || !t.name.starts_with('-')) {
        problems.push_back(fmt::format("{}: Slurm has no option {}", line.number, t.shown));
        continue;
      }
      const SlurmMeaning meaning = *slurm_option(t.name, t.value);
      const bool counted = take_count(counts, *row, t.value);
      if (meaning.lost && !counted) {
        problems.push_back(fmt::format("{}: {}: {}", line.number, t.shown, meaning.note));
        continue;
      }
      if (!counted)
        out.words.insert(out.words.end(), meaning.words.begin(), meaning.words.end());
      const std::string ours = shell_join(meaning.words);
      out.notes.push_back(fmt::format("{}: {} → {}", line.number, t.shown,
                                      ours.empty() ? "not needed: " + meaning.note
                                      : meaning.note.empty()
                                          ? ours
                                          : fmt::format("{} ({})", ours, meaning.note)));
    }
  if (!problems.empty())
    return fail(
        Code::invalid, fmt::format("#SBATCH line {}", join(problems, "\n        line ")),
        "remove these lines, or write the script's options as #BILLOW lines, which are then "
        "used instead (`billow docs from-slurm`)");
  add_counts(counts, out.words);
  return out;
}

}  // namespace billow::client
