// Secret backends. Their credentials come from files, never from the command line.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "net/http/http.h"

namespace billow::client {
namespace backend_command {
namespace {

constexpr std::size_t credential_bytes_max = 64 << 10;
constexpr OptionSpec add_options[] = {
    {"address", 0, "URL",
     "vault: its address, e.g. https://vault.example.com:8200; aws, google: replaces the "
     "default address"},
    {"mount", 0, "PATH", "vault: mount path of its KV engine, version 2 (default: secret)"},
    {"namespace", 0, "NAME", "vault: its namespace"},
    {"token-file", 0, "PATH", "vault: file with the token; it is stored encrypted", false,
     Completes::file},
    {"region", 0, "NAME", "aws: region of the secrets"},
    {"project", 0, "NAME", "google: project of the secrets"},
    {"credentials-file", 0, "PATH",
     "aws, google: file with keys (default: the head's own credentials)", false, Completes::file},
    {"allow", 0, "PROJECT=PREFIX",
     "let the admins of a project refer to paths at or below this prefix", true},
};
constexpr OptionSpec check_options[] = {
    {"path", 0, "PATH#KEY", "also fetch this value; only its size is shown"}};

std::string path_of(const std::string& name) {
  return "/v1/secret-backends/" + net::percent_encode(name);
}

Result<Json> body_of(const Parsed& p) {
  const std::string& kind = p.operands[0];
  Json body = Json::object({{"kind", kind}});
  for (const char* name : {"address", "mount", "namespace", "region", "project"})
    if (p.has(name))
      body.set(name, p.get(name));
  const char* file = kind == "vault" ? "token-file" : "credentials-file";
  if (p.has(kind == "vault" ? "credentials-file" : "token-file"))
    return fail(Code::invalid, fmt::format("a backend of kind {} takes --{}", kind, file));
  if (p.has(file))
    body.set("credential",
             std::string(trim(BILLOW_TRY(read_file(p.get(file), credential_bytes_max)))));
  Json allow = Json::object();
  for (const std::string& each : p.all("allow")) {
    const auto equals = each.find('=');
    if (equals == std::string::npos || equals == 0)
      return fail(Code::invalid, fmt::format("--allow {}: no prefix", each),
                  "write PROJECT=PREFIX, such as vision=apps/vision");
    allow.set(each.substr(0, equals), each.substr(equals + 1));
  }
  body.set("allow", std::move(allow));
  return body;
}

int add(const Parsed& p) {
  const std::string hint =
      "for example: billow secret-backend add vault team --address "
      "https://vault.example.com:8200 --token-file token";
  if (p.operands.size() != 2)
    return report_usage({Code::invalid, "a kind of backend and a name are required", hint});
  if (p.operands[0] != "vault" && p.operands[0] != "aws" && p.operands[0] != "google")
    return report_usage({Code::invalid,
                         fmt::format("\"{}\" is not a kind of secret backend", p.operands[0]),
                         "use vault, aws or google"});
  const auto body = body_of(p);
  if (!body)
    return report(body.error());
  const std::string& name = p.operands[1];
  return ask(
      p, [&](Client& c) { return c.put(path_of(name), body->dump()); },
      [&](const Json& answer) {
        print(
            fmt::format("added secret backend {0}; try it: billow secret-backend check {0}, then "
                        "billow secret set NAME --from {0}:PATH#KEY\n",
                        name));
        for (const Json& secret : list_in(answer, "closed"))
          print(
              fmt::format("jobs no longer get secret {} of project {}: --allow does not open {}\n",
                          secret["name"].str_or("?"), secret["project"].str_or("?"),
                          secret["from"].str_or("?")));
      });
}

int list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/secret-backends"); },
      [](const Json& answer) {
        Table table({{"BACKEND"},
                     {"KIND"},
                     {"WHERE"},
                     {"SECRETS", Table::Align::right},
                     {"ALLOWED", Table::Align::left, 16}});
        for (const Json& b : list_in(answer, "backends")) {
          std::string where, allowed;
          for (const char* part : {"address", "namespace", "mount", "region", "project"})
            if (b[part].is_string())
              where += (where.empty() ? "" : " ") + b[part].as_string();
          for (const auto& [project, prefix] : b["allow"].members())
            allowed +=
                fmt::format("{}{}={}", allowed.empty() ? "" : ", ", project, prefix.str_or("?"));
          table.row({std::string(b["name"].str_or("?")), std::string(b["kind"].str_or("?")),
                     b["trouble"].is_string() ? b["trouble"].as_string() : where,
                     fmt::format("{}", b["secrets"].uint_or(0)), allowed});
        }
        show_table(table, "there are no secret backends; secrets are stored by the head");
      });
}

int check(const Parsed& p) {
  const auto name = one_operand(p, "secret-backend check", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p,
      [&](Client& c) {
        return c.post(path_of(*name) + "/check", Json::object({{"path", p.get("path")}}).dump());
      },
      [&](const Json& done) {
        print(fmt::format("{} accepts {}\n", *name, printable(done["as"].str_or("its login"))));
        if (done["bytes"].is_number())
          print(fmt::format("{} has {} bytes\n", p.get("path"), done["bytes"].uint_or(0)));
      });
}

int remove(const Parsed& p) {
  const auto name = one_operand(p, "secret-backend remove", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del(path_of(*name)); },
      [&](const Json&) { print(fmt::format("removed secret backend {}\n", *name)); });
}

}  // namespace
}  // namespace backend_command

void add_backend_commands(CommandTable& table) {
  using namespace backend_command;
  table.push_back(
      {.name = "secret-backend add",
       .summary = "add a store of secrets: Vault, AWS or Google",
       .example = "billow secret-backend add vault team --address https://vault.example.com:8200 "
                  "--token-file token.txt\nbillow secret set HF_TOKEN --from team:apps/train#token",
       .run = add,
       .usage = "vault|aws|google NAME",
       .details =
           "A secret that refers to a backend is fetched when a job starts and is never "
           "stored.\nOnly the user who started the head can add one, because the head connects "
           "to it with its own credentials.",
       .options = {add_options},
       .operands = Operands::some,
       .completes = Completes::choice,
       .choices = "vault,aws,google",
       .group = people_group});
  table.push_back({.name = "secret-backend list",
                   .summary = "list secret backends, without their credentials",
                   .example = "billow secret-backend list",
                   .run = list,
                   .group = people_group});
  table.push_back({.name = "secret-backend check",
                   .summary = "sign in at a secret backend, and fetch a value",
                   .example = "billow secret-backend check team --path apps/train#token",
                   .run = check,
                   .usage = "NAME",
                   .options = {check_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "secret-backend remove",
                   .summary = "remove a secret backend that no secret refers to",
                   .example = "billow secret-backend remove team",
                   .run = remove,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = people_group});
}

}  // namespace billow::client
