// The OpenAPI file against the program: the same routes, no dangling reference, and the members the
// codecs really have.
#include <gtest/gtest.h>

#include <set>

#include "api/api.h"
#include "base/json.h"
#include "base/text.h"
#include "client/request/job_request.h"
#include "core/model/job.h"
#include "net/http/http.h"

namespace billow {
namespace {

const Json& description() {
  static const Json json = [] {
    auto parsed = api::openapi_document();
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

// The schemas of a job are made from its options, so only what was made is looked at here.
TEST(OpenApi, TheSchemasOfAJobAreThoseOfTheOptions) {
  const Json made = client::job_schemas();
  EXPECT_EQ(made.size(), 9u);
  for (const auto& [name, schema] : made.members()) {
    EXPECT_EQ(description().at("components", "schemas", name), schema)
        << "write them again: build/bin/billow help --job-schemas > src/api/job_schemas.json";
    for (const auto& [member, property] : schema["properties"].members())
      EXPECT_TRUE(property.find("$ref") || property.find("description"))
          << name << "." << member << " has no option and no note in job_schemas.cpp";
  }
}

TEST(OpenApi, EveryOptionSetsAMemberThatTheSchemasHave) {
  const Json made = client::job_schemas();
  for (const client::OptionField& option : client::option_fields()) {
    const auto dot = option.field.find('.');
    EXPECT_TRUE(
        made.at(option.field.substr(0, dot), "properties").find(option.field.substr(dot + 1)))
        << "--" << option.shown.name << " names " << option.field;
  }
}

TEST(OpenApi, BoundsAreThoseThatTheOptionsKeep) {
  int bounded = 0;
  for (const client::OptionField& option : client::option_fields()) {
    if (option.bounds.max == INT64_MAX)
      continue;
    ++bounded;
    const auto dot = option.field.find('.');
    const Json& property = description().at("components", "schemas", option.field.substr(0, dot),
                                            "properties", option.field.substr(dot + 1));
    EXPECT_EQ(property["minimum"].int_or(-1), option.bounds.min) << option.field;
    EXPECT_EQ(property["maximum"].int_or(-1), option.bounds.max) << option.field;
    client::JobRequest request;
    const auto set = [&](std::int64_t value) {
      return client::set_option(request, option.shown.name, std::to_string(value)).has_value();
    };
    EXPECT_TRUE(set(option.bounds.min)) << option.shown.name;
    EXPECT_TRUE(set(option.bounds.max)) << option.shown.name;
    EXPECT_FALSE(set(option.bounds.min - 1)) << option.shown.name;
    EXPECT_FALSE(set(option.bounds.max + 1)) << option.shown.name;
  }
  EXPECT_GE(bounded, 4);
}

// Collects the names a struct's fields() gives.
struct Names {
  std::set<std::string> names;
  template <class T>
  void operator()(const char* name, T&) {
    names.insert(name);
  }
};

TEST(OpenApi, TheUseOfATaskHasTheMembersTheCodecWrites) {
  Names names;
  TaskUsage value{};
  TaskUsage::fields(value, names);
  std::set<std::string> described;
  for (const auto& [name, member] :
       description().at("components", "schemas", "TaskUsage", "properties").members())
    described.insert(name);
  EXPECT_EQ(described, names.names);
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
