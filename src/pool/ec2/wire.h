// Signed requests to Amazon's services: the query protocol of EC2 and STS (a form in, XML out) and
// the JSON protocol of SSM and Service Quotas.
#pragma once

#include <expected>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "core/model/offer.h"
#include "net/http/http.h"
#include "net/xml.h"
#include "pool/ec2/credentials.h"
#include "pool/ec2/pace.h"
#include "pool/pool.h"

namespace billow::pool::ec2 {

// What a service answered instead of a result.
struct ApiError {
  int status = 0;    // 0: no answer
  std::string code;  // "InsufficientInstanceCapacity"; empty: none
  std::string message;
  std::string text() const;
};
template <class T>
using Answer = std::expected<T, ApiError>;
Error error_of(const ApiError& error);
// Of the question whose credentials these are: whether they were refused, or no server answered.
Error identity_error(const ApiError& error);

using Parameters = std::vector<std::pair<std::string, std::string>>;
// "Filter.2.Name" and "Filter.2.Value.1" …
void add_filter(Parameters& parameters,
                const std::string& name,
                const std::vector<std::string>& values);

// Which kind of refusal an error of RunInstances is.
RefusalKind kind_of(const ApiError& error);
// The reason why EC2 ended an instance that it had accepted
// ("Server.InsufficientInstanceCapacity").
RefusalKind kind_of_end(std::string_view reason);

// The answer to a form, read: an error answer becomes its error.
Answer<net::XmlElement> read_answer(int status, std::string_view body);

class Wire {
 public:
  struct Options {
    std::string endpoint;  // of all services, for tests and proxies; empty: Amazon's
    std::string profile;
    Variables variable;
  };
  explicit Wire(Options options);

  Answer<net::XmlElement> query(const std::string& service,
                                const std::string& region,
                                const std::string& action,
                                Parameters parameters);
  Answer<net::XmlElement> ec2(const std::string& region,
                              const std::string& action,
                              Parameters parameters) {
    return query("ec2", region, action, std::move(parameters));
  }
  Answer<Json> json(const std::string& service,
                    const std::string& region,
                    const std::string& target,
                    const Json& body);
  // All pages: `NextToken` is followed until there is none. `each` gets the root of each page.
  Answer<void> pages(const std::string& region,
                     const std::string& action,
                     Parameters parameters,
                     const std::function<void(const net::XmlElement&)>& each);
  CredentialChain& credentials() { return chain_; }

 private:
  Answer<std::pair<int, std::string>> send(const std::string& service,
                                           const std::string& region,
                                           const net::Headers& headers,
                                           const std::string& body,
                                           const Credentials& credentials);
  Result<Credentials> assume(const Credentials& with, const Role& role);
  Options options_;
  CredentialChain chain_;
  Pace pace_{system_clock()};
};

// The host of a service: China has a suffix of its own.
std::string host_of(const std::string& service, const std::string& region);

}  // namespace billow::pool::ec2
