// Documents applied to a cluster by server-side apply: the server creates what is missing and
// changes only the fields that the documents name. A field that somebody else has set since stays,
// and the server says whose it is. The same documents can be applied any number of times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pool/kubernetes/client.h"

namespace billow::pool {

struct ApplyOptions {
  bool rehearse = false;  // the server checks everything and changes nothing
  bool force = false;     // take fields that others have set
};

// In this order, until one fails. `on_applied` gets "Role team/billow-pool" and whether it is new.
Status apply_documents(KubeClient& client,
                       const std::vector<Json>& documents,
                       ApplyOptions options,
                       const std::function<void(const std::string& what, bool is_new)>& on_applied);

// "/apis/apps/v1/namespaces/billow/statefulsets/billow-head"
std::string object_path(const Json& document);

}  // namespace billow::pool
