// The OpenAPI file against the program: the same routes, no dangling reference, and the members the
// codecs really have.
#include <gtest/gtest.h>

#include <set>

#include "api/api.h"
#include "base/json.h"
#include "base/text.h"
#include "core/model/job.h"
#include "net/http/http.h"

std::string_view billow_embedded_openapi();

namespace billow {
namespace {

const Json& description() {
  static const Json json = [] {
    auto parsed = parse_json(billow_embedded_openapi());
    if (!parsed)
      throw std::runtime_error(parsed.error().message);
    return std::move(*parsed);
  }();
  return json;
}

TEST(OpenApi, HasExactlyTheRoutesThereAre) {
  std::set<std::string> described, real;
  for (const auto& [path, operations] : description()["paths"].members())
    for (const auto& [method, operation] : operations.members())
      described.insert(method + " " + path);
  for (const api::RouteInfo& route : api::Api::routes())
    real.insert(lower(net::method_name(route.method)) + " " + route.pattern);
  EXPECT_EQ(described, real);
}

void collect(const Json& json,
             std::set<std::string>& references,
             std::set<std::string>& operation_ids) {
  for (const Json& item : json.items())
    collect(item, references, operation_ids);
  for (const auto& [key, value] : json.members()) {
    if (key == "$ref" && value.is_string())
      references.insert(value.as_string());
    if (key == "operationId" && !operation_ids.insert(std::string(value.str_or(""))).second)
      ADD_FAILURE() << value.str_or("") << " is there twice";
    collect(value, references, operation_ids);
  }
}

TEST(OpenApi, EveryReferenceLeadsSomewhereAndEverySchemaIsUsed) {
  std::set<std::string> references, operation_ids;
  collect(description(), references, operation_ids);
  for (const std::string& reference : references) {
    const Json* at = &description();
    for (const std::string& part : split(reference.substr(2), '/')) {
      at = at->find(part);
      ASSERT_NE(at, nullptr) << reference;
    }
  }
  for (const auto& [name, schema] : description().at("components", "schemas").members())
    EXPECT_TRUE(references.contains("#/components/schemas/" + name)) << name;
}

TEST(OpenApi, PathParametersAreDescribed) {
  for (const auto& [path, operations] : description()["paths"].members())
    for (const auto& [method, operation] : operations.members()) {
      std::set<std::string> named, wanted;
      for (const Json& p : operation["parameters"].items()) {
        const Json* parameter = &p;
        if (const auto reference = p["$ref"].str_or(""); !reference.empty())
          parameter = &description().at("components", "parameters",
                                        reference.substr(reference.rfind('/') + 1));
        if ((*parameter)["in"].str_or("") == "path")
          named.insert(std::string((*parameter)["name"].str_or("")));
      }
      for (const std::string& part : split(path, '/'))
        if (part.starts_with('{'))
          wanted.insert(part.substr(1, part.size() - 2));
      EXPECT_EQ(named, wanted) << method << " " << path;
      EXPECT_FALSE(operation["summary"].str_or("").empty()) << method << " " << path;
    }
}

// Collects the names a struct's fields() gives.
struct Names {
  std::set<std::string> names;
  template <class T>
  void operator()(const char* name, T&) {
    names.insert(name);
  }
};
template <class T>
void expect_members(const char* schema) {
  Names names;
  T value{};
  T::fields(value, names);
  std::set<std::string> described;
  for (const auto& [name, member] :
       description().at("components", "schemas", schema, "properties").members())
    described.insert(name);
  EXPECT_EQ(described, names.names) << schema;
}

TEST(OpenApi, RequestSchemasHaveTheMembersTheCodecsRead) {
  expect_members<JobSpec>("JobSpec");
  expect_members<Resources>("Resources");
  expect_members<Share>("Share");
  expect_members<Dependency>("Dependency");
  expect_members<ArraySpec>("ArraySpec");
  expect_members<TaskUsage>("TaskUsage");
}

TEST(OpenApi, EnumerationsAreThoseOfTheModel) {
  std::set<std::string> described, real;
  for (const Json& state : description().at("components", "schemas", "JobState", "enum").items())
    described.insert(std::string(state.str_or("")));
  for (const auto& [state, name] : EnumNames<JobState>::table)
    real.insert(name);
  EXPECT_EQ(described, real);
}

}  // namespace
}  // namespace billow
