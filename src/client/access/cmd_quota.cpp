// quota: how much of the head a user or project may hold: jobs, bytes, connections, requests.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/values.h"
#include "core/model/quota.h"

namespace billow::client {
namespace {

constexpr OptionSpec quota_options[] = {
    {"project", 'p', "NAME", "quota of this project"},
    {"user", 'u', "NAME", "quota of this user"},
    {"all-projects", 0, nullptr, "quota of each project without its own"},
    {"all-users", 0, nullptr, "quota of each user without their own"},
};

struct QuotaOwner {
  std::string scope, of;  // `of` is empty for all
};

Result<QuotaOwner> quota_owner_of(const Parsed& p) {
  if (p.has("project") + p.has("user") + p.has("all-projects") + p.has("all-users") != 1)
    return fail(Code::invalid, "a quota needs one owner",
                "give one of --project, --user, --all-projects or --all-users");
  if (p.has("project"))
    return QuotaOwner{"project", p.get("project")};
  if (p.has("user"))
    return QuotaOwner{"user", p.get("user")};
  return QuotaOwner{p.has("all-projects") ? "project" : "user", ""};
}

std::string quota_owner_text(const QuotaOwner& owner) {
  return owner.of.empty() ? fmt::format("every {} without its own quota", owner.scope)
                          : fmt::format("{} {}", owner.scope, owner.of);
}

Result<QuotaKind> quota_kind(const std::string& text) {
  const auto kind = enum_value<QuotaKind>(text);
  if (kind)
    return *kind;
  return fail(Code::invalid, fmt::format("unknown quota {}", text),
              "one of queued-jobs, spec-bytes, file-bytes, connections, "
              "requests-per-s, objects, priority, task-log-bytes, kept-log-bytes");
}

bool in_bytes(QuotaKind kind) {
  return kind == QuotaKind::spec_bytes || kind == QuotaKind::file_bytes ||
         kind == QuotaKind::task_log_bytes || kind == QuotaKind::kept_log_bytes;
}

std::string quota_amount(QuotaKind kind, std::int64_t amount) {
  return in_bytes(kind) ? format_bytes(static_cast<std::uint64_t>(amount))
                        : fmt::format("{}", amount);
}

// "5000", "20G", or "none".
Result<std::int64_t> quota_limit(QuotaKind kind, const std::string& text) {
  if (text == "none")
    return -1;
  if (in_bytes(kind))
    return static_cast<std::int64_t>(BILLOW_TRY(bytes_with_unit(text)));
  return BILLOW_TRY(parse_int(text, 0, 1'000'000'000));
}

int quota_set(const Parsed& p) {
  const auto owner = quota_owner_of(p);
  if (!owner)
    return report_usage(owner.error());
  if (p.operands.size() != 2)
    return report_usage({Code::invalid, "quota set needs a quota and its limit",
                         "for example: billow quota set --user ana queued-jobs 50000"});
  const auto kind = quota_kind(p.operands[0]);
  if (!kind)
    return report_usage(kind.error());
  const auto limit = quota_limit(*kind, p.operands[1]);
  if (!limit)
    return report_usage(Error(limit.error()).in("quota set"));
  const Json body = Json::object(
      {{"scope", owner->scope}, {"of", owner->of}, {"kind", enum_name(*kind)}, {"limit", *limit}});
  return ask(
      p, [&](Client& c) { return c.put("/v1/quotas", body.dump()); },
      [&](const Json&) {
        print(fmt::format("{} of {}: {}\n", enum_name(*kind), quota_owner_text(*owner),
                          *limit < 0 ? "no limit" : quota_amount(*kind, *limit)));
      });
}

int quota_rm(const Parsed& p) {
  const auto owner = quota_owner_of(p);
  if (!owner)
    return report_usage(owner.error());
  const auto name = one_operand(p, "quota rm", "quota");
  if (!name)
    return report_usage(name.error());
  const auto kind = quota_kind(*name);
  if (!kind)
    return report_usage(kind.error());
  return ask(
      p,
      [&](Client& c) {
        return c.del(fmt::format("/v1/quotas/{}/{}/{}", owner->scope,
                                 owner->of.empty() ? "*" : net::percent_encode(owner->of),
                                 enum_name(*kind)));
      },
      [&](const Json&) {
        print(fmt::format("{} of {}: the default applies again\n", enum_name(*kind),
                          quota_owner_text(*owner)));
      });
}

int quota_list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/quotas"); },
      [](const Json& answer) {
        Table table({{"OF"},
                     {"QUOTA"},
                     {"USED", Table::Align::right},
                     {"LIMIT", Table::Align::right},
                     {"SET BY"}});
        for (const Json& q : list_in(answer, "quotas")) {
          const auto kind = enum_value<QuotaKind>(q["kind"].str_or(""));
          const auto amount = [&](const Json& value, const char* none) {
            return kind && value.is_number() ? quota_amount(*kind, value.int_or(0))
                                             : std::string(none);
          };
          table.row({fmt::format("{} {}", q["scope"].str_or("?"), q["of"].str_or("?")),
                     std::string(q["kind"].str_or("?")), amount(q["used"], "-"),
                     amount(q["limit"], "none"), q["set"].bool_or(false) ? "an admin" : "default"});
        }
        show_table(table, "there are no users and projects");
      });
}

}  // namespace

void add_quota_commands(CommandTable& table) {
  table.push_back(
      {.name = "quota set",
       .summary = "limit what a user or project may use of the head",
       .example =
           "billow quota set --user ana queued-jobs 50000\nbillow quota set --project vision "
           "file-bytes 100G\nbillow quota set --all-users requests-per-s 200\nbillow quota set "
           "--project vision priority 100\nbillow quota set --project vision task-log-bytes 1G",
       .run = quota_set,
       .usage = "QUOTA LIMIT|none",
       .details =
           "QUOTA is queued-jobs (jobs that have not ended), spec-bytes (size of their "
           "descriptions), file-bytes (uploaded "
           "files), connections or requests-per-s (to the head; users only), objects, and for "
           "projects: priority (the highest that members may give their jobs; default "
           "1000), task-log-bytes (output kept of one task; default 128M) and kept-log-bytes "
           "(logs of ended jobs that the head keeps; default 10G). Installation admins have "
           "no default quotas.",
       .options = {quota_options},
       .operands = Operands::some,
       .group = people_group});
  table.push_back({.name = "quota list",
                   .summary = "show quotas and their usage",
                   .example = "billow quota list",
                   .run = quota_list,
                   .group = people_group});
  table.push_back({.name = "quota rm",
                   .summary = "remove a quota, so that the default applies again",
                   .example = "billow quota rm --user ana queued-jobs",
                   .run = quota_rm,
                   .usage = "QUOTA",
                   .options = {quota_options},
                   .operands = Operands::some,
                   .group = people_group});
}

}  // namespace billow::client
