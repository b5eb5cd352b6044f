#include "trainctl/rundir/layout.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "trainctl/base/file_system.h"

namespace trainctl {
namespace {

// All of `text` as a number, else nullopt.
template <class T>
std::optional<T> whole_number(std::string_view text, int base = 10) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

RunLayout::RunLayout(std::string run_dir, std::string checkpoint_directory)
    : root_(std::move(run_dir)),
      checkpoints_(checkpoint_directory.empty() ? join_path(root_, "checkpoints")
                                                : std::move(checkpoint_directory)) {}

std::string RunLayout::run_json() const { return join_path(root_, "run.json"); }
std::string RunLayout::attempts() const { return join_path(root_, "attempts"); }
std::string RunLayout::attempt_claim(int attempt) const {
    return join_path(attempts(), attempt_name(attempt));
}
std::string RunLayout::attempt_adoption(int attempt) const { return attempt_claim(attempt) + ".rank0"; }
std::string RunLayout::lease() const { return join_path(root_, "LEASE"); }
std::string RunLayout::journal() const { return join_path(root_, "journal"); }
std::string RunLayout::record(int attempt) const {
    return join_path(join_path(root_, "record"), attempt_name(attempt));
}
std::string RunLayout::profile(int attempt) const {
    return join_path(join_path(root_, "profile"), attempt_name(attempt));
}

std::string RunLayout::product_choices() const {
    return join_path(join_path(root_, "tuning"), "products.txt");
}

std::string attempt_name(int attempt) { return fmt::format("a{:04}", attempt); }

std::optional<int> parse_attempt_name(std::string_view name) {
    if (name.size() < 5 || name.front() != 'a') return std::nullopt;
    const auto number = whole_number<int>(name.substr(1));
    if (!number || *number < 1 || attempt_name(*number) != name) return std::nullopt;
    return number;
}

std::string checkpoint_directory_name(const CheckpointName& name) {
    return fmt::format("s{:09}-{}-{:08x}", name.step, attempt_name(name.attempt), name.nonce);
}

std::optional<CheckpointName> parse_checkpoint_directory_name(std::string_view name) {
    const std::size_t first = name.find('-');
    if (first == std::string_view::npos || name.empty() || name.front() != 's') return std::nullopt;
    const std::size_t second = name.find('-', first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    const auto step = whole_number<std::int64_t>(name.substr(1, first - 1));
    const auto attempt = parse_attempt_name(name.substr(first + 1, second - first - 1));
    const auto nonce = whole_number<std::uint32_t>(name.substr(second + 1), 16);
    if (!step || *step < 0 || !attempt || !nonce) return std::nullopt;
    const CheckpointName found{*step, *attempt, *nonce};
    if (checkpoint_directory_name(found) != name) return std::nullopt;
    return found;
}

}  // namespace trainctl
