#include "object_storage/strict_s3.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <span>
#include <sstream>

#include "object_storage/s3_messages.h"
#include "object_storage/sigv4.h"
#include "object_storage/xml.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"

namespace trainctl::test {
namespace {

std::string crc_of(const std::string& bytes) { return crc_text(crc32c(bytes)); }

std::string etag_of(const std::string& bytes) {
    return "\"" + sha256_hex(std::as_bytes(std::span(bytes))).substr(0, 32) + "\"";
}

std::string header(const StubRequest& request, const std::string& name) {
    const auto found = request.headers.find(name);
    return found == request.headers.end() ? std::string() : found->second;
}

// Between `begin` and `end` (or the end).
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t at = text.find(begin);
    if (at == std::string::npos) return {};
    const std::size_t from = at + begin.size();
    return text.substr(from, text.find(end, from) - from);
}

std::string error_body(const std::string& code, const std::string& message) {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>" + message +
           "</Message><RequestId>0</RequestId></Error>";
}

std::string http_date(double unix_s) {
    const auto seconds = static_cast<std::time_t>(unix_s);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char text[64];
    std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
    return text;
}

bool happens_before(StoreFault fault) {
    return fault >= StoreFault::Error500 && fault <= StoreFault::ErrorIn200;
}

}  // namespace

StrictS3::StrictS3(ManualClock& clock, StrictS3Options options)
    : clock_(clock),
      options_(options),
      keys_{{first_access_key, {first_secret, first_token}}},
      server_([this](const StubRequest& request) { return handle(request); }) {}

std::string StrictS3::endpoint() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }

void StrictS3::violate(int status, const std::string& code, const std::string& message) {
    violations_.push_back(code + ": " + message);
    throw Refused{status, code, message};
}

StubAnswer StrictS3::refusal(const StubRequest& request, const Refused& refused) const {
    StubAnswer answer;
    answer.status = refused.status;
    if (request.method != "HEAD") answer.body = error_body(refused.code, refused.message);
    return answer;
}

std::string StrictS3::name_of(const StubRequest& request, const Query& query) const {
    const std::string path = uri_decode(request.path).substr(1);
    if (query.count("uploads") > 0) return "BEGIN " + path;
    if (query.count("partNumber") > 0) return "PART " + path + " " + query.at("partNumber");
    if (query.count("uploadId") > 0) return (request.method == "POST" ? "COMPLETE " : "ABORT ") + path;
    if (query.count("list-type") > 0) return "LIST " + path + "/" + query.at("prefix");
    if (!header(request, "x-amz-copy-source").empty()) return "COPY " + path;
    return request.method + " " + path;
}

StubAnswer StrictS3::handle(const StubRequest& request) {
    const std::lock_guard lock(mutex_);
    StubAnswer answer;
    StoreFault failing = StoreFault::None;
    try {
        Query query;
        std::istringstream pairs(request.query);
        for (std::string pair; std::getline(pairs, pair, '&');)
            query[uri_decode(pair.substr(0, pair.find('=')))] = uri_decode(pair.substr(pair.find('=') + 1));
        const std::string what = name_of(request, query);
        seen_.push_back(what);
        const int before = before_[what]++;
        if (faults_) failing = faults_(what, before);
        check_identity(request);
        const std::string path = uri_decode(request.path).substr(1);
        if (happens_before(failing)) {
            switch (failing) {
                case StoreFault::SlowDown:
                    throw Refused{503, "SlowDown", "Please reduce your request rate."};
                case StoreFault::DamagedRequest:
                    throw Refused{400, "BadDigest", "The checksum did not match."};
                case StoreFault::Conflict:
                    throw Refused{409, "ConditionalRequestConflict", "Somebody else is at it."};
                case StoreFault::ErrorIn200:
                    throw Refused{200, "InternalError",
                                  "We encountered an internal error. Please try again."};
                default:
                    throw Refused{500, "InternalError",
                                  "We encountered an internal error. Please try again."};
            }
        }
        answer = carry_out(request, path, query);
        if (failing == StoreFault::Late500 || failing == StoreFault::LateErrorIn200) {
            throw Refused{failing == StoreFault::Late500 ? 500 : 200, "InternalError", "Too late."};
        }
    } catch (const Refused& refused) {
        answer = refusal(request, refused);
    } catch (const Error& malformed) {
        violations_.push_back(std::string("malformed: ") + malformed.what());
        answer = refusal(request, {400, "MalformedXML", "no"});
    }
    if (failing == StoreFault::LostRequest || failing == StoreFault::LostAnswer) answer.wire = Wire::Closed;
    if (failing == StoreFault::CutAnswer) answer.wire = Wire::Cut;
    if (failing == StoreFault::WrongCrc && answer.headers.count("x-amz-checksum-crc32c") > 0)
        answer.headers["x-amz-checksum-crc32c"] = crc_of("other bytes");
    if (failing == StoreFault::SlowAnswer) answer.delay_s = options_.slow_s;
    answer.headers["date"] = http_date(clock_.unix_s() + skew_s_);
    for (const auto& [name, value] : answer.headers) said_ += name + ": " + value + "\n";
    said_ += answer.body + "\n";
    return answer;
}

void StrictS3::check_identity(const StubRequest& request) {
    const std::string given = header(request, "authorization");
    const std::string access_key = between(given, "Credential=", "/");
    const std::string scope = between(given, "Credential=" + access_key + "/", ",");
    const std::string names = between(given, "SignedHeaders=", ",");
    const std::string stamp = header(request, "x-amz-date");
    if (!given.starts_with("AWS4-HMAC-SHA256 ") || stamp.size() != 16)
        violate(403, "AccessDenied", "unsigned");

    std::tm utc{};
    strptime(stamp.c_str(), "%Y%m%dT%H%M%SZ", &utc);
    if (std::abs(static_cast<double>(timegm(&utc)) - (clock_.unix_s() + skew_s_)) > 900.0) {
        throw Refused{403, "RequestTimeTooSkewed",
                      "The difference between the request time and the current time is too large."};
    }
    const auto key = keys_.find(access_key);
    if (key == keys_.end()) throw Refused{403, "InvalidAccessKeyId", "The access key does not exist."};
    const std::string token = header(request, "x-amz-security-token");
    if (expired_.count(token) > 0) throw Refused{400, "ExpiredToken", "The provided token has expired."};
    if (token != key->second.second) throw Refused{403, "InvalidToken", "The token is malformed."};

    SignedRequest received;
    received.method = request.method;
    received.path = uri_encode(uri_decode(request.path), Slash::Kept);
    received.query = request.query;
    received.payload_sha256 = header(request, "x-amz-content-sha256");
    std::istringstream list(names);
    std::set<std::string> signed_names;
    for (std::string name; std::getline(list, name, ';');) {
        received.headers.emplace_back(name, header(request, name));
        signed_names.insert(name);
    }
    for (const auto& [name, value] : request.headers) {
        const bool must =
            name == "host" || name.starts_with("x-amz-") || name.starts_with("if-") || name == "range";
        if (must && signed_names.count(name) == 0) violate(403, "AccessDenied", name + " is not signed");
    }
    const std::string region = between(scope, stamp.substr(0, 8) + "/", "/");
    const SigningKey signing{access_key, key->second.first, region, "s3"};
    if (received.path != request.path ||
        between(given, "Signature=", ",") != signature(canonical_request(received), signing, stamp)) {
        violate(403, "SignatureDoesNotMatch", request.method + " " + request.path);
    }
    if (sha256_hex(std::as_bytes(std::span(request.body))) != received.payload_sha256)
        violate(400, "XAmzContentSHA256Mismatch", request.path);
}

void StrictS3::require_checksum(const StubRequest& request) {
    if (header(request, "x-amz-checksum-crc32c") != crc_of(request.body))
        violate(400, "BadDigest", "the checksum is missing or wrong: " + request.path);
}

void StrictS3::require_absent(const StubRequest& request, const std::string& path) {
    if (header(request, "if-none-match") == "*" && objects_.count(path) > 0)
        throw Refused{412, "PreconditionFailed", "At least one of the preconditions did not hold."};
}

StubAnswer StrictS3::carry_out(const StubRequest& request, const std::string& path, const Query& query) {
    const std::string bucket = path.substr(0, path.find('/'));
    if (bucket != "bucket") throw Refused{404, "NoSuchBucket", "The specified bucket does not exist."};
    if (query.count("list-type") > 0) return list(path, query);
    if (query.count("uploads") > 0) {
        if (header(request, "x-amz-checksum-algorithm") != "CRC32C")
            violate(400, "InvalidRequest", "no checksums");
        const std::string id = "upload/" + std::to_string(next_upload_++) + "+=";
        uploads_[id].path = path;
        StubAnswer answer;
        answer.body = "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><UploadId>" + id +
                      "</UploadId></InitiateMultipartUploadResult>";
        return answer;
    }
    if (query.count("partNumber") > 0) return put_part(request, query);
    if (query.count("uploadId") > 0) {
        const std::string& id = query.at("uploadId");
        if (request.method == "POST") return complete(request, path, id);
        if (uploads_.erase(id) == 0) throw Refused{404, "NoSuchUpload", "The upload does not exist."};
        StubAnswer answer;
        answer.status = 204;
        return answer;
    }
    if (request.method == "PUT") return put_object(request, path);
    if (request.method == "DELETE") {
        objects_.erase(path);
        StubAnswer answer;
        answer.status = 204;
        return answer;
    }
    if (path == bucket) return {};
    return get(request, path);
}

StubAnswer StrictS3::get(const StubRequest& request, const std::string& path) {
    const auto found = objects_.find(path);
    if (found == objects_.end()) throw Refused{404, "NoSuchKey", "The specified key does not exist."};
    const std::string& bytes = found->second;
    StubAnswer answer;
    answer.headers["etag"] = etag_of(bytes);
    answer.headers["last-modified"] = "Tue, 01 Dec 2026 04:06:06 GMT";
    if (request.method == "HEAD") {
        answer.headers["content-length"] = std::to_string(bytes.size());
        // Else as stores do that know the checksum of the parts' checksums alone.
        answer.headers["x-amz-checksum-crc32c"] = crc_of(options_.says_whole_crc ? bytes : "of the parts");
        if (options_.says_whole_crc) answer.headers["x-amz-checksum-type"] = "FULL_OBJECT";
        return answer;
    }
    const std::string wanted = header(request, "if-match");
    if (!wanted.empty() && wanted != etag_of(bytes))
        throw Refused{412, "PreconditionFailed", "It has changed."};
    const std::string range = between(header(request, "range"), "bytes=", "\n");
    if (range.empty()) violate(400, "InvalidRequest", "a whole object was asked for");
    const std::size_t first = std::stoul(range);
    const std::size_t last = std::stoul(range.substr(range.find('-') + 1));
    if (first > last || last >= bytes.size()) violate(416, "InvalidRange", range + " of " + path);
    answer.status = options_.heeds_ranges ? 206 : 200;
    answer.body = options_.heeds_ranges ? bytes.substr(first, last - first + 1) : bytes;
    if (options_.heeds_ranges)
        answer.headers["content-range"] = "bytes " + range + "/" + std::to_string(bytes.size());
    return answer;
}

StubAnswer StrictS3::list(const std::string& bucket, const Query& query) {
    const std::string prefix = bucket + "/" + query.at("prefix");
    const std::size_t most = std::stoul(query.at("max-keys"));
    const std::string after = query.count("continuation-token") > 0 ? query.at("continuation-token") : "";
    std::set<std::string> names;  // directories with '/' at the end
    for (const auto& [path, bytes] : objects_) {
        if (!path.starts_with(prefix)) continue;
        const std::size_t slash = path.find('/', prefix.size());
        names.insert(
            path.substr(bucket.size() + 1, slash == std::string::npos ? slash : slash - bucket.size()));
    }
    StubAnswer answer;
    answer.body =
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<EncodingType>url</EncodingType>";
    std::size_t count = 0;
    std::string last;
    for (const std::string& name : names) {
        if (name <= after) continue;
        if (count++ == most) {
            answer.body += "<NextContinuationToken>" + xml_escaped(last) + "</NextContinuationToken>";
            break;
        }
        const std::string encoded = uri_encode(name, Slash::Kept);
        answer.body += name.ends_with('/')
                           ? "<CommonPrefixes><Prefix>" + encoded + "</Prefix></CommonPrefixes>"
                           : "<Contents><Key>" + encoded + "</Key><Size>1</Size></Contents>";
        last = name;
    }
    answer.body += std::string("<IsTruncated>") + (count > most ? "true" : "false") +
                   "</IsTruncated></ListBucketResult>";
    return answer;
}

StubAnswer StrictS3::put_object(const StubRequest& request, const std::string& path) {
    StubAnswer answer;
    const std::string source = header(request, "x-amz-copy-source");
    if (!source.empty()) {
        const auto found = objects_.find(uri_decode(source).substr(1));
        if (found == objects_.end()) throw Refused{404, "NoSuchKey", "The specified key does not exist."};
        objects_[path] = std::string(found->second);
        answer.body =
            "<CopyObjectResult><ETag>" + xml_escaped(etag_of(objects_[path])) + "</ETag></CopyObjectResult>";
        return answer;
    }
    require_checksum(request);
    require_absent(request, path);
    objects_[path] = request.body;
    answer.headers["etag"] = etag_of(request.body);
    answer.headers["x-amz-checksum-crc32c"] = crc_of(request.body);
    return answer;
}

StubAnswer StrictS3::put_part(const StubRequest& request, const Query& query) {
    const auto upload = uploads_.find(query.at("uploadId"));
    if (upload == uploads_.end()) throw Refused{404, "NoSuchUpload", "The upload does not exist."};
    const int number = std::stoi(query.at("partNumber"));
    if (number < 1 || number > 10000) violate(400, "InvalidArgument", "part " + query.at("partNumber"));
    require_checksum(request);
    const Part part{request.body, etag_of(request.body), crc_of(request.body)};
    upload->second.parts[number] = part;
    StubAnswer answer;
    answer.headers["etag"] = part.etag;
    answer.headers["x-amz-checksum-crc32c"] = part.crc;
    return answer;
}

StubAnswer StrictS3::complete(const StubRequest& request, const std::string& path, const std::string& id) {
    StubAnswer answer;
    answer.body = " \n<CompleteMultipartUploadResult><Key>k</Key></CompleteMultipartUploadResult>";
    if (options_.knows_completed && completed_.count(id) > 0) return answer;
    const auto upload = uploads_.find(id);
    if (upload == uploads_.end()) throw Refused{404, "NoSuchUpload", "The upload does not exist."};
    if (upload->second.path != path) violate(400, "InvalidRequest", "the upload is of another key");
    require_absent(request, path);
    std::string bytes;
    int last = 0;
    const XmlElement root = parse_xml(request.body);
    for (std::size_t i = 0; i < root.children.size(); ++i) {
        const XmlElement& listed = root.children[i];
        const int number = std::stoi(std::string(listed.text_of("PartNumber")));
        const auto part = upload->second.parts.find(number);
        if (number <= last) violate(400, "InvalidPartOrder", path);
        last = number;
        if (part == upload->second.parts.end() || listed.text_of("ETag") != part->second.etag ||
            listed.text_of("ChecksumCRC32C") != part->second.crc) {
            violate(400, "InvalidPart", path);
        }
        if (part->second.bytes.size() < options_.smallest_part && i + 1 < root.children.size())
            violate(400, "EntityTooSmall", path);
        bytes += part->second.bytes;
    }
    if (root.children.empty()) violate(400, "MalformedXML", "no parts");
    objects_[path] = bytes;
    completed_[id] = path;
    uploads_.erase(upload);
    return answer;
}

void StrictS3::set_faults(FaultChoice choice) {
    const std::lock_guard lock(mutex_);
    faults_ = std::move(choice);
}
void StrictS3::expire_token(const std::string& token) {
    const std::lock_guard lock(mutex_);
    expired_.insert(token);
}
void StrictS3::set_token(const std::string& access_key, const std::string& secret, const std::string& token) {
    const std::lock_guard lock(mutex_);
    keys_[access_key] = {secret, token};
}
void StrictS3::set_skew(double seconds) {
    const std::lock_guard lock(mutex_);
    skew_s_ = seconds;
}
void StrictS3::put(const std::string& path, std::string contents) {
    const std::lock_guard lock(mutex_);
    objects_[path] = std::move(contents);
}
std::map<std::string, std::string> StrictS3::objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
}
std::size_t StrictS3::open_uploads() const {
    const std::lock_guard lock(mutex_);
    return uploads_.size();
}
std::vector<std::string> StrictS3::seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
}
std::vector<std::string> StrictS3::violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
}
std::string StrictS3::everything_said() const {
    const std::lock_guard lock(mutex_);
    return said_;
}

}  // namespace trainctl::test
