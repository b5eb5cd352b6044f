#include "object_storage/xml.h"

#include "object_storage/s3_messages.h"
#include "support/catch.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

using namespace trainctl;

namespace {

std::string refusal(const std::string& text, const XmlLimits& limits = {}) {
    try {
        parse_xml(text, limits);
    } catch (const Error& error) {
        return error.code() == Exit::BadInput ? error.what() : "wrong exit";
    }
    return "accepted";
}

}  // namespace

TEST_CASE("XML: elements, attributes, entities") {
    const XmlElement root = parse_xml(
        " \n<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a xmlns='u' b = \"x>y\"><b>1 "
        "&lt;&#65;&#x20AC;&amp;</b><c/><b>2</b></a>\n");
    CHECK(root.name == "a");
    REQUIRE(root.children.size() == 3);
    CHECK(root.text_of("b") == "1 <A\xE2\x82\xAC&");
    CHECK(root.has("c"));
    CHECK_FALSE(root.has("d"));
    CHECK(root.text_of("d").empty());
    const std::string odd = "a<b>&\"c'\xC3\xA9";
    CHECK(parse_xml("<t>" + xml_escaped(odd) + "</t>").text == odd);
}

TEST_CASE("XML: whatever is not just that is refused, with its place") {
    for (const char* text : {"",
                             "x",
                             "<a>",
                             "<a></b>",
                             "<a/><b/>",
                             "<a b></a>",
                             "<a b=c></a>",
                             "<a b='<'></a>",
                             "<a b='1'c='2'/>",
                             "<a>&nbsp;</a>",
                             "<a>&#0;</a>",
                             "<a>&#xD800;</a>",
                             "<a>&#x110000;</a>",
                             "<a>&#99999999;</a>",
                             "<a>&#;</a>",
                             "<a>&lt</a>",
                             "<!DOCTYPE a><a/>",
                             "<a><!-- c --></a>",
                             "<a><![CDATA[x]]></a>",
                             "<a><?p ?></a>",
                             "<?xml version='1.0'",
                             "<1/>",
                             "<a>\x01</a>",
                             "<a/> x"}) {
        INFO(text);
        CHECK_THAT(refusal(text),
                   Catch::Contains("malformed XML: expected ") && Catch::Contains(" at byte "));
    }
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += "<a>";
    CHECK_THAT(refusal(deep), Catch::Contains("at most 12 levels"));
    CHECK_THAT(refusal("<a><b/><b/></a>", {100, 12, 2}), Catch::Contains("at most 2 elements"));
    CHECK_THAT(refusal("<a></a>", {6, 12, 2}), Catch::Contains("at most 6 bytes"));
    CHECK_THAT(refusal("<" + std::string(200, 'n') + "/>"), Catch::Contains("a shorter name"));
}

TEST_CASE("S3's messages") {
    const ListPage page = parse_list(
        "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>t/1=</NextContinuationToken><Contents><Key>a%2Fb+c%2B</Key></Contents>"
        "<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>");
    CHECK(page.names == std::vector<std::string>{"a/b c+", "d/"});
    CHECK(page.continuation == "t/1=");
    CHECK(parse_list("<ListBucketResult><Contents><Key>a%2F</Key></Contents><IsTruncated>false</IsTruncated>"
                     "</ListBucketResult>")
              .names == std::vector<std::string>{"a%2F"});
    for (const char* incomplete :
         {"<ListBucketResult/>", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
          "<Other><IsTruncated>false</IsTruncated></Other>",
          "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</"
          "IsTruncated><Contents><Key>%4</Key>"
          "</Contents></ListBucketResult>"}) {
        CHECK_THROWS_AS(parse_list(incomplete), Error);
    }
    CHECK(parse_upload_id(
              "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>") ==
          "u");
    CHECK_THROWS_AS(parse_upload_id("<InitiateMultipartUploadResult/>"), Error);
    CHECK_NOTHROW(require_completed("<CompleteMultipartUploadResult/>"));
    CHECK_THROWS_AS(require_completed("<Error><Code>InternalError</Code></Error>"), Error);
    CHECK_THROWS_AS(require_completed(""), Error);
    const auto error = parse_s3_error("<Error><Code>SlowDown</Code><Message>a\nb</Message></Error>");
    REQUIRE(error);
    CHECK(error->code == "SlowDown");
    CHECK(error->message == "a b");
    CHECK_FALSE(parse_s3_error("<html>"));
    CHECK(complete_upload_body({{1, "\"e\"", "AAAAAA=="}, {2, "f", ""}}) ==
          "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
          "<Part><PartNumber>1</PartNumber><ETag>&quot;e&quot;</ETag><ChecksumCRC32C>AAAAAA==</"
          "ChecksumCRC32C></Part>"
          "<Part><PartNumber>2</PartNumber><ETag>f</ETag></Part></CompleteMultipartUpload>");
    CHECK(crc_text(crc32c("123456789")) == "4waSgw==");  // E3 06 92 83
}
