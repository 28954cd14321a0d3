// The journal as an audit trail: exported for other systems, and checked for changes made behind
// Billow's back. The chain is checked here, in the client, and not by the head that could be the
// one that lies about it.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "core/model/chain.h"

namespace billow::client {
namespace {

constexpr std::uint64_t page_records = 1'000;
constexpr std::size_t entry_bytes_max = 16 << 20;

constexpr OptionSpec export_options[] = {
    {"after", 0, "SEQ", "only records after this number (default 0: all)"},
    {"format", 0, "FORMAT",
     "json (default): one object per line; syslog: RFC 5424; ocsf: OCSF 1.3"},
};
constexpr OptionSpec verify_options[] = {
    {"anchor", 0, "SEQ:LINK",
     "also check that record SEQ has this link, as printed by an earlier `audit verify`"},
};

struct Anchor {
  Seq seq = 0;
  std::string link;
};

Result<Anchor> parse_anchor(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto seq = parse_int(text.substr(0, colon), 1, INT64_MAX);
  if (colon == std::string::npos || !seq || text.size() - colon - 1 != 64)
    return fail(Code::invalid, fmt::format("\"{}\" is not a number and a link", text),
                "give them as `billow audit verify` prints them: 1200:5f0c… (64 hex digits)");
  return Anchor{static_cast<Seq>(*seq), text.substr(colon + 1)};
}

// Calls `visit` with every record after `after`, oldest first.
Status each_record(Client& client, Seq after, const std::function<Status(const Json&)>& visit) {
  while (true) {
    const auto page =
        BILLOW_TRY(client.get(with_query("/v1/events", {{"after", fmt::format("{}", after)},
                                                        {"limit", fmt::format("{}", page_records)},
                                                        {"chain", "1"}})));
    for (const Json& record : page["events"].items())
      BILLOW_TRY_VOID(visit(record));
    const Seq next = page["next"].uint_or(after);
    if (next == after)
      return {};
    after = next;
  }
}

Status each_line(const std::string& path, const std::function<Status(const Json&)>& visit) {
  std::ifstream file(path);
  if (!file)
    return fail(Code::not_found, fmt::format("{} cannot be read", path));
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (line.size() > entry_bytes_max)
      return fail(Code::too_large, fmt::format("{}: line {} is too long", path, number));
    const auto record = parse_json(line);
    if (!record)
      return pass(record.error(), fmt::format("{}: line {}", path, number));
    BILLOW_TRY_VOID(visit(*record));
  }
  return {};
}

Status take(ChainCheck& check, const Json& record) {
  const Json& chain = record["chain"];
  if (!chain.is_object())
    return fail(Code::invalid, "a record has no link to the one before it",
                "use a file written by `billow audit export`");
  const std::optional<std::string> before =
      chain["link_before"].is_string() ? std::optional<std::string>(chain["link_before"].str_or(""))
                                       : std::nullopt;
  return check.take({.seq = record["seq"].uint_or(0),
                     .epoch = chain["epoch"].uint_or(0),
                     .at = {chain["at_ns"].int_or(0)},
                     .kind = record["kind"].str_or(""),
                     .payload_sha256 = chain["payload_sha256"].str_or("")},
                    chain["link"].str_or(""), before);
}

int verdict(const Parsed& parsed, const ChainCheck& check, const Status& done) {
  if (parsed.has("json")) {
    print_json(Json::object({{"intact", done.has_value()},
                             {"problem", done ? "" : done.error().message},
                             {"records", check.linked() + check.without_link()},
                             {"without_link", check.without_link()},
                             {"removed", check.removed()},
                             {"last", check.last()},
                             {"link", check.link()}}));
    return done ? 0 : 1;
  }
  if (!done)
    return report(done.error());
  if (check.without_link() > 0)
    print(fmt::format("{} records are from before there was a chain and cannot be checked\n",
                      check.without_link()));
  if (check.removed() > 0)
    print(fmt::format("{} routine records were removed by the journal's retention\n",
                      check.removed()));
  if (!parsed.operands.empty())
    print(
        "the hashes in the file are consistent; to check the records themselves against them, run "
        "`billow store verify` on the store\n");
  print(fmt::format("{} records are unchanged, up to {}:{}\n", check.linked(), check.last(),
                    check.link()));
  say("hint: keep that last value elsewhere and give it to a later check with --anchor");
  return 0;
}

int audit_verify(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return report_usage({Code::invalid, "give one file", "or none, to check the head's journal"});
  std::optional<Anchor> anchor;
  if (parsed.has("anchor")) {
    auto given = parse_anchor(parsed.get("anchor"));
    if (!given)
      return report_usage(Error(given.error()).in("--anchor"));
    anchor = std::move(*given);
  }
  ChainCheck check;
  bool met = false;
  const auto visit = [&](const Json& record) -> Status {
    BILLOW_TRY_VOID(take(check, record));
    if (!anchor || check.last() != anchor->seq)
      return {};
    met = true;
    if (check.link() == anchor->link)
      return {};
    return fail(Code::conflict, fmt::format("record {} does not match the anchor: the journal was "
                                            "rewritten after the anchor was saved",
                                            anchor->seq));
  };
  Status done;
  if (!parsed.operands.empty()) {
    done = each_line(parsed.operands[0], visit);
  } else {
    auto client = connect(parsed);
    if (!client)
      return report(client.error());
    done = each_record(*client, 0, visit);
  }
  if (done && anchor && !met && anchor->seq < check.last())
    done = fail(
        Code::conflict,
        fmt::format("record {} of the anchor was removed by the journal's retention", anchor->seq),
        "check against the export that still has it, and save a new anchor");
  if (done && anchor && !met)
    done = fail(Code::conflict,
                fmt::format("the journal ends at record {1}, before record {0} of the anchor",
                            anchor->seq, check.last()));
  return verdict(parsed, check, done);
}

// RFC 5424: facility 13 (log audit), severity 6 (informational) or 4 (warning).
std::string syslog_line(const Json& record) {
  static const std::string host = [] {
    char name[256] = {};
    return std::string(::gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "-");
  }();
  const bool denied = record["kind"].str_or("") == "access_denied";
  return fmt::format("<{}>1 {} {} billow - {} - {}\n", 13 * 8 + (denied ? 4 : 6),
                     record["at"].str_or("-"), host, record["kind"].str_or("-"), record.dump());
}

// OCSF 1.3, class API Activity (6003): https://schema.ocsf.io
Json ocsf_event(const Json& record) {
  const std::string kind(record["kind"].str_or(""));
  const bool denied = kind == "access_denied";
  const int activity = 99;  // "other": the operation says which
  Json event = Json::object(
      {{"class_uid", 6003},
       {"category_uid", 6},
       {"activity_id", activity},
       {"type_uid", 600300 + activity},
       {"severity_id", denied ? 3 : 1},
       {"status_id", denied ? 2 : 1},
       {"time", record["chain"]["at_ns"].int_or(0) / 1'000'000},
       {"actor", Json::object({{"user", Json::object({{"name", record["actor"].str_or("")}})}})},
       {"api",
        Json::object({{"operation", kind},
                      {"request", Json::object({{"uid", record["request_id"].str_or("")}})}})},
       {"metadata",
        Json::object({{"version", "1.3.0"},
                      {"uid", fmt::format("{}", record["seq"].uint_or(0))},
                      {"product", Json::object({{"name", "Billow"}, {"vendor_name", "Billow"}})}})},
       {"unmapped", record}});
  const auto from = record["from"].str_or("");
  if (!from.empty())
    event.set("src_endpoint", from.starts_with("unix") ? Json::object({{"name", from}})
                                                       : Json::object({{"ip", from}}));
  return event;
}

int audit_export(const Parsed& parsed) {
  const auto after = parse_int(parsed.get("after", "0"), 0, INT64_MAX);
  if (!after)
    return report_usage(Error(after.error()).in("--after"));
  const std::string format = parsed.get("format", "json");
  if (format != "json" && format != "syslog" && format != "ocsf")
    return report_usage({Code::invalid, fmt::format("there is no format \"{}\"", format),
                         "use --format json, syslog or ocsf"});
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const Status done =
      each_record(*client, static_cast<Seq>(*after), [&](const Json& record) -> Status {
        print(format == "syslog" ? syslog_line(record)
                                 : (format == "ocsf" ? ocsf_event(record) : record).dump() + "\n");
        return {};
      });
  return done ? 0 : report(done.error());
}

}  // namespace

void add_audit_commands(CommandTable& table) {
  table.push_back(
      {.name = "audit verify",
       .summary = "check that the journal was not changed",
       .example = "billow audit verify\nbillow audit verify march.jsonl --anchor 1200:5f0c…",
       .run = audit_verify,
       .usage = "[FILE]",
       .details =
           "Every record of the journal carries a hash over itself and the record before it. "
           "This command follows the whole chain, of the head's journal or of a file from "
           "`billow audit export`, and reports which record was changed or is missing.\n"
           "Anyone who can write to the database could recompute all hashes; an anchor kept "
           "elsewhere reveals that too.",
       .options = {verify_options},
       .operands = Operands::some,
       .completes = Completes::file,
       .group = "people and access"});
  table.push_back({.name = "audit export",
                   .summary = "print the journal for other systems, one record per line",
                   .example = "billow audit export > march.jsonl\nbillow audit export --after 1200 "
                              "--format syslog | logger --rfc5424 --stdin",
                   .run = audit_export,
                   .details = "Each record contains what happened, when, who caused it, with which "
                              "token and from where, and its link in the hash chain. Hashes of "
                              "tokens and values of variables are left out.",
                   .options = {export_options},
                   .group = "people and access"});
}

}  // namespace billow::client
