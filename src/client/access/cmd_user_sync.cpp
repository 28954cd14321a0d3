// user sync: makes the head's users equal to a list from elsewhere (a directory, a spreadsheet).
#include <fmt/format.h>

#include <map>
#include <set>

#include "base/file.h"
#include "base/formats/csv.h"
#include "base/text.h"
#include "client/access/sign_in_commands.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "net/http/http.h"

namespace billow::client {
namespace {

constexpr OptionSpec user_sync_options[] = {
    {"from", 0, "FILE", "users as JSON or CSV", false, Completes::file},
    {"dry-run", 0, nullptr, "show what would change and change nothing"},
    {"disable-others", 0, nullptr, "disable users that the file does not name"},
    {"jobs", 0, "stop|keep", "the jobs of users that are disabled: stop (default) or keep", false,
     Completes::choice, "stop,keep"},
};
constexpr std::size_t users_file_bytes_max = 16 << 20;

struct ListedUser {
  std::string name, role = "member";
  std::string unix_name;  // empty: the list does not say
  bool disabled = false;
  std::map<std::string, std::string> projects;  // role by project
};

// Which roles exist, the head knows.
Status check_role(const std::string& role, const std::string& where) {
  if (auto good = check_name("role", role); !good)
    return pass(std::move(good.error()), where);
  return {};
}

Result<ListedUser> user_in_json(const Json& json) {
  ListedUser out;
  out.name = json["name"].str_or("");
  if (out.name.empty())
    return fail(Code::invalid, "a user in the file has no name");
  out.unix_name = json["unix_name"].str_or("");
  out.role = json["role"].str_or("member");
  BILLOW_TRY_VOID(check_role(out.role, "user " + out.name));
  out.disabled = json["disabled"].bool_or(false);
  for (const auto& [project, role] : json["projects"].members()) {
    BILLOW_TRY_VOID(check_role(std::string(role.str_or("")), "user " + out.name));
    out.projects[project] = role.str_or("");
  }
  return out;
}

constexpr const char* user_columns =
    "write name,unix_name,role,state,projects; projects as \"vision:member speech:viewer\"";

Result<ListedUser> user_in_csv(const std::vector<std::string>& words, std::size_t line) {
  const auto word = [&](std::size_t at) {
    return at < words.size() ? words[at] : std::string();
  };
  const std::string where = fmt::format("line {}", line);
  ListedUser out;
  out.name = word(0);
  out.unix_name = word(1);
  out.role = word(2).empty() ? "member" : word(2);
  BILLOW_TRY_VOID(check_role(out.role, where));
  if (out.name.empty())
    return fail(Code::invalid, where + " names no user", user_columns);
  if (words.size() > 5)
    return fail(Code::invalid, fmt::format("{} has {} fields", where, words.size()), user_columns);
  if (word(3) != "disabled" && word(3) != "active" && !word(3).empty())
    return fail(Code::invalid, fmt::format("{}: \"{}\" is not a state", where, word(3)),
                "use active or disabled");
  out.disabled = word(3) == "disabled";
  for (const std::string& entry : split(word(4), ' ')) {
    if (entry.empty())
      continue;
    const auto colon = entry.rfind(':');
    const std::string role = colon == std::string::npos ? "member" : entry.substr(colon + 1);
    BILLOW_TRY_VOID(check_role(role, where));
    out.projects[entry.substr(0, colon)] = role;
  }
  return out;
}

Result<std::vector<ListedUser>> read_users(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path, users_file_bytes_max));
  std::vector<ListedUser> out;
  if (trim(text).starts_with('{') || trim(text).starts_with('[')) {
    const Json json = BILLOW_TRY(parse_json(text));
    for (const Json& each : (json.is_array() ? json : json["users"]).items())
      out.push_back(BILLOW_TRY(user_in_json(each)));
  } else {
    CsvReader reader(text, {.trimmed = true, .comments = true});
    std::vector<std::string> words;
    for (bool first = true; BILLOW_TRY(reader.next(words)); first = false)
      if (!first || words[0] != "name")
        out.push_back(BILLOW_TRY(user_in_csv(words, reader.line())));
  }
  std::set<std::string> names;
  for (const ListedUser& user : out)
    if (!names.insert(user.name).second)
      return fail(Code::invalid, fmt::format("the file names user {} twice", user.name));
  if (out.empty())
    return fail(Code::invalid, fmt::format("{} names no users", path),
                R"(write {"users": [{"name": "ana", "projects": {"vision": "member"}}]} or CSV)");
  return out;
}

// One call to the head, and how it is shown.
struct Change {
  std::string text, path;
  net::Method method = net::Method::put;
  Json body;
};

class UserSync {
 public:
  UserSync(const Json& users, const Json& projects, std::string me, std::string jobs)
      : me_(std::move(me)), jobs_(std::move(jobs)) {
    for (const Json& user : users["users"].items())
      users_[std::string(user["name"].str_or(""))] = user;
    for (const Json& project : projects["projects"].items())
      for (const auto& [user, role] : project["members"].members())
        members_[user][std::string(project["name"].str_or(""))] = role.str_or("");
  }

  void want(const ListedUser& user) {
    const auto found = users_.find(user.name);
    const std::string at = "/v1/users/" + net::percent_encode(user.name);
    if (user.name == me_)
      return;  // the caller cannot lock themselves out
    if (found == users_.end()) {
      if (user.disabled)
        return;
      changes.push_back(
          {fmt::format("create user {}", user.name), "/v1/users", net::Method::post,
           Json::object({{"name", user.name},
                         {"unix_name", user.unix_name.empty() ? user.name : user.unix_name},
                         {"role", user.role}})});
    } else {
      const bool disabled = found->second["state"].str_or("") == "disabled";
      if (disabled != user.disabled)
        disable(user.name, user.disabled);
      if (user.disabled)
        return;
      if (found->second["role"].str_or("") != user.role)
        changes.push_back({fmt::format("make user {} {}", user.name, user.role), at,
                           net::Method::put, Json::object({{"role", user.role}})});
    }
    set_projects(user);
  }

  void disable_others(const std::vector<ListedUser>& listed) {
    std::set<std::string> names{me_};
    for (const ListedUser& user : listed)
      names.insert(user.name);
    for (const auto& [name, user] : users_)
      if (!names.contains(name) && user["state"].str_or("") == "active")
        disable(name, true);
  }

  // Who is to run as another account, which nothing can change.
  Status check_accounts(const std::vector<ListedUser>& listed) const {
    for (const ListedUser& user : listed) {
      const auto found = users_.find(user.name);
      if (found == users_.end() || user.unix_name.empty() ||
          found->second["unix_name"].str_or("") == user.unix_name)
        continue;
      return fail(
          Code::conflict,
          fmt::format("the list says that {} runs as {}, but {} runs as {}", user.name,
                      user.unix_name, user.name, found->second["unix_name"].str_or("nobody")),
          "the account of a user cannot be changed: correct the list, or create another "
          "user for that account");
    }
    return {};
  }

  std::vector<Change> changes;

 private:
  void disable(const std::string& name, bool disabled) {
    Json body = Json::object({{"disabled", disabled}});
    if (disabled)
      body.set("jobs", jobs_);
    changes.push_back({fmt::format("{} user {}", disabled ? "disable" : "enable", name),
                       "/v1/users/" + net::percent_encode(name), net::Method::put,
                       std::move(body)});
  }
  void set_projects(const ListedUser& user) {
    const auto path = [&](const std::string& project) {
      return fmt::format("/v1/projects/{}/members/{}", net::percent_encode(project),
                         net::percent_encode(user.name));
    };
    auto now = members_[user.name];
    for (const auto& [project, role] : user.projects)
      if (now[project] != role)
        changes.push_back({fmt::format("make {} {} of project {}", user.name, role, project),
                           path(project), net::Method::put, Json::object({{"role", role}})});
    for (const auto& [project, role] : now)
      if (!role.empty() && !user.projects.contains(project))
        changes.push_back({fmt::format("remove {} from project {}", user.name, project),
                           path(project), net::Method::del, Json::object()});
  }

  std::string me_, jobs_;
  std::map<std::string, Json> users_;
  std::map<std::string, std::map<std::string, std::string>> members_;
};

int user_sync(const Parsed& p) {
  if (!p.has("from"))
    return report_usage({Code::invalid, "--from FILE is required",
                         "for example: billow user sync --from users.csv --dry-run"});
  const auto listed = read_users(p.get("from"));
  if (!listed)
    return report(listed.error());
  auto client = connect(p);
  if (!client)
    return report(client.error());
  const auto users = client->get("/v1/users"), projects = client->get("/v1/projects"),
             status = client->get("/v1/status");
  for (const auto* answer : {&users, &projects, &status})
    if (!*answer)
      return report(answer->error());
  UserSync sync(*users, *projects, std::string(status->at("you", "user").str_or("")),
                p.get("jobs", "stop"));
  if (const Status same = sync.check_accounts(*listed); !same)
    return report(same.error());
  for (const ListedUser& user : *listed)
    sync.want(user);
  if (p.has("disable-others"))
    sync.disable_others(*listed);
  Json done = Json::array();
  int failed = 0;
  for (const Change& change : sync.changes) {
    Result<Json> answer = Json::object();
    if (!p.has("dry-run"))
      answer = change.method == net::Method::post  ? client->post(change.path, change.body.dump())
               : change.method == net::Method::put ? client->put(change.path, change.body.dump())
                                                   : client->del(change.path);
    if (!answer) {
      ++failed;
      say(fmt::format("could not {}: {}", change.text, answer.error().message));
      continue;
    }
    done.push(change.text);
    if (!p.has("json"))
      print(fmt::format("{}{}\n", p.has("dry-run") ? "would " : "", change.text));
  }
  if (p.has("json"))
    print_json(Json::object({{"changes", std::move(done)}, {"failed", failed}}));
  else if (sync.changes.empty())
    print("nothing to change\n");
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_user_sync_command(CommandTable& table) {
  table.push_back(
      {.name = "user sync",
       .summary = "create, change and disable users to match a file",
       .example = "billow user sync --from users.csv --dry-run\nbillow user sync --from users.json "
                  "--disable-others --jobs keep",
       .run = user_sync,
       .details = "JSON: {\"users\": [{\"name\": \"ana\", \"unix_name\": \"ana\", \"role\": "
                  "\"member\", \"disabled\": false, \"projects\": {\"vision\": \"member\"}}]}.\n"
                  "CSV: name,unix_name,role,state,projects, with projects as \"vision:member "
                  "speech:viewer\" and state active or disabled.\nA user of the file gets exactly "
                  "these projects. Your own user is never changed.",
       .options = {user_sync_options},
       .group = "people and access"});
}

}  // namespace billow::client
