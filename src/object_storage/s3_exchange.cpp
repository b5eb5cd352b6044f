#include "object_storage/s3_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "object_storage/s3_messages.h"
#include "trainctl/base/error.h"
#include "trainctl/base/hash.h"
#include "trainctl/base/text.h"

namespace trainctl {

bool is_success(int status) { return status >= 200 && status < 300; }

std::string header_of(const HttpAnswer& answer, const char* name) {
    const auto found = answer.headers.find(name);
    return found == answer.headers.end() ? std::string() : found->second;
}

namespace {

constexpr double shortest_pause_s = 0.2;
constexpr double longest_pause_s = 20.0;
constexpr double noticed_skew_s = 300.0;

bool is_one_of(const std::string& code, std::initializer_list<std::string_view> codes) {
    return std::find(codes.begin(), codes.end(), code) != codes.end();
}

std::string error_code(const HttpAnswer& answer) {
    const auto error = parse_s3_error(answer.body);
    return error ? error->code : std::string();
}

std::string what_to_do(const HttpAnswer& answer, const std::string& code) {
    if (answer.transport == Transport::Impossible)
        return "check the endpoint and the certificates of this system";
    if (answer.transport == Transport::Failed || answer.status >= 500 || answer.status == 429)
        return "check the endpoint, the network and the store, then try again";
    if (code == "NoSuchBucket") return "make the bucket, or correct its name";
    if (is_one_of(code, {"SignatureDoesNotMatch", "InvalidAccessKeyId"}))
        return "check the credentials and the region";
    if (is_one_of(code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}))
        return "renew the credentials; a credentials file is read again, the environment is not";
    if (answer.status == 403) return "check that these credentials may do this";
    if (answer.status == 301 || answer.status == 307 || code == "AuthorizationHeaderMalformed")
        return "the bucket is in another region: set AWS_REGION and the endpoint to it";
    if (answer.status == 404) return "check the path";
    if (answer.status == 501) return "the store lacks this part of S3; use one that has it";
    return "check that the endpoint is an S3-compatible store";
}

std::string what_came(const HttpAnswer& answer) {
    if (answer.transport != Transport::Done) return answer.failure;
    if (is_success(answer.status) && !answer.failure.empty()) return answer.failure;
    std::string text = fmt::format("the store answered {}", answer.status);
    if (const auto error = parse_s3_error(answer.body))
        text += fmt::format(" {}: {}", error->code, error->message);
    return text;
}

}  // namespace

S3Exchange::S3Exchange(ObjectStorageSettings settings, CredentialSource& credentials,
                       HttpTransport& transport, Clock& clock)
    : settings_(std::move(settings)),
      endpoint_(parse_endpoint(settings_.endpoint)),
      credentials_(credentials),
      transport_(transport),
      clock_(clock) {}

HttpAnswer S3Exchange::send_once(const S3Request& request, const Credentials& credentials) {
    SignedRequest to_sign;
    to_sign.method = request.method;
    to_sign.path = "/" + request.path.bucket;
    if (!request.path.key.empty()) to_sign.path += "/" + uri_encode(request.path.key, Slash::Kept);
    to_sign.query = canonical_query(request.query);
    to_sign.payload_sha256 = sha256_hex(request.body);
    const std::string timestamp = amz_timestamp(clock_.unix_s());
    to_sign.headers = request.headers;
    to_sign.headers.emplace_back("host", endpoint_.host);
    to_sign.headers.emplace_back("x-amz-content-sha256", to_sign.payload_sha256);
    to_sign.headers.emplace_back("x-amz-date", timestamp);
    if (!credentials.session_token.empty())
        to_sign.headers.emplace_back("x-amz-security-token", credentials.session_token);

    HttpRequest http;
    http.method = request.method;
    http.url = fmt::format("{}://{}{}", endpoint_.scheme, endpoint_.host, to_sign.path);
    if (!to_sign.query.empty()) http.url += "?" + to_sign.query;
    http.headers = to_sign.headers;
    http.headers.emplace_back(
        "Authorization",
        authorization(to_sign, {credentials.access_key_id, credentials.secret_key, settings_.region},
                      timestamp));
    http.body = request.body;
    http.connection = request.connection;
    http.longest_answer = request.longest_answer;
    // Less than 100 kB/s is a connection that a new one replaces.
    const double transfer_s = static_cast<double>(request.transferred) / 1e5;
    http.timeout_s = settings_.answer_timeout_s + request.slow_answer_s + transfer_s;
    return transport_.send(http);
}

// Final, or what to do before the next try. A 2xx that is not whole becomes a failure with a text.
S3Exchange::Verdict S3Exchange::judge(const S3Request& request, HttpAnswer& answer) {
    if (answer.transport == Transport::Impossible) return Verdict::Final;
    if (answer.transport == Transport::Failed) return Verdict::Again;
    if (is_success(answer.status)) {
        // Some requests are answered before they are carried out: the body tells whether they were.
        const auto error = request.method == "GET" ? std::nullopt : parse_s3_error(answer.body);
        if (error) {
            answer.failure = fmt::format("the store answered {}, and then {}: {}", answer.status, error->code,
                                         error->message);
            return Verdict::Again;
        }
        if (!request.check) return Verdict::Final;
        try {
            request.check(answer);
            return Verdict::Final;
        } catch (const Error& flaw) {
            answer.failure = flaw.what();
            return Verdict::Again;
        }
    }
    const bool unexplained = answer.body.empty();  // answers to HEAD have no body
    const std::string code = error_code(answer);
    if (is_one_of(code, {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}) ||
        (unexplained && (answer.status == 400 || answer.status == 403))) {
        return Verdict::NewCredentials;
    }
    if (std::find(request.expected.begin(), request.expected.end(), answer.status) != request.expected.end())
        return Verdict::Final;
    if (answer.status == 429 || (answer.status >= 500 && answer.status != 501 && answer.status != 505))
        return Verdict::Again;
    // The bytes were damaged or lost on the way, or somebody else is at the same object just now.
    return is_one_of(code, {"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch",
                            "XAmzContentChecksumMismatch", "OperationAborted", "ConditionalRequestConflict"})
               ? Verdict::Again
               : Verdict::Final;
}

// Doubling, with a random half, so that ranks that failed together do not come back together.
double S3Exchange::pause(const S3Request& request, int failures) const {
    const double full = std::min(longest_pause_s, shortest_pause_s * std::exp2(std::min(failures, 20) - 1));
    const std::string mixed = fmt::format("{}{}{}{}", to_string(request.path), request.method, failures,
                                          std::bit_cast<std::uint64_t>(clock_.unix_s()));
    const auto random = static_cast<double>(hash64(std::as_bytes(std::span(mixed))) >> 11U) * 0x1p-53;
    return full * (0.5 + 0.5 * random);
}

double S3Exchange::patience_s(const S3Request& request) const {
    if (request.patience_s >= 0.0) return request.patience_s;
    return in_reach_ ? settings_.retry_for_s : std::min(settings_.first_contact_s, settings_.retry_for_s);
}

S3Outcome S3Exchange::run(const S3Request& request) {
    S3Outcome outcome;
    std::shared_ptr<const Credentials> credentials = credentials_.current();
    bool renewed = false;
    int failures = 0;
    double first_failure = 0.0;
    while (true) {
        outcome.answer = send_once(request, *credentials);
        HttpAnswer& answer = outcome.answer;
        Verdict verdict = judge(request, answer);
        if (verdict != Verdict::Again && answer.transport == Transport::Done) in_reach_ = true;
        if (verdict == Verdict::NewCredentials) {
            refuse_skew(request, answer);
            if (!renewed) {
                renewed = true;
                credentials = credentials_.renew(credentials);
                continue;
            }
            verdict = Verdict::Final;
        }
        if (verdict == Verdict::Final) {
            const bool handled = std::find(request.expected.begin(), request.expected.end(), answer.status) !=
                                 request.expected.end();
            if (answer.transport == Transport::Done && (is_success(answer.status) || handled)) {
                outcome.code = error_code(answer);
                return outcome;
            }
            refuse_skew(request, answer);
            fail_request(request, answer, "");
        }
        outcome.repeated = true;
        if (request.unsure != nullptr) *request.unsure = true;
        const double now = clock_.monotonic_s();
        if (++failures == 1) first_failure = now;
        const double wait = pause(request, failures);
        const bool given_up = request.give_up != nullptr && request.give_up->load();
        if (given_up || now + wait - first_failure > patience_s(request)) {
            if (!given_up) in_reach_ = false;
            fail_request(request, answer,
                         fmt::format(" ({} in {})", counted(failures, "try", "tries"),
                                     format_duration(now - first_failure)));
        }
        clock_.sleep_s(wait);
    }
}

// A signature holds for 15 minutes around its time: a wrong clock looks like wrong credentials otherwise.
void S3Exchange::refuse_skew(const S3Request& request, const HttpAnswer& answer) const {
    if (answer.status != 403 || !answer.date_unix_s) return;
    const double skew = *answer.date_unix_s - clock_.unix_s();
    const bool named = error_code(answer) == "RequestTimeTooSkewed";
    if (!named && (!answer.body.empty() || std::abs(skew) < noticed_skew_s)) return;
    fail(Exit::Resource,
         fmt::format(
             "cannot {} {}: this machine's clock is {} {} the store's, and requests are signed with the "
             "time; set the clock (for example by chrony or systemd-timesyncd)",
             request.doing, to_string(request.path), format_duration(std::abs(skew)),
             skew > 0 ? "behind" : "ahead of"));
}

void S3Exchange::fail_request(const S3Request& request, const HttpAnswer& answer, const std::string& waited) {
    const std::string code = error_code(answer);
    const bool answered = answer.transport == Transport::Done && answer.status < 500 &&
                          answer.status != 429 && !is_success(answer.status);
    const bool bad_input = answered && request.side == IoSide::Reading;
    fail(bad_input ? Exit::BadInput : Exit::Resource,
         credentials_.redacted(fmt::format("cannot {} {} at {}: {}{}; {}", request.doing,
                                           to_string(request.path), endpoint_.host, what_came(answer), waited,
                                           what_to_do(answer, code))));
}

}  // namespace trainctl
