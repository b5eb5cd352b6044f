// The journal: what every attempt did to the checkpoints, in order. It is the evidence that a run made
// progress even when its checkpoints are gone, and tells which ones were read back in full.
//
// One segment per attempt, one writer (rank 0, holding the lease). A line is "<crc32c> <json>\n"; a torn last
// line is what a crash leaves and is ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainctl/base/clock.h"
#include "trainctl/base/file_system.h"
#include "trainctl/rundir/layout.h"

namespace trainctl {

enum class JournalEvent {
    Begin,     // a directory is about to be written: what is found in it without COMMIT is ours to clean up
    Commit,    // complete and durable
    Failed,    // a save that was given up
    Delete,    // removed by retention
    Resume,    // training continued from it
    Verify,    // every byte was read back and was right
    Suspect,   // a reader found it damaged; never deleted automatically
    Healthy,   // training went on well after it
    Rollback,  // made the current checkpoint by a user, although newer ones were there
    Note,      // anything else worth keeping (start, stop)
};

struct JournalRecord {
    JournalEvent event = JournalEvent::Note;
    std::int64_t step = -1;  // -1: not about a checkpoint
    std::string directory;   // checkpoint directory name
    std::string text;
    int attempt = 0;
    std::int64_t sequence = 0;  // from 0 in each attempt
    std::string time;           // UTC, display only
};

// The Note of an attempt that came to its end in order; one without it failed.
inline constexpr std::string_view ended_in_order = "ended in order";

std::string_view journal_event_name(JournalEvent event);

struct Journal {
    std::vector<JournalRecord> records;  // by attempt, then sequence
    std::vector<std::string> problems;   // lines that could not be read, other than a torn last one

    // A checkpoint was once committed or resumed from (or what says so cannot be read).
    [[nodiscard]] bool shows_progress() const;
};

// A missing journal is an empty one. Damage is listed in `problems`, never thrown.
Journal read_journal(FileSystem& files, const RunLayout& layout);

// Appends the records of one segment's text. `torn` tells whether an incomplete last line was dropped.
struct JournalSegment {
    std::vector<JournalRecord> records;
    std::vector<std::string> problems;
    bool torn = false;
};
JournalSegment parse_journal_segment(std::string_view text, const std::string& where);

// Single writer, one thread at a time.
class JournalWriter {
  public:
    // Creates the segment of `attempt` durably; `files` and `clock` must outlive the writer.
    JournalWriter(FileSystem& files, Clock& clock, const RunLayout& layout, int attempt);

    // Durable on return. Fills attempt, sequence and time. After a failed write or sync all lines of this
    // attempt are written again into a new segment file, at most twice per call; then Exit::Resource. So are
    // they when the segment was removed, moved or cut meanwhile.
    void append(JournalRecord record);

  private:
    void open_segment();
    [[nodiscard]] bool segment_in_place() const;

    FileSystem& files_;
    Clock& clock_;
    std::string directory_;
    int attempt_;
    int segment_ = 0;  // a0007.log, then a0007-1.log after a failure, ...
    std::int64_t sequence_ = 0;
    std::string lines_;  // everything of this attempt: a few kilobytes
    std::string path_;   // of file_
    std::unique_ptr<File> file_;
};

}  // namespace trainctl
