// How kubeconfig files are read, which documents are sent to Kubernetes, and what its answers mean.
// The API itself is in tests/e2e/pools/kubernetes_test.py.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/crypto.h"
#include "base/file.h"
#include "pool/kinds.h"
#include "pool/kubernetes/client.h"
#include "pool/kubernetes/kubeconfig.h"
#include "pool/kubernetes/node_labels.h"
#include "pool/kubernetes/pod.h"
#include "pool/kubernetes/pod_state.h"
#include "pool/kubernetes/rights.h"
#include "pool/kubernetes/yaml.h"

namespace billow::pool {
namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/billow-kube-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { EXPECT_TRUE(remove_tree(path)); }
  std::string write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(path + "/" + name, text, 0600));
    return path + "/" + name;
  }
};

KubeSurroundings with(std::map<std::string, std::string> env, std::string account = "/nowhere") {
  return {.env =
              [env = std::move(env)](const char* name) {
                const auto found = env.find(name);
                return found == env.end() ? std::string() : found->second;
              },
          .service_account = std::move(account)};
}

TEST(Yaml, ReadsWhatKubeconfigsUse) {
  const auto value = parse_yaml(
      "a: 1\nb: \"1\"\nlist:\n- x\n- {y: true, z: null}\ntext: |\n  two\n  lines\n"
      "same: &it [q]\nagain: *it\n# comment\nempty:\nzero: 007\n");
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(value->dump(),
            R"({"a":1,"b":"1","list":["x",{"y":true,"z":null}],"text":"two\nlines\n",)"
            R"("same":["q"],"again":["q"],"empty":null,"zero":"007"})");
  EXPECT_EQ(parse_yaml(R"({"apiVersion": "v1", "n": [1, 2]})")->dump(),
            R"({"apiVersion":"v1","n":[1,2]})");
  EXPECT_TRUE(parse_yaml("")->is_null());
}

TEST(Yaml, WritesWhatItReadsAgain) {
  const Json value = *parse_json(
      R"({"a":"plain","b":"yes","c":"1","d":1,"e":[],"f":{},"g":[{"x":"a: b","y":["1",true]},"z",)"
      R"([1,[2]]],"h":null,"i":"-x","j":"/path/to","k/l.m":"# no","n":"two\nlines","o":"",)"
      R"("p":"/two\n\nlines","q":"/[x]"})");
  const auto again = parse_yaml(to_yaml(value));
  ASSERT_TRUE(again) << again.error().message << "\n" << to_yaml(value);
  EXPECT_EQ(again->dump(), value.dump()) << to_yaml(value);
  EXPECT_EQ(to_yaml(*parse_json(R"({"kind":"Role","rules":[{"verbs":["get"],"count":1}]})")),
            "kind: Role\nrules:\n  - verbs:\n      - get\n    count: 1\n");
}

TEST(Yaml, RefusesWhatIsBrokenOrExplodes) {
  const auto broken = parse_yaml("a: [1\nb: 2");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("line "), std::string::npos) << broken.error().message;
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i)
    bomb +=
        fmt::format("a{0}: &a{0} [*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1},*a{1}]\n", i, i - 1);
  EXPECT_FALSE(parse_yaml(bomb));
  EXPECT_FALSE(parse_yaml("a: &a [*a]\n"));
  EXPECT_FALSE(parse_yaml(std::string(2000, '[')));
  EXPECT_FALSE(parse_yaml("? [a]\n: 1\n"));
}

constexpr const char* two_clusters = R"(
apiVersion: v1
kind: Config
current-context: here
clusters:
- name: c1
  cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.pem}
- name: c2
  cluster:
    server: https://k8s.example/prefix
    certificate-authority-data: Q0EgREFUQQ==
    tls-server-name: inner
users:
- name: u1
  user: {client-certificate: cert.pem, client-key-data: S0VZ}
- name: u2
  user: {token: 12345, as: somebody, as-groups: [g1, g2]}
contexts:
- name: here
  context: {cluster: c1, user: u1}
- name: there
  context: {cluster: c2, user: u2, namespace: team}
)";

TEST(Kubeconfig, ReadsContextsFilesAndData) {
  const Folder folder;
  folder.write("ca.pem", "the authority");
  folder.write("cert.pem", "the certificate");
  const std::string path = folder.write("config", two_clusters);
  const auto here = read_access({.kubeconfig = path}, with({}));
  ASSERT_TRUE(here) << here.error().message;
  EXPECT_EQ(here->context, "here");
  EXPECT_EQ(here->server, "https://10.0.0.1:6443");
  EXPECT_EQ(here->ca_pem, "the authority");
  EXPECT_EQ(here->cert_pem, "the certificate");
  EXPECT_EQ(here->key_pem, "KEY");
  EXPECT_EQ(here->name_space, "default");
  const auto there = read_access({.context = "there"}, with({{"KUBECONFIG", path}}));
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_EQ(there->ca_pem, "CA DATA");
  EXPECT_EQ(there->token, "12345");
  EXPECT_EQ(there->name_space, "team");
  EXPECT_EQ(there->tls_server_name, "inner");
  EXPECT_EQ(there->as_user, "somebody");
  EXPECT_EQ(there->as_groups.size(), 2u);

  const auto wrong = read_access({.kubeconfig = path, .context = "ther"}, with({}));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().hint.find("here, there"), std::string::npos) << wrong.error().hint;
}

TEST(Kubeconfig, MergesAListOfFilesAndTheFirstWins) {
  const Folder folder;
  const std::string one = folder.write("one",
                                       "current-context: x\n"
                                       "contexts: [{name: x, context: {cluster: c, user: u}}]\n");
  const std::string two =
      folder.write("two",
                   "current-context: y\nclusters: [{name: c, cluster: {server: 'https://two:1'}}]\n"
                   "users: [{name: u, user: {tokenFile: t}}]\n");
  folder.write("t", "from a file\n");
  const auto access =
      read_access({}, with({{"KUBECONFIG", one + ":" + folder.path + "/missing:" + two}}));
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_EQ(access->context, "x");
  EXPECT_EQ(access->server, "https://two:1");
  EXPECT_EQ(access->token, "from a file");
  EXPECT_EQ(access->token_file, folder.path + "/t");
}

TEST(Kubeconfig, SaysWhatItCannotDo) {
  const Folder folder;
  const auto with_parts = [&](const std::string& cluster, const std::string& user) {
    const std::string path =
        folder.write("config",
                     "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
                     "clusters: [{name: c, cluster: {" +
                         cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n");
    const auto access = read_access({.kubeconfig = path}, with({}));
    return access ? std::string("read") : access.error().message;
  };
  EXPECT_EQ(with_parts("server: 'https://a:1'", "token: t"), "read");
  EXPECT_NE(
      with_parts("server: 'https://a:1', proxy-url: 'http://p'", "token: t").find("proxy-url"),
      std::string::npos);
  EXPECT_NE(with_parts("server: 'https://a:1'", "auth-provider: {name: gcp}").find("auth-provider"),
            std::string::npos);
  EXPECT_NE(with_parts("server: 'https://a:1'", "username: u").find("password"), std::string::npos);
  EXPECT_NE(with_parts("insecure-skip-tls-verify: true", "token: t").find("server"),
            std::string::npos);
  EXPECT_NE(with_parts("server: 'https://a:1', certificate-authority-data: '%%'", "token: t")
                .find("base64"),
            std::string::npos);
  EXPECT_NE(
      with_parts("server: 'https://a:1', certificate-authority: gone.pem", "").find("gone.pem"),
      std::string::npos);
  EXPECT_FALSE(read_access({.kubeconfig = "/nowhere/at/all"}, with({})));
}

TEST(Kubeconfig, APodUsesItsServiceAccount) {
  const Folder folder;
  folder.write("ca.crt", "authority");
  folder.write("token", "secret\n");
  folder.write("namespace", "team");
  const auto pod = with({{"HOME", "/nowhere"},
                         {"KUBERNETES_SERVICE_HOST", "fd00::1"},
                         {"KUBERNETES_SERVICE_PORT", "443"}},
                        folder.path);
  const auto access = read_access({}, pod);
  ASSERT_TRUE(access) << access.error().message;
  EXPECT_EQ(access->server, "https://[fd00::1]:443");
  EXPECT_EQ(access->token, "secret");
  EXPECT_EQ(access->name_space, "team");
  EXPECT_EQ(access->context, "");
  EXPECT_FALSE(read_access({.context = "x"}, pod)) << "a context needs a kubeconfig";
  EXPECT_FALSE(read_access({}, with({{"HOME", "/nowhere"}})));
}

TEST(Kubeconfig, RunsAPluginWithItsEnvironment) {
  const Folder folder;
  const std::string plugin = folder.write(
      "plugin",
      "#!/bin/sh\ncase $KUBERNETES_EXEC_INFO in *ExecCredential*) ;; *) exit 3;; esac\n"
      "[ \"$1\" = give ] || exit 4\n"
      "printf '{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t-%s\",\"expirationTimestamp\":"
      "\"2026-11-16T00:10:22Z\"}}' \"$WHO\"\n");
  ASSERT_EQ(::chmod(plugin.c_str(), 0700), 0);
  const auto given = run_plugin({.api_version = "client.authentication.k8s.io/v1",
                                 .command = plugin,
                                 .args = {"give"},
                                 .env = {{"WHO", "me"}}});
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->token, "t-me");
  EXPECT_EQ(given->expires_at_s, 1794787822);
  const auto broken = run_plugin({.command = plugin, .args = {"no"}, .install_hint = "install it"});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().hint, "install it");
  EXPECT_FALSE(read_plugin_output("{}"));
  EXPECT_FALSE(read_plugin_output(R"({"kind":"ExecCredential","status":{}})"));
}

billow::Pool kube_settings() {
  billow::Pool pool;
  pool.name = "k";
  pool.kind = "kubernetes";
  pool.gpu_type = "H100";
  pool.gpus = 8;
  pool.options["image"] = "billow:1";
  return pool;
}

Order kube_order(std::uint32_t nodes = 1, std::int32_t gpus = 2) {
  Order order;
  order.machine.name = "k-7";
  order.machine.nodes = nodes;
  order.machine.gpus = gpus;
  order.head_url = "https://head:7070";
  order.token = "bwj_secret.abcd";
  return order;
}

Json pod_for(const billow::Pool& pool, const Order& order, std::uint32_t rank = 0) {
  const auto settings = read_pod_settings(pool);
  EXPECT_TRUE(settings) << settings.error().message;
  return pod_document({.settings = *settings,
                       .pool = pool,
                       .order = order,
                       .installation = "ab12cd34",
                       .rank = rank});
}

std::vector<std::string> command_words(const Json& pod) {
  std::vector<std::string> out;
  for (const Json& word : pod.at("spec", "containers").items()[0]["command"].items())
    out.emplace_back(word.str_or(""));
  return out;
}

TEST(KubernetesPod, AsksForWhatTheMachineNeedsAndNoMoreThanRestrictedAllows) {
  const Json pod = pod_for(kube_settings(), kube_order());
  EXPECT_EQ(pod.at("metadata", "name").str_or(""), "billow-ab12cd34-k-7");
  EXPECT_EQ(pod.at("metadata", "labels", label_machine).str_or(""), "k-7");
  const Json& spec = pod["spec"];
  const Json& container = spec["containers"].items()[0];
  EXPECT_EQ(container.at("resources", "limits", "nvidia.com/gpu").str_or(""), "2");
  EXPECT_EQ(spec["restartPolicy"].str_or(""), "Never");
  EXPECT_FALSE(spec["automountServiceAccountToken"].bool_or(true));
  EXPECT_TRUE(spec.at("securityContext", "runAsNonRoot").bool_or(false));
  EXPECT_EQ(spec.at("securityContext", "seccompProfile", "type").str_or(""), "RuntimeDefault");
  EXPECT_FALSE(container.at("securityContext", "allowPrivilegeEscalation").bool_or(true));
  EXPECT_EQ(container.at("securityContext", "capabilities", "drop").dump(), R"(["ALL"])");
  EXPECT_EQ(pod.dump().find("bwj_secret"), std::string::npos) << "the token is in the secret only";
  EXPECT_TRUE(read_pod(pod).secret.starts_with("billow-ab12cd34-k-7-")) << read_pod(pod).secret;
  Order other = kube_order();
  other.token = "bwj_other";
  EXPECT_NE(read_pod(pod).secret, read_pod(pod_for(kube_settings(), other)).secret)
      << "a late deletion of an earlier pod's secret must not hit this one's";
  const auto words = command_words(pod);
  EXPECT_NE(std::find(words.begin(), words.end(), "--in-allocation"), words.end());
  EXPECT_EQ(spec["tolerations"].items()[0]["key"].str_or(""), "nvidia.com/gpu");

  const Json secret = secret_document({.settings = PodSettings{},
                                       .pool = kube_settings(),
                                       .order = kube_order(),
                                       .installation = "ab12cd34"},
                                      "the-secret", "uid-1");
  EXPECT_EQ(secret.at("metadata", "name").str_or(""), "the-secret");
  EXPECT_EQ(secret.at("stringData", "token").str_or(""), "bwj_secret.abcd");
  EXPECT_EQ(secret.at("metadata", "ownerReferences").items()[0]["uid"].str_or(""), "uid-1");
}

TEST(KubernetesPod, FollowsItsOptions) {
  billow::Pool pool = kube_settings();
  pool.labels["zone"] = "a$(b)";
  pool.time = hours(2);
  pool.options = {{"gpu-resource", "nvidia.com/mig-1g.10gb"},
                  {"gpu-product", "NVIDIA-H100-80GB-HBM3"},
                  {"node-selector", "disk=nvme,team=vision"},
                  {"tolerations", "dedicated=gpu:NoSchedule,spot"},
                  {"runtime-class", "nvidia"},
                  {"priority-class", "low"},
                  {"pull-secrets", "one,two"},
                  {"volumes", "pvc/models:/models:ro,host/mnt/nvme:/scratch"},
                  {"queue", "team-q"},
                  {"gang-topology", "topology.kubernetes.io/zone"},
                  {"cpus", "8"},
                  {"memory", "64Gi"},
                  {"user", "2000:3000"},
                  {"grace", "2m"},
                  {"lost-after", "30s"},
                  {"image", "billow:1"}};
  const Json pod = pod_for(pool, kube_order(2), 1);
  const Json& spec = pod["spec"];
  EXPECT_EQ(pod.at("metadata", "name").str_or(""), "billow-ab12cd34-k-7-r1");
  EXPECT_EQ(pod.at("metadata", "labels", "kueue.x-k8s.io/queue-name").str_or(""), "team-q");
  EXPECT_EQ(pod.at("metadata", "annotations", "kueue.x-k8s.io/pod-group-total-count").str_or(""),
            "2");
  EXPECT_EQ(spec["containers"].items()[0].at("resources", "limits").dump(),
            R"({"cpu":"8","memory":"64Gi","nvidia.com/mig-1g.10gb":"2"})");
  EXPECT_NE(spec["affinity"].dump().find(R"("values":["NVIDIA-H100-80GB-HBM3"])"),
            std::string::npos);
  EXPECT_NE(spec["affinity"].dump().find(R"("topologyKey":"topology.kubernetes.io/zone")"),
            std::string::npos);
  EXPECT_EQ(spec["nodeSelector"].dump(), R"({"disk":"nvme","team":"vision"})");
  EXPECT_EQ(spec["tolerations"].items()[1].dump(),
            R"({"key":"dedicated","operator":"Equal","value":"gpu","effect":"NoSchedule"})");
  EXPECT_EQ(spec["tolerations"].items()[3]["tolerationSeconds"].int_or(0), 30);
  EXPECT_EQ(spec["imagePullSecrets"].dump(), R"([{"name":"one"},{"name":"two"}])");
  EXPECT_EQ(spec["terminationGracePeriodSeconds"].int_or(0), 120);
  EXPECT_NE(spec["containers"].dump().find(R"({"name":"BILLOW_LEAVE_WITHIN","value":"115s"})"),
            std::string::npos)
      << "the agent uses the time, and leaves before it is killed";
  EXPECT_EQ(spec["activeDeadlineSeconds"].int_or(0), 7200);
  EXPECT_EQ(spec.at("securityContext", "runAsUser").int_or(0), 2000);
  EXPECT_NE(spec["volumes"].dump().find(R"("hostPath":{"path":"/mnt/nvme"})"), std::string::npos);
  const auto words = command_words(pod);
  EXPECT_NE(std::find(words.begin(), words.end(), "zone=a$$(b)"), words.end())
      << "Kubernetes must not expand what a person wrote";
  EXPECT_NE(std::find(words.begin(), words.end(), "k-7.1"), words.end());
}

TEST(KubernetesPod, WithoutGpusSeesNone) {
  const Json pod = pod_for(kube_settings(), kube_order(1, 0));
  EXPECT_NE(pod.dump().find(R"({"name":"NVIDIA_VISIBLE_DEVICES","value":"void"})"),
            std::string::npos);
  EXPECT_EQ(pod.dump().find("\"nvidia.com/gpu\""), std::string::npos);
}

TEST(KubernetesPod, OptionsThatAreWrongAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {{"namespace", "Team"},
                                                       {"volumes", "models:/x"},
                                                       {"volumes", "pvc/a:b"},
                                                       {"tolerations", "a:Never"},
                                                       {"tolerations", ":NoSchedule"},
                                                       {"node-selector", "x"},
                                                       {"cpus", "many"},
                                                       {"user", "0"},
                                                       {"user", "1:2:3"},
                                                       {"privileged", "maybe"},
                                                       {"grace", "0s"},
                                                       {"queue-system", "slurm"},
                                                       {"gpu-resource", "gpu"},
                                                       {"unknown", "x"}};
  for (const auto& [name, value] : wrong) {
    billow::Pool pool = kube_settings();
    pool.options[name] = value;
    EXPECT_FALSE(complete_new_pool(pool)) << name << "=" << value;
  }
  billow::Pool pool = kube_settings();
  EXPECT_TRUE(complete_new_pool(pool));
  EXPECT_FALSE(uses_heads_rights(pool));
  pool.options["volumes"] = "host/:/host";
  EXPECT_TRUE(uses_heads_rights(pool));
  EXPECT_TRUE(pool.capabilities->several_nodes_at_once);
  pool.name = "Upper";
  EXPECT_FALSE(complete_new_pool(pool));
  pool = kube_settings();
  pool.options.erase("image");
  EXPECT_TRUE(complete_new_pool(pool)) << "there is a default";
}

PodSeen seen(const std::string& status, const std::string& metadata = "") {
  const auto json =
      parse_json(R"({"metadata":{"name":"p","uid":"u","labels":{"billow/machine":"k-1"},)"
                 R"("creationTimestamp":"2026-11-16T00:10:22Z")" +
                 metadata + R"(},"spec":{"nodeName":"gpu-7"},"status":)" + status + "}");
  EXPECT_TRUE(json) << json.error().message;
  return read_pod(*json);
}

TEST(KubernetesPodState, IsToldInWords) {
  const auto waits =
      seen(R"({"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",)"
           R"("reason":"Unschedulable",)"
           R"("message":"0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]})");
  EXPECT_EQ(waits.stage, PodStage::waiting);
  EXPECT_EQ(waits.note, "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.");
  EXPECT_EQ(waits.machine, "k-1");
  EXPECT_EQ(waits.created_s, 1794787822);

  const char* scheduled = R"("conditions":[{"type":"PodScheduled","status":"True"}])";
  const auto stuck =
      seen(fmt::format(R"({{"phase":"Pending",{},"containerStatuses":[{{"state":{{"waiting":{{)"
                       R"("reason":"ImagePullBackOff","message":"no such image"}}}}}}]}})",
                       scheduled));
  EXPECT_EQ(stuck.stage, PodStage::stuck);
  EXPECT_EQ(stuck.note, "ImagePullBackOff on gpu-7: no such image");
  EXPECT_EQ(seen(fmt::format(R"({{"phase":"Pending",{}}})", scheduled)).stage, PodStage::starting);
  EXPECT_EQ(seen(R"({"phase":"Running"})").stage, PodStage::running);
  EXPECT_NE(seen(R"({"phase":"Running","conditions":[{"type":"Ready","status":"False"}]})")
                .note.find("does not answer"),
            std::string::npos);

  const auto leaves =
      seen(R"({"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True",)"
           R"("reason":"PreemptionByScheduler","message":"default-scheduler: preempting"}]})",
           R"(,"deletionTimestamp":"2026-11-16T00:11:22Z")");
  EXPECT_EQ(leaves.stage, PodStage::leaving);
  EXPECT_EQ(leaves.note, "preempted by a pod of higher priority: default-scheduler: preempting");
  EXPECT_TRUE(leaves.taken);
}

TEST(KubernetesPodState, KnowsWhetherSomebodyTookThePod) {
  EXPECT_TRUE(
      seen(R"({"phase":"Pending"})", R"(,"deletionTimestamp":"2026-11-16T00:11:22Z")").taken);
  EXPECT_TRUE(seen(R"({"phase":"Failed","reason":"Evicted"})").taken);
  EXPECT_TRUE(seen(R"({"phase":"Failed","conditions":[{"type":"DisruptionTarget",)"
                   R"("status":"True","reason":"DeletionByPodGC"}]})")
                  .taken);
  EXPECT_FALSE(seen(R"({"phase":"Failed"})").taken) << "the next one would fail the same way";
  EXPECT_FALSE(seen(R"({"phase":"Running"})").taken);
}

TEST(KubernetesPodState, EndsHaveTheirReason) {
  const auto ended = [](const std::string& status) {
    const auto pod = seen(status);
    EXPECT_EQ(pod.stage, PodStage::ended);
    return pod.note;
  };
  const auto container = [](const std::string& end) {
    return R"({"phase":"Failed","containerStatuses":[{"state":{"terminated":)" + end + "}}]}";
  };
  EXPECT_EQ(ended(container(R"({"exitCode":137,"reason":"OOMKilled"})")),
            "the pod used more memory than its limit (OOMKilled)");
  EXPECT_EQ(ended(container(R"({"exitCode":128,"reason":"StartError","message":"no such file"})")),
            "its container could not start: no such file");
  EXPECT_EQ(
      ended(container(R"({"exitCode":1,"reason":"Error","message":"x\nthe token is used\n"})")),
      "its agent ended with exit code 1: the token is used");
  EXPECT_EQ(ended(R"({"phase":"Failed","reason":"Evicted","message":"low on memory"})"),
            "evicted by its node: low on memory");
  EXPECT_EQ(ended(R"({"phase":"Failed","reason":"DeadlineExceeded"})"),
            "its time limit has passed");
  EXPECT_EQ(ended(R"({"phase":"Succeeded"})"), "its agent has ended");
  EXPECT_EQ(ended(R"({"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True",)"
                  R"("reason":"DeletionByPodGC"}]})"),
            "its node no longer exists");
}

TEST(KubernetesPod, FetchesTheProgramUnlessTheImageNamesIt) {
  Order order = kube_order();
  order.program_sha256 = "abcd";
  order.authority = "PEM";
  billow::Pool pool = kube_settings();
  pool.options.erase("image");
  const Json pod = pod_for(pool, order);
  const Json& container = pod.at("spec", "containers").items()[0];
  EXPECT_EQ(container["image"].str_or(""), default_image);
  EXPECT_NE(container["env"].dump().find("https://head:7070/v1/program"), std::string::npos);
  const auto words = command_words(pod);
  EXPECT_EQ(words[0], "/bin/sh");
  EXPECT_NE(words[2].find("token=$$(cat /billow-token/token)"), std::string::npos)
      << "Kubernetes must not expand the shell's words: " << words[2];
  pool.options["program"] = "/opt/billow";
  EXPECT_EQ(command_words(pod_for(pool, order))[0], "/opt/billow") << "needs no shell";
  order.program_sha256.clear();
  EXPECT_EQ(command_words(pod_for(kube_settings(), order))[0], "billow");
}

TEST(KubernetesPodState, KnowsItsNodeInBillow) {
  PodSeen pod;
  pod.machine = pod.name = "k-7";
  EXPECT_EQ(billow_node_of(pod), "k-7");
  pod.nodes = 12;
  pod.name = "billow-ab-r-k-7-r11";
  EXPECT_EQ(billow_node_of(pod), "k-7.11");
}

TEST(KubernetesNodeLabels, BecomeBillows) {
  using Labels = NodeLabels::Labels;
  EXPECT_EQ(place_labels({{"topology.kubernetes.io/region", "eu"},
                          {"topology.kubernetes.io/zone", "eu-1"},
                          {"topology.k8s.aws/network-node-layer-2", "nn-2"},
                          {"topology.k8s.aws/network-node-layer-3", "nn-3"},
                          {"kubernetes.io/hostname", "x"}},
                         ""),
            (Labels{{"rack", "nn-2"}, {"region", "eu"}, {"switch", "nn-3"}, {"zone", "eu-1"}}));
  EXPECT_EQ(place_labels({{"topology.kubernetes.io/rack", "r1"}, {"dc/rack", "7"}}, "dc/rack"),
            (Labels{{"rack", "7"}}))
      << "the cluster's own label wins";
  EXPECT_EQ(place_labels({}, "dc/rack"), Labels{});
}

TEST(KubernetesRights, AreTheFewThatAreUsed) {
  for (const KubeRight& right : kube_rights()) {
    EXPECT_NE(right.verb, "*");
    EXPECT_FALSE(right.resource == "secrets" && right.verb != "create")
        << "no secret of the namespace may be read";
  }
}

TEST(ModelLabel, NodesAreFoundByTheLabelOfTheirVendor) {
  const std::map<std::string, NodeLabels::Labels> nodes = {
      {"a", {{"amd.com/gpu.product-name", "AMD_Instinct_MI300X_OAM"}}},
      {"n", {{"nvidia.com/gpu.product", "NVIDIA-L4"}, {"nvidia.com/gpu.memory", "23034"}}},
      {"c", {}}};
  EXPECT_EQ(*models_of_type(nodes, "MI300X"), std::vector<std::string>{"AMD_Instinct_MI300X_OAM"});
  EXPECT_EQ(*models_of_type(nodes, "L4"), std::vector<std::string>{"NVIDIA-L4"});
  const auto other = models_of_type(nodes, "MI250X");
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("MI300X (amd.com/gpu.product-name="), std::string::npos);
  EXPECT_FALSE(models_of_type({{"c", {}}}, "L4")) << "every NVIDIA node has the label";
  EXPECT_EQ(models_of_type({{"c", {}}}, "MI300X")->size(), 0u) << "any: AMD's is optional";
}

// The bar of the project: ten requests a second. Bursts after a rest count as well.
TEST(KubeClient, SendsAtMostTenCallsASecondWithinAnyTenSeconds) {
  TokenBucket bucket(KubeClient::limit);
  std::vector<SteadyTime> sent;
  SteadyTime now{seconds(100).ns};
  for (int burst = 0; burst < 3; ++burst) {
    for (int call = 0; call < 400; ++call)
      sent.push_back(now + bucket.take(now));
    now = sent.back() + seconds(burst * 7);
  }
  std::size_t first = 0, most = 0;
  for (std::size_t last = 0; last < sent.size(); ++last) {
    while (sent[last] - sent[first] > seconds(10))
      ++first;
    most = std::max(most, last - first + 1);
  }
  EXPECT_LE(most, 97u) << "a margin for calls that the network delays";
  EXPECT_GE(most, 80u) << "and not slower than it must be";
}

// A server that takes the request and says nothing.
TEST(KubeClient, ACallThatHasNoAnswerEndsWhenThePoolStops) {
  const Fd listening(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listening.get(), 4), 0);
  ASSERT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Folder folder;
  const std::string file =
      folder.write("config",
                   "current-context: c\ncontexts:\n- {name: c, context: {cluster: k, user: u}}\n"
                   "users:\n- {name: u, user: {token: t}}\n"
                   "clusters:\n- {name: k, cluster: {server: 'http://127.0.0.1:" +
                       std::to_string(ntohs(address.sin_port)) + "'}}\n");
  StopSignal stop;
  KubeClient client(KubeChoice{.kubeconfig = file, .context = {}}, with({}), stop);
  std::thread stopper([&] {
    const Fd connection(::accept(listening.get(), nullptr, nullptr));
    char request[4096];
    EXPECT_GT(::recv(connection.get(), request, sizeof request, 0), 0);
    stop.raise();
    while (::recv(connection.get(), request, sizeof request, 0) > 0) {}
  });
  const auto answer = client.ask({.target = "/api/v1/namespaces/team/pods"});
  stopper.join();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::unavailable) << "whether it acted on it is not known";
  EXPECT_NE(answer.error().message.find("is stopping"), std::string::npos)
      << answer.error().message;
}

}  // namespace
}  // namespace billow::pool
