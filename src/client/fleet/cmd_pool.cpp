// Pools: where machines come from when the queue needs them.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "client/fleet/pool_options.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "core/model/money.h"
#include "core/model/pool.h"
#include "core/wire/codec.h"
#include "gpu/types.h"

namespace billow::client {
namespace {

constexpr OptionSpec pool_options[] = {
    {"min", 0, "N", "machines kept even without jobs (default 0)"},
    {"max", 0, "N", "maximum number of machines (default 1)"},
    {"idle", 0, "T", "release a machine after this long without jobs (default 3m)"},
    {"patience", 0, "T",
     "also ask the next pool if a machine takes longer than this to join (default 2m)"},
    {"order", 0, "N", "order in which pools are asked: lowest first, then cheapest (default 0)"},
    {"price", 0, "USD", "price of one machine per hour"},
    pool_limit_options[0],
    pool_limit_options[1],
    {"spot", 0, nullptr, "the provider may reclaim its machines"},
    {"gpu", 0, "NxTYPE", "GPUs per machine, e.g. 8xH100"},
    {"label", 0, "KEY=VALUE", "label for its nodes", true},
    {"head-url", 0, "URL", "head address for its machines (default: this head's address)"},
    {"sim", 0, "SPEC", "simulate the GPUs of its machines"},
    {"partition", 0, "NAME", "slurm: the partition"},
    {"gres", 0, "GRES", "slurm: GPUs per node, e.g. gpu:h100:8"},
    {"time", 0, "T", "slurm: length of an allocation (default: that of the partition)"},
    {"sbatch", 0, "OPTION", "slurm: further option for sbatch, e.g. --sbatch=--account=physics",
     true},
    {"create", 0, "CMD", "command: creates a machine (BILLOW_MACHINE, BILLOW_USER_DATA, …)"},
    {"list", 0, "CMD", "command: prints the existing machines, one per line, name first"},
    {"delete", 0, "CMD", "command: deletes BILLOW_MACHINE"},
    {"gpu-type", 0, "TYPE", "kubernetes: GPU type; pods have as many GPUs as jobs need, at most 8"},
    {"image", 0, "IMAGE",
     "kubernetes: container image of the pods; must contain curl, python3 or billow"},
    {"context", 0, "NAME", "kubernetes: context of the kubeconfig (default: the current one)"},
    {"namespace", 0, "NAME", "kubernetes: namespace of the pods (default: that of the context)"},
    {"queue", 0, "NAME", "kubernetes: queue of Kueue, or of Volcano with --option queue-system"},
    {"privileged", 0, nullptr,
     "kubernetes: run privileged pods; needed for GPU slices, suspend and jobs with --image"},
    {"option", 0, "KEY=VALUE", "further option of this kind of pool", true},
};

// "A100" is the name of several types; "A10" is close to one.
std::string type_hint(const std::string& text) {
  std::string known;
  for (const std::string& type : gpu_type_names())
    if (lower(type).starts_with(lower(text)))
      known += (known.empty() ? "" : ", ") + type;
  if (known.empty())
    known = nearest(text, gpu_type_names());
  return known.empty() ? "set it with --gpu, e.g. --gpu 8xH100; see `billow prices --gpus`"
                       : fmt::format("did you mean {}? all types: `billow prices --gpus`", known);
}

Result<std::string> gpu_type_of(const std::string& text) {
  const GpuTypeFacts* facts = find_gpu_type(text);
  if (!facts)
    return fail(Code::invalid, fmt::format("unknown GPU type \"{}\"", text), type_hint(text));
  return std::string(facts->type);
}

// "8xH100" → 8 and "H100".
Status read_gpus(const std::string& text, Pool& pool) {
  const auto x = text.find('x');
  const auto count =
      x == std::string::npos ? Result<std::int64_t>(1) : parse_int(text.substr(0, x), 1, 64);
  if (!count)
    return fail(Code::invalid, fmt::format("--gpu {}: {}", text, count.error().message),
                "use a form like 8xH100");
  pool.gpus = static_cast<std::int32_t>(*count);
  pool.gpu_type = BILLOW_TRY(gpu_type_of(x == std::string::npos ? text : text.substr(x + 1)));
  return {};
}

// "gpu:h100:8" → "gpu:h100" and 8; the type is Billow's own name for it, unless --gpu says
// otherwise.
Status read_gres(const std::string& text, Pool& pool) {
  const auto parts = split(text, ':');
  const auto count = parts.size() >= 2
                         ? parse_int(parts.back(), 1, 64)
                         : Result<std::int64_t>(fail(Code::invalid, "the count is missing"));
  if (!count || parts.size() > 3 || parts[0].empty())
    return fail(Code::invalid, fmt::format("--gres {} is not valid", text),
                "use a form like gpu:h100:8");
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != ':' && c != '_' && c != '-' &&
        c != '.')
      return fail(Code::invalid, fmt::format("--gres {}: \"{}\" is not valid", text, c));
  pool.gres = text.substr(0, text.rfind(':'));
  pool.gpus = static_cast<std::int32_t>(*count);
  // A site's own name for a GPU ("a100-sxm") also needs --gpu.
  if (parts.size() == 3)
    if (const GpuTypeFacts* facts = find_gpu_type(parts[1]))
      pool.gpu_type = facts->type;
  return {};
}

// --label KEY=VALUE, as often as wanted.
Status read_pairs(const Parsed& p,
                  const char* option,
                  std::string_view example,
                  std::map<std::string, std::string>& pairs) {
  for (const std::string& text : p.all(option)) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size())
      return fail(Code::invalid, fmt::format("--{} {} is not KEY=VALUE", option, text),
                  fmt::format("use a form like --{} {}", option, example));
    pairs[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return {};
}

Result<Pool> read_pool(const Parsed& p) {
  Pool pool;
  pool.kind = p.operands[0];  // the head knows which kinds exist
  pool.name = p.operands[1];
  const auto number = [&](const char* name, std::int64_t fallback, std::int64_t min,
                          std::int64_t max) -> Result<std::int64_t> {
    if (!p.has(name))
      return fallback;
    auto n = parse_int(p.get(name), min, max);
    if (!n)
      return pass(std::move(n.error()), std::string("--") + name);
    return n;
  };
  const auto time = [&](const char* name, Duration fallback) -> Result<Duration> {
    if (!p.has(name))
      return fallback;
    auto d = duration_with_unit(p.get(name));
    if (!d)
      return pass(std::move(d.error()), std::string("--") + name);
    return d;
  };
  pool.machines_min = static_cast<std::uint32_t>(BILLOW_TRY(number("min", 0, 0, 1'000'000)));
  pool.machines_max = static_cast<std::uint32_t>(BILLOW_TRY(number("max", 1, 1, 1'000'000)));
  pool.order = static_cast<std::int32_t>(BILLOW_TRY(number("order", 0, -1000, 1000)));
  pool.idle = BILLOW_TRY(time("idle", limits::node_give_back_after));
  pool.patience = BILLOW_TRY(time("patience", pool.patience));
  pool.time = BILLOW_TRY(time("time", pool.time));
  pool.spot = p.has("spot");
  pool.head_url = p.get("head-url");
  pool.sim = p.get("sim");
  pool.partition = p.get("partition");
  pool.sbatch_args = p.all("sbatch");
  pool.create_command = p.get("create");
  pool.list_command = p.get("list");
  pool.delete_command = p.get("delete");
  if (p.has("price")) {
    auto price = parse_usd(p.get("price"));
    if (!price)
      return pass(std::move(price.error()), "--price");
    pool.price = {price->value / 3600};
  }
  BILLOW_TRY_VOID(read_pool_limits(p, pool));
  if (p.has("gres"))
    BILLOW_TRY_VOID(read_gres(p.get("gres"), pool));
  if (p.has("gpu"))
    BILLOW_TRY_VOID(read_gpus(p.get("gpu"), pool));
  if (p.has("gpu-type"))
    BILLOW_TRY_VOID(read_gpus("8x" + p.get("gpu-type"), pool));
  if (pool.gpus > 0 && pool.gpu_type.empty())
    return fail(Code::invalid, "the GPU type is missing", "add it: --gpu 8xH100");
  BILLOW_TRY_VOID(read_pairs(p, "label", "zone=a", pool.labels));
  BILLOW_TRY_VOID(read_pairs(p, "option", "region=eu-west-1", pool.options));
  for (const char* name : {"image", "context", "namespace", "queue"})
    if (p.has(name))
      pool.options[name] = p.get(name);
  if (p.has("privileged"))
    pool.options["privileged"] = "yes";
  return pool;
}

// A pool whose account lacks rights would fail at its first order, when nobody looks. It is removed
// again, so that the same command can be repeated. A cluster that does not answer may do so later.
Status check_rights(Client& client, const std::string& pool) {
  const std::string path = "/v1/pools/" + net::percent_encode(pool);
  const auto account = client.call(net::Method::post, path + "/check", "{}", {}, minutes(2));
  if (!account && account.error().code == Code::not_found) {  // there is no cluster to ask
    BILLOW_TRY(client.del(path));
    return pass(account.error(), "the pool was not created");
  }
  if (!account) {
    say(fmt::format("pool {} cannot be checked yet: {}", pool, account.error().message));
    return {};
  }
  const auto& problems = (*account)["problems"].items();
  for (const Json& problem : problems)
    say(problem.str_or(""));
  if (problems.empty()) {
    for (const Json& warning : (*account)["warnings"].items())
      say(fmt::format("warning: {}", warning.str_or("")));
    return {};
  }
  BILLOW_TRY(client.del(path));
  return fail(
      Code::forbidden,
      fmt::format("the pool was not created: {} rights are missing", problems.size()),
      fmt::format("{}; then repeat this command", (*account)["remedy"].str_or("grant them")));
}

// A command pool's commands run in / on the head's machine. One that names a program by a relative
// path means the directory of the person who types it; that is known only on the head's machine.
Status settle_command(std::string& command, const char* option, const HeadAddress& head) {
  const std::string program = command.substr(0, command.find_first_of(" \t\n"));
  if (program.find('/') == std::string::npos ||
      program.find_first_of("\"'`$\\;&|<>(){}*?[]#~=") != std::string::npos)
    return {};
  const bool here = head.endpoint.address.is_unix(), relative = program[0] != '/';
  if (!here)
    return relative ? fail(Code::invalid,
                           fmt::format("--{} {}: the path is relative, and the command runs on the "
                                       "head's machine",
                                       option, program),
                           "give the absolute path of the program on the head's machine")
                    : Status{};
  std::error_code ignored;
  const std::string path = std::filesystem::absolute(program, ignored).lexically_normal().string();
  struct stat info {};
  const bool found = ::stat(path.c_str(), &info) == 0;
  if (!found && relative)
    return fail(Code::invalid, fmt::format("--{} {}: {} does not exist", option, program, path),
                "check the path; relative paths start in the current directory");
  if (found && S_ISREG(info.st_mode) && (info.st_mode & 0111) == 0)
    return fail(Code::invalid, fmt::format("--{} {}: {} is not executable", option, program, path),
                fmt::format("chmod +x {}", path));
  command.replace(0, program.size(), path);
  return {};
}

Status settle_commands(Pool& pool, const HeadAddress& head) {
  if (pool.kind != "command")
    return {};
  BILLOW_TRY_VOID(settle_command(pool.create_command, "create", head));
  BILLOW_TRY_VOID(settle_command(pool.list_command, "list", head));
  return settle_command(pool.delete_command, "delete", head);
}

int pool_add(const Parsed& p) {
  if (p.operands.size() != 2)
    return report_usage(
        {Code::invalid, "a pool kind and a name are required",
         "for example: billow pool add slurm fast --partition gpu --gres gpu:h100:8 --max 16"});
  auto pool = read_pool(p);
  if (!pool)
    return report_usage(pool.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  if (const Status ok = settle_commands(*pool, client->address()); !ok)
    return report_usage(ok.error());
  auto answer = client->post("/v1/pools", wire::to_json_text(*pool));
  if (!answer)
    return report(answer.error());
  if (pool->kind == "kubernetes")
    if (const Status checked = check_rights(*client, pool->name); !checked)
      return report(checked.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print(fmt::format(
        "created pool {}; queued jobs now start machines from it (see `billow pool list`)\n",
        pool->name));
  return 0;
}

// That a machine cannot be ended, why it is released, or what its provider says of it; of a cache
// disk, who uses it.
std::string machine_note(const Json& pool, const Json& machine) {
  if (machine["note"].str_or("").starts_with(machine_not_ended))
    return std::string(machine["note"].str_or(""));
  if (!machine["reason"].str_or("").empty())
    return std::string(machine["reason"].str_or(""));
  if (machine["disk_gib"].is_null())
    return std::string(machine["note"].str_or(""));
  std::string holder;
  for (const Json& other : pool["machines"].items())
    if (other["cache"].str_or("") == machine["name"].str_or(""))
      holder = other["name"].str_or("");
  return fmt::format("cache of {} GiB, ${:.2f} per month, {}", machine["disk_gib"].int_or(0),
                     machine["offer"]["price_usd_per_h"].double_or(0) * 730.5,
                     holder.empty() ? "not in use" : "used by " + holder);
}

// What keeps the pool from bringing machines is more urgent than where they are.
std::string remark_or_place(const Json& pool) {
  const std::string remark = pool_remark(pool);
  return remark.empty() ? std::string(pool["place"].str_or("")) : remark;
}

int pool_list(const Parsed& p) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->get("/v1/pools");
  if (!answer)
    return report(answer.error());
  if (p.has("json")) {
    print_json(*answer);
    return 0;
  }
  Table pools({{"POOL"},
               {"KIND"},
               {"GPUS"},
               {"MACHINES", Table::Align::right},
               {"PRICE", Table::Align::right},
               {"IDLE", Table::Align::right},
               {"NOTE", Table::Align::left, 20}});
  Table machines({{"MACHINE"},
                  {"STATE"},
                  {"NODES", Table::Align::right},
                  {"GPUS", Table::Align::right},
                  {"PROVIDER NAME"},
                  {"NOTE", Table::Align::left, 20}});
  for (const Json& pool : (*answer)["pools"].items()) {
    std::int64_t nodes = 0;
    for (const Json& m : pool["machines"].items()) {
      nodes += m["nodes"].int_or(1);
      machines.row({std::string(m["name"].str_or("?")), std::string(m["state"].str_or("?")),
                    fmt::format("{}", m["nodes"].int_or(1)), fmt::format("{}", m["gpus"].int_or(0)),
                    std::string(m["external"].str_or("")), machine_note(pool, m)});
    }
    const double price = pool["price_usd_per_h"].double_or(0);
    pools.row({std::string(pool["name"].str_or("?")), std::string(pool["kind"].str_or("?")),
               pool["gpus"].int_or(0)
                   ? fmt::format("{}x{}", pool["gpus"].int_or(0), pool["gpu_type"].str_or(""))
                   : "-",
               fmt::format("{} of {}–{}", nodes, pool["min"].int_or(0), pool["max"].int_or(0)),
               price > 0 ? fmt::format("${:.2f}/h", price) : "-",
               format_duration(seconds(pool["idle_s"].int_or(0))), remark_or_place(pool)});
  }
  const Look look = look_at(STDOUT_FILENO);
  if (pools.empty())
    say("there are no pools; see `billow pool add --help`");
  else
    print(pools.text(look));
  if (!machines.empty())
    print("\n" + machines.text(look));
  return 0;
}

int pool_rm(const Parsed& p) {
  return remove_pool(p, "pool");
}

int pool_retry(const Parsed& p) {
  const auto name = one_operand(p, "pool retry", "pool");
  if (!name)
    return report_usage(name.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->post(fmt::format("/v1/pools/{}/retry", net::percent_encode(*name)));
  if (!answer)
    return report(answer.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print(fmt::format("pool {} orders machines again\n", *name));
  return 0;
}

int machine_release(const Parsed& p) {
  const auto name = one_operand(p, "machine release", "machine");
  if (!name)
    return report_usage(name.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->post(fmt::format("/v1/machines/{}/release", net::percent_encode(*name)));
  if (!answer)
    return report(answer.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print(fmt::format("released {}; its jobs return to the queue\n", *name));
  return 0;
}

}  // namespace

Status read_cache(const Parsed& p, Pool& pool) {
  if (!p.has("cache"))
    return {};
  if (pool.kind == "rest")
    return fail(Code::invalid, "--cache is for aws, gcp and azure",
                "omit --cache: this provider has no disks that outlive machines");
  const auto bytes = bytes_with_unit(p.get("cache"));
  if (!bytes)
    return pass(Error(bytes.error()).in("--cache"));
  if (*bytes < (10ull << 30))
    return fail(Code::invalid, fmt::format("--cache {} is too small", p.get("cache")),
                "use at least 10GB");
  pool.cache_gib = static_cast<std::int64_t>((*bytes + (1ull << 30) - 1) >> 30);
  return {};
}

std::int64_t machines_in(const Json& pool) {
  return std::ranges::count_if(pool["machines"].items(),
                               [](const Json& machine) { return machine["disk_gib"].is_null(); });
}

std::string pool_remark(const Json& pool) {
  const std::string_view why = pool["denied"].str_or("");
  if (!pool["removing"].bool_or(false))
    return std::string(why);
  return why.empty() ? "being removed" : fmt::format("being removed; {}", why);
}

void print_account(const Json& account) {
  print(fmt::format("account   {}\nidentity  {}\nfound in  {}\n", account["account"].str_or("-"),
                    account["identity"].str_or("-"), account["source"].str_or("-")));
  if (account["problems"].items().empty())
    print("problems  none\n");
  for (const Json& problem : account["problems"].items())
    print(fmt::format("problem   {}\n", problem.str_or("")));
  if (const auto remedy = account["remedy"].str_or(""); !remedy.empty())
    print(fmt::format("remedy    {}\n", remedy));
  for (const Json& warning : account["warnings"].items())
    print(fmt::format("warning   {}\n", warning.str_or("")));
}

Status read_pool_limits(const Parsed& p, Pool& pool) {
  if (p.has("max-hourly")) {
    auto most = parse_usd(p.get("max-hourly"));
    if (!most || most->value <= 0)
      return fail(Code::invalid,
                  fmt::format("--max-hourly {} is not an amount in dollars", p.get("max-hourly")),
                  "use a form like --max-hourly 50");
    pool.spend_max_h = *most;
  }
  pool.per_minute_max =
      static_cast<std::uint32_t>(BILLOW_TRY(int_option(p, "max-per-minute", 0, 1, 10'000)));
  return {};
}

int remove_pool(const Parsed& p, std::string_view what) {
  const auto name = one_operand(p, fmt::format("{} rm", what), what);
  if (!name)
    return report_usage(name.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->del("/v1/pools/" + net::percent_encode(*name));
  if (!answer)
    return report(answer.error());
  const auto machines = (*answer)["machines"].int_or(0);
  if (p.has("json"))
    print_json(*answer);
  else
    print((*answer)["gone"].bool_or(false)
              ? fmt::format("removed {} {}{}\n", what, *name,
                            (*answer)["watched"].bool_or(false)
                                ? "; a machine that a late order brings in the next 10 minutes is "
                                  "still ended"
                                : "")
              : fmt::format("{} {} is ending its {} machine{} and will then be removed\n", what,
                            *name, machines, machines == 1 ? "" : "s"));
  return 0;
}

void add_pool_commands(CommandTable& table) {
  constexpr const char* group = "machines";
  table.push_back(
      {.name = "pool add",
       .summary =
           "create a pool that orders machines when jobs are queued and releases them afterwards",
       .example = "billow pool add slurm fast --partition gpu --gres gpu:h100:8 --max "
                  "16 --idle 5m --time 12h\n"
                  "billow pool add command cloud --gpu 8xH100 --max 4 --price 23.92 "
                  "--create ./create.sh --list ./list.sh --delete ./delete.sh\n"
                  "billow pool add kubernetes k8s --gpu-type H100 --max 16 "
                  "--image nvcr.io/nvidia/pytorch:24.12-py3",
       .run = pool_add,
       .usage = "slurm|kubernetes|command NAME",
       .details = "slurm: each machine is an allocation of a partition; its agent offers exactly "
                  "the GPUs that Slurm assigned.\ncommand: create, list and delete are shell "
                  "commands. create gets BILLOW_MACHINE, BILLOW_HEAD, BILLOW_TOKEN, BILLOW_GPUS, "
                  "BILLOW_GPU_TYPE\nand BILLOW_USER_DATA (a cloud-init file that makes the machine "
                  "join). If create fails, the next pool is asked.\nkubernetes: each machine is a "
                  "pod, created with the head's kubeconfig or service account; docs/kubernetes.md "
                  "lists its options.",
       .options = {pool_options},
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "pool list",
                   .summary = "list pools and their machines",
                   .example = "billow pool list",
                   .run = pool_list,
                   .group = group});
  table.push_back({.name = "pool rm",
                   .summary = "release a pool's machines and remove it",
                   .example = "billow pool rm fast",
                   .run = pool_rm,
                   .usage = "POOL",
                   .operands = Operands::some,
                   .group = group});
  table.push_back(
      {.name = "pool retry",
       .summary = "let a pool order machines again after it stopped or its provider refused",
       .example = "billow pool retry fast",
       .run = pool_retry,
       .usage = "POOL",
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "machine release",
                   .summary = "release one machine of a pool immediately",
                   .example = "billow machine release fast-3",
                   .run = machine_release,
                   .usage = "MACHINE",
                   .operands = Operands::some,
                   .group = group});
}

}  // namespace billow::client
