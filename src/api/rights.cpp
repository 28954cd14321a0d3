#include "api/rights.h"

namespace billow::api {

Status allowed(const control::Principal& who, Need need) {
  const auto forbidden = [](std::string why, std::string hint = {}) {
    return fail(Code::forbidden, std::move(why), std::move(hint));
  };
  switch (need) {
    case Need::nothing:
      return {};
    case Need::node:
      return who.scope == TokenScope::node ? Status{}
                                           : forbidden("only a node's credential may do this",
                                                       "create one: billow token create --node");
    case Need::join:
      return who.scope == TokenScope::join ? Status{}
                                           : forbidden("only a join token may do this",
                                                       "create one: billow token create --node");
    case Need::look:
      if (who.scope == TokenScope::join)
        return forbidden("a join token can only let machines join",
                         "people need a token of their own: billow token create NAME --user USER");
      if (who.scope == TokenScope::gateway)
        return forbidden("a gateway's token can only be used by a gateway");
      return who.scope != TokenScope::node
                 ? Status{}
                 : forbidden("a node's credential can only be used by its agent");
    case Need::work:
      if (const Status look = allowed(who, Need::look); !look)
        return look;
      return who.scope != TokenScope::read ? Status{}
                                           : forbidden("this token is read-only",
                                                       "use a token with the scope submit or full");
    case Need::full:
      if (const Status work = allowed(who, Need::work); !work)
        return work;
      return who.scope == TokenScope::full ? Status{}
             : who.agent
                 ? forbidden("an agent token cannot do this",
                             "a person can do it with a token of their own")
                 : forbidden("this needs a full token; yours can only submit jobs to one project",
                             "use your own token, or create one: billow token create NAME");
    case Need::files:
      return who.scope == TokenScope::node ? Status{} : allowed(who, Need::work);
    case Need::machine:
      return who.scope == TokenScope::node || who.scope == TokenScope::gateway
                 ? Status{}
                 : forbidden("only nodes and gateways get certificates");
    case Need::gateway:
      return who.scope == TokenScope::gateway || allowed(who, Need::full)
                 ? Status{}
                 : forbidden("only a gateway's token may do this",
                             "an admin can create one: billow token create NAME --scope gateway");
  }
  return forbidden("not allowed");
}

}  // namespace billow::api
