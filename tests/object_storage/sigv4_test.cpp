// Against the examples that AWS publishes in "Signature Calculations for the Authorization Header".
#include "object_storage/sigv4.h"

#include "support/catch.h"
#include "trainctl/base/hash.h"

using namespace trainctl;

namespace {

const std::string host = "examplebucket.s3.amazonaws.com";
const std::string stamp = "20130524T000000Z";
const std::string empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SigningKey key{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3"};

SignedRequest example(std::string method, const std::string& path, const std::vector<NamedText>& query,
                      std::vector<NamedText> headers, const std::string& payload = empty) {
    headers.emplace_back("Host", host);
    headers.emplace_back("x-amz-content-sha256", payload);
    headers.emplace_back("X-Amz-Date", stamp);
    return {std::move(method), uri_encode(path, Slash::Kept), canonical_query(query), std::move(headers),
            payload};
}

}  // namespace

TEST_CASE("SigV4: the published examples of S3") {
    const SignedRequest get = example("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}});
    const std::string canonical = canonical_request(get);
    CHECK(sha256_hex(std::as_bytes(std::span(canonical))) ==
          "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972");
    CHECK(authorization(get, key, stamp) ==
          "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
          "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
          "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");

    const auto signature_of = [](const SignedRequest& request) {
        return signature(canonical_request(request), key, stamp);
    };
    const std::string welcome = "Welcome to Amazon S3.";
    CHECK(signature_of(example(
              "PUT", "/test$file.text", {},
              {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
              sha256_hex(std::as_bytes(std::span(welcome))))) ==
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    CHECK(signature_of(example("GET", "/", {{"lifecycle", ""}}, {})) ==
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    CHECK(signature_of(example("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {})) ==
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("SigV4: texts") {
    CHECK(uri_encode("a/b c+d%~é", Slash::Kept) == "a/b%20c%2Bd%25~%C3%A9");
    CHECK(uri_encode("a/b", Slash::Encoded) == "a%2Fb");
    CHECK(canonical_query({{"b", "2 3"}, {"a-", ""}, {"a", "x/y"}}) == "a=x%2Fy&a-=&b=2%203");
    CHECK(amz_timestamp(1369353600.9) == stamp);
    // Spaces around and within a value count as one; the names' case and order as none.
    SignedRequest one{"GET", "/", "", {{"B", "  x   y "}, {"a", "1"}}, empty};
    SignedRequest other{"GET", "/", "", {{"A", "1"}, {"b", "x y"}}, empty};
    CHECK(canonical_request(one) == canonical_request(other));
    CHECK(signed_header_names(one) == "a;b");
}
