// The command line: parses, runs one command, turns every failure into one message and a documented exit
// code.
#pragma once

namespace trainctl {

// Never throws. Results go to stdout, everything else to stderr.
int cli_main(int argc, char** argv);

}  // namespace trainctl
