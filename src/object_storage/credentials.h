// Who we are to the object store. Secrets come from the environment or from a file that its owner alone can
// read, and leave only as signatures.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainctl/object_storage/settings.h"

namespace trainctl {

struct Credentials {
    std::string access_key_id;  // no secret
    std::string secret_key;
    std::string session_token;  // empty: none
};

// What `profile` says in a file as the AWS tools write it ("[profile]", "aws_access_key_id = ...").
// Exit::Usage names file, line and what is missing, and never repeats a value.
Credentials parse_credentials(const std::string& text, const std::string& profile, const std::string& path);

// Thread-safe. Looks, in this order, at the file given, at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and
// AWS_SESSION_TOKEN), at the file that AWS_SHARED_CREDENTIALS_FILE names; AWS_PROFILE chooses the profile.
class CredentialSource {
  public:
    CredentialSource(std::string file, Environment environment);

    // Read at the first call.
    std::shared_ptr<const Credentials> current();
    // Reads them again, unless somebody else has done so since `expired` was given out.
    std::shared_ptr<const Credentials> renew(const std::shared_ptr<const Credentials>& expired);
    // The text with every secret that was ever read replaced.
    std::string redacted(std::string text);

  private:
    [[nodiscard]] Credentials read() const;
    std::shared_ptr<const Credentials> remember(Credentials credentials);

    std::string file_;
    Environment environment_;
    std::mutex mutex_;
    std::shared_ptr<const Credentials> current_;
    std::vector<std::string> secrets_;
};

}  // namespace trainctl
