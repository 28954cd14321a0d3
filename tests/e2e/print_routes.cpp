// Prints the routes of the API, one "METHOD PATTERN" a line, for the test that holds them against
// the OpenAPI file.
#include <cstdio>

#include <fmt/format.h>

#include "api/api.h"

int main() {
  for (const billow::api::RouteInfo& route : billow::api::Api::routes())
    fmt::print("{} {}\n", billow::net::method_name(route.method), route.pattern);
  return 0;
}
