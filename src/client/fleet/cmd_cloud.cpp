// Clouds: pools that rent machines. The head holds the credentials and asks the provider; these
// commands only ask the head.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "client/fleet/cloud_kinds.h"
#include "client/fleet/pool_options.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/shown_token.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "core/model/pool.h"
#include "core/wire/codec.h"
#include "net/address.h"

std::string_view billow_embedded_aws_head_policy();
std::string_view billow_embedded_aws_policy();
std::string_view billow_embedded_azure_policy();
std::string_view billow_embedded_gcp_policy();

namespace billow::client {
namespace {

constexpr OptionSpec cloud_add_options[] = {
    {"name", 0, "NAME", "name of the pool (default: the name of the cloud)"},
    {"region", 0, "A,B", "regions to rent in (default: the region of your environment)"},
    {"max", 0, "N", "maximum number of machines (default 4)"},
    {"min", 0, "N", "machines kept even without jobs (default 0)"},
    {"idle", 0, "T", "release a machine after this long without jobs (default 3m)"},
    {"spot", 0, nullptr, "also rent spot machines, for jobs with --spot"},
    pool_limit_options[0],
    pool_limit_options[1],
    {"ask-above", 0, "USD",
     "`billow run` on a terminal rents machines up to this price per hour without asking "
     "(default 0)"},
    {"gpu-type", 0, "A,B", "rent only these GPUs"},
    {"profile", 0, "NAME", "aws: profile in ~/.aws of the user who runs the head"},
    {"key-file", 0, "FILE", "file with the provider's API key (\"-\" reads stdin)", false,
     Completes::file},
    {"head-url", 0, "URL", "head address for its machines (default: this head's address)"},
    {"subnet", 0, "A,B",
     "aws, gcp, azure: subnets of the machines (default: the default subnets, or a new network)"},
    {"no-public-address", 0, nullptr,
     "aws, gcp, azure: machines get no public address; the subnets need a NAT or a proxy"},
    {"proxy", 0, "http://HOST:PORT", "aws, gcp, azure: machines reach the head through this proxy"},
    {"cache", 0, "SIZE",
     "aws, gcp, azure: each machine gets a disk of this size that keeps images and models for the "
     "next machine, e.g. 500GB"},
    {"sim", 0, "SPEC", "simulate the GPUs of its machines, for tests"},
    {"option", 0, "KEY=VALUE", "further option of the provider, e.g. image=ami-…", true},
};
constexpr OptionSpec sweep_options[] = {
    {"yes", 'y', nullptr, "terminate the machines (default: only list them)"},
};
constexpr OptionSpec price_options[] = {
    {"gpu-type", 0, "TYPE", "only this GPU"},
    {"refresh", 0, nullptr, "ask the provider again; the list is updated within seconds"},
    {"limit", 0, "N", "show at most this many offers (default 20)"},
};

std::string own_region(const std::string& cloud) {
  if (cloud != "aws")
    return {};
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (const char* set = std::getenv(name); set && *set)
      return set;
  return {};
}

// Keys reach the head in the request and are sealed there; they are never an argument.
Result<std::string> api_key(const Parsed& p, const std::string& cloud) {
  if (p.get("key-file") == "-" || (!p.has("key-file") && kind_of_cloud(cloud) == "rest")) {
    auto key = secret_from_stdin("API key");
    if (!key)
      key.error().hint = fmt::format(
          "create a key in the console of {}, then type it here, or write it to a file: billow "
          "cloud add {} --key-file FILE",
          cloud, cloud);
    return key;
  }
  if (p.has("key-file"))
    return std::string(trim(BILLOW_TRY(read_file(p.get("key-file"), 64 << 10))));
  return std::string();
}

// Each cloud has its own names for these.
Status read_network(const Parsed& p, Pool& pool) {
  for (const char* name : {"subnet", "no-public-address", "proxy"})
    if (p.has(name) && pool.kind == "rest")
      return fail(Code::invalid, fmt::format("--{} is for aws, gcp and azure", name),
                  "see the options of this provider: billow cloud providers");
  if (p.has("subnet"))
    pool.options[pool.kind == "ec2"   ? "subnets"
                 : pool.kind == "gce" ? "subnetwork"
                                      : "subnet"] = p.get("subnet");
  if (p.has("no-public-address"))
    pool.options["public_address"] = "false";
  if (p.has("proxy"))
    pool.options["proxy"] = p.get("proxy");
  return {};
}

Result<Pool> read_cloud(const Parsed& p) {
  const std::string cloud = cloud_name(p.operands[0]);
  Pool pool;
  pool.kind = kind_of_cloud(cloud);
  pool.name = p.get("name", cloud);
  pool.labels["cloud"] = cloud;
  pool.machines_max =
      static_cast<std::uint32_t>(BILLOW_TRY(parse_int(p.get("max", "4"), 1, 10'000)));
  pool.machines_min =
      static_cast<std::uint32_t>(BILLOW_TRY(parse_int(p.get("min", "0"), 0, 10'000)));
  pool.idle = BILLOW_TRY(duration_with_unit(p.get("idle", "3m")));
  pool.spot = p.has("spot");
  BILLOW_TRY_VOID(read_pool_limits(p, pool));
  if (p.has("ask-above")) {
    auto most = parse_usd(p.get("ask-above"));
    if (!most)
      return pass(std::move(most.error()), "--ask-above");
    pool.ask_above_h = *most;
  }
  pool.head_url = p.get("head-url");
  pool.sim = p.get("sim");
  if (pool.kind == "rest")
    pool.options["provider"] = cloud;
  const std::string regions = p.get("region", own_region(cloud));
  if (!regions.empty())
    pool.options["regions"] = regions;
  else if (cloud == "aws" || cloud == "azure")
    return fail(Code::invalid, "the region is missing",
                fmt::format("add it: --region {} (several are separated by commas)",
                            cloud == "aws" ? "us-east-1" : "eastus"));
  if (p.has("gpu-type"))
    pool.options["gpu_types"] = p.get("gpu-type");
  if (p.has("profile"))
    pool.options["profile"] = p.get("profile");
  BILLOW_TRY_VOID(read_network(p, pool));
  BILLOW_TRY_VOID(read_cache(p, pool));
  for (const std::string& text : p.all("option")) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals + 1 == text.size())
      return fail(Code::invalid, fmt::format("--option {} is not KEY=VALUE", text),
                  "use a form like --option image=ami-0123");
    pool.options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return pool;
}

std::string path_of_pool(const std::string& pool, const char* rest) {
  return fmt::format("/v1/pools/{}{}", net::percent_encode(pool), rest);
}

// Machines elsewhere cannot reach a head that listens on this machine only.
void warn_of_local_head(Client& client, const Pool& pool) {
  if (!pool.head_url.empty())
    return;
  const auto status = client.get("/v1/status");
  if (!status)
    return;
  for (const Json& address : (*status)["addresses"].items())
    if (const auto at = net::parse_endpoint(address.str_or("")); at && !at->address.is_loopback())
      return;
  say("machines of a cloud must reach this head: start it with a public address (`billow up "
      "--listen 0.0.0.0:7070`), name one with --head-url, or move the head: billow cloud head aws");
}

// Says so before a key is asked for. A file in the head's folder `providers` may have any name.
Status check_provider(Client& client, const Parsed& p, const std::string& cloud) {
  if (kind_of_cloud(cloud) != "rest" || p.has("key-file"))
    return {};
  const Json answer = BILLOW_TRY(client.get("/v1/providers"));
  std::vector<std::string> known = {"aws", "gcp", "azure"};
  for (const Json& file : answer["providers"].items())
    known.emplace_back(file["name"].str_or(""));
  if (std::find(known.begin(), known.end(), cloud) != known.end())
    return {};
  const std::string near = nearest(cloud, known);
  return fail(Code::not_found, fmt::format("no provider is named \"{}\"", cloud),
              near.empty() ? "use one of: " + join(known, ", ") +
                                 "; or give the key of a provider file of the head with --key-file"
                           : fmt::format("is it {}?", near));
}

int cloud_add(const Parsed& p) {
  if (p.operands.size() != 1)
    return report_usage({Code::invalid, "the name of a cloud is required",
                         "for example: billow cloud add aws --region us-east-1"});
  const auto pool = read_cloud(p);
  if (!pool)
    return report_usage(pool.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  Json body = parse_json(wire::to_json_text(*pool)).value_or(Json::object());
  if (const Status named = check_provider(*client, p, cloud_name(p.operands[0])); !named)
    return report(named.error());
  if (auto checked = client->post("/v1/pools?dry-run=yes", body.dump()); !checked)
    return report(checked.error());
  const auto key = api_key(p, cloud_name(p.operands[0]));
  if (!key)
    return report(key.error());
  if (!key->empty())
    body.set("credential", *key);
  auto added = client->post("/v1/pools", body.dump());
  if (!added)
    return report(added.error());
  auto account =
      client->call(net::Method::post, path_of_pool(pool->name, "/check"), "{}", {}, minutes(5));
  // Without an account that answers there is nothing to rent from: nothing is kept.
  if (!account) {
    if (auto removed = client->del(path_of_pool(pool->name, "")); !removed)
      (void)report(removed.error());
    return report(Error(account.error()).in(fmt::format("cloud {} was not added", pool->name)));
  }
  if (p.has("json")) {
    print_json(*account);
    return 0;
  }
  print(fmt::format("created cloud {}: queued jobs now rent machines from it, at most {}\n",
                    pool->name, pool->machines_max));
  warn_of_local_head(*client, *pool);
  print_account(*account);
  return 0;
}

Result<std::vector<Json>> clouds_of(Client& client) {
  const Json answer = BILLOW_TRY(client.get("/v1/pools"));
  std::vector<Json> out;
  for (const Json& pool : answer["pools"].items())
    if (!pool["offers"].is_null())
      out.push_back(pool);
  return out;
}

int cloud_list(const Parsed& p) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto clouds = clouds_of(*client);
  if (!clouds)
    return report(clouds.error());
  if (p.has("json")) {
    Json list = Json::array();
    for (Json& cloud : *clouds)
      list.push(std::move(cloud));
    print_json(Json::object({{"clouds", std::move(list)}}));
    return 0;
  }
  Table table({{"CLOUD"},
               {"KIND"},
               {"REGIONS"},
               {"OFFERS", Table::Align::right},
               {"MACHINES", Table::Align::right},
               {"NOTE", Table::Align::left, 20}});
  for (const Json& cloud : *clouds)
    table.row({std::string(cloud["name"].str_or("?")), std::string(cloud["kind"].str_or("?")),
               std::string(cloud["options"]["regions"].str_or("-")),
               fmt::format("{}", cloud["offers"].int_or(0)),
               fmt::format("{} of {}", machines_in(cloud), cloud["max"].int_or(0)),
               pool_remark(cloud)});
  if (table.empty())
    say("there are no clouds; see `billow cloud add --help`");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int cloud_check(const Parsed& p) {
  const auto name = one_operand(p, "cloud check", "cloud");
  if (!name)
    return report_usage(name.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer =
      client->call(net::Method::post, path_of_pool(*name, "/check"), "{}", {}, minutes(5));
  if (!answer)
    return report(answer.error());
  if (p.has("json"))
    print_json(*answer);
  else
    print_account(*answer);
  return (*answer)["problems"].items().empty() ? 0 : 1;
}

// All of them if none is named.
Result<std::vector<std::string>> named_clouds(const Parsed& p, Client& client) {
  std::vector<std::string> names = p.operands;
  if (names.empty())
    for (const Json& cloud : BILLOW_TRY(clouds_of(client)))
      names.emplace_back(cloud["name"].str_or(""));
  return names;
}

int cloud_sweep(const Parsed& p) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  const auto names = named_clouds(p, *client);
  if (!names)
    return report(names.error());
  const bool end = p.has("yes");
  std::size_t found = 0;
  Json all = Json::object();
  for (const std::string& name : *names) {
    auto answer = client->call(end ? net::Method::del : net::Method::get,
                               path_of_pool(name, "/strays"), "", {}, minutes(5));
    if (!answer)
      return report(answer.error());
    for (const Json& machine : (*answer)["machines"].items()) {
      ++found;
      if (!p.has("json"))
        print(fmt::format("{}  {}  {}  {}\n", name, machine["name"].str_or("?"),
                          machine["external"].str_or(""),
                          !end                              ? machine["note"].str_or("")
                          : machine["ended"].bool_or(false) ? std::string_view("is being ended")
                                                            : machine["error"].str_or("")));
    }
    all.set(name, std::move(*answer));
  }
  if (p.has("json"))
    print_json(all);
  else if (found == 0)
    print("every machine at the providers is known to this head\n");
  else if (!end)
    say(fmt::format(
        "{} machine{} of this installation {} unknown to this head; end {} with: billow cloud "
        "sweep --yes",
        found, found == 1 ? "" : "s", found == 1 ? "is" : "are", found == 1 ? "it" : "them"));
  return 0;
}

struct Offers {
  std::vector<std::pair<std::string, Json>> offers;  // by cloud: those that were asked for
  std::set<std::string> types;                       // GPUs of all of them
};

Status gather_offers(Client& client,
                     const Parsed& p,
                     const std::vector<std::string>& clouds,
                     Offers& out) {
  for (const std::string& name : clouds) {
    if (p.has("refresh"))
      (void)BILLOW_TRY(client.post(path_of_pool(name, "/offers")));
    const Json answer = BILLOW_TRY(client.get(path_of_pool(name, "/offers")));
    for (const Json& offer : answer["offers"].items()) {
      const std::string type(offer["gpu_type"].str_or(""));
      out.types.insert(type);
      if (!p.has("gpu-type") || lower(type) == lower(p.get("gpu-type")))
        out.offers.emplace_back(name, offer);
    }
  }
  return {};
}

int cloud_prices(const Parsed& p) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  const auto names = named_clouds(p, *client);
  if (!names)
    return report(names.error());
  const auto limit = parse_int(p.get("limit", "20"), 1, 100'000);
  if (!limit)
    return report_usage(limit.error());
  Offers found;
  if (const Status asked = gather_offers(*client, p, *names, found); !asked)
    return report(asked.error());
  auto& offers = found.offers;
  const auto per_gpu = [](const Json& offer) {
    const double price = offer["price_usd_per_h"].double_or(0);
    return price > 0
               ? price / static_cast<double>(std::max<std::int64_t>(1, offer["gpus"].int_or(0)))
               : 1e9;
  };
  std::stable_sort(offers.begin(), offers.end(), [&](const auto& a, const auto& b) {
    return per_gpu(a.second) < per_gpu(b.second);
  });
  if (p.has("json")) {
    Json list = Json::array();
    for (auto& [name, offer] : offers) {
      offer.set("pool", name);
      list.push(std::move(offer));
    }
    print_json(Json::object({{"offers", std::move(list)}}));
    return 0;
  }
  Table table({{"CLOUD"},
               {"INSTANCE"},
               {"GPUS"},
               {"PLACE"},
               {"MARKET"},
               {"PER HOUR", Table::Align::right},
               {"PER GPU", Table::Align::right},
               {"PRICED"}});
  for (std::size_t i = 0; i < std::min(offers.size(), static_cast<std::size_t>(*limit)); ++i) {
    const auto& [name, o] = offers[i];
    const std::string_view zone = o["zone"].str_or("");
    table.row({name, std::string(o["instance"].str_or("?")),
               fmt::format("{}x{}", o["gpus"].int_or(0), o["gpu_type"].str_or("")),
               std::string(zone.empty() ? o["region"].str_or("") : zone),
               o["spot"].bool_or(false) ? "spot" : "on demand",
               fmt::format("${:.2f}", o["price_usd_per_h"].double_or(0)),
               fmt::format("${:.2f}", per_gpu(o)),
               std::string(o["priced_at"].str_or("").substr(0, 10))});
  }
  if (table.empty() && !found.types.empty())
    say(fmt::format("no cloud here rents {}; they rent {}", p.get("gpu-type"),
                    join({found.types.begin(), found.types.end()}, ", ")));
  else if (table.empty())
    say("no offers are known yet");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int cloud_rm(const Parsed& p) {
  return remove_pool(p, "cloud");
}

constexpr OptionSpec policy_options[] = {
    {"head", 0, nullptr, "aws: the policy of the person who runs `billow cloud head aws`"},
};

int cloud_policy(const Parsed& p) {
  const auto cloud = one_operand(p, "cloud policy", "cloud");
  if (!cloud)
    return report_usage(cloud.error());
  const std::string kind = kind_of_cloud(cloud_name(*cloud));
  if (kind == "rest")
    return report_usage({Code::invalid, fmt::format("{} has no policies", *cloud),
                         "use aws, gcp or azure; other providers have API keys"});
  if (p.has("head") && kind != "ec2")
    return report_usage({Code::invalid, "--head is for aws",
                         fmt::format("billow cloud head {} shows the rights it needs", *cloud)});
  print(p.has("head")   ? billow_embedded_aws_head_policy()
        : kind == "ec2" ? billow_embedded_aws_policy()
        : kind == "gce" ? billow_embedded_gcp_policy()
                        : billow_embedded_azure_policy());
  return 0;
}

constexpr OptionSpec provider_options[] = {
    {"check", 0, nullptr,
     "check these files, or all files in a directory, on this machine (default: the built-in "
     "ones); reports file, line and key of each mistake"},
};

int cloud_providers(const Parsed& p) {
  if (p.has("check"))
    return check_provider_files(p);
  if (!p.operands.empty())
    return report_usage({Code::invalid, "files are only checked",
                         fmt::format("billow cloud providers --check {}", p.operands[0])});
  auto client = connect(p);
  if (!client)
    return report(client.error());
  auto answer = client->get("/v1/providers");
  if (!answer)
    return report(answer.error());
  bool wrong = false;
  Table table({{"PROVIDER"}, {"TITLE"}, {"CREDENTIALS"}, {"BOOTS WITH"}, {"BILLED PER"}});
  for (const Json& file : (*answer)["providers"].items()) {
    if (const std::string_view error = file["error"].str_or(""); !error.empty()) {
      wrong = true;
      say(error);
    }
    const std::int64_t step = file["bill_step_s"].int_or(1),
                       least = file["bill_minimum_s"].int_or(0);
    table.row({std::string(file["name"].str_or("?")), std::string(file["title"].str_or("")),
               std::string(file["credentials"].str_or("")), std::string(file["boot"].str_or("")),
               format_duration(seconds(step)) +
                   (least > step ? ", at least " + format_duration(seconds(least)) : "")});
  }
  if (p.has("json"))
    print_json(*answer);
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return wrong ? 1 : 0;
}

constexpr const char* group = "machines";

// Commands about accounts, rights and files; those about machines are below.
void add_account_commands(CommandTable& table) {
  table.push_back({.name = "cloud policy",
                   .summary = "print the minimal policy for the head's credentials",
                   .example = "billow cloud policy aws > policy.json",
                   .run = cloud_policy,
                   .usage = "aws|gcp|azure",
                   .options = {policy_options},
                   .operands = Operands::some,
                   .group = group,
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back(
      {.name = "cloud providers",
       .summary = "list the providers that are described by files; fails if a file has a mistake",
       .example = "billow cloud providers\n"
                  "billow cloud providers --check acme.toml",
       .run = cloud_providers,
       .usage = "[--check [FILE|DIR…]]",
       .options = {provider_options},
       .operands = Operands::some,
       .group = group});
}

}  // namespace

void add_cloud_commands(CommandTable& table) {
  table.push_back(
      {.name = "cloud add",
       .summary = "rent machines from a cloud when jobs are queued, and terminate them afterwards",
       .example = "billow cloud add aws --region us-east-1,us-west-2 --max 8 --spot\n"
                  "billow cloud add lambda --key-file ~/.lambda-key",
       .run = cloud_add,
       .usage = "aws|gcp|azure|PROVIDER",
       .details = "The head uses the cloud's own credentials (~/.aws, gcloud, az) of the user who "
                  "runs it; API keys are encrypted with the\nhead's key. A job gets the cheapest "
                  "offer that fits it; an offer that is refused is skipped for a while.",
       .options = {cloud_add_options},
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "cloud list",
                   .summary = "list clouds, their offers and machines",
                   .example = "billow cloud list",
                   .run = cloud_list,
                   .group = group});
  table.push_back(
      {.name = "cloud check",
       .summary =
           "show whose credentials a cloud uses, and which permissions and quotas are missing",
       .example = "billow cloud check aws",
       .run = cloud_check,
       .usage = "CLOUD",
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "cloud prices",
                   .summary = "list the GPUs that clouds offer, cheapest first",
                   .example = "billow cloud prices --gpu-type H100",
                   .run = cloud_prices,
                   .usage = "[CLOUD…]",
                   .options = {price_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "cloud sweep",
                   .summary = "find machines of this installation that the head does not know",
                   .example = "billow cloud sweep\nbillow cloud sweep --yes",
                   .run = cloud_sweep,
                   .usage = "[CLOUD…]",
                   .options = {sweep_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "cloud rm",
                   .summary = "terminate a cloud's machines and remove the cloud",
                   .example = "billow cloud rm aws",
                   .run = cloud_rm,
                   .usage = "CLOUD",
                   .operands = Operands::some,
                   .group = group});
  add_account_commands(table);
  add_cloud_head_command(table);
}

}  // namespace billow::client
