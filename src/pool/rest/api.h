// One provider's API as its file describes it: authenticates, paces, sends, reads every page, and
// says what an answer means. The credential is in headers only: never in a URL, a message or a log.
// Calls block. Safe to use from several threads.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/sync.h"
#include "net/address.h"
#include "net/http/http.h"
#include "pool/pool.h"
#include "pool/rest/provider.h"
#include "pool/rest/template.h"

namespace billow::pool::rest {

struct Answer {
  int status = 0;
  Json body;  // a plain text if it is not JSON
};

// Why there is no answer. If the request was sent, it is unknown whether it was carried out.
struct NoAnswer {
  Error error;
  bool sent = false;
};

class Api {
 public:
  struct Options {
    std::string address;  // empty: that of the file
    // The value of a credential that the file names: "LAMBDA_API_KEY".
    std::function<Result<std::string>(const std::string& name)> credential;
  };
  static Result<std::unique_ptr<Api>> create(const Provider& provider, Options options);

  enum class Use { read, change, create };
  std::expected<Answer, NoAnswer> send(const Call& call, const Values& values, Use use);
  // The items of every page, or an error: part of a list is no list.
  Result<std::vector<Json>> list(const ListCall& list, const Values& values);

  bool succeeded(const Answer& answer) const;
  // What an error answer means, in the provider's own words.
  Refusal refusal_of(const Answer& answer) const;
  Refusal refusal_of(int status, const std::string& code, const std::string& text) const;
  bool matches(const std::vector<AnswerRule>& rules, const Answer& answer) const;

 private:
  struct Token {
    std::string value;
    SteadyTime until;
  };
  Api(const Provider& provider, Options options, net::Url url)
      : provider_(provider), options_(std::move(options)), url_(std::move(url)) {}
  struct Prepared {
    net::Method method;
    std::string target;
    std::string body;
    bool has_body = false;
  };
  Result<Prepared> prepare(const Call& call, const Values& values) const;
  std::expected<Answer, NoAnswer> exchange(const Prepared& request,
                                           const Values& values,
                                           Use use,
                                           bool again);
  Status authenticate(const Prepared& request,
                      net::Headers& headers,
                      std::vector<std::string>& secrets);
  Result<std::string> oauth2_token(std::vector<std::string>& secrets);
  std::string signature(const Prepared& request,
                        const std::string& time,
                        const std::string& secret) const;
  Result<std::string> next_page(const ListCall& list,
                                const Answer& answer,
                                std::size_t items,
                                int page) const;

  const Provider& provider_;
  Options options_;
  net::Url url_;
  Sync<Token> token_;
};

}  // namespace billow::pool::rest
