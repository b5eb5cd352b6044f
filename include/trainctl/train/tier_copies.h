// Copies of checkpoints to further places, made behind the training: a thread for each place, with a channel
// of its own. Rank 0 decides what is copied next; the others' threads wait for its word.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/checkpoint/tier_copy.h"
#include "trainctl/comm/world.h"
#include "trainctl/observe/step_record.h"

namespace trainctl {

struct CopyTarget {
    enum class Kind { Place, NextNode };
    Kind kind = Kind::Place;
    Place place;  // of Kind::NextNode only the name
};

// Thread rule: the rank's compute thread. Construction and destruction are collective; references must
// outlive it.
class TierCopies {
  public:
    TierCopies(FileSystem& files, Clock& clock, World& world, const CopySettings& settings,
               const std::vector<CopyTarget>& targets);
    // What is being copied is given up, but a call of a file system under way is waited for: give_up() first
    // where that may hang.
    ~TierCopies();
    TierCopies(const TierCopies&) = delete;
    TierCopies& operator=(const TierCopies&) = delete;

    // Rank 0: this checkpoint was committed and is the newest. A place that is still busy with an older one
    // takes the newest next; those between are left out. Elsewhere nothing. Only what these very ranks saved
    // goes to the next node.
    enum class Origin { ThisAttempt, AnEarlierOne };
    void offer(const std::string& directory, std::int64_t step, Origin origin = Origin::ThisAttempt);
    // Rank 0: what came to its end since the last call. Elsewhere nothing.
    std::vector<CopyRecord> take();
    // Collective, at the end of a training: waits until the newest that was offered is everywhere, or could
    // not be copied, and ends the threads. take() has the rest then.
    void finish();
    // For a rank that is about to leave by an error: ends the messages. False: a thread still waits for its
    // storage after `patience`.
    bool give_up(std::chrono::duration<double> patience);

  private:
    struct Worker;
    static void work(Worker& worker);

    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace trainctl
