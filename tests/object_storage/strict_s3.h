// An object store in memory that trusts nobody: it recomputes every signature, wants every checksum, refuses
// parts that are too small or out of order, and goes wrong on request in each of the ways that stores and the
// networks before them do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "object_storage/stub_server.h"
#include "support/manual_clock.h"

namespace trainctl::test {

enum class StoreFault {
    None,
    Error500,        // nothing was done
    SlowDown,        // 503, nothing was done
    LostRequest,     // the connection ends, nothing was done
    DamagedRequest,  // 400 BadDigest, as if the bytes had changed on the way
    Conflict,        // 409, nothing was done
    ErrorIn200,      // nothing was done, as an answer 200 says in its body
    Late500,         // done, but 500
    LateErrorIn200,  // done, but the body of the answer 200 says it was not
    LostAnswer,      // done, and the connection ends
    CutAnswer,       // done, and the answer ends in its midst
    WrongCrc,        // done, but the checksum in the answer is of other bytes
    SlowAnswer,      // done, but the answer comes later than anybody waits
};
constexpr int fault_kinds = static_cast<int>(StoreFault::SlowAnswer) + 1;

struct StrictS3Options {
    std::size_t smallest_part = 64;
    bool says_whole_crc = true;    // HEAD tells the CRC-32C of the whole object
    bool knows_completed = false;  // a repeated completion succeeds again; else 404
    bool heeds_ranges = true;
    double slow_s = 0.0;  // of real time
};

class StrictS3 {
  public:
    StrictS3(ManualClock& clock, StrictS3Options options = {});

    // Asked before each request, one at a time, with what it is, for example "PUT bucket/key" or
    // "PART bucket/key 3", and how often it came before.
    using FaultChoice = std::function<StoreFault(const std::string& what, int before)>;
    void set_faults(FaultChoice choice);

    StubAnswer handle(const StubRequest& request);
    [[nodiscard]] std::string endpoint() const;

    // --- All of these may be called while requests come in. Paths are "bucket/key".
    void expire_token(const std::string& token);
    void set_token(const std::string& access_key, const std::string& secret, const std::string& token);
    void set_skew(double seconds);  // its clock, ahead of the client's
    void put(const std::string& path, std::string contents);
    [[nodiscard]] std::map<std::string, std::string> objects() const;
    [[nodiscard]] std::size_t open_uploads() const;
    [[nodiscard]] std::vector<std::string> seen() const;        // "PUT bucket/key", in order
    [[nodiscard]] std::vector<std::string> violations() const;  // what a correct client never does
    [[nodiscard]] std::string everything_said() const;          // all answers, headers and bodies

  private:
    struct Part {
        std::string bytes;
        std::string etag;
        std::string crc;
    };
    struct Upload {
        std::string path;
        std::map<int, Part> parts;
    };
    struct Refused {
        int status;
        std::string code;
        std::string message;
    };
    using Query = std::map<std::string, std::string>;

    [[nodiscard]] std::string name_of(const StubRequest& request, const Query& query) const;
    void check_identity(const StubRequest& request);
    StubAnswer carry_out(const StubRequest& request, const std::string& path, const Query& query);
    StubAnswer get(const StubRequest& request, const std::string& path);
    StubAnswer list(const std::string& bucket, const Query& query);
    StubAnswer put_object(const StubRequest& request, const std::string& path);
    StubAnswer put_part(const StubRequest& request, const Query& query);
    StubAnswer complete(const StubRequest& request, const std::string& path, const std::string& id);
    void require_checksum(const StubRequest& request);
    void require_absent(const StubRequest& request, const std::string& path);
    [[noreturn]] void violate(int status, const std::string& code, const std::string& message);
    StubAnswer refusal(const StubRequest& request, const Refused& refused) const;

    ManualClock& clock_;
    StrictS3Options options_;
    FaultChoice faults_;
    mutable std::mutex mutex_;
    std::map<std::string, std::pair<std::string, std::string>> keys_;  // access key -> secret, token
    std::set<std::string> expired_;
    double skew_s_ = 0.0;
    std::map<std::string, std::string> objects_;
    std::map<std::string, Upload> uploads_;
    std::map<std::string, std::string> completed_;  // upload -> path
    int next_upload_ = 1;
    std::map<std::string, int> before_;
    std::vector<std::string> seen_;
    std::vector<std::string> violations_;
    std::string said_;
    StubServer server_;  // last: its threads end before what they use
};

// The keys that a fresh store knows.
inline const std::string first_access_key = "AKIDFIRST";
inline const std::string first_secret = "first/secret+key0123456789";
inline const std::string first_token = "first-session-token";

}  // namespace trainctl::test
