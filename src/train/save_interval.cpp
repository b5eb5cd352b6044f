#include "trainctl/train/save_interval.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace trainctl {
namespace {

constexpr double day_s = 86400.0;
constexpr double usual_node_days_per_failure = 150.0;
constexpr double weight_of_newest = 0.5;  // among the costs of saves
constexpr double weight_of_step = 0.1;    // among the times of steps

// The inverse of utc_timestamp; nullopt: another text.
std::optional<double> seconds_of(const std::string& timestamp) {
    std::tm parts{};
    const char* const end = strptime(timestamp.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    if (end == nullptr || *end != '\0') return std::nullopt;
    return static_cast<double>(timegm(&parts));
}

double mixed(const std::optional<double>& before, double newest, double weight) {
    return before ? *before + weight * (newest - *before) : newest;
}

}  // namespace

double save_interval_s(double cost_s, double between_failures_s) {
    return std::clamp(std::sqrt(2.0 * cost_s * between_failures_s), shortest_auto_interval_s,
                      longest_auto_interval_s);
}

FailureHistory failures_in(const Journal& journal, int attempt) {
    std::map<int, std::pair<double, double>> spans;  // first and last line of each attempt, Unix time
    std::set<int> in_order;
    for (const JournalRecord& record : journal.records) {
        if (record.attempt >= attempt) continue;
        if (record.event == JournalEvent::Note && record.text == ended_in_order)
            in_order.insert(record.attempt);
        const auto time = seconds_of(record.time);
        if (!time) continue;
        auto& [first, last] = spans.try_emplace(record.attempt, *time, *time).first->second;
        first = std::min(first, *time);
        last = std::max(last, *time);
    }
    FailureHistory history;
    for (const auto& [number, span] : spans) {
        if (in_order.count(number) == 0) ++history.failures;
        history.attempt_s += span.second - span.first;
    }
    return history;
}

double time_between_failures_s(int nodes, const FailureHistory& history) {
    const double node_s = usual_node_days_per_failure * day_s + history.attempt_s * nodes;
    return node_s / (1.0 + history.failures) / nodes;
}

void SaveCost::step(double seconds, bool beside_save) {
    if (!beside_save) {
        usual_s_ = mixed(usual_s_, seconds, weight_of_step);
    } else if (usual_s_) {
        slower_s_ += std::max(0.0, seconds - *usual_s_);
    }
}

void SaveCost::saved(double stall_s) {
    cost_s_ = mixed(cost_s_, stall_s + slower_s_, weight_of_newest);
    slower_s_ = 0.0;
}

}  // namespace trainctl
