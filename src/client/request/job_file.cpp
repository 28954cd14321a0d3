// Job files. toml++ stays in this file: it is slow to compile. Its exceptions are caught here.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

// Damaged files can reach assertions of version 3.3's parser; here those are refusals of the file,
// not the end of the program.
[[noreturn, maybe_unused]] static void refuse_damaged_toml() {
  throw std::logic_error("it is no TOML");
}
#define TOML_ASSERT(condition) ((condition) ? void() : refuse_damaged_toml())
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/file.h"
#include "base/text.h"
#include "client/request/job_request.h"

namespace billow::client {
namespace {

constexpr std::size_t job_file_bytes_max = 1 << 20;

struct FileReader {
  const std::string& shown_as;
  const std::string& directory;
  JobRequest request;

  template <class... Args>
  std::unexpected<Error> bad(const toml::node& node,
                             std::string hint,
                             fmt::format_string<Args...> f,
                             Args&&... args) const {
    return fail(Code::invalid,
                fmt::format("{}:{}: {}", shown_as, node.source().begin.line,
                            fmt::format(f, std::forward<Args>(args)...)),
                std::move(hint));
  }

  Result<std::string> scalar(std::string_view key, const toml::node& node) const {
    if (const auto* text = node.as_string())
      return text->get();
    if (const auto* whole = node.as_integer())
      return fmt::format("{}", whole->get());
    if (const auto* real = node.as_floating_point())
      return fmt::format("{}", real->get());
    return bad(node, "write a string or a number", "{} cannot be given like this", key);
  }

  Status one(const OptionSpec& option,
             std::string_view key,
             std::string_view value,
             const toml::node& node) {
    auto set = set_option(request, option.name, value, directory);
    if (!set)
      return bad(node, set.error().hint, "{}: {}", key, set.error().message);
    return {};
  }

  Status option_key(const OptionSpec& option, std::string_view key, const toml::node& node) {
    if (!option.value) {
      const auto* flag = node.as_boolean();
      if (!flag)
        return bad(node, "", "{} is true or false", key);
      return flag->get() ? one(option, key, "", node) : Status{};
    }
    if (const auto* list = node.as_array()) {
      const bool joined = std::string_view(option.name) == "gpu-type";
      if (!option.repeats && !joined)
        return bad(node, "", "{} takes one value, not a list", key);
      std::vector<std::string> values;
      for (const toml::node& item : *list)
        values.push_back(BILLOW_TRY(scalar(key, item)));
      if (joined)
        values = {join(values, ",")};
      for (const std::string& value : values)
        BILLOW_TRY_VOID(one(option, key, value, node));
      return {};
    }
    if (const auto* table = node.as_table()) {
      if (!option.repeats || std::string_view(option.name) == "after")
        return bad(node, "", "{} takes one value, not a table", key);
      for (const auto& [name, item] : *table)
        BILLOW_TRY_VOID(one(option, key,
                            fmt::format("{}={}", name.str(), BILLOW_TRY(scalar(key, item))), item));
      return {};
    }
    return one(option, key, BILLOW_TRY(scalar(key, node)), node);
  }

  Status command(const toml::node& node) {
    if (const auto* text = node.as_string()) {
      request.spec.argv = {"/bin/sh", "-c", text->get()};
      return {};
    }
    const auto* list = node.as_array();
    if (!list || list->empty())
      return bad(
          node,
          "write it like command = [\"python\", \"train.py\"], or as one string for the shell",
          "command is neither a list of words nor a string");
    request.spec.argv.clear();
    for (const toml::node& item : *list)
      request.spec.argv.push_back(BILLOW_TRY(scalar("command", item)));
    return {};
  }

  Status job_key(std::string_view key, const toml::node& node) {
    if (key == "command")
      return command(node);
    std::vector<std::string> names = {"command"};
    for (const auto options : {job_options(), batch_options()})
      for (const OptionSpec& option : options) {
        if (key == option.name)
          return option_key(option, key, node);
        names.emplace_back(option.name);
      }
    const std::string near = nearest(key, names);
    return bad(node,
               near.empty()
                   ? "keys of [job] are the options of `billow submit --help`, without the dashes"
                   : fmt::format("did you mean \"{}\"?", near),
               "unknown key \"{}\" in [job]", key);
  }

  // Options of a role; what applies to the whole group stands in [job].
  static bool is_of_role(std::string_view key) {
    constexpr std::string_view keys[] = {
        "gpus",    "gpu-mem", "gpu-type",      "cpus",    "mem",    "procs",
        "retries", "image",   "env",           "env-var", "no-env", "secret",
        "volume",  "strict",  "max-processes", "share",   "output", "registry-secret"};
    return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
  }

  Status role_key(FileReader& role, std::string_view key, const toml::node& node) {
    if (key == "name") {
      role.request.spec.name = BILLOW_TRY(scalar(key, node));
      return {};
    }
    if (key == "count") {
      const auto* count = node.as_integer();
      if (!count || count->get() < 1 || count->get() > 4096)
        return bad(node, "", "count must be a number from 1 to 4096");
      role.request.role_count = static_cast<std::uint32_t>(count->get());
      return {};
    }
    if (key == "service") {
      const auto* service = node.as_boolean();
      if (!service)
        return bad(node, "", "service is true or false");
      role.request.role_service = service->get();
      return {};
    }
    if (const auto* variables = node.as_table(); variables && key == "env")
      return role.variables(*variables);
    if (key == "command" || is_of_role(key))
      return role.job_key(key, node);
    for (const OptionSpec& option : job_options())
      if (key == option.name)
        return bad(node, "write it under [job]", "{} applies to the whole group, not to a role",
                   key);
    std::vector<std::string> names = {"name", "count", "service", "command"};
    for (const OptionSpec& option : job_options())
      if (is_of_role(option.name))
        names.emplace_back(option.name);
    const std::string near = nearest(key, names);
    return bad(node,
               near.empty() ? fmt::format("keys of a role: {}", join(names, ", "))
                            : fmt::format("did you mean \"{}\"?", near),
               "unknown key \"{}\" in [[role]]", key);
  }

  Status roles(const toml::node& node) {
    const auto* list = node.as_array();
    if (!list || list->empty() || !list->is_array_of_tables())
      return bad(node, "begin each role with a line [[role]]", "role must be a list of tables");
    for (const toml::node& item : *list) {
      // A role begins as a copy of the job.
      FileReader role{shown_as, directory, request};
      role.request.roles.clear();
      role.request.spec.name.clear();
      role.request.spec.retries = 0;
      for (const auto& [name, value] : *item.as_table())
        BILLOW_TRY_VOID(role_key(role, name.str(), value));
      if (role.request.spec.name.empty())
        return bad(item, "add a line such as name = \"trainer\"", "a role has no name");
      if (role.request.spec.argv.empty())
        return bad(item, "add a line such as command = [\"python\", \"train.py\"]",
                   "role {} has no command", role.request.spec.name);
      request.roles.push_back(std::move(role.request));
    }
    if (request.spec.argv.empty())
      request.spec.argv = request.roles.front().spec.argv;
    return {};
  }

  Status variables(const toml::table& table) {
    for (const auto& [name, item] : table)
      request.env.named.push_back(
          fmt::format("{}={}", name.str(), BILLOW_TRY(scalar(name.str(), item))));
    return {};
  }

  Status document(const toml::table& root) {
    for (const auto& [key, node] : root) {
      const auto* table = node.as_table();
      if (key == "job" && table) {
        for (const auto& [name, item] : *table)
          BILLOW_TRY_VOID(job_key(name.str(), item));
      } else if (key == "env" && table) {
        BILLOW_TRY_VOID(variables(*table));
      } else if (key == "role") {
        continue;  // below, when all of the job is known
      } else {
        if (key == "job" || key == "env")
          return bad(node, "", "{} must be a table", key.str());
        return bad(
            node,
            "a job file has a table [job] with the options, and may have [env] with variables and "
            "[[role]] for the roles of a group",
            "unknown key \"{}\"", key.str());
      }
    }
    if (const toml::node* list = root.get("role"))
      BILLOW_TRY_VOID(roles(*list));
    if (!root.contains("job") && request.roles.empty())
      return fail(Code::invalid, fmt::format("{} has no [job] table", shown_as),
                  "begin it with a line [job], then command = […]");
    return {};
  }
};

}  // namespace

Result<JobRequest> parse_job_file(std::string_view text,
                                  const std::string& shown_as,
                                  const std::string& directory) {
  if (!valid_utf8(text))
    return fail(Code::invalid, fmt::format("{} is not UTF-8 text", shown_as));
  toml::table parsed;
  try {
    parsed = toml::parse(text);
  } catch (const toml::parse_error& e) {
    return fail(Code::invalid, fmt::format("{}:{}:{}: {}", shown_as, e.source().begin.line,
                                           e.source().begin.column, e.description()));
  } catch (const std::logic_error& e) {
    return fail(Code::invalid, fmt::format("{}: {}", shown_as, e.what()));
  }
  FileReader reader{shown_as, directory, {}};
  BILLOW_TRY_VOID(reader.document(parsed));
  return std::move(reader.request);
}

Result<JobRequest> read_job_file(const std::string& path) {
  auto text = read_file(path, job_file_bytes_max);
  if (!text)
    return pass(std::move(text.error()), "job file " + path);
  const auto slash = path.rfind('/');
  return parse_job_file(*text, path,
                        slash == std::string::npos ? std::string() : path.substr(0, slash));
}

}  // namespace billow::client
