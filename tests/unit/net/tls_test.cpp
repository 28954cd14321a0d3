#include "net/certs.h"
#include "net/http/blocking_client.h"
#include "net_test_support.h"

namespace billow::net {

// An authority, a server certificate for 127.0.0.1 of it, and a stranger's authority, as files.
struct Pki {
  TempDir dir;
  CertAndKey authority = *make_ca("Billow test authority");
  CertAndKey server = *issue_cert(authority, {.names = {"127.0.0.1", "head.test"}});
  std::string ca = write("ca.pem", authority.cert_pem);
  std::string other_ca = write("other.pem", make_ca("Somebody else")->cert_pem);
  std::string cert = write("server.pem", server.cert_pem);
  std::string key = write("server.key", server.key_pem);

  std::string write(std::string_view name, const std::string& text) {
    const auto path = dir / name;
    EXPECT_TRUE(write_file_atomic(path, text, 0600));
    return path;
  }
  HttpServer::Options server_options() const {
    HttpServer::Options o;
    o.tls = {.cert_path = cert, .key_path = key};
    return o;
  }
};

Handler tls_echo() {
  return [](std::shared_ptr<Exchange> x) {
    if (auto ws = x->upgrade_websocket({})) {
      (*ws)->on_message([ws = *ws](std::string_view data, bool) { ws->send_text(data); });
      return;
    }
    EXPECT_TRUE(x->request().tls);
    x->respond(Response::text(200, x->request().body.empty() ? "secret" : x->request().body));
  };
}

Endpoint https(Endpoint e) {
  e.tls = true;
  return e;
}

// Until the year 9966: certificates that shall never expire are written like that. Such a time does
// not fit into a WallTime, which then holds its last one.
constexpr const char* endless_certificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBLjCB4aADAgECAhQX0tYW35sGb1Gy67UmHgoOo2Q5AzAFBgMrZXAwDDEKMAgG\n"
    "A1UEAwwBeDAgFw0yNjExMTkyMzI0MzJaGA85OTY2MTAyNTIzMjQzMlowDDEKMAgG\n"
    "A1UEAwwBeDAqMAUGAytlcAMhAFXRmU1gg9h/7imMv54HSnnoHMDlQ5iRyNPpelfK\n"
    "GhTSo1MwUTAdBgNVHQ4EFgQUVDIKkIKHQD/VL54OHl7K27TAoLgwHwYDVR0jBBgw\n"
    "FoAUVDIKkIKHQD/VL54OHl7K27TAoLgwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXAD\n"
    "QQAIx12/hc+xaShohPXcaUyi+QWKgQ+4npiuBJzDx361m7+WWmWAxFotB4h7HqRX\n"
    "Lo7NKomOAn/9T/jwFaLjQIQO\n"
    "-----END CERTIFICATE-----\n";

TEST(Tls, ACertificateThatEndsAfterAllTimesHasNotExpired) {
  const auto dates = cert_dates(endless_certificate);
  ASSERT_TRUE(dates) << dates.error().message;
  EXPECT_EQ(dates->not_after.ns, INT64_MAX);
  EXPECT_LT(dates->not_before, dates->not_after);
}

TEST(Tls, TrustsItsAuthorityAndRefusesAnother) {
  Pki pki;
  ServerFixture f(tls_echo(), pki.server_options());
  const auto endpoint = https(f.endpoint());
  auto client = *HttpClient::create(f.loop, {.tls = {.ca_path = pki.ca}});
  const auto good = fetch(f, *client, {.endpoint = endpoint});
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->body, "secret");
  const auto large =
      fetch(f, *client,
            {.endpoint = endpoint, .method = Method::post, .body = std::string(5 << 20, 'T')});
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(large->body, std::string(5 << 20, 'T'));
  EXPECT_EQ(f.server->connections(), 1u);

  auto wary = *HttpClient::create(f.loop, {.tls = {.ca_path = pki.other_ca}});
  const auto refused = fetch(f, *wary, {.endpoint = endpoint});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not trusted"), std::string::npos)
      << refused.error().message;
}

TEST(Tls, AnAuthorityAsTextAndAnotherServerNameCount) {
  Pki pki;
  const auto elsewhere = *issue_cert(pki.authority, {.names = {"elsewhere.test"}});
  pki.write("server.pem", elsewhere.cert_pem);
  pki.write("server.key", elsewhere.key_pem);
  ThreadedServer s(tls_echo(), pki.server_options());
  const auto get = [&](TlsClientOptions tls) {
    return BlockingClient({.endpoint = https(s.endpoint()), .tls = std::move(tls)}).get("/");
  };
  const std::string ca = pki.authority.cert_pem;
  EXPECT_TRUE(get({.ca_pem = ca, .server_name = "elsewhere.test"}));
  EXPECT_FALSE(get({.ca_pem = ca})) << "the address is not in the certificate";
  EXPECT_FALSE(get({.ca_pem = ca, .server_name = "third.test"}));
  EXPECT_FALSE(get({.ca_pem = make_ca("x")->cert_pem, .server_name = "elsewhere.test"}));
  EXPECT_TRUE(get({.accept_any_cert = true}));
  EXPECT_FALSE(get({.ca_pem = "no certificate"}));
  const auto mine = *issue_cert(pki.authority, {.names = {"client"}});
  EXPECT_TRUE(get({.cert_pem = mine.cert_pem, .key_pem = mine.key_pem, .accept_any_cert = true}));
  const auto wrong_key =
      get({.cert_pem = mine.cert_pem, .key_pem = elsewhere.key_pem, .accept_any_cert = true});
  ASSERT_FALSE(wrong_key);
  EXPECT_NE(wrong_key.error().message.find("client certificate"), std::string::npos)
      << wrong_key.error().message;
}

TEST(Tls, ACertificateForAnotherNameIsRefused) {
  Pki pki;
  const auto elsewhere = *issue_cert(pki.authority, {.names = {"elsewhere.test", "10.1.2.3"}});
  pki.write("server.pem", elsewhere.cert_pem);
  pki.write("server.key", elsewhere.key_pem);
  ThreadedServer s(tls_echo(), pki.server_options());
  EXPECT_FALSE(
      BlockingClient({.endpoint = https(s.endpoint()), .tls = {.ca_path = pki.ca}}).get("/"));
  EXPECT_FALSE(
      BlockingClient({.endpoint = https(s.endpoint()),
                      .tls = {.pinned_fingerprint = *cert_fingerprint(pki.authority.cert_pem)}})
          .get("/"));
}

TEST(Tls, ThePinMayBeTheServersOrItsAuthoritys) {
  Pki pki;
  ThreadedServer s(tls_echo(), pki.server_options());
  const auto try_pin = [&](const std::string& pin) {
    return BlockingClient({.endpoint = https(s.endpoint()), .tls = {.pinned_fingerprint = pin}})
        .get("/");
  };
  EXPECT_TRUE(try_pin(*cert_fingerprint(pki.server.cert_pem)));
  EXPECT_TRUE(try_pin(*cert_fingerprint(pki.authority.cert_pem)));
  const auto wrong = try_pin(std::string(64, 'a'));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("not trusted"), std::string::npos) << wrong.error().message;
  EXPECT_EQ(try_pin("abc").error().code, Code::invalid);
}

TEST(Tls, AForgedChainWithThePinnedAuthorityAppendedIsRefused) {
  Pki pki;
  const auto stranger = *make_ca("Stranger");
  auto forged = *issue_cert(stranger, {.names = {"127.0.0.1"}});
  forged.cert_pem += pki.authority.cert_pem;  // shows the right authority, but was not issued by it
  pki.write("server.pem", forged.cert_pem);
  pki.write("server.key", forged.key_pem);
  ThreadedServer s(tls_echo(), pki.server_options());
  EXPECT_FALSE(
      BlockingClient({.endpoint = https(s.endpoint()),
                      .tls = {.pinned_fingerprint = *cert_fingerprint(pki.authority.cert_pem)}})
          .get("/"));
}

TEST(Tls, TheBlockingClientAndItsWebSocketWork) {
  Pki pki;
  ThreadedServer s(tls_echo(), pki.server_options());
  BlockingClient client({.endpoint = https(s.endpoint()), .tls = {.ca_path = pki.ca}});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(client.get("/"));
  auto ws = client.websocket("/");
  ASSERT_TRUE(ws) << ws.error().message;
  ASSERT_TRUE(ws->send_text(std::string(200'000, 'w')));
  const auto back = ws->wait(patience);
  ASSERT_TRUE(back && *back);
  EXPECT_EQ((*back)->data.size(), 200'000u);
}

TEST(Tls, PlainHttpToATlsPortEndsAndTheServerLives) {
  Pki pki;
  ServerFixture f(tls_echo(), pki.server_options());
  RawClient c(f);
  c.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(f.run_until([&] { return c.pull(); }));
  auto client = *HttpClient::create(f.loop, {.tls = {.ca_path = pki.ca}});
  EXPECT_TRUE(fetch(f, *client, {.endpoint = https(f.endpoint())}));
}

TEST(Tls, AMissingCertificateIsAClearError) {
  Loop loop;
  HttpServer::Options o;
  o.listen = {"127.0.0.1:0"};
  o.tls = {.cert_path = "/nonexistent/cert.pem", .key_path = "/nonexistent/key.pem"};
  const auto made = HttpServer::create(loop, o, tls_echo());
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("/nonexistent/cert.pem"), std::string::npos);
}

TEST(Certs, NamesCannotInjectExtensions) {
  const auto ca = *make_ca("x");
  EXPECT_FALSE(issue_cert(ca, {.names = {"a,DNS:evil"}}));
  EXPECT_FALSE(issue_cert(ca, {.names = {}}));
  EXPECT_TRUE(issue_cert(ca, {.names = {"*.nodes.test", "::1"}}));
  EXPECT_FALSE(cert_fingerprint("nonsense"));
}

}  // namespace billow::net
