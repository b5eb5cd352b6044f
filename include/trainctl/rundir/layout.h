// Where everything lies in a run directory, and how names are spelled. Pure text; touches no file.
//
//   <run_dir>/run.json                 identity of the run, created once
//             attempts/a0007           O_EXCL claim of attempt 7: the one atomic step between two starts
//             LEASE                    who runs now (rank 0), renewed every 10 s
//             journal/a0007.log        what attempt 7 did to the checkpoints
//             record/a0007/            what is needed to repeat it: spec, argv, versions, hosts, data print
//             profile/a0007/           traces of some of its steps, one file per rank
//             checkpoints/s000001000-a0007-9f3c2a1b/
//             tuning/products.txt      algorithms of matrix products, by kind of device
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainctl {

class RunLayout {
  public:
    // An empty `checkpoint_directory` means <run_dir>/checkpoints.
    explicit RunLayout(std::string run_dir, std::string checkpoint_directory = "");

    [[nodiscard]] const std::string& root() const { return root_; }
    [[nodiscard]] std::string run_json() const;
    [[nodiscard]] std::string attempts() const;
    [[nodiscard]] std::string attempt_claim(int attempt) const;
    // O_EXCL mark of the rank 0 that took over an attempt claimed by its launcher.
    [[nodiscard]] std::string attempt_adoption(int attempt) const;
    [[nodiscard]] std::string lease() const;
    [[nodiscard]] std::string journal() const;
    [[nodiscard]] std::string record(int attempt) const;
    [[nodiscard]] std::string profile(int attempt) const;
    [[nodiscard]] std::string product_choices() const;
    [[nodiscard]] const std::string& checkpoints() const { return checkpoints_; }

  private:
    std::string root_;
    std::string checkpoints_;
};

// 7 -> "a0007"; grows beyond four digits.
std::string attempt_name(int attempt);
// Exactly the names attempt_name makes; nullopt for anything else.
std::optional<int> parse_attempt_name(std::string_view name);

// One directory per save: never reused, never renamed.
struct CheckpointName {
    std::int64_t step = 0;
    int attempt = 0;
    std::uint32_t nonce = 0;

    bool operator==(const CheckpointName& other) const = default;
};
// "s000001000-a0007-9f3c2a1b"
std::string checkpoint_directory_name(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_directory_name(std::string_view name);

inline constexpr std::string_view manifest_file_name = "MANIFEST";
inline constexpr std::string_view commit_file_name = "COMMIT";

}  // namespace trainctl
