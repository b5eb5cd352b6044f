// checkpoint.interval = "auto": how often to save, by what a save costs and how often nodes fail. Pure.
//
// The best interval is sqrt(2 x cost of a save x mean time between failures), where lost work and the cost of
// saving balance (J. W. Young 1974; J. T. Daly, Future Generation Computer Systems 22, 2006, first order).
#pragma once

#include <optional>

#include "trainctl/rundir/journal.h"

namespace trainctl {

inline constexpr double shortest_auto_interval_s = 60.0;
inline constexpr double longest_auto_interval_s = 30.0 * 60.0;  // "lose at most 30 minutes"

// Within these bounds.
double save_interval_s(double cost_s, double between_failures_s);

// What attempts of a run met.
struct FailureHistory {
    int failures = 0;        // attempts that ended without having been stopped or finished
    double attempt_s = 0.0;  // time that attempts took, as far as the journal shows it
};
// Of the attempts before `attempt`; times are those of the journal's lines.
FailureHistory failures_in(const Journal& journal, int attempt);

// Mean time between failures of `nodes` nodes: what is known of large clusters, one failure in about 150 days
// of a node, counted as one failure seen, and what this run met itself.
double time_between_failures_s(int nodes, const FailureHistory& history);

// What rank 0's steps tell of the cost of a save: how long training stood still for it, and how much slower
// the steps beside it were.
class SaveCost {
  public:
    void step(double seconds, bool beside_save);
    void saved(double stall_s);
    // Of a save, newer ones weighing more; nullopt: none was measured yet.
    [[nodiscard]] std::optional<double> seconds() const { return cost_s_; }

  private:
    std::optional<double> usual_s_;  // of a step without a save beside it
    double slower_s_ = 0.0;          // by the present save, together
    std::optional<double> cost_s_;
};

}  // namespace trainctl
