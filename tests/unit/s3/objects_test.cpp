// Signatures, names and answers of S3-compatible stores.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "net/guard.h"
#include "s3/answers.h"
#include "s3/objects.h"
#include "s3/sign.h"

namespace billow::s3 {
namespace {

// The example of the Signature Version 4 documentation: "GET Object" with a range is in its
// "Signature Calculations for the Authorization Header" (examplebucket, 24 May 2013).
TEST(Sign, IsWhatTheDocumentationComputes) {
  const Access access{.access_key = "AKIAIOSFODNN7EXAMPLE",
                      .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                      .session_token = "",
                      .region = "us-east-1",
                      .endpoint = ""};
  net::Headers headers;
  sign(headers,
       {net::Method::get, "/", encode_query({{"prefix", "J"}, {"max-keys", "2"}}),
        "examplebucket.s3.amazonaws.com", ""},
       access, WallTime{1'369'353'600'000'000'000});
  EXPECT_EQ(headers.get("x-amz-date"), "20130524T000000Z");
  EXPECT_EQ(headers.get("Authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
            "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(Sign, EncodesAsS3Does) {
  EXPECT_EQ(encode_path("/a b/c+d=é/"), "/a%20b/c%2Bd%3D%C3%A9/");
  EXPECT_EQ(encode_query({{"b", "1 2"}, {"a", ""}}), "a=&b=1%202");
}

TEST(Place, IsABucketOrAUrl) {
  const auto place = parse_place("s3://data/models/llama/");
  ASSERT_TRUE(place);
  EXPECT_TRUE(place->s3);
  EXPECT_EQ(place->bucket, "data");
  EXPECT_EQ(place->key, "models/llama/");
  EXPECT_TRUE(parse_place("s3://data"));
  EXPECT_TRUE(parse_place("https://host:8080/x?y=1"));
  for (const char* bad : {"", "s3://", "s3:///x", "s3://a b/x", "ftp://x/y",
                          "https://me:secret@host/x", "https://", "s3://data/\nx", "/etc/passwd"})
    EXPECT_FALSE(parse_place(bad)) << bad;
}

TEST(Objects, DoNotAskTheMachinesOwnCloud) {
  for (const char* url : {"http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/x",
                          "http://[::ffff:169.254.169.254]/x", "http://[fd00:ec2::254]/x"}) {
    const auto list = Objects({}).list(*parse_place(url));
    ASSERT_FALSE(list) << url;
    EXPECT_EQ(list.error().code, Code::forbidden) << list.error().message;
  }
}

TEST(Objects, KnowTheMachinesOwnCloudInEveryFormOfAddress) {
  const auto refused = [](const char* host) {
    net::Address address;
    address.host = host;
    address.port = 80;
    const auto found = net::resolve(address, true);
    EXPECT_TRUE(found && found->size() == 1) << host;
    return found && !found->empty() && leads_to_the_machines_cloud(found->front());
  };
  for (const char* host : {"169.254.169.254",
                           "169.254.0.1",
                           "168.63.129.16",
                           "100.100.100.200",
                           "192.0.0.192",
                           "::ffff:168.63.129.16",
                           "::ffff:100.100.100.200",
                           "::ffff:a9fe:a9fe",  // mapped
                           "::169.254.169.254",
                           "::ffff:0:169.254.169.254",  // compatible, translated
                           "fe80::a9fe:a9fe",
                           "fd00:ec2::254",
                           "fd20:ce::254",
                           "64:ff9b::169.254.169.254",
                           "64:ff9b::168.63.129.16",
                           "64:ff9b::10.0.0.1",
                           "64:ff9b::127.0.0.1",
                           "64:ff9b::192.168.1.1",  // NAT64
                           "64:ff9b:1::169.254.169.254",
                           "64:ff9b:1:a9fe:a9:fe00::",
                           "64:ff9b:1:a9:fe:a9fe::",
                           "64:ff9b:1::a9:fea9:fe00:0",  // of a network's own: /96, /48, /56, /64
                           "2002:a9fe:a9fe::1",
                           "2002:a00:1::1",  // 6to4
                           "2001:0:a9fe:a9fe::1",
                           "2001::5601:5601",  // Teredo: its server, its client
                           "2001:db8::5efe:169.254.169.254",
                           "2001:db8::200:5efe:a9fe:a9fe"})  // ISATAP
    EXPECT_TRUE(refused(host)) << host;
  for (const char* host :
       {"127.0.0.1", "::1", "10.0.0.7", "192.168.1.1", "::ffff:10.0.0.7", "52.216.1.1",
        "64:ff9b::34d8:101", "64:ff9b:1::34d8:101", "2002:34d8:101::1", "2600:1f18::1",
        "fd12:3456::1", "100.100.100.201", "168.63.129.17", "2001:db8::1", "2001:4860:4860::8888"})
    EXPECT_FALSE(refused(host)) << host;
}

// A server of one answer, which says whether anybody came.
class OneAnswer {
 public:
  explicit OneAnswer(const net::Address& address) {
    auto listening = net::listen_on(address);
    if (!listening) {
      ADD_FAILURE() << listening.error().message;
      return;
    }
    bound = listening->bound;
    thread_ = std::thread([this, fd = std::move(listening->fd)] {
      while (!done_) {
        pollfd p{fd.get(), POLLIN, 0};
        if (::poll(&p, 1, 10) <= 0)
          continue;
        const Fd one(::accept(fd.get(), nullptr, nullptr));
        if (!one)
          continue;
        char buffer[4096];
        while (asked.find("\r\n\r\n") == std::string::npos) {
          const ssize_t n = ::recv(one.get(), buffer, sizeof buffer, 0);
          if (n <= 0)
            break;
          asked.append(buffer, static_cast<std::size_t>(n));
        }
        ++came;  // before the answer, after which it is looked at
        (void)write_all(one.get(),
                        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
      }
    });
  }
  ~OneAnswer() {
    done_ = true;
    if (thread_.joinable())
      thread_.join();
  }
  net::Address bound;
  std::string asked;
  std::atomic<int> came{0};

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST(Objects, DoNotComeFromASocketOfTheNode) {
  std::string directory = "/tmp/billow-objects-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  {
    OneAnswer server(net::Address{.unix_path = directory + "/agent.sock"});
    const auto list = Objects(Access{.access_key = "a",
                                     .secret_key = "b",
                                     .session_token = "",
                                     .endpoint = "unix:" + directory + "/agent.sock"})
                          .list(*parse_place("s3://bucket/key"));
    ASSERT_FALSE(list);
    EXPECT_EQ(list.error().code, Code::forbidden) << list.error().message;
    EXPECT_EQ(server.came, 0);
  }
  (void)remove_tree(directory);
}

TEST(Objects, AreNotFetchedFromWhereTheirCallerMayNotGo) {
  OneAnswer server(net::Address{.host = "127.0.0.1"});
  const auto place = parse_place(fmt::format("http://127.0.0.1:{}/x", server.bound.port));
  bool permitted = false;
  const Objects objects({}, {}, {.permits = [&](const net::RawAddress&) {
                          return permitted;
                        }});
  const auto list = objects.list(*place);
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, Code::forbidden);
  EXPECT_FALSE(list.error().hint.empty());
  EXPECT_EQ(server.came, 0);
  permitted = true;
  EXPECT_TRUE(objects.list(*place));
}

// A name server that says another address the second time.
TEST(Objects, AreFetchedFromTheAddressThatWasLookedAt) {
  OneAnswer server(net::Address{.host = "127.0.0.1"});
  int asked = 0;
  const auto turning = [&](const net::Address& address) {
    net::Address says = address;
    says.host = ++asked == 1 ? "127.0.0.1" : "169.254.169.254";
    return net::resolve(says);
  };
  const auto place = parse_place(fmt::format("http://rebinding.invalid:{}/x", server.bound.port));
  const auto list = Objects({}, turning).list(*place);
  ASSERT_TRUE(list) << list.error().message;  // one request, one look
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(server.came, 1);
  EXPECT_NE(server.asked.find("Host: rebinding.invalid"), std::string::npos) << server.asked;
  const auto again = Objects({}, turning).list(*place);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::forbidden);
  EXPECT_EQ(server.came, 1);
}

std::string page(std::string_view keys, std::string_view next) {
  std::string text = "<ListBucketResult>";
  for (const std::string& key : split(keys, ' '))
    if (!key.empty())
      text += "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>";
  if (!next.empty())
    text += fmt::format(
        "<IsTruncated>true</IsTruncated><NextContinuationToken>{}"
        "</NextContinuationToken>",
        next);
  return text + "</ListBucketResult>";
}

TEST(Listing, JoinsItsPages) {
  const auto place = *parse_place("s3://bucket/d/");
  Listing listing(place, "d/");
  ASSERT_TRUE(listing.take(page("d/b d/sub/", "more")));
  EXPECT_EQ(listing.next(), "more");
  ASSERT_TRUE(listing.take(page("d/a", "")));
  EXPECT_EQ(listing.next(), "");
  const auto objects = std::move(listing).objects();
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].name, "a");
  EXPECT_EQ(objects[1].name, "b");
}

// A store that always has another page would keep the agent's thread for ever, and pages without
// objects never reach the limit of objects.
TEST(Listing, EndsWhateverTheStoreSays) {
  const auto place = *parse_place("s3://bucket/d/");
  Listing same(place, "d/");
  ASSERT_TRUE(same.take(page("", "again")));
  const Status repeated = same.take(page("", "again"));
  ASSERT_FALSE(repeated);
  EXPECT_EQ(repeated.error().code, Code::unavailable);
  EXPECT_NE(repeated.error().message.find("does not end"), std::string::npos);

  Listing empty(place, "d/");
  Status taken;
  std::size_t pages = 0;
  while (taken && pages <= listing_pages_max)
    taken = empty.take(page("", fmt::format("t{}", ++pages)));
  ASSERT_FALSE(taken);
  EXPECT_EQ(pages, listing_pages_max);
}

TEST(Listing, RefusesNamesThatLeaveTheDirectory) {
  const auto place = *parse_place("s3://bucket/d/");
  for (const char* key : {"d/../x", "d/a/../../x", "d//x", "other/x", "d/./x"}) {
    Listing listing(place, "d/");
    EXPECT_FALSE(listing.take(page(key, ""))) << key;
  }
}

}  // namespace
}  // namespace billow::s3
