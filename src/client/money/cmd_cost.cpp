// What was spent: cost, waste, invoices, the provider's bill, closed months, days that stand out.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "base/file.h"
#include "base/money.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"
#include "client/frame/when.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"

namespace billow::client {
namespace {

constexpr const char* simulated_money = "the GPUs are simulated: nothing of this is charged";

constexpr OptionSpec window_options[] = {
    {"since", 0, "WHEN", "first day: 2026-11-01, 2026-11, or relative (7d) (default: this month)"},
    {"until", 0, "WHEN", "last day"},
    {"project", 'p', "NAME", "only this project"},
    {"user", 'u', "NAME", "only this user"},
    {"grid", 0, "G",
     "show emissions, with this many grams of CO2e per kWh (BILLOW_GRID_G_PER_KWH)"},
};
constexpr OptionSpec cost_options[] = {
    {"by", 0, "A,B",
     "group by project (default), user, job, gpu, day, class, node or endpoint (its replicas); "
     "several combine; or key or key,day: usage by endpoint key"},
    {"job", 0, "JOB", "one job, by lease (an array: each element and the sum)", false,
     Completes::job},
    {"csv", 0, nullptr, "as CSV"},
    {"focus", 0, nullptr, "print FOCUS 1.2, for billing tools"},
};
constexpr OptionSpec waste_options[] = {
    {"by", 0, "A,B",
     "list the largest waste by job, user, project, gpu, node, day, class or endpoint"},
    {"limit", 0, "N", "lines of that list (default 20)"},
};
constexpr OptionSpec invoice_options[] = {
    {"project", 'p', "NAME", "project to invoice"},
    {"month", 0, "MONTH", "month, e.g. 2026-11 (default: the current month)"},
    {"grid", 0, "G",
     "show emissions, with this many grams of CO2e per kWh (BILLOW_GRID_G_PER_KWH)"},
};
constexpr OptionSpec bill_options[] = {
    {"name", 0, "NAME", "name of the bill in the journal (default: the file name)"},
    {"all", 'a', nullptr, "also show lines that agree"}};

std::string upper(std::string text) {
  for (char& c : text)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}
std::string hours_text(const Json& hours) {
  return fmt::format("{:.2f}", hours.double_or(0));
}
std::string grid(const Parsed& p) {
  const char* set = std::getenv("BILLOW_GRID_G_PER_KWH");
  return p.get("grid", set ? set : "");
}

std::vector<std::pair<std::string, std::string>> window_query(const Parsed& p) {
  return {{"since", p.get("since")},
          {"until", p.get("until")},
          {"project", p.get("project")},
          {"user", p.get("user")},
          {"grid", grid(p)}};
}

std::string total_text(const Json& total) {
  std::string text = fmt::format("total {} charged, {} cost", total["charge"].str_or("?"),
                                 total["cost"].str_or("?"));
  if (total["idle_nano_usd"].int_or(0) > 0)
    text += fmt::format(" ({} of it idle)", total["idle"].str_or("?"));
  text += fmt::format(", {:.2f} GPU-hours", total["gpu_hours"].double_or(0));
  if (total["egress_bytes"].int_or(0) > 0)
    text += fmt::format(", {} egress ({} of the charge)",
                        format_bytes(static_cast<std::uint64_t>(total["egress_bytes"].int_or(0))),
                        usd_text(total["egress_nano_usd"]));
  if (total["energy_kwh"].double_or(0) > 0)
    text += fmt::format(", {:.3f} kWh", total["energy_kwh"].double_or(0));
  if (total.find("co2e_kg"))
    text += fmt::format(", {:.3f} kg CO2e", total["co2e_kg"].double_or(0));
  return text;
}

// An array: each element, and the sum.
void show_array_cost(const Json& answer) {
  using Align = Table::Align;
  Table table({{"JOB"},
               {"STATE"},
               {"GPU-HOURS", Align::right},
               {"COST", Align::right},
               {"IDLE", Align::right},
               {"CHARGE", Align::right}});
  for (const Json& e : answer["elements"].items()) {
    const Json& total = e["total"];
    table.row({std::string(e["label"].str_or("?")), std::string(e["state"].str_or("?")),
               hours_text(total["gpu_hours"]), std::string(total["cost"].str_or("-")),
               usd_text(total["idle_nano_usd"]), std::string(total["charge"].str_or("-"))});
  }
  show_table(table, "no element of the array has started yet");
  print(total_text(answer["total"]) + "\n");
}

int job_cost(const Parsed& p) {
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        return c.get(
            with_query(path_of_job(BILLOW_TRY(job_of(c, p.get("job"), NameUse::look)), "cost"),
                       {{"grid", grid(p)}}));
      },
      [&](const Json& answer) {
        if (answer.find("elements"))
          return show_array_cost(answer);
        Table table({{"FROM"},
                     {"TO"},
                     {"HELD", Table::Align::right},
                     {"NODE"},
                     {"GPU"},
                     {"CLASS"},
                     {"IDLE", Table::Align::right},
                     {"PEAK", Table::Align::right},
                     {"EGRESS", Table::Align::right},
                     {"CHARGE", Table::Align::right}});
        for (const Json& l : answer["leases"].items()) {
          const std::int64_t milli = l["milli"].int_or(0);
          const std::string gpu =
              l["gpu"].str_or("").empty()
                  ? "-"
                  : fmt::format("{:g}×{}", static_cast<double>(milli) / 1000, l["gpu"].str_or(""));
          table.row({time_text(l["from"], now(), "-"), time_text(l["to"], now(), "now"),
                     format_duration({static_cast<std::int64_t>(l["held_s"].double_or(0) * 1e9)}),
                     std::string(l["node"].str_or("-")), gpu, std::string(l["class"].str_or("-")),
                     fmt::format("{:.0f} %", l["idle_pct"].double_or(0)),
                     l["mem_peak_mib"].int_or(0) > 0 ? mebibytes(l["mem_peak_mib"].int_or(0)) : "-",
                     l["egress_bytes"].int_or(0) > 0
                         ? fmt::format("{} {}",
                                       format_bytes(
                                           static_cast<std::uint64_t>(l["egress_bytes"].int_or(0))),
                                       usd_text(l["egress_nano_usd"]))
                         : "-",
                     std::string(l["charge"].str_or("-"))});
        }
        show_table(table, "the job has used nothing yet");
        if (answer["roles"].is_array()) {
          Table roles(
              {{"ROLE"}, {"MEMBERS", Table::Align::right}, {"CHARGE", Table::Align::right}});
          for (const Json& role : answer["roles"].items())
            roles.row({std::string(role["role"].str_or("?")),
                       fmt::format("{}", role["members"].int_or(1)),
                       std::string(role["charge"].str_or("-"))});
          print("\n");
          show_table(roles, "");
        }
        print(total_text(answer["total"]) + "\n");
      });
}

// Lines by job, with the label and the name of each: "12.3" and "sweep.3".
Result<Json> with_job_names(Client& client, Json answer) {
  bool by_job = false;
  for (const Json& name : answer["by"].items())
    by_job = by_job || name.str_or("") == "job";
  if (!by_job)
    return answer;
  const Json page =
      BILLOW_TRY(fetch_jobs(client, {.state = "all", .expand = true, .limit = 10'000}));
  std::map<std::string, const Json*> jobs;
  for (const Json& job : page["jobs"].items())
    jobs[fmt::format("{}", job["id"].uint_or(0))] = &job;
  Json lines = Json::array();
  for (Json line : answer["lines"].items()) {
    if (const auto job = jobs.find(std::string(line["job"].str_or(""))); job != jobs.end()) {
      line.set("label", std::string((*job->second)["label"].str_or("")));
      line.set("name", name_of(*job->second));
    }
    lines.push(std::move(line));
  }
  answer.set("lines", std::move(lines));
  return answer;
}

int stream_cost(const Parsed& p, const std::string& target) {
  auto client = connect(p);
  if (!client)
    return report(client.error());
  const Status streamed = client->stream(target, [](std::string_view chunk) {
    print(chunk);
    return true;
  });
  return streamed ? 0 : report(streamed.error());
}

bool is_by_key(const Parsed& p) {
  return p.get("by") == "key" || p.get("by") == "key,day" || p.get("by") == "day,key";
}

void show_keys(const Json& answer) {
  using Align = Table::Align;
  const bool by_day = answer["by"].items().size() > 1;
  std::vector<Table::Column> columns = {{"PROJECT"}, {"ENDPOINT"}, {"KEY"}};
  if (by_day)
    columns.insert(columns.begin(), {"DAY"});
  for (const char* title : {"REQUESTS", "REFUSED", "TOKENS IN", "TOKENS OUT", "CHARGE"})
    columns.push_back({title, Align::right});
  Table table(columns);
  for (const Json& line : answer["lines"].items()) {
    std::vector<Table::Cell> cells;
    if (by_day)
      cells.emplace_back(std::string(line["day"].str_or("?")));
    for (const char* name : {"project", "endpoint", "key"})
      cells.emplace_back(printable(line[name].str_or("?")));
    for (const char* name : {"requests", "refused", "tokens_in", "tokens_out"})
      cells.emplace_back(fmt::format("{}", line[name].uint_or(0)));
    cells.emplace_back(usd_text(line["charge_nano_usd"]));
    table.row(std::move(cells));
  }
  show_table(table, "no key was used in this period");
  print(fmt::format("{} to {}: {} requests, {} charged to keys\n",
                    answer.at("days", "from").str_or("?"), answer.at("days", "to").str_or("?"),
                    answer.at("total", "requests").uint_or(0),
                    answer.at("total", "charge").str_or("?")));
}

int cmd_cost(const Parsed& p) {
  if (p.has("job"))
    return job_cost(p);
  auto query = window_query(p);
  query.insert(query.begin(), {"by", p.get("by")});
  if (is_by_key(p) && !p.has("csv") && !p.has("focus"))
    return ask(
        p, [&](Client& c) { return c.get(with_query("/v1/cost", query)); }, show_keys);
  if (p.has("csv") || p.has("focus")) {
    query.push_back({"format", p.has("focus") ? "focus" : "csv"});
    return stream_cost(p, with_query("/v1/cost", query));
  }
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        Json answer = BILLOW_TRY(c.get(with_query("/v1/cost", query)));
        if (!p.has("json"))
          answer.set("simulated", gpus_are_simulated(c));
        return with_job_names(c, std::move(answer));
      },
      [](const Json& answer) {
        std::vector<Table::Column> columns;
        std::vector<std::string> by;
        for (const Json& name : answer["by"].items()) {
          by.emplace_back(name.str_or("?"));
          columns.push_back({upper(by.back())});
          if (by.back() == "job")
            columns.push_back({"NAME", Table::Align::left, 30});
        }
        for (const char* title : {"CHARGE", "COST", "IDLE", "GPU-HOURS", "KWH"})
          columns.push_back({title, Table::Align::right});
        const bool traffic = answer.at("total", "egress_bytes").int_or(0) > 0;
        if (traffic)
          columns.push_back({"EGRESS", Table::Align::right});
        Table table(columns);
        for (const Json& line : answer["lines"].items()) {
          std::vector<Table::Cell> cells;
          for (const std::string& name : by) {
            const bool labelled = name == "job" && line.find("label");
            const auto value = line[labelled ? "label" : name].str_or("");
            cells.emplace_back(value.empty() ? std::string("-") : std::string(value));
            if (name == "job")
              cells.emplace_back(printable(line["name"].str_or("")));
          }
          cells.emplace_back(usd_text(line["charge_nano_usd"]));
          cells.emplace_back(usd_text(line["cost_nano_usd"]));
          cells.emplace_back(usd_text(line["idle_nano_usd"]));
          cells.emplace_back(hours_text(line["gpu_hours"]));
          cells.emplace_back(fmt::format("{:.3f}", line["energy_kwh"].double_or(0)));
          if (traffic)
            cells.emplace_back(usd_text(line["egress_nano_usd"]));
          table.row(std::move(cells));
        }
        show_table(table, "no costs in this period");
        const std::string scope(answer["scope"].str_or("everything"));
        print(fmt::format("{} to {}{}: {}\n", answer.at("days", "from").str_or("?"),
                          answer.at("days", "to").str_or("?"),
                          scope == "everything" ? "" : ", " + printable(scope),
                          total_text(answer["total"])));
        if (const Json* fleet = answer.find("fleet"))
          print(fmt::format("the nodes cost {}: {} active, {} idle, {} unallocated\n",
                            (*fleet)["cost"].str_or("?"), usd_text((*fleet)["active_nano_usd"]),
                            usd_text((*fleet)["idle_nano_usd"]),
                            (*fleet)["unallocated"].str_or("?")));
        if (answer["simulated"].bool_or(false))
          say(simulated_money);
      });
}

void show_waste_lines(const Json& answer) {
  std::vector<Table::Column> columns;
  std::vector<std::string> by;
  for (const Json& name : answer["by"].items()) {
    by.emplace_back(name.str_or("?"));
    columns.push_back({upper(by.back())});
    if (by.back() == "job")
      columns.push_back({"WHAT", Table::Align::left, 30});
  }
  for (const char* title : {"WASTED", "OF", "IDLE", "OVERSIZED"})
    columns.push_back({title, Table::Align::right});
  Table table(columns);
  for (const Json& line : answer["lines"].items()) {
    std::vector<Table::Cell> cells;
    for (const std::string& name : by) {
      const bool labelled = name == "job" && line.find("label");
      const auto value = line[labelled ? "label" : name].str_or("");
      cells.emplace_back(value.empty() ? std::string("-") : std::string(value));
      if (name == "job")
        cells.emplace_back(printable(line[labelled ? "name" : "what"].str_or("")));
    }
    cells.emplace_back(usd_text(line["wasted_nano_usd"]));
    cells.emplace_back(fmt::format("{} ({:.0f} %)", usd_text(line["cost_nano_usd"]),
                                   line["wasted_pct"].double_or(0)));
    cells.emplace_back(usd_text(line["idle_nano_usd"]));
    cells.emplace_back(usd_text(line["oversized_nano_usd"]));
    table.row(std::move(cells));
  }
  print("\n");
  show_table(table, "no waste in this period");
  const auto shown = answer["lines"].items().size();
  if (const std::int64_t all = answer["lines_in_all"].int_or(0);
      all > static_cast<std::int64_t>(shown))
    print(fmt::format("and {} more with less waste: --limit {}\n",
                      all - static_cast<std::int64_t>(shown), all));
  const std::int64_t idle = answer["lines_idle_nano_usd"].int_or(0),
                     oversized = answer["lines_oversized_nano_usd"].int_or(0);
  print(fmt::format("{} wasted in total: {} idle, {} oversized\n", format_usd({idle + oversized}),
                    format_usd({idle}), format_usd({oversized})));
  if (format_usd({idle}) != usd_text(answer["idle_nano_usd"]) ||
      format_usd({oversized}) != usd_text(answer["inefficient_nano_usd"]))
    print(
        "the list counts whole leases on the day they ended, and running ones since midnight; the "
        "totals above are split by day\n");
}

int cmd_waste(const Parsed& p) {
  auto query = window_query(p);
  query.push_back({"by", p.get("by")});
  query.push_back({"limit", p.get("limit", p.has("by") ? "20" : "")});
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        Json answer = BILLOW_TRY(c.get(with_query("/v1/waste", query)));
        return p.has("json") ? Result<Json>(std::move(answer))
                             : with_job_names(c, std::move(answer));
      },
      [](const Json& answer) {
        const std::string scope(answer["scope"].str_or("everything"));
        print(fmt::format("{} to {}{}: {} in total\n", answer.at("days", "from").str_or("?"),
                          answer.at("days", "to").str_or("?"),
                          scope == "everything" ? "" : ", " + printable(scope),
                          usd_text(answer["fleet_nano_usd"])));
        print(answer["text"].str_or(""));
        if (answer.find("lines"))
          show_waste_lines(answer);
        if (!answer["unused_machines"].items().empty())
          print("\nrented machines that ran no job:\n");
        for (const Json& m : answer["unused_machines"].items())
          print(fmt::format("  {}: {}, {}\n", m["machine"].str_or("?"), m["cost"].str_or(""),
                            printable(m["reason"].str_or(""))));
        if (!answer["idle_now"].items().empty())
          print("\ncurrently idle:\n");
        for (const Json& j : answer["idle_now"].items())
          print(fmt::format("  job {}, {}: {}\n", j["job"].int_or(0),
                            format_rate_per_hour({j["nano_usd_per_s"].int_or(0)}),
                            j["text"].str_or("")));
        if (answer["right_size"].items().empty())
          return;
        print("\noversized jobs:\n");
        for (const Json& a : answer["right_size"].items())
          print(fmt::format("  {}: {}\n", printable(a["what"].str_or("?")), a["text"].str_or("")));
      });
}

int cmd_invoice(const Parsed& p) {
  return ask(
      p,
      [&](Client& c) -> Result<Json> {
        Json answer = BILLOW_TRY(c.get(
            with_query("/v1/invoices", {{"project", p.get("project")},
                                        {"month", p.get("month", format_utc(now()).substr(0, 7))},
                                        {"grid", grid(p)}})));
        if (!p.has("json"))
          answer.set("simulated", gpus_are_simulated(c));
        return answer;
      },
      [](const Json& answer) {
        print(fmt::format(
            "invoice {}{}\n", answer["number"].str_or("?"),
            answer["final"].bool_or(false) ? "" : " (not final: the month is still open)"));
        print(fmt::format("project {}, {} to {}\n", answer["project"].str_or("?"),
                          answer.at("days", "from").str_or("?"),
                          answer.at("days", "to").str_or("?")));
        for (const auto& [key, value] : answer["tags"].members())
          print(fmt::format("{}: {}\n", key, value.str_or("")));
        Table table({{"USER"},
                     {"GPU"},
                     {"CLASS"},
                     {"GPU-HOURS", Table::Align::right},
                     {"AMOUNT", Table::Align::right}});
        for (const Json& line : answer["lines"].items()) {
          const std::int64_t egress = line["egress_nano_usd"].int_or(0),
                             bytes = line["egress_bytes"].int_or(0);
          const std::string user(line["user"].str_or("-"));
          table.row({user,
                     line["gpu"].str_or("").empty() ? "-" : std::string(line["gpu"].str_or("")),
                     std::string(line["class"].str_or("-")), hours_text(line["gpu_hours"]),
                     format_usd({line["charge_nano_usd"].int_or(0) - egress})});
          if (egress > 0 || bytes > 0)
            table.row({user, "egress", format_bytes(static_cast<std::uint64_t>(bytes)), "",
                       format_usd({egress})});
        }
        show_table(table, "no usage in this period");
        print(total_text(answer["total"]) + "\n");
        if (answer["simulated"].bool_or(false))
          say(simulated_money);
      });
}

int bill_import(const Parsed& p) {
  const auto path = one_operand(p, "bill import", "file");
  if (!path)
    return report_usage(path.error());
  auto text = read_file(*path, limits::api_body_bytes_max);
  if (!text)
    return report(text.error());
  const std::string name =
      p.get("name", path->substr(path->rfind('/') == std::string::npos ? 0 : path->rfind('/') + 1));
  return ask(
      p,
      [&](Client& c) {
        return c.call(net::Method::post, with_query("/v1/bills", {{"name", name}}),
                      std::move(*text), {{"Content-Type", "text/csv"}});
      },
      [&](const Json& answer) {
        Table table({{"RESOURCE", Table::Align::left, 20},
                     {"DAY"},
                     {"BILLED", Table::Align::right},
                     {"OURS", Table::Align::right},
                     {"DIFFERENCE", Table::Align::right},
                     {"WHAT"}});
        for (const Json& v : answer["variances"].items()) {
          if (v["kind"].str_or("") == "agrees" && !p.has("all"))
            continue;
          table.row({std::string(v["resource"].str_or("-")),
                     std::string(v["from"].str_or("-").substr(0, 10)),
                     usd_text(v["billed_nano_usd"]), usd_text(v["ours_nano_usd"]),
                     usd_text(v["difference_nano_usd"]), std::string(v["kind"].str_or("?"))});
        }
        show_table(table, "every line agrees with Billow's books");
        for (const Json& line : answer["refused"].items())
          say(line.str_or(""));
        print(fmt::format("{} lines, {} billed, {} in Billow's books; {} differ\n",
                          answer["lines"].int_or(0), usd_text(answer["billed_nano_usd"]),
                          usd_text(answer["ours_nano_usd"]), answer["differing"].int_or(0)));
      });
}

int month_close(const Parsed& p) {
  const auto month = one_operand(p, "month close", "month");
  if (!month)
    return report_usage(month.error());
  return ask(
      p, [&](Client& c) { return c.post("/v1/months/" + net::percent_encode(*month) + "/close"); },
      [](const Json& answer) {
        print(fmt::format("closed {}: {} charged\n", answer["month"].str_or("?"),
                          answer["charge"].str_or("?")));
      });
}
int month_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/months"); },
      [](const Json& answer) {
        for (const Json& month : answer["closed"].items())
          print(std::string(month.str_or("")) + "\n");
        if (answer["closed"].items().empty())
          say("no month is closed yet");
      });
}
int cmd_anomalies(const Parsed& p) {
  auto query = window_query(p);
  if (!p.has("since"))
    query.push_back({"since", "60d"});
  return ask(
      p, [&](Client& c) { return c.get(with_query("/v1/anomalies", query)); },
      [](const Json& answer) {
        for (const Json& a : answer["anomalies"].items())
          print(std::string(a["text"].str_or("")) + "\n");
        if (answer["anomalies"].items().empty())
          say("no unusual days");
      });
}

}  // namespace

void add_cost_commands(CommandTable& table) {
  table.push_back(
      {.name = "cost",
       .summary = "show spending by project, user, job, GPU or day",
       .example = "billow cost --by project,day --since 7d\nbillow cost --job "
                  "12\nbillow cost --focus --since 2026-11 > focus.csv",
       .run = cmd_cost,
       .details =
           "The charge is what projects pay at their rates; the cost is what the hardware costs. "
           "For admins the last line adds up exactly: active +\nidle + unallocated = cost of the "
           "nodes. Lines by job or node count whole leases on the day they ended.",
       .options = {cost_options, window_options},
       .group = money_group});
  table.push_back({.name = "waste",
                   .summary = "show GPU time paid for but not used, and oversized jobs",
                   .example = "billow waste --since 30d\nbillow waste --by job",
                   .run = cmd_waste,
                   .details = "Waste is the cost of hardware that was allocated but idle, or "
                              "larger than the job needed (oversized).",
                   .options = {waste_options, window_options},
                   .group = money_group});
  table.push_back({.name = "invoice",
                   .summary = "show a project's invoice for a month",
                   .example = "billow invoice --project vision --month 2026-11",
                   .run = cmd_invoice,
                   .options = {invoice_options},
                   .group = money_group});
  table.push_back({.name = "anomalies",
                   .summary = "show days that cost far more than usual",
                   .example = "billow anomalies --project vision",
                   .run = cmd_anomalies,
                   .options = {window_options},
                   .group = money_group});
  table.push_back({.name = "bill import",
                   .summary = "compare a provider's bill with Billow's books, line by line",
                   .example = "billow bill import aws-focus-2026-11.csv",
                   .run = bill_import,
                   .usage = "FILE",
                   .details = "FILE is a FOCUS export (CSV) from AWS, Azure or GCP. Resources are "
                              "matched to nodes by the label provider-id, else by name.",
                   .options = {bill_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = money_group});
  table.push_back({.name = "month close",
                   .summary = "close a month: its invoices become final",
                   .example = "billow month close 2026-10",
                   .run = month_close,
                   .usage = "MONTH",
                   .operands = Operands::some,
                   .group = money_group});
  table.push_back({.name = "month list",
                   .summary = "list closed months",
                   .example = "billow month list",
                   .run = month_list,
                   .group = money_group});
}

}  // namespace billow::client
