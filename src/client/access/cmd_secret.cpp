// Secrets of a project, and the head's own keys. A value comes from a prompt, a pipe or a file,
// never from the command line: others can see that, and shells keep it.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/crypto.h"
#include "base/text.h"
#include "client/access/secret_input.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr OptionSpec secret_options[] = {
    {"project", 'p', "NAME", "project of the secret (default: your default project)"}};
constexpr OptionSpec secret_set_options[] = {
    {"file", 0, "PATH", "read the value from this file, unchanged", false, Completes::file},
    {"from", 0, "BACKEND:PATH#KEY",
     "do not store a value: fetch it from this secret backend when a job starts"}};

constexpr OptionSpec authority_options[] = {
    {"finish", 0, nullptr, "switch to the announced authority"},
    {"at-once", 0, nullptr,
     "with --finish: do not wait until all nodes have new certificates; machines that have not "
     "connected since the announcement must join again"},
};

std::string path_of(const Parsed& p, const std::string& name) {
  return with_query(name.empty() ? "/v1/secrets" : "/v1/secrets/" + net::percent_encode(name),
                    {{"project", p.get("project")}});
}

// The name of a secret may be invalid as the name of a variable.
std::string asked_for(const std::string& name) {
  const bool variable = !std::isdigit(static_cast<unsigned char>(name.front())) &&
                        std::all_of(name.begin(), name.end(), [](char c) {
                          return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
                        });
  if (variable)
    return "--secret " + name;
  return fmt::format("--secret {0}=VARIABLE or --secret {0}:file", name);
}

int secret_set(const Parsed& p) {
  if (p.operands.size() > 1 ||
      (p.operands.size() == 1 && p.operands[0].find('=') != std::string::npos))
    return report_usage(
        {Code::invalid,
         "the value must not be given on the command line, where other users can see it",
         "run `billow secret set NAME` and type it, or `billow secret set NAME < FILE`"});
  const auto name = one_operand(p, "secret set", "name");
  if (!name)
    return report_usage(name.error());
  if (const Status good = check_name("secret", *name); !good)
    return report_usage(good.error());
  const auto shown = [&](const Json& made) {
    print(
        fmt::format("set secret {} in project {}; jobs use it with {}, or as USER:PASSWORD of a "
                    "registry with --registry-secret {}\n",
                    *name, made["project"].str_or("?"), asked_for(*name), *name));
  };
  if (p.has("from")) {
    const Json body = Json::object({{"from", p.get("from")}});
    return ask(
        p, [&](Client& c) { return c.put(path_of(p, *name), body.dump()); }, shown);
  }
  auto value = secret_input(p.get("file"), fmt::format("value of {}", *name));
  if (!value)
    return report(value.error());
  if (value->empty())
    return report({Code::invalid, "the value is empty; the secret was not set", ""});
  const bool text = valid_utf8(*value) && value->find('\0') == std::string::npos;
  const Json body =
      text ? Json::object({{"value", *value}}) : Json::object({{"value_base64", base64(*value)}});
  return ask(
      p, [&](Client& c) { return c.put(path_of(p, *name), body.dump()); }, shown);
}

int secret_list(const Parsed& p) {
  return ask(
      p, [&](Client& c) { return c.get(path_of(p, "")); },
      [](const Json& answer) {
        Table table({{"SECRET"},
                     {"PROJECT"},
                     {"SET BY"},
                     {"AGE", Table::Align::right},
                     {"NOTE", Table::Align::left, 20}});
        for (const Json& s : list_in(answer, "secrets"))
          table.row({std::string(s["name"].str_or("?")), std::string(s["project"].str_or("?")),
                     std::string(s["set_by"].str_or("?")), age(s["set_at"], now()),
                     s["from"].is_string() ? fmt::format("in {}", s["from"].as_string())
                                           : std::string(s["trouble"].str_or(""))});
        show_table(table, "there are no secrets; create one with `billow secret set NAME`");
      });
}

int secret_rotate_key(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.post("/v1/secret-key/rotate", "{}"); },
      [](const Json& done) {
        print(fmt::format("the head uses a new key; data keys encrypted with it: {}\n",
                          done["resealed"].uint_or(0)));
        say("copy the new secrets.key to the place where you keep a copy, and to standby heads. "
            "Backups from before need the old one.");
        if (const std::uint64_t lost = done["lost"].uint_or(0); lost > 0)
          say(
              fmt::format("note: {} values cannot be opened with any key of this head and stay as "
                          "they are; see `billow secret list`",
                          lost));
      });
}

int secret_rm(const Parsed& p) {
  const auto name = one_operand(p, "secret rm", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del(path_of(p, *name)); },
      [&](const Json&) {
        print(fmt::format("removed secret {}; running jobs keep their copy\n", *name));
      });
}

// ---- the head's own authority

void show_authority(const Json& document) {
  if (!document["tls"].bool_or(false))
    return print("this head does not use TLS: it has no authority\n");
  const auto pins = split(document["fingerprints"].str_or(""), ',');
  if (!pins.front().empty())
    print(fmt::format("authority      {}\n", pins.front()));
  if (pins.size() > 1)
    print(fmt::format("next           {}, announced {}\n", pins[1],
                      document["next_since"].str_or("")));
  print(fmt::format(
      "certificates   {}, {}\n",
      document["certificates"].str_or("") == "external"
          ? "of another authority (--client-ca)"
          : fmt::format("issued for {}", format_duration(seconds(document["life_s"].int_or(0)))),
      document["required"].bool_or(false) ? "required of nodes and gateways" : "not required"));
}

int authority_show(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/authority"); }, show_authority);
}

int authority_rotate(const Parsed& p) {
  if (p.has("at-once") && !p.has("finish"))
    return report_usage({Code::invalid, "--at-once needs --finish", ""});
  const Json body = Json::object({{"finish", p.has("finish")}, {"at_once", p.has("at-once")}});
  return ask(
      p, [&](Client& c) { return c.post("/v1/authority/rotate", body.dump()); },
      [&](const Json& document) {
        show_authority(document);
        if (!p.has("finish"))
          say(fmt::format(
              "nodes and gateways learn the next authority within {}. Then switch with `billow "
              "authority rotate --finish`; people who logged in by a fingerprint log in again",
              format_duration(seconds(document["life_s"].int_or(0)))));
      });
}

}  // namespace

void add_secret_commands(CommandTable& table) {
  table.push_back(
      {.name = "secret set",
       .summary = "set a project's secret; the value is typed or piped in, never an argument",
       .example = "billow secret set HF_TOKEN\nbillow secret set HF_TOKEN < token.txt\nbillow run "
                  "--secret HF_TOKEN -- python train.py",
       .run = secret_set,
       .usage = "NAME",
       .details = "Secrets are encrypted with the installation's key (secrets.key in the head's "
                  "data directory; keep a copy apart from backups).\nAdmins of the project set "
                  "them; jobs of its members use them: `--secret NAME` as a variable of that "
                  "name,\n`--secret NAME=VARIABLE` under another name, `--secret NAME:file` as a "
                  "file whose path is in NAME_FILE. A secret is never shown again.",
       .options = {secret_options, secret_set_options},
       .operands = Operands::some,
       .group = people_group});
  table.push_back({.name = "secret list",
                   .summary = "list the names of a project's secrets",
                   .example = "billow secret list",
                   .run = secret_list,
                   .options = {secret_options},
                   .group = people_group});
  table.push_back({.name = "secret rotate-key",
                   .summary = "replace the key that secrets are encrypted with, without downtime",
                   .example = "billow secret rotate-key",
                   .run = secret_rotate_key,
                   .details =
                       "Every value has its own data key; the data keys are wrapped "
                       "with the new key, and the old key leaves secrets.key two minutes "
                       "later. If the head is killed meanwhile, it continues when it starts.",
                   .group = people_group});
  table.push_back({.name = "secret rm",
                   .summary = "remove a secret; later jobs that use it fail to start",
                   .example = "billow secret rm HF_TOKEN",
                   .run = secret_rm,
                   .usage = "NAME",
                   .options = {secret_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "authority",
                   .summary = "show the head's certificate authority",
                   .example = "billow authority",
                   .run = authority_show,
                   .group = people_group});
  table.push_back(
      {.name = "authority rotate",
       .summary = "replace the head's certificate authority, without downtime",
       .example = "billow authority rotate\nbillow authority rotate --finish",
       .run = authority_rotate,
       .details =
           "The first command announces a new authority: nodes and gateways learn its "
           "fingerprint and get certificates of it.\nThe second command, a day later, makes the "
           "head use it and forget the old one. People who use the old fingerprint log in again.",
       .options = {authority_options},
       .group = people_group});
}

}  // namespace billow::client
