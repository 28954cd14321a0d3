// The API's schemas of a job. Names, types and defaults come from the structs' `fields`, help and
// bounds from the table of options; only what no option says is written here. `billow help
// --job-schemas` prints them, and the head serves them as a part of /v1/openapi.json.
#include <fmt/format.h>

#include "base/limits.h"
#include "client/request/job_request.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace job_schema {
namespace {

// What no option says about a member (or a struct), or what an option says of another unit.
struct Note {
  std::string_view of;
  std::string_view text;
  Bounds bounds = {};
  bool required = false;
  bool read_only = false;
};
constexpr Note notes[] = {
    {"JobSpec", "What a job asks for. Durations are in nanoseconds."},
    {"JobSpec.name", "1 to 63 of [A-Za-z0-9._-]; may be empty."},
    {.of = "JobSpec.argv", .text = "The command; at most 256 KiB.", .required = true},
    {"JobSpec.cwd", "Absolute path of the working directory."},
    {"JobSpec.labels", "Labels to find the job by; at most 32."},
    {"JobSpec.after", "Jobs that must end first."},
    {"JobSpec.roles",
     "Makes the job a group: members of several roles that start together. argv, resources and "
     "nodes of the job then follow from them."},
    {"RoleSpec",
     "One role of a group: what its members run and need. Durations are in nanoseconds."},
    {.of = "RoleSpec.name",
     .text = "A lower-case letter, then at most 31 lower-case letters, digits and dashes.",
     .required = true},
    {.of = "RoleSpec.argv", .text = "The command of its members.", .required = true},
    {"RoleSpec.count", "Members of the role.", {1, limits::members_per_group_max}},
    {"RoleSpec.resources", "Of each member."},
    {"RoleSpec.env", "Variables in addition to the job's."},
    {"RoleSpec.own_env", "Only these variables, and not the job's."},
    {"RoleSpec.retries",
     "Restart a member that fails up to this many times, while the others continue.",
     {0, limits::retries_max}},
    {"RoleSpec.service", "Stopped when the members of all other roles have ended."},
    {"JobSpec.reservation", "Number of the reservation that the job runs in, at its price."},
    {.of = "JobSpec.env_digest",
     .text = "Set by the head; ignored on submission.",
     .read_only = true},
    {"JobSpec.pty", "Give the job a terminal."},
    {"JobSpec.use_stdin", "Connect standard input; default: /dev/null."},
    {"JobSpec.rows", "Rows of the terminal."},
    {"JobSpec.cols", "Columns of the terminal."},
    {"JobSpec.checkpoint_signal",
     "Number of the signal that makes the job write a checkpoint; 0: none.",
     {0, 64}},
    {"Resources", "The resources of one task on one node."},
    {"Resources.gpus",
     "GPUs per node; MIG instances if mig_profile is set.",
     {0, limits::gpus_per_node_max}},
    {"Resources.cpu_milli", "CPU cores per node, in thousandths.", {0, INT64_MAX}},
    {"Share", "A share of one GPU."},
    {"Share.milli",
     "Thousandths of a GPU's compute; 1000 is the whole GPU. 0 with mem_mib: in proportion to the "
     "memory.",
     {0, 1000}},
    {"Share.mem_mib", "MiB of its memory; 0: in proportion to milli.", {0, INT64_MAX}},
    {"Dependency", "A job that must end first."},
    {.of = "Dependency.job", .text = "Number of a job or array.", .required = true},
    {"Dependency.kind",
     "ok: after it has succeeded; any: after it has ended; failed: after it has "
     "failed."},
    {"ArraySpec", "The indices of an array: at most 100,000."},
    {"ArraySpec.first", "The first index."},
    {.of = "ArraySpec.last", .text = "The last index of the first range.", .required = true},
    {"ArraySpec.step", "Between two indices.", {1, INT64_MAX}},
    {"ArraySpec.running_max", "At most this many at a time; 0: no limit."},
    {"ArraySpec.more", "Further ranges of indices, ascending, each above the one before."},
    {"IndexRange", "The indices first, first + step, ... up to last."},
    {"IndexRange.first", "The first index."},
    {.of = "IndexRange.last", .text = "The last index.", .required = true},
    {"IndexRange.step", "Between two indices.", {1, INT64_MAX}},
    {"PlaceWish", "Where it may run; empty lists allow everything."},
    {"PlaceWish.close", "How close together the nodes of a gang must be."},
    {"PlaceWish.close_required",
     "The job waits for such nodes; otherwise they are only preferred."},
    {"PlaceWish.nvlink_required", "The GPUs of one task must be connected by NVLink."},
    {"Surroundings",
     "What a job needs besides its command: image, environment, volumes, secrets, objects."},
    {"Surroundings.environment_digest", "Digest of its content; set by the head."},
    {"Surroundings.refused_calls",
     "Names of system calls that are refused besides those of the profile; at most 256."},
};
const Note* note(std::string_view of) {
  for (const Note& each : notes)
    if (each.of == of)
      return &each;
  return nullptr;
}

template <class T>
constexpr std::string_view schema_name = "";  // of a struct that stands by itself
template <>
constexpr std::string_view schema_name<JobSpec> = "JobSpec";
template <>
constexpr std::string_view schema_name<RoleSpec> = "RoleSpec";
template <>
constexpr std::string_view schema_name<Resources> = "Resources";
template <>
constexpr std::string_view schema_name<Share> = "Share";
template <>
constexpr std::string_view schema_name<Dependency> = "Dependency";
template <>
constexpr std::string_view schema_name<ArraySpec> = "ArraySpec";
template <>
constexpr std::string_view schema_name<IndexRange> = "IndexRange";
template <>
constexpr std::string_view schema_name<PlaceWish> = "PlaceWish";
template <>
constexpr std::string_view schema_name<Surroundings> = "Surroundings";

class Schemas {
 public:
  Schemas() : options_(option_fields()) {}

  template <class T>
  void add() {
    Json schema = object_of<T>(schema_name<T>);
    schemas_.set(schema_name<T>, std::move(schema));
  }
  Json take() { return std::move(schemas_); }

 private:
  template <class T>
  Json object_of(std::string_view name) {
    Json schema = Json::object({{"type", "object"}});
    if (const Note* about = note(name); about && !name.empty())
      schema.set("description", std::string(about->text));
    Properties properties{*this, name, Json::object(), Json::array()};
    const T made{};
    T::fields(made, properties);
    schema.set("properties", std::move(properties.all));
    if (properties.required.size() > 0)
      schema.set("required", std::move(properties.required));
    if (!name.empty())
      schema.set("additionalProperties", false);
    return schema;
  }

  struct Properties {
    Schemas& schemas;
    std::string_view owner;
    Json all, required;
    template <class M>
    void operator()(const char* name, const M& standard) {
      Json property = schemas.type_of(standard);
      if (!owner.empty() && !property.find("$ref"))
        schemas.describe<M>(fmt::format("{}.{}", owner, name), property);
      if (const Note* about = note(fmt::format("{}.{}", owner, name)); about && about->required)
        required.push(name);
      all.set(name, std::move(property));
    }
  };

  // `standard` is the value of a default-made struct.
  template <class M>
  Json type_of(const M& standard) {
    using namespace wire::detail;
    if constexpr (std::is_same_v<M, bool>)
      return Json::object({{"type", "boolean"}});
    else if constexpr (std::is_integral_v<M>) {
      Json type = Json::object({{"type", "integer"}});
      if (std::is_unsigned_v<M>)
        type.set("minimum", 0);
      if (standard != 0)
        type.set("default", static_cast<std::int64_t>(standard));
      return type;
    } else if constexpr (std::is_same_v<M, Duration>) {
      Json type = Json::object({{"type", "integer"}, {"minimum", 0}});
      if (standard.ns != 0)
        type.set("default", standard.ns);
      return type;
    } else if constexpr (IsId<M>::value)
      return Json::object({{"type", "integer"}});
    else if constexpr (NamedEnum<M>) {
      Json names = Json::array();
      for (const auto& [value, name] : EnumNames<M>::table)
        names.push(std::string(name));
      return Json::object({{"type", "string"},
                           {"enum", std::move(names)},
                           {"default", std::string(enum_name(standard))}});
    } else if constexpr (std::is_same_v<M, std::string>)
      return Json::object({{"type", "string"}});
    else if constexpr (IsVector<M>::value)
      return Json::object({{"type", "array"}, {"items", type_of(typename M::value_type{})}});
    else if constexpr (IsStringMap<M>::value)
      return Json::object(
          {{"type", "object"}, {"additionalProperties", type_of(typename M::mapped_type{})}});
    else if constexpr (IsOptional<M>::value)
      return type_of(typename M::value_type{});
    else if constexpr (!schema_name<M>.empty())
      return Json::object({{"$ref", fmt::format("#/components/schemas/{}", schema_name<M>)}});
    else
      return object_of<M>("");
  }

  template <class M>
  void describe(const std::string& of, Json& property) {
    const OptionField* option = nullptr;
    for (const OptionField& each : options_)
      if (!option && each.field == of)
        option = &each;
    if (const Note* about = note(of)) {
      property.set("description", std::string(about->text));
      bound(property, about->bounds);
      if (about->read_only)
        property.set("readOnly", true);
    } else if (option) {
      std::string as = fmt::format("As --{}", option->shown.name);
      if (option->shown.value)
        as += fmt::format(" {}", option->shown.value);
      if constexpr (std::is_same_v<M, Duration>)
        as += ", in nanoseconds";
      else if (of.ends_with("_mib")) {
        as += ", in MiB";
        property.set("minimum", 0);
      }
      property.set("description", fmt::format("{}: {}", as, option->shown.help));
    } else if (of.starts_with("RoleSpec.") && !property.find("$ref")) {
      property.set("description", "As of a job, for each member.");
    }
    if (!option)
      return;
    bound(property, option->bounds);
    property.set("x-option", option->shown.name);  // the run form has a field for each
  }
  static void bound(Json& property, Bounds bounds) {
    if (bounds.min != INT64_MIN)
      property.set("minimum", bounds.min);
    if (bounds.max != INT64_MAX)
      property.set("maximum", bounds.max);
  }

  std::vector<OptionField> options_;
  Json schemas_ = Json::object();
};

}  // namespace
}  // namespace job_schema

Json job_schemas() {
  job_schema::Schemas schemas;
  schemas.add<JobSpec>();
  schemas.add<RoleSpec>();
  schemas.add<Resources>();
  schemas.add<Share>();
  schemas.add<Dependency>();
  schemas.add<ArraySpec>();
  schemas.add<IndexRange>();
  schemas.add<PlaceWish>();
  schemas.add<Surroundings>();
  return schemas.take();
}

}  // namespace billow::client
