#include "checkpoint/copy_messages.h"

#include <charconv>
#include <sstream>

namespace trainctl {

std::string seen_text(const std::vector<bool>& seen) {
    std::string text;
    for (const bool each : seen) text += each ? '1' : '0';
    return text;
}

std::vector<bool> parse_seen(const std::string& text) {
    std::vector<bool> seen;
    for (const char each : text) seen.push_back(each == '1');
    return seen;
}

std::string dealt_text(const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += std::to_string(rank) + ' ';
    return text;
}

std::vector<int> parse_dealt(const std::string& text) {
    std::vector<int> ranks;
    std::istringstream words(text);
    for (int rank = 0; words >> rank;) ranks.push_back(rank);
    return ranks;
}

int writer_of(const std::string& file_name) {
    int rank = -1;
    const char* const end = file_name.data() + file_name.size();
    if (file_name.empty() || file_name.front() != 'r') return -1;
    const auto [rest, error] = std::from_chars(file_name.data() + 1, end, rank);
    return error == std::errc{} && rest != end && (*rest == '.' || *rest == '-') ? rank : -1;
}

}  // namespace trainctl
