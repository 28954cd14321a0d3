#include "net/xml.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text.h"

namespace billow::net {
namespace {

constexpr const char* listing =
    R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>data</Name><IsTruncated>false</IsTruncated>
  <Contents><Key>a&amp;b &lt;1&gt;</Key><Size>3</Size><ETag>&quot;x&quot;</ETag></Contents>
  <Contents><Key>c</Key><Size>4</Size></Contents>
</ListBucketResult>)";

std::string text_of(std::string_view inner) {
  const auto root = parse_xml("<k>" + std::string(inner) + "</k>");
  return root ? root->text : "error: " + root.error().message;
}

TEST(Xml, ReadsAListing) {
  const auto root = parse_xml(listing);
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "ListBucketResult");
  EXPECT_EQ(root->child_text("IsTruncated"), "false");
  EXPECT_EQ(root->child_text("NextContinuationToken"), "");
  ASSERT_EQ(root->children.size(), 4u);
  EXPECT_EQ(root->children[2].child_text("Key"), "a&b <1>");
  EXPECT_EQ(root->children[2].child_text("ETag"), "\"x\"");
  EXPECT_EQ(root->children[3].child_text("Key"), "c");
}

TEST(Xml, ElementsWithAttributesAreFound) {
  const auto root = parse_xml(R"(<r><a x="1" y='&lt;"2"'>one</a><b/></r>)");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->child_text("a"), "one");
  const std::vector<std::pair<std::string, std::string>> attributes = {{"x", "1"}, {"y", "<\"2\""}};
  EXPECT_EQ(root->child("a")->attributes, attributes);
  ASSERT_NE(root->child("b"), nullptr);
  EXPECT_EQ(root->child("c"), nullptr);
}

TEST(Xml, NamesLoseTheirNamespacePrefix) {
  const auto root =
      parse_xml(R"(<d:multistatus xmlns:d="DAV:"><d:href>/x</d:href></d:multistatus>)");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "multistatus");
  EXPECT_EQ(root->child_text("href"), "/x");
}

TEST(Xml, TextIsUnescapedOnce) {
  EXPECT_EQ(text_of("&#x2F;&#38;&amp;lt;"), "/&&lt;");
  EXPECT_EQ(text_of("&#233;&#xE9;&#x20AC;&#x1F600;"), "éé€😀");
  EXPECT_EQ(text_of("&#1;"), "\x01");
  EXPECT_EQ(text_of("a<![CDATA[<b>&amp;]]>c"), "a<b>&amp;c");
  EXPECT_EQ(text_of("a<!-- not this -->b"), "ab");
  EXPECT_EQ(text_of(" "), " ");
}

TEST(Xml, EntitiesThatNameNoCharacterAreErrors) {
  for (const char* bad : {"&bogus;", "&", "&;", "&#;", "&#x;", "&#0;", "&#xD800;", "&#x110000;",
                          "&#99999999999;", "&#-1;", "&#12a;", "& amp;", "&#x"})
    EXPECT_TRUE(text_of(bad).starts_with("error: ")) << bad;
}

TEST(Xml, EntityDefinitionsAreRefused) {
  const auto laughs = parse_xml(R"(<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><l>&b;</l>)");
  ASSERT_FALSE(laughs);
  EXPECT_NE(laughs.error().message.find("document types"), std::string::npos)
      << laughs.error().message;
  EXPECT_FALSE(parse_xml(R"(<!DOCTYPE l SYSTEM "file:///etc/passwd"><l/>)"));
}

TEST(Xml, MalformedDocumentsAreErrors) {
  for (const std::string_view bad :
       {std::string_view(""), std::string_view("text"), std::string_view("<a>"),
        std::string_view("<a></b>"), std::string_view("<a/><b/>"), std::string_view("<a x=1/>"),
        std::string_view("<a><![CDATA[x</a>"), std::string_view("<a>\xff</a>"),
        std::string_view("<a>b\0</a>", 9), std::string_view("{\"not\": \"xml\"}"),
        std::string_view("<html><br></html>")})
    EXPECT_FALSE(parse_xml(bad)) << bad;
}

TEST(Xml, EveryTruncationIsAnError) {
  const std::string_view whole = listing;
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_xml(whole.substr(0, size))) << size;
}

TEST(Xml, SizeDepthAndNumberOfElementsAreLimited) {
  const auto nested = [](std::size_t depth) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i)
      text += "<a>";
    for (std::size_t i = 0; i < depth; ++i)
      text += "</a>";
    return text;
  };
  EXPECT_TRUE(parse_xml(nested(xml_depth_max)));
  for (const std::size_t depth : {xml_depth_max + 1, std::size_t{1'000'000}}) {
    const auto deep = parse_xml(nested(depth));
    ASSERT_FALSE(deep);
    EXPECT_EQ(deep.error().code, Code::too_large);
  }
  std::string many = "<r>";
  for (std::size_t i = 0; i < xml_elements_max; ++i)
    many += "<a/>";
  const auto crowded = parse_xml(many + "</r>");
  ASSERT_FALSE(crowded);
  EXPECT_EQ(crowded.error().code, Code::too_large);
  const auto large = parse_xml("<a>" + std::string(xml_bytes_max, 'x') + "</a>");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::too_large);
}

TEST(Xml, EscapedTextReadsBack) {
  const std::string text = "a<b>&\"c' é\x01";
  EXPECT_EQ(text_of(escape_xml(text)), text);
}

// Deterministic: the same mutations in every run. A mutated document is an error or a tree of valid
// text within the limits.
std::string mutated(std::string text, Rng& rng) {
  static constexpr std::string_view pieces[] = {
      "<",  ">",  "/",  "&",  ";", "&#", "&#x", "<![CDATA[", "]]>", "<!--", "-->",  "<!DOCTYPE a [",
      "]>", "<?", "?>", "\"", "'", "=",  " ",   ":",         "<a>", "</a>", "\xff", "\xc3"};
  for (auto changes = rng.between(1, 6); changes > 0; --changes) {
    const std::size_t at = rng.below(text.size() + 1);
    switch (rng.below(4)) {
      case 0:
        text.insert(at, pieces[rng.below(std::size(pieces))]);
        break;
      case 1:
        text.erase(at, rng.below(20));
        break;
      case 2:
        text.insert(at, text.substr(rng.below(text.size() + 1), rng.below(40)));
        break;
      default:
        if (at < text.size())
          text[at] = static_cast<char>(rng.below(256));
    }
  }
  return text;
}

void check(const XmlElement& element, std::size_t depth) {
  ASSERT_LE(depth, xml_depth_max);
  EXPECT_TRUE(valid_utf8(element.name));
  EXPECT_TRUE(valid_utf8(element.text));
  for (const auto& [name, value] : element.attributes)
    EXPECT_TRUE(valid_utf8(name) && valid_utf8(value));
  for (const XmlElement& child : element.children)
    check(child, depth + 1);
}

TEST(Xml, MutatedDocumentsAreErrorsOrValidTrees) {
  Rng rng(7);
  std::size_t read = 0;
  for (int i = 0; i < 5'000; ++i)
    if (const auto root = parse_xml(mutated(listing, rng))) {
      ++read;
      check(*root, 1);
    }
  EXPECT_GT(read, 50u);
}

}  // namespace
}  // namespace billow::net
