// One request to the store with its retries: signed anew for each try, judged, repeated within a bound.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "object_storage/credentials.h"
#include "object_storage/endpoint.h"
#include "object_storage/http.h"
#include "object_storage/sigv4.h"
#include "trainctl/base/clock.h"
#include "trainctl/base/io_error.h"
#include "trainctl/object_storage/settings.h"

namespace trainctl {

// One request as S3 knows it, and what its answers mean.
struct S3Request {
    std::string doing = {};  // "write", for messages
    IoSide side = IoSide::Reading;
    std::string method = {};
    ObjectPath path = {};
    std::vector<NamedText> query = {};
    std::vector<NamedText> headers = {};
    std::span<const std::byte> body = {};
    std::vector<int> expected = {};                     // final statuses that the caller handles
    std::function<void(const HttpAnswer&)> check = {};  // of a 2xx: throws Error if it is no whole answer
    std::uint64_t longest_answer = std::uint64_t{8} << 20U;
    double patience_s = -1.0;       // < 0: as the settings say
    double slow_answer_s = 0.0;     // what the store may need besides
    std::uint64_t transferred = 0;  // bytes of body or answer
    Connection connection = Connection::Kept;
    const std::atomic<bool>* give_up = nullptr;
    bool* unsure = nullptr;  // set once a try has failed that may have had its effect
};

struct S3Outcome {
    HttpAnswer answer;
    bool repeated = false;  // an earlier try may have had its effect
    std::string code;       // of an error body
};

bool is_success(int status);
// Value of an answer's header, its name in lower case; empty if there is none.
std::string header_of(const HttpAnswer& answer, const char* name);

// Thread-safe. What is outside must outlive it.
class S3Exchange {
  public:
    S3Exchange(ObjectStorageSettings settings, CredentialSource& credentials, HttpTransport& transport,
               Clock& clock);

    // A success, or one of the expected statuses. Error otherwise: see S3Client.
    S3Outcome run(const S3Request& request);
    // The Error for an answer that turned out to be none after all.
    [[noreturn]] void fail_request(const S3Request& request, const HttpAnswer& answer,
                                   const std::string& waited = {});

    [[nodiscard]] const ObjectStorageSettings& settings() const { return settings_; }

  private:
    enum class Verdict { Final, Again, NewCredentials };

    HttpAnswer send_once(const S3Request& request, const Credentials& credentials);
    static Verdict judge(const S3Request& request, HttpAnswer& answer);
    [[nodiscard]] double pause(const S3Request& request, int failures) const;
    [[nodiscard]] double patience_s(const S3Request& request) const;
    void refuse_skew(const S3Request& request, const HttpAnswer& answer) const;

    ObjectStorageSettings settings_;
    Endpoint endpoint_;
    CredentialSource& credentials_;
    HttpTransport& transport_;
    Clock& clock_;
    std::atomic<bool> in_reach_{false};  // the store answered, and was not given up since
};

}  // namespace trainctl
